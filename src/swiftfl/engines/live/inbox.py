"""What reaches a client from outside, looked at before it is averaged.

`Fetch` and `Exchange` reply with an inbox that has read nothing yet. A model that the algorithm looks at
(`inbox[k]`, iteration) is copied at the first look, and stays as it was. One that is only mixed is read in
place, so that averaging costs one extra model of memory whatever the degree. Either way an inbox is a
snapshot: each neighbour has one model and one version in it. It remembers which were really used, because
that is what a replay needs to know.

A model that does not fit (not finite, of the wrong length, older than one seen before) is refused: it
is counted, and its weight stays with the client itself, as that of a neighbour who is gone.
"""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np

from swiftfl.engines.ages import Pace
from swiftfl.engines.live.journal import split
from swiftfl.errors import UserError
from swiftfl.recycled import is_large
from swiftfl.transports.base import Finished, Lost, Transport
from swiftfl.vector import Vector, Weights, combined, finite
from swiftfl.verbs import Fetched

Reason = Literal["not_finite", "wrong_length", "older_than_seen"]
REASONS: tuple[Reason, ...] = ("not_finite", "wrong_length", "older_than_seen")


class Gate:
    """Admits or refuses the models of neighbours, and counts what it refused."""

    def __init__(self, like: Vector, refused: dict[Reason, int] | None = None) -> None:
        self.size, self.dtype = like.size, like.dtype
        self.newest: dict[int, int] = {}
        self.refused = dict.fromkeys(REASONS, 0) if refused is None else refused
        self.spare = np.empty_like(like)  # for the product of a model and its coefficient
        self.told: Callable[[int, int, Reason], None] = _nobody
        """Who is told of each look at a model that was refused: whose it is, its version, and why."""

    def admits(self, neighbour: int, model: Vector, version: int, look: bool) -> bool:
        """Whether this model may be averaged; `look` at its numbers too."""
        if model.shape != (self.size,) or model.dtype != self.dtype:
            return self._refuse(neighbour, version, "wrong_length")
        if version < self.newest.get(neighbour, 0):
            return self._refuse(neighbour, version, "older_than_seen")
        if look and not finite(model):
            return self._refuse(neighbour, version, "not_finite")
        self.newest[neighbour] = version
        return True

    def _refuse(self, neighbour: int, version: int, reason: Reason) -> bool:
        self.refused[reason] += 1
        self.told(neighbour, version, reason)
        return False


def _nobody(neighbour: int, version: int, reason: Reason) -> None:
    """Counting is enough."""


class LazyInbox(Mapping[int, Vector]):
    """An inbox that reads when it is used; it remembers, per neighbour, what was.

    `fetched` holds the versions of published models, `exchanged` the rounds of models that were exchanged.
    Iterating gives the neighbours whose models may be used, and so looks at all of them.
    """

    at_once: ClassVar[int] = 16
    """How many models may be held at once, to be averaged in one pass."""

    def __init__(self, neighbours: Sequence[int]) -> None:
        self.neighbours = neighbours
        self.fetched: dict[int, int] = {}
        self.exchanged: dict[int, int] = {}
        self._pinned: dict[int, Vector | None] = {}
        self._mixed = False

    @abstractmethod
    def take(self, k: int, use: Callable[[Vector], object], look: bool) -> bool:
        """Use the model of k in place; False if there is none that may be used, whatever `use` has seen."""

    # --- looking -----------------------------------------------------------------------------------

    def __getitem__(self, k: int) -> Vector:
        model = self._pin(k) if k in self.neighbours else None
        if model is None:
            raise KeyError(k)
        return model

    def __contains__(self, k: object) -> bool:
        return isinstance(k, int) and k in self.neighbours and self._pin(k) is not None

    def __iter__(self) -> Iterator[int]:
        return iter([k for k in self.neighbours if self._pin(k) is not None])

    def __len__(self) -> int:
        return sum(self._pin(k) is not None for k in self.neighbours)

    def _pin(self, k: int) -> Vector | None:
        """The model of k as it was at the first look; None if it may not be used."""
        self._refuse_if_mixed("look at")
        if k not in self._pinned:
            kept: list[Vector] = []
            taken = self.take(k, lambda model: kept.append(model.copy()), look=True)
            self._pinned[k] = kept[-1] if taken else None
        return self._pinned[k]

    def _refuse_if_mixed(self, what: str) -> None:
        if self._mixed:
            raise UserError(
                f"an inbox was mixed already, and its models are not kept: {what} it before the Mix"
            )

    # --- mixing ------------------------------------------------------------------------------------

    def mix(self, w: Weights, x: Vector, spare: Vector) -> Vector:
        """`vector.mix`, in place; the weight of whoever is missing goes to x."""
        self._refuse_if_mixed("mix")
        out = self._mix(w, x, spare)
        self._mixed = True
        return out

    def pinned(self, those: Iterable[int]) -> dict[int, Vector]:
        """The models of those who have one, for a rule that looks before it mixes; nothing is taken later."""
        self._refuse_if_mixed("mix")
        models = {k: self[k] for k in those if k in self}
        self._mixed = True
        return models

    def _mix(self, w: Weights, x: Vector, spare: Vector) -> Vector:
        return self._blend(w, x, spare, look=True)[0]

    def _blend(self, w: Weights, x: Vector, spare: Vector, look: bool) -> tuple[Vector, bool]:
        """sum_k w[k] x_k + w.own x in the order of `vector.mix`, each x_k taken in place; if it is finite.

        Of small models only the product is made in place: the sum goes on when the transport has said that
        all was well.
        """
        if is_large(x):
            return self._blend_at_once(w, x, look)
        out = x * w.own
        for k, coefficient in w.of.items():
            scale = _scaled(coefficient, spare)
            if not self._use(k, scale, look):
                scale(x)
            out += spare
        return out, math.isfinite(out.dot(out))

    def _blend_at_once(self, w: Weights, x: Vector, look: bool) -> tuple[Vector, bool]:
        """The same in one pass over large models, or in one for each group that may be held at once."""
        of, out, fine, factor = list(w.of.items()), x, False, w.own
        for start in range(0, max(1, len(of)), self.at_once):
            out, fine = self._held([(factor, out)], of[start : start + self.at_once], x, look)
            factor = 1.0
        return out, fine

    def _held(
        self, terms: list[tuple[float, Vector]], left: list[tuple[int, float]], x: Vector, look: bool
    ) -> tuple[Vector, bool]:
        """The sum of these terms and of those that are left, each held while the others are taken."""
        if not left:
            return combined(terms)
        (k, coefficient), *rest = left
        found: list[tuple[Vector, bool]] = []

        def hold(model: Vector) -> None:
            found.append(self._held([*terms, (coefficient, model)], rest, x, look))

        if self._use(k, hold, look):
            return found[-1]
        return self._held([*terms, (coefficient, x)], rest, x, look)

    def _use(self, k: int, use: Callable[[Vector], object], look: bool) -> bool:
        if k in self._pinned:
            model = self._pinned[k]
            if model is not None:
                use(model)
            return model is not None
        return k in self.neighbours and self.take(k, use, look)

    def settle(self) -> None:
        """The step is over, and the inbox will not be used any more."""


def _scaled(coefficient: float, spare: Vector) -> Callable[[Vector], object]:
    return lambda model: np.multiply(model, coefficient, out=spare)


class NewestInbox(LazyInbox, Fetched):
    """The newest models of some neighbours, as they are when they are first used: never waits.

    `note_ages` is told the ages if the algorithm asks for them, because a replay must have the same.
    """

    def __init__(
        self,
        transport: Transport,
        neighbours: Sequence[int],
        gate: Gate,
        paces: defaultdict[int, Pace] | None = None,
        note_ages: Callable[[Mapping[int, float]], None] = lambda ages: None,
    ) -> None:
        super().__init__(neighbours)
        self._transport, self._gate = transport, gate
        self._paces = defaultdict(Pace) if paces is None else paces
        self._note_ages = note_ages
        self._ages: dict[int, float] = {}
        self._asked = False

    @property
    def ages(self) -> Mapping[int, float]:
        if not self._asked:
            self._asked = True
            self._ages = self.measured()
            self._note_ages(self._ages)
        return self._ages

    def measured(self) -> dict[int, float]:
        """The ages of what was used so far."""
        return {k: age for k, age in self._ages.items() if k in self.fetched}

    def _measure(self, k: int, version: int) -> None:
        c = split(version)[1]
        since = self._transport.since_published(k) if c else None
        if since is not None:
            now = time.perf_counter()
            pace = self._paces[k]
            pace.note(c, now - since)
            age = pace.age(now - since, now)
            if age is not None:
                self._ages[k] = age

    def take(self, k: int, use: Callable[[Vector], object], look: bool) -> bool:
        def admit(model: Vector, version: int) -> bool:
            if not self._gate.admits(k, model, version, look):
                return False
            use(model)
            self.fetched[k] = version
            self._measure(k, version)
            return True

        return bool(self._transport.read(k, admit))

    def _mix(self, w: Weights, x: Vector, spare: Vector) -> Vector:
        """Mix without looking at each model's numbers; if the result is not finite, again, looking."""
        out, fine = self._blend(w, x, spare, look=False)
        if fine:
            return out
        self.fetched = {k: version for k, version in self.fetched.items() if k in self._pinned}
        return self._blend(w, x, spare, look=True)[0]


class RoundInbox(LazyInbox):
    """The neighbours' models of one round: using one waits for it, unless its client is gone.

    A neighbour that has finished takes part with the last model that it published; nobody stands for it where
    messages are no `models`. One model at a time is held: its client goes on when it is let go, and others
    may be long in coming.
    """

    at_once: ClassVar[int] = 1

    def __init__(
        self,
        transport: Transport,
        neighbours: Sequence[int],
        round: int,
        gate: Gate,
        models: bool = True,
    ) -> None:
        super().__init__(neighbours)
        self._transport, self._gate, self._round, self._models = transport, gate, round, models
        self._taken: set[int] = set()

    def take(self, k: int, use: Callable[[Vector], object], look: bool) -> bool:
        def admit(model: Vector, version: int | None = None) -> bool:
            if not self._gate.admits(k, model, self._gate.newest.get(k, 0), look):
                return False
            use(model)
            if version is not None:
                self.fetched[k] = version
            return True

        self._taken.add(k)
        try:
            taken = self._transport.collect(k, self._round, admit)
        except Finished:
            return self._models and bool(self._transport.read(k, admit))
        except Lost:
            return False
        if taken:
            self.exchanged[k] = self._round
        return taken

    def settle(self) -> None:
        """Wait for those who were not used, too: they go on only when their offers have been taken."""
        for k in self.neighbours:
            if k not in self._taken:
                try:
                    self._transport.collect(k, self._round, lambda model: None)
                except Lost:
                    continue
