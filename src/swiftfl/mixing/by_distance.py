"""Clipped and trimmed averages: a neighbour counts less the farther its model is from one's own.

Both look at one number per neighbour, d_j = |x_j - x|, and at b, the neighbour weight that is tolerated: how
much weight the broken or malicious ones among a client's neighbours may have together.

*Clipped.* tau is the smallest d with sum_{d_j > d} w_j <= 2b, and

    x <- x + sum_j w_j min(1, tau / d_j) (x_j - x)

Neighbours of weight 2b are drawn nearer: b for those who may be bad, and b because the honest ones among the
rest must not be outweighed by bad ones that are near. It is the clipping of He, Karimireddy and Jaggi
("Byzantine-robust decentralized learning via ClippedGossip", 2022), with the threshold by weights of Gaucher,
Dieuleveut and Hendrikx ("Unified breakdown analysis for Byzantine robust gossip", 2025).

*Trimmed.* The farthest models are left out, as many as have weight b; of the one at the limit a part. The
choice is by neighbours, as in nearest-neighbour averaging (Farhadkhani and others, "Robust collaborative
learning with linear gradient overhead", 2023), and not by coordinates (Yin and others, 2018), because what
an attacker can do by coordinates grows with the number of parameters, and because it costs one norm per
neighbour in place of a sort per parameter.

Either way each neighbour keeps a share of its weight, the rest goes to the client itself, and `vector.mix`
does the averaging. So the average stays convex, and with nothing to clip it is the plain one, bit for bit.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Lt

from swiftfl.errors import UserError
from swiftfl.mixing.base import mixing_rule
from swiftfl.vector import Vector, Weights, mix

Tolerated = Annotated[float, Ge(0), Lt(0.5)]
"""A neighbour weight, from 0 to below one half."""

_ROUNDING = 1e-12  # of sums of weights
_CHUNK = 8192  # numbers: dot products of so many are taken by one thread, and so have one result


@dataclass(frozen=True)
class ByDistance(ABC):
    """Neighbours keep a share of their weights that depends on their distances.

    Without `tolerate`, each client tolerates its heaviest neighbour, whichever of them is bad.
    """

    name: ClassVar[str]

    tolerate: float | None = None

    @abstractmethod
    def shares(self, weights: Mapping[int, float], distances: Mapping[int, float], b: float) -> list[float]:
        """The share of its weight that each neighbour keeps, in the order of `distances`."""

    def tolerated(self, w: Weights) -> float:
        """The b of a client with these weights."""
        return max(w.of.values(), default=0.0) if self.tolerate is None else self.tolerate

    def mix(self, w: Weights, x: Vector, models: Mapping[int, Vector]) -> Vector:
        distances = {k: distance(model, x) for k, model in models.items()}
        shares = self.shares(w.of, distances, self.tolerated(w))
        kept = {k: w.of[k] * share for k, share in zip(distances, shares, strict=True)}
        lost = sum(w.of[k] - weight for k, weight in kept.items())
        kept = {k: weight for k, weight in kept.items() if weight > 0.0}
        missing = sum(weight for k, weight in w.of.items() if k not in models)
        return mix(Weights(w.own + missing + lost, kept), x, models)

    def check(self, client: int, w: Weights) -> None:
        """That something is left to average with, even if every neighbour is as far as can be."""
        total, b = sum(w.of.values()), self.tolerated(w)
        if w.of and 2 * b + _ROUNDING >= total:
            raise UserError(
                f"mixing {self.name} cannot tolerate a neighbour weight of {b:.3g} at client {client}, whose "
                f"neighbours weigh {total:.3g} together: that must be more than twice as much. Tolerate "
                "less, or choose a topology with more neighbours (on a ring nobody can be tolerated)"
            )


@dataclass(frozen=True)
class ClippedMixing(ByDistance):
    """Models that are farther than tau come as near as tau; neighbours of weight up to 2b are clipped."""

    name: ClassVar[str] = "clipped"

    def shares(self, weights: Mapping[int, float], distances: Mapping[int, float], b: float) -> list[float]:
        tau = threshold(weights, distances, b)
        return [1.0 if d <= tau else tau / d for d in distances.values()]


@dataclass(frozen=True)
class TrimmedMixing(ByDistance):
    """The farthest models are left out, up to a weight of b; of the last one a part."""

    name: ClassVar[str] = "trimmed"

    def shares(self, weights: Mapping[int, float], distances: Mapping[int, float], b: float) -> list[float]:
        left, shares = b, dict.fromkeys(distances, 1.0)
        for k in sorted(distances, key=lambda k: distances[k], reverse=True):
            taken = min(weights[k], left)
            if taken > 0.0:
                shares[k] = 0.0 if taken == weights[k] else 1.0 - taken / weights[k]
            left -= taken
        return list(shares.values())


def threshold(weights: Mapping[int, float], distances: Mapping[int, float], b: float) -> float:
    """tau: the smallest d for which neighbours farther than d weigh 2b at most; 0 if all of them do not."""
    beyond, tau = 0.0, 0.0
    for k in sorted(distances, key=lambda k: distances[k], reverse=True):
        tau = distances[k]
        beyond += weights[k]
        if beyond > 2 * b + _ROUNDING:
            return tau
    return 0.0


def distance(y: Vector, x: Vector) -> float:
    """|y - x|, the same number wherever it is computed, whatever the threads; infinite if it overflows."""
    total = 0.0
    with np.errstate(all="ignore"):
        for start in range(0, x.size, _CHUNK):
            gap = y[start : start + _CHUNK] - x[start : start + _CHUNK]
            square = float(gap.dot(gap))
            if not math.isfinite(square):
                gap = gap.astype(np.float64)
                square = float(gap.dot(gap))
            total += square
    return math.sqrt(total) if math.isfinite(total) else math.inf


@mixing_rule("clipped")
def clipped(*, tolerate: Tolerated | None = None) -> ClippedMixing | None:
    """Models of neighbours that are far from one's own are drawn nearer, those of weight 2 tolerate."""
    return None if tolerate == 0.0 else ClippedMixing(tolerate)


@mixing_rule("trimmed")
def trimmed(*, tolerate: Tolerated | None = None) -> TrimmedMixing | None:
    """The farthest models of neighbours are left out, those of weight tolerate."""
    return None if tolerate == 0.0 else TrimmedMixing(tolerate)
