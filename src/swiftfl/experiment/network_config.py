"""The section `engine.network`: how a network changes (docs/network.md)."""

from __future__ import annotations

from typing import Literal

from swiftfl.engines.live.changes import LIVE_CHANGES
from swiftfl.engines.membership import Change, Dynamics, Rates, in_order
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
        if name in ("local", "mpi"):
            self._check_live(name)

    def _check_live(self, name: str) -> None:
        """Real clients join and leave, and edges come and go, as planned; the rest is for virtual time."""
        plain = NetworkConfig(changes=self.changes, measure_every=self.measure_every)
        for key, value in self:
            if value != getattr(plain, key):
                raise ValueError(
                    f"engine.network.{key} needs the virtual engine: in engine {name} clients crash when "
                    "somebody kills them, and that is noticed at once"
                )
        left: set[int] = set()
        for change in in_order(each.change for each in self.changes):
            if change.kind not in LIVE_CHANGES:
                raise ValueError(
                    f"{change.kind} of client {change.client} needs the virtual engine: engine {name} can do "
                    f"{', '.join(LIVE_CHANGES)}; for a crash, kill the process of a client"
                )
            if name == "mpi" and change.kind == "join" and change.client in left:
                raise ValueError(
                    f"client {change.client} joins again after it has left: that needs another engine"
                )
            if change.kind == "leave":
                left.add(change.client)
