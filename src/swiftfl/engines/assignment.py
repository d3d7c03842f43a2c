"""What a client is told so that it can run CCS with its neighbours: nothing that concerns anybody else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from swiftfl.graph.influence import is_uniform
from swiftfl.graph.messages import Selection

if TYPE_CHECKING:
    from swiftfl.engines.setup import Setup


@dataclass(frozen=True, slots=True)
class Assignment:
    """A client's part in one run of CCS, the *epoch*: messages of other epochs are ignored.

    `n` clients take part, all those who can reach each other; `p` is this client's influence among them,
    and `uniform` says whether all have the same. With the weights goes the scale of the step size.
    """

    epoch: int
    n: int
    uniform: bool
    p: float
    neighbours: tuple[int, ...]
    scale: float = 1.0

    def selection(self, i: int) -> Selection:
        """Client i's run, to be started."""
        return Selection(self.epoch, self.n, self.uniform, i, self.p, self.neighbours)

    def pack(self) -> list[Any]:
        """As plain JSON values."""
        return list(astuple(self))

    @classmethod
    def unpack(cls, packed: Sequence[Any]) -> Assignment:
        epoch, n, uniform, p, neighbours, scale = packed
        return cls(epoch, n, uniform, p, tuple(neighbours), scale)


def first_assignments(setup: Setup) -> list[Assignment]:
    """Epoch 0: what every client is told before its first step."""
    uniform = is_uniform(np.asarray(setup.influence))
    return [
        Assignment(0, setup.n, uniform, p, tuple(w.of))
        for w, p in zip(setup.weights, setup.influence, strict=True)
    ]
