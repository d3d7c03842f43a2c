"""Tasks and their results in memory that several processes share.

A slot holds a piece of gradients: models, keys and samples of its batches, and then in place of the models
the gradients, with losses and statistics.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from swiftfl.sample import Batch, Slope
from swiftfl.vector import Statistics, Vector
from swiftfl.workload.base import Divisible

Array: TypeAlias = npt.NDArray[Any]
_AREA = 16 << 20  # bytes of all slots, unless the least number of them takes more
_MOST = 256
_WAYS = ("loop", "batched")
_ASKED, _DONE, _FAILED = 0, 1, 2
_WORDS = 5  # of the header: clients, samples of a batch, way, state, whether there are statistics


class TaskSlots:
    """As many slots as 16 MB hold, each for so many clients with batches of so many samples, at most."""

    def __init__(self, workload: Divisible, x0: Vector, clients: int, samples: int, least: int) -> None:
        self._workload, self._dtype, self._size = workload, x0.dtype, x0.size
        self._buffers = workload.buffers
        self._clients, self._samples = clients, samples
        words = _WORDS + clients * (3 + samples)  # keys, losses, positions
        self._words = words
        numbers = clients * (x0.size + self._buffers)
        size = -(-(8 * words + numbers * x0.dtype.itemsize) // 64) * 64
        count = max(least, min(_MOST, _AREA // size))
        self._memory = mmap.mmap(-1, count * size)  # of forks as well; pages that nobody uses cost nothing
        self._slot_bytes, self._numbers = size, numbers
        self.free = list(range(count))

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
