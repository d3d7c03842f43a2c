"""On what terms a client takes part: its weights, the scale of its step size, and from which round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from swiftfl.engines.saved import Saved
from swiftfl.vector import Weights


@dataclass(frozen=True, slots=True)
class Terms:
    """Weights and the scale of the step size, which hold from a round on."""

    w: Weights
    scale: float = 1.0
    from_round: int = 0


ALONE = Terms(Weights(1.0, {}))
"""The terms of a client without neighbours, such as one that has just joined."""


def pack_terms(terms: Terms) -> list[Any]:
    """As plain JSON values, for messages and checkpoints."""
    return [terms.scale, terms.w.own, [[k, value] for k, value in terms.w.of.items()], terms.from_round]


def unpack_terms(packed: Sequence[Any]) -> Terms:
    scale, own, of, from_round = packed
    return Terms(Weights(own, {int(k): float(value) for k, value in of}), scale, from_round)


def read_terms(saved: Saved, n: int) -> Terms:
    """The same from a checkpoint, with checks."""
    scale, own, of, from_round = saved.items(4)
    weights = {k: value.number() for k, value in of.pairs(n)}
    return Terms(Weights(own.number(), weights), scale.number(0.0), from_round.integer())
