"""What reaches a client from outside, looked at before it is averaged.

`Fetch` and `Exchange` reply with an inbox that has read nothing yet: `Mix` takes the neighbours' models
one at a time, in place, so that averaging costs one extra model of memory whatever the degree. An inbox
remembers what was really used, which is what a replay needs to know.

A model that does not fit (not finite, of the wrong length, older than one seen before) is refused: it
is counted, and its weight stays with the client itself, as that of a neighbour who is gone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

import numpy as np

from swiftfl.errors import UserError
from swiftfl.transports.base import Finished, Lost, Transport
from swiftfl.vector import Vector, Weights, finite

Reason = Literal["not_finite", "wrong_length", "older_than_seen"]
REASONS: tuple[Reason, ...] = ("not_finite", "wrong_length", "older_than_seen")


class Gate:
    """Admits or refuses the models of neighbours, and counts what it refused."""

    def __init__(self, like: Vector) -> None:
        self.size, self.dtype = like.size, like.dtype
        self.newest: dict[int, int] = {}
        self.refused: dict[Reason, int] = dict.fromkeys(REASONS, 0)
        self.any_refused = False
        self.spare = np.empty_like(like)  # for the product of a model and its coefficient

    def admits(self, neighbour: int, model: Vector, version: int, look: bool) -> bool:
        """Whether this model may be averaged; `look` at its numbers too."""
        if model.shape != (self.size,) or model.dtype != self.dtype:
            return self._refuse("wrong_length")
        if version < self.newest.get(neighbour, 0):
            return self._refuse("older_than_seen")
        if look and not finite(model):
            return self._refuse("not_finite")
        self.newest[neighbour] = version
        return True

    def _refuse(self, reason: Reason) -> bool:
        self.refused[reason] += 1
        self.any_refused = True
        return False


class LazyInbox(Mapping[int, Vector]):
    """A lazy inbox. `used` tells, per neighbour, which version was averaged."""

    def __init__(self, neighbours: Sequence[int]) -> None:
        self.neighbours = neighbours
        self.used: dict[int, int] = {}

    def take(self, k: int, use: Callable[[Vector], object], look: bool) -> bool:
        """Use the model of k in place; False if there is none that may be used, whatever `use` has seen."""
        raise NotImplementedError

    def mix(self, w: Weights, x: Vector, spare: Vector) -> Vector:
        """`vector.mix`, in place; the weight of whoever is missing goes to x."""
        return blend(w, x, self, spare, look=True)

    def __getitem__(self, k: int) -> Vector:
        """A copy, for algorithms that do more with their inbox than mixing it."""
        kept: list[Vector] = []
        if k not in self.neighbours or not self.take(k, lambda model: kept.append(model.copy()), look=True):
            raise KeyError(k)
        return kept[-1]

    def __iter__(self) -> Iterator[int]:
        return iter(self.neighbours)

    def __len__(self) -> int:
        return len(self.neighbours)


def blend(w: Weights, x: Vector, inbox: LazyInbox, spare: Vector, look: bool) -> Vector:
    """sum_k w[k] x_k + w.own x in the order of `vector.mix`, each x_k taken in place.

    Only the product is made in place: the sum goes on when the transport has said that all was well.
    """
    out = x * w.own
    for k, coefficient in w.of.items():
        scale = _scaled(coefficient, spare)
        if k not in inbox.neighbours or not inbox.take(k, scale, look):
            scale(x)
        out += spare
    return out


def _scaled(coefficient: float, spare: Vector) -> Callable[[Vector], object]:
    return lambda model: np.multiply(model, coefficient, out=spare)


class NewestInbox(LazyInbox):
    """The newest models of some neighbours, as they are when they are taken: never waits."""

    def __init__(self, transport: Transport, neighbours: Sequence[int], gate: Gate) -> None:
        super().__init__(neighbours)
        self._transport, self._gate = transport, gate

    def take(self, k: int, use: Callable[[Vector], object], look: bool) -> bool:
        def admit(model: Vector, version: int) -> bool:
            if not self._gate.admits(k, model, version, look):
                return False
            use(model)
            self.used[k] = version
            return True

        return bool(self._transport.read(k, admit))

    def mix(self, w: Weights, x: Vector, spare: Vector) -> Vector:
        """Mix without looking at each model's numbers; if the result is not finite, again, looking."""
        out = blend(w, x, self, spare, look=False)
        if math.isfinite(out.dot(out)):
            return out
        self.used.clear()
        return blend(w, x, self, spare, look=True)


class RoundInbox(LazyInbox):
    """The neighbours' models of one round: taking one waits for it, unless its client is gone.

    A neighbour that has finished takes part with the last model that it published. `used` holds the round.
    """

    def __init__(self, transport: Transport, neighbours: Sequence[int], round: int, gate: Gate) -> None:
        super().__init__(neighbours)
        self._transport, self._gate, self._round = transport, gate, round

    def take(self, k: int, use: Callable[[Vector], object], look: bool) -> bool:
        if k in self.used:
            raise UserError(f"the model of client {k} in round {self._round} was taken already")

        def admit(model: Vector) -> bool:
            if not self._gate.admits(k, model, self._gate.newest.get(k, 0), look):
                return False
            use(model)
            return True

        try:
            taken = self._transport.collect(k, self._round, admit)
        except Finished:
            taken = bool(self._transport.read(k, lambda model, version: admit(model)))
        except Lost:
            return False
        if taken:
            self.used[k] = self._round
        return taken
