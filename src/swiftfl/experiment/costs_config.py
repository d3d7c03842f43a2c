"""The section `engine.costs`: what things cost in virtual time (docs/runs.md)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from swiftfl.costs import Costs
from swiftfl.experiment.section import Seconds, Section
from swiftfl.settings import Count, SettingError


class SlowdownConfig(Section):
    """A client computes `factor` times as slowly between two times (always, if none are given)."""

    client: Annotated[int, Field(ge=0)]
    """The client's number, from 0."""
    factor: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    """How many times as slowly it computes."""
    start: Seconds = 0.0
    """From which second on."""
    end: Annotated[float, Field(gt=0)] | None = None
    """Until which second; always, if none is given."""


class LinkConfig(Section):
    """An edge with its own latency and bandwidth."""

    edge: tuple[int, int]
    """The two clients."""
    latency: Seconds
    """Seconds until the first byte arrives."""
    bandwidth: Annotated[float, Field(gt=0)]
    """Bytes per second."""


class CostsConfig(Section):
    """Seconds and bytes per second of virtual time; see `swiftfl.costs.Costs`."""

    compute: Seconds = Costs.compute
    """Seconds of one gradient."""
    send: Seconds = Costs.send
    """Seconds of publishing to one neighbour, for the sender."""
    mix: Seconds = Costs.mix
    """Seconds of averaging in one model."""
    latency: Seconds = Costs.latency
    """Seconds that a message is on its way, besides its bytes."""
    bandwidth: Annotated[float, Field(gt=0)] = Costs.bandwidth
    """Bytes per second of a link."""
    slowdowns: list[SlowdownConfig] = []
    """Clients that compute more slowly."""
    spread: Seconds = Costs.spread
    """Standard deviation of the logarithm of compute times."""
    trace: dict[int, list[float]] = {}
    """Per client, factors of its compute times, gone through again and again."""
    links: list[LinkConfig] = []
    """Edges with a latency and bandwidth of their own."""
    jitter: Seconds = Costs.jitter
    """Mean seconds of a random delay of each message."""
    loss: Annotated[float, Field(ge=0, lt=1)] = Costs.loss
    """Share of published models that never arrive."""
    message_bytes: Count | None = Costs.message_bytes
    """Bytes of a message, if not those of the model."""
    shared_bandwidth: Annotated[float, Field(gt=0)] | None = Costs.shared_bandwidth
    """Bytes per second of an exchange of everybody on one host."""
    devices: str | None = None
    """A file of device traces, from which compute, trace, bandwidth and links are taken."""

    @model_validator(mode="after")
    def _says_it_once(self) -> CostsConfig:
        taken, plain = ("compute", "trace", "bandwidth", "links"), type(self).model_fields
        changed = [name for name in taken if getattr(self, name) != plain[name].default]
        if self.devices is not None and changed:
            raise SettingError(f"engine.costs.{changed[0]}", "has no effect with devices: the trace gives it")
        return self
