"""The mixes of many clients as one sparse product.

Clients that act at the same virtual time average at the same time: H = W X, with a row of W per
client and a row of X per distinct model. The product adds up in the order of `vector.mix`, own model
first, so both give the same bits (a test holds them side by side). It saves the cost of a NumPy call
per neighbour, which pays where there are many neighbours, and for small models already from four on
(`benchmarks/mixing.py` prints by how much); otherwise stacking the models costs more than it saves. Where
there are compiled functions (`small`), an average is one call anyway. Clients wait for each other all the
same: the order of events does not depend on what a machine has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
from scipy.sparse import csr_matrix

from swiftfl import small
from swiftfl.engines.saved import Saved
from swiftfl.engines.setup import KeepBuffers
from swiftfl.engines.simulation.record import ClientRecord
from swiftfl.recycled import LARGE
from swiftfl.vector import Vector, mix
from swiftfl.verbs import Mix

SMALL_MODEL = 1_000
SOME_NEIGHBOURS = 4
MANY_NEIGHBOURS = 16
LARGEST_STACK = 500_000  # numbers: what is larger is taken in parts, each of which fits the cache
WAITING_BYTES = 32 << 20
"""Of the gradients of clients that wait; they will get as much again of averages."""


class BatchedMixes:
    """Clients that are parked at a mix, and results that wait to be delivered in their order."""

    __slots__ = ("_keep_buffers", "_most", "_records", "ready", "waiting")

    def __init__(self, records: Sequence[ClientRecord], keep_buffers: KeepBuffers, model_bytes: int) -> None:
        self._records, self._keep_buffers = records, keep_buffers
        self._most = max(1, WAITING_BYTES // model_bytes)
        self.waiting: list[int] = []
        self.ready: deque[tuple[int, Vector]] = deque()

    @property
    def full(self) -> bool:
        """Whether so many wait that they are served before the others of their time have come."""
        return len(self.waiting) >= self._most

    def serve(self) -> None:
        """Mix for everybody who is parked; they go on one by one."""
        verbs: list[Mix] = [self._records[i].parked for i in self.waiting]
        halves = map(self._keep_buffers, mix_many(verbs), (verb.x for verb in verbs))
        self.ready.extend(zip(self.waiting, halves, strict=True))
        self.waiting.clear()

    def state(self) -> list[int]:
        """Mixes that were computed but not delivered are computed again: the same bits in the same order."""
        return [*(i for i, _ in self.ready), *self.waiting]

    def restore(self, saved: Saved) -> None:
        self.waiting[:] = saved.clients(len(self._records))
        self.ready.clear()


def worthwhile(verb: Mix, clients: int) -> bool:
    """Whether this mix is better served together with others."""
    if clients < 64 or not isinstance(verb.x, np.ndarray):
        return False
    return len(verb.w.of) >= (SOME_NEIGHBOURS if verb.x.size <= SMALL_MODEL else MANY_NEIGHBOURS)


def mix_many(verbs: Sequence[Mix]) -> list[Vector]:
    """What `vector.mix` gives for each of these, bit for bit."""
    if not verbs:
        return []
    if small.loaded() and verbs[0].x.size < LARGE and all(len(v.w.of) < small.MOST_MODELS for v in verbs):
        # One call each, and nothing is stacked.
        return [mix(verb.w, verb.x, verb.inbox) for verb in verbs]
    largest = max(1, LARGEST_STACK // verbs[0].x.size // 2)
    parts = (verbs[k : k + largest] for k in range(0, len(verbs), largest))
    return [half for part in parts for half in _product(part)]


def _product(verbs: Sequence[Mix]) -> Vector:
    places: dict[int, int] = {}
    models: list[Vector] = []
    columns: list[int] = []
    values: list[float] = []
    ends = [0]
    for verb in verbs:
        for coefficient, model in _terms(verb):
            place = places.setdefault(id(model), len(models))
            if place == len(models):
                models.append(model)
            columns.append(place)
            values.append(coefficient)
        ends.append(len(columns))
    X = np.stack(models)
    W = csr_matrix((np.array(values, X.dtype), columns, ends), shape=(len(verbs), len(models)))
    return np.asarray(W @ X)


def _terms(verb: Mix) -> list[tuple[float, Vector]]:
    """Own model first, then the neighbours that are there; the others' weight stays with self."""
    inbox, of = verb.inbox, verb.w.of
    own = verb.w.own
    if missing := [coefficient for k, coefficient in of.items() if k not in inbox]:
        own += sum(missing)
    return [(own, verb.x), *((coefficient, inbox[k]) for k, coefficient in of.items() if k in inbox)]
