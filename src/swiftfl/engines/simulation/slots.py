"""Tasks and their results in memory that several processes share.

A slot holds a piece of gradients: models, keys and samples of its batches, and then in place of the models
the gradients, with losses and statistics. Or it holds a model to be evaluated, and then what was found.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from swiftfl.sample import Batch, Slope
from swiftfl.vector import Statistics, Vector
from swiftfl.workload.base import Divisible, Evaluation

Array: TypeAlias = npt.NDArray[Any]
_AREA = 16 << 20  # bytes of all slots, unless the least number of them takes more
_MOST = 256
_WAYS = ("loop", "batched")
_EVALUATION = len(_WAYS)  # in the place of a way
_ASKED, _DONE, _FAILED = 0, 1, 2
_WORDS = 5  # of the header: clients, samples of a batch, way, state, whether there are statistics


class TaskSlots:
    """As many slots as 16 MB hold, each for so many clients with batches of so many samples, at most.

    And a few (`least`) for evaluations, which need not wait for gradients.
    """

    def __init__(self, workload: Divisible, x0: Vector, clients: int, samples: int, least: int) -> None:
        self._workload, self._dtype, self._size = workload, x0.dtype, x0.size
        self._buffers = workload.buffers
        self._clients, self._samples = clients, samples
        words = _WORDS + clients * (3 + samples)  # keys, losses, positions
        self._words = words
        numbers = clients * (x0.size + self._buffers)
        size = -(-(8 * words + numbers * x0.dtype.itemsize) // 64) * 64
        count = max(least, min(_MOST, _AREA // size))
        # Of forks as well; pages that nobody uses cost nothing.
        self._memory = mmap.mmap(-1, (count + least) * size)
        self._slot_bytes, self._numbers = size, numbers
        self._gradients = count
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
        words, numbers = self._parts(slot)
        words[:_WORDS] = clients, samples, _WAYS.index(way), _ASKED, 0
        keys, positions, _ = self._of(words, clients, samples)
        keys[:] = [(batch.client, batch.counter) for batch in batches]
        np.concatenate([batch.indices for batch in batches], out=positions.reshape(-1))
        np.concatenate(xs, out=numbers[: clients * self._size])
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

    def _of(self, words: Array, clients: int, samples: int) -> tuple[Array, Array, Array]:
        """Keys (client, counter), positions of samples, and losses."""
        body = words[_WORDS:]
        keys, rest = body[: 2 * clients].reshape(-1, 2), body[2 * clients :]
        losses = rest[:clients].view(np.float64)
        return keys, rest[clients : clients * (1 + samples)].reshape(clients, samples), losses

    def compute(self, slot: int) -> None:
        """Put the results in place of the models."""
        words, numbers = self._parts(slot)
        clients, samples, way = words[:3].tolist()
        if way == _EVALUATION:
            self._evaluate(words, numbers)
            return
        keys, positions, losses = self._of(words, clients, samples)
        models = numbers[: clients * self._size].reshape(clients, -1)
        asked = zip(keys.tolist(), positions.copy(), strict=True)
        batches = [Batch(client, counter, at) for (client, counter), at in asked]
        try:
            slopes = self._workload.piece(_WAYS[way], list(models), batches)
        except Exception:  # it fails again in the run's own process, which says so
            words[3] = _FAILED
            return
        for k, slope in enumerate(slopes):
            models[k] = slope.g
            losses[k] = slope.loss
            if slope.statistics is not None:
                words[4] = 1
                start = clients * self._size + k * self._buffers
                numbers[start : start + self._buffers] = slope.statistics.values
        words[3] = _DONE

    def _evaluate(self, words: Array, numbers: Array) -> None:
        room = numbers.view(np.uint8)
        try:
            (told,) = self._workload.evaluate([numbers[: self._size].copy()])
            found = json.dumps([told.loss, told.accuracy, dict(told.metrics)]).encode()  # floats to the bit
            room[: len(found)] = np.frombuffer(found, np.uint8)
        except Exception:  # as above; also where there is no room for it
            words[3] = _FAILED
            return
        words[1], words[3] = len(found), _DONE

    def read_evaluation(self, slot: int) -> Evaluation | None:
        """What was found of a model; None where that failed."""
        words, numbers = self._parts(slot)
        if words[3] != _DONE:
            return None
        return Evaluation(*json.loads(numbers.view(np.uint8)[: words[1]].tobytes()))

    def read(self, slot: int) -> list[Slope] | None:
        """Copies of the results; None where computing them failed."""
        words, numbers = self._parts(slot)
        clients, samples, _, state, told = words[:_WORDS].tolist()
        if state != _DONE:
            return None
        losses = self._of(words, clients, samples)[2].tolist()
        g = numbers[: clients * self._size].reshape(clients, -1).copy()
        if not told:
            return list(map(Slope, g, losses))
        start = clients * self._size
        values = numbers[start : start + clients * self._buffers].reshape(clients, -1).copy()
        rate = self._workload.rate
        return [Slope(row, loss, Statistics(v, rate)) for row, loss, v in zip(g, losses, values, strict=True)]
