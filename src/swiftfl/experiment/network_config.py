"""The section `engine.network`: how a network changes (docs/network.md)."""

from __future__ import annotations

from typing import Literal

from swiftfl.engines.membership import Change, Dynamics, Rates
from swiftfl.experiment.section import Seconds, Section
from swiftfl.settings import Count


class ChangeConfig(Section):
    """One change of the network, at a time or after so many client steps in all (`iteration`).

    `edge` for edges, `seconds` for a sleep.
    """

    time: Seconds | None = None
    iteration: Count | None = None
    event: Literal["crash", "return", "leave", "join", "sleep", "edge_down", "edge_up"]
    client: int = -1
    edge: tuple[int, int] | None = None
    seconds: Seconds = 0.0

    @property
    def change(self) -> Change:
        return Change(self.time, self.event, self.client, self.edge, self.seconds, iteration=self.iteration)


class NetworkConfig(Section):
    """How the network changes; rates are per second and client (or edge). See `engines.membership`."""

    changes: list[ChangeConfig] = []
    crash_rate: Seconds = Rates.crash
    return_rate: Seconds = Rates.come_back
    sleep_rate: Seconds = Rates.sleep
    sleep_seconds: Seconds = Rates.sleep_seconds
    edge_down_rate: Seconds = Rates.edge_down
    edge_up_rate: Seconds = Rates.edge_up
    notice: Seconds = Dynamics.notice
    renewal: Seconds = Dynamics.renewal
    measure_every: Count = Dynamics.measure_every

    @property
    def rates(self) -> Rates:
        return Rates(
            self.crash_rate,
            self.return_rate,
            self.sleep_rate,
            self.sleep_seconds,
            self.edge_down_rate,
            self.edge_up_rate,
        )

    def check_engine(self, name: str) -> None:
        """Refuse what this engine cannot do."""
        if name not in ("virtual", "sampled") and self != NetworkConfig(measure_every=self.measure_every):
            raise ValueError("planned changes of the network need a simulated engine")
