"""Which samples a client trains on at its counter c: a pure function of (seed, client, c)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from swiftfl.errors import UserError
from swiftfl.sample import Batch
from swiftfl.streams import quick

_NOTHING: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)


class Batches:
    """The batches of one client: each epoch passes once over its data, newly shuffled.

    The last batch of an epoch may be smaller; with `drop_last` it is left out then. Counters start at 1 and
    may be asked in any order; the current epoch's shuffle is kept, so that the usual ascending calls cost a
    slice.

    >>> batches = Batches(np.arange(5), batch_size=2, seed=0, client=0)
    >>> batches.steps_per_epoch, [batches(c).indices.size for c in (1, 2, 3, 4)]
    (3, [2, 2, 1, 2])
    >>> batches.sizes
    (1, 2)
    """

    __slots__ = ("_epoch", "_order", "batch_size", "client", "indices", "seed", "steps_per_epoch")

    def __init__(
        self,
        indices: npt.NDArray[np.int64],
        batch_size: int,
        seed: int,
        client: int,
        drop_last: bool = False,
    ) -> None:
        if batch_size < 1:
            raise UserError(f"batch size must be at least 1, not {batch_size}")
        if indices.size == 0:
            raise UserError(f"client {client} has no training samples")
        self.indices = indices
        self.batch_size = batch_size
        self.seed = seed
        self.client = client
        if drop_last and indices.size < batch_size:
            raise UserError(
                f"client {client} has {indices.size} training samples, less than one batch of {batch_size}: "
                "drop_last would leave it nothing"
            )
        self.steps_per_epoch = indices.size // batch_size if drop_last else -(-indices.size // batch_size)
        self._epoch: int | None = None
        self._order = indices

    def __call__(self, c: int) -> Batch:
        epoch, k = divmod(c - 1, self.steps_per_epoch)
        if epoch != self._epoch:
            self._shuffle(epoch)
        start = k * self.batch_size
        return Batch(self.client, c, self._order[start : start + self.batch_size])

    @property
    def sizes(self) -> tuple[int, int]:
        """How many samples the smallest and the largest batch have."""
        samples, most = self.indices.size, self.batch_size
        return min(samples - (self.steps_per_epoch - 1) * most, most), min(samples, most)

    def _shuffle(self, epoch: int) -> None:
        if epoch < 0:
            raise UserError(f"client {self.client}: counters start at 1")
        self._order = quick(self.seed, "shuffle", self.client, epoch).permutation(self.indices)
        self._epoch = epoch


class NoSamples:
    """The batches of a workload without data (a quadratic): only the key (client, counter)."""

    __slots__ = ("client", "steps_per_epoch")

    def __init__(self, client: int, steps_per_epoch: int = 1) -> None:
        self.client = client
        self.steps_per_epoch = steps_per_epoch

    def __call__(self, c: int) -> Batch:
        return Batch(self.client, c, _NOTHING)
