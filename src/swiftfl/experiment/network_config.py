"""The section `engine.network`: how a network changes (docs/network.md)."""

from __future__ import annotations

from typing import Literal

from swiftfl.engines.dynamics import Change, Dynamics, Rates, in_order
from swiftfl.engines.live.changes import LIVE_CHANGES
from swiftfl.experiment.section import Seconds, Section
from swiftfl.settings import Count


class ChangeConfig(Section):
    """One change of the network, at a time or after so many client steps in all (`iteration`).

    `edge` for edges, `seconds` for a sleep.
    """

    time: Seconds | None = None
    """At this second."""
    iteration: Count | None = None
    """After so many client steps in all."""
    event: Literal["crash", "return", "leave", "join", "sleep", "edge_down", "edge_up"]
    """What happens."""
    client: int = -1
    """To which client."""
    edge: tuple[int, int] | None = None
    """To which edge."""
    seconds: Seconds = 0.0
    """How long a sleep is."""

    @property
    def change(self) -> Change:
        return Change(self.time, self.event, self.client, self.edge, self.seconds, iteration=self.iteration)


class NetworkConfig(Section):
    """How the network changes; rates are per second and client (or edge). See `engines.dynamics`."""

    changes: list[ChangeConfig] = []
    """Planned changes, each at a time or after so many steps."""
    crash_rate: Seconds = Rates.crash
    """Crashes per second and client."""
    return_rate: Seconds = Rates.come_back
    """Returns per second and crashed client."""
    sleep_rate: Seconds = Rates.sleep
    """Sleeps per second and client."""
    sleep_seconds: Seconds = Rates.sleep_seconds
    """Mean length of a sleep."""
    edge_down_rate: Seconds = Rates.edge_down
    """Losses per second and edge."""
    edge_up_rate: Seconds = Rates.edge_up
    """Returns per second and lost edge."""
    notice: Seconds = Dynamics.notice
    """Seconds until neighbours notice a loss."""
    renewal: Seconds = Dynamics.renewal
    """Seconds from notice until new weights are there."""
    measure_every: Count = Dynamics.measure_every
    """Client steps between two measurements of influence."""

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
