"""Tasks and their results in memory that several processes share.

A slot holds a piece of gradients: models, keys and samples of its batches, and then in place of the models
the gradients, with losses and statistics. Or it holds a model to be evaluated, and then what was found.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from swiftfl.errors import in_one_line
from swiftfl.sample import Batch, Slope
from swiftfl.vector import Statistics, Vector
from swiftfl.workload.base import Divisible, Evaluation

Array: TypeAlias = npt.NDArray[Any]
_AREA = 4 << 20  # bytes of all slots, unless the least number of them takes more: they stay in the cache
_MOST = 256
_WAYS = ("loop", "batched")
_EVALUATION = len(_WAYS)  # in the place of a way
_ASKED, _DONE, _FAILED, _TOO_LONG = range(4)
_WORDS = 5  # of the header: clients, samples of a batch, way, state, whether there are statistics


class PieceViews(NamedTuple):
    """The parts of a piece in a slot."""

    head: Array
    """The header, then client and counter of each batch."""
    positions: Array
    losses: Array
    models: Array
    """And then the gradients."""
    statistics: Array


def _extent(workload: Divisible, x0: Vector, clients: int, samples: int) -> tuple[int, int, int]:
    """How many words a slot has, how many numbers after them, and how many bytes that is."""
    words = _WORDS + clients * (3 + samples)  # keys, losses, positions
    numbers = clients * (x0.size + workload.buffers)
    return words, numbers, -(-(8 * words + numbers * x0.dtype.itemsize) // 64) * 64


def bytes_of_one(workload: Divisible, x0: Vector, clients: int, samples: int) -> int:
    """What one more slot takes, with the model in its fellow for evaluations."""
    words, _, size = _extent(workload, x0, clients, samples)
    return size + min(size, 8 * words + x0.nbytes)


class TaskSlots:
    """As many slots as 4 MB hold, each for so many clients with batches of so many samples, at most.

    And a few (`least`) for evaluations, which need not wait for gradients.
    """

    def __init__(self, workload: Divisible, x0: Vector, clients: int, samples: int, least: int) -> None:
        self._workload, self._dtype, self._size = workload, x0.dtype, x0.size
        self._buffers = workload.buffers
        self._clients, self._samples = clients, samples
        words, numbers, size = _extent(workload, x0, clients, samples)
        self._words = words
        count = max(least, min(_MOST, _AREA // size))
        # Of forks as well; pages that nobody uses cost nothing.
        self._memory = mmap.mmap(-1, (count + least) * size)
        self._slot_bytes, self._numbers = size, numbers
        self._gradients = count
        self._views: dict[int, PieceViews] = {}  # of the piece that was in a slot last
        self.free = list(range(count))
        self.for_evaluations = list(range(count, count + least))

    def _parts(self, slot: int) -> tuple[Array, Array]:
        start = slot * self._slot_bytes
        words = np.frombuffer(self._memory, np.int64, self._words, start)
        return words, np.frombuffer(self._memory, self._dtype, self._numbers, start + 8 * self._words)

    def put(self, way: str, xs: Sequence[Vector], batches: Sequence[Batch]) -> int | None:
        """The slot in which a piece now lies; None where none is free, or the piece is too large."""
        clients, samples = len(xs), batches[0].indices.size
        if not self.free or clients > self._clients or samples > self._samples:
            return None
        slot = self.free.pop()
        views = self._piece(slot, clients, samples)
        head = [clients, samples, _WAYS.index(way), _ASKED, 0]
        for batch in batches:
            head += batch.client, batch.counter
        views.head[:] = head
        np.concatenate([batch.indices for batch in batches], out=views.positions.reshape(-1))
        np.concatenate(xs, out=views.models.reshape(-1))
        return slot

    def put_model(self, x: Vector) -> int:
        """The slot in which a model now lies that is to be evaluated; there must be one for it."""
        slot = self.for_evaluations.pop()
        words, numbers = self._parts(slot)
        words[:_WORDS] = 1, 0, _EVALUATION, _ASKED, 0
        numbers[: self._size] = x
        return slot

    def give_back(self, slot: int) -> None:
        (self.free if slot < self._gradients else self.for_evaluations).append(slot)

    def _piece(self, slot: int, clients: int, samples: int) -> PieceViews:
        """Where the parts of a piece lie; most pieces of a run have one size."""
        views = self._views.get(slot)
        if views is None or views.positions.shape != (clients, samples):
            words, numbers = self._parts(slot)
            keys_end, end = _WORDS + 2 * clients, clients * self._size
            head, losses, rest = np.split(words, [keys_end, keys_end + clients])
            views = self._views[slot] = PieceViews(
                head,
                rest[: clients * samples].reshape(clients, samples),
                losses.view(np.float64),
                numbers[:end].reshape(clients, -1),
                numbers[end : end + clients * self._buffers].reshape(clients, -1),
            )
        return views

    def compute(self, slot: int) -> None:
        """Put the results in place of the models."""
        words, numbers = self._parts(slot)
        clients, samples, way = words[:3].tolist()
        if way == _EVALUATION:
            self._evaluate(words, numbers)
            return
        head, positions, losses, models, statistics = self._piece(slot, clients, samples)
        asked = zip(head[_WORDS:].reshape(-1, 2).tolist(), positions.copy(), strict=True)
        batches = [Batch(client, counter, at) for (client, counter), at in asked]
        try:
            slopes = self._workload.piece(_WAYS[way], list(models), batches)
        except Exception as error:  # in the run's own process it fails again, unless only forks cannot do it
            _fail(words, numbers, error)
            return
        for k, slope in enumerate(slopes):
            models[k] = slope.g
            losses[k] = slope.loss
            if slope.statistics is not None:
                words[4] = 1
                statistics[k] = slope.statistics.values
        words[3] = _DONE

    def _evaluate(self, words: Array, numbers: Array) -> None:
        try:
            (told,) = self._workload.evaluate([numbers[: self._size].copy()])
            found = json.dumps([told.loss, told.accuracy, dict(told.metrics)]).encode()  # floats to the bit
        except Exception as error:  # as above
            _fail(words, numbers, error)
            return
        words[3] = _DONE if _write(words, numbers, found) == len(found) else _TOO_LONG

    def failure(self, slot: int) -> str | None:
        """What a helper could not do, in its words; None where it did not fail."""
        words, numbers = self._parts(slot)
        return _text(words, numbers).decode(errors="replace") if words[3] == _FAILED else None

    def read_evaluation(self, slot: int) -> Evaluation | None:
        """What was found of a model; None where that failed."""
        words, numbers = self._parts(slot)
        if words[3] != _DONE:
            return None
        return Evaluation(*json.loads(_text(words, numbers)))

    def read(self, slot: int) -> list[Slope] | None:
        """Copies of the results of what was put into a slot; None where computing them failed."""
        views = self._views[slot]
        state, told = views.head[3:_WORDS].tolist()
        if state != _DONE:
            return None
        losses = views.losses.tolist()
        # Each in memory of its own: a block of all of them would be there until its last one is used.
        g = [row.copy() for row in views.models]
        if not told:
            return list(map(Slope, g, losses))
        rate = self._workload.rate
        statistics = [Statistics(row.copy(), rate) for row in views.statistics]
        return list(map(Slope, g, losses, statistics))


def _fail(words: Array, numbers: Array, error: Exception) -> None:
    _write(words, numbers, in_one_line(error).encode())
    words[3] = _FAILED


def _write(words: Array, numbers: Array, text: bytes) -> int:
    """Put a text in the place of models, as much as there is room for; how much that is."""
    room = numbers.view(np.uint8)
    words[1] = written = min(len(text), room.size)
    room[:written] = np.frombuffer(text, np.uint8, written)
    return written


def _text(words: Array, numbers: Array) -> bytes:
    return numbers.view(np.uint8)[: words[1]].tobytes()
