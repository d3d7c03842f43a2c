"""What one node needs to know to take part: itself, its neighbours, and nothing of anybody else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from swiftfl.transports.zenoh.settings import Credentials, LinkSettings
from swiftfl.transports.zenoh.wire import WireNeighbour


@dataclass(frozen=True)
class PlannedNeighbour:
    """Its number in the federation, and what its certificate calls it."""

    index: int
    common_name: str


@dataclass(frozen=True)
class NodePlan:
    """`federation` is its id, of 32 hexadecimal digits; `index` the node's number in it, which no other has.
    `dial` has the addresses of the neighbours that it dials."""

    federation: str
    name: str
    index: int
    folder: Path
    neighbours: Mapping[str, PlannedNeighbour] = field(default_factory=dict)
    dial: Mapping[str, str] = field(default_factory=dict)
    listen: tuple[str, ...] = ()
    influence: float = 1.0
    layout: str = "0" * 64
    """The hash of the model's layout."""
    codec: str = "identity"
    """As the federation's manifest writes it."""
    credentials: Credentials | None = None
    checkpoints: Path | None = None

    def link(self) -> LinkSettings:
        return LinkSettings(
            self.federation,
            self.name,
            {name: each.common_name for name, each in self.neighbours.items()},
            self.listen,
            tuple(self.dial.values()),
            self.credentials,
        )

    @property
    def saves(self) -> Path:
        return self.folder / "checkpoints" if self.checkpoints is None else self.checkpoints

    def names(self) -> dict[int, str]:
        """Neighbours as this node numbers them, from 1 on; 0 is the node itself."""
        return dict(enumerate(sorted(self.neighbours), start=1))

    def on_the_wire(self) -> dict[int, WireNeighbour]:
        """The same, with the numbers by which messages name their senders."""
        return {k: WireNeighbour(name, self.neighbours[name].index) for k, name in self.names().items()}
