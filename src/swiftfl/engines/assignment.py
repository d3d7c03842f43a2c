"""What a client is told so that it can run CCS with its neighbours: nothing that concerns anybody else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np

from swiftfl.errors import UserError
from swiftfl.graph.influence import is_uniform
from swiftfl.graph.messages import Selection
from swiftfl.vector import Weights


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


def first_assignments(weights: Sequence[Weights], influence: Sequence[float]) -> list[Assignment]:
    """Epoch 0: what every client is told before its first step."""
    uniform = is_uniform(np.asarray(influence))
    return [
        Assignment(0, len(weights), uniform, p, tuple(w.of)) for w, p in zip(weights, influence, strict=True)
    ]


def check_conditions(
    told: Mapping[int, Assignment], weights: Mapping[int, Weights], tolerance: float = 1e-9
) -> None:
    """Conditions (a)-(d) of the weights that all clients of an epoch have selected."""
    for i, w in weights.items():
        part = told[i]
        if abs(w.own + sum(w.of.values()) - 1.0) > tolerance:
            raise UserError(f"(a) fails: the weights of client {i} do not sum to 1")
        if w.own * part.n < 1.0 - tolerance:
            raise UserError(f"(b) fails: client {i} keeps {w.own:.9g}, less than 1/n = {1.0 / part.n:.9g}")
        for k, value in w.of.items():
            if not value > 0:
                raise UserError(f"(c) fails: edge {(i, k)} has weight {value:.3g}")
            if abs(part.p * value - told[k].p * weights[k].of[i]) > tolerance * part.p * value:
                raise UserError(f"(d) fails: edge {(i, k)} is not symmetric")
