"""The section `privacy`: what of a client's samples may be known from what it sends (docs/privacy.md)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from swiftfl.experiment.network_config import NetworkConfig
from swiftfl.experiment.section import Section
from swiftfl.settings import NotBelowZero, Positive, SettingError


class PrivacyConfig(Section):
    """Gradients are clipped sample by sample, and noisy; `noise` 0 is none of it."""

    noise: NotBelowZero = 0.0
    """The noise on a sum of gradients, in units of `clip`; 0: no privacy."""
    clip: Positive = 1.0
    """The largest norm of the gradient of one sample."""
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    """The probability with which epsilon may not hold."""
    secret: bool = False
    """Noise from a secret of this process, instead of the seed; such a run cannot be repeated."""

    def check_network(self, network: NetworkConfig) -> None:
        """Refuse what could not be accounted for."""
        if self.noise and network != NetworkConfig():
            raise SettingError(
                "privacy.noise",
                "needs a network that does not change: steps that are repeated are not counted",
            )
