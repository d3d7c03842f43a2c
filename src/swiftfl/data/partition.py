"""Which client holds which training samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from swiftfl.errors import UserError
from swiftfl.streams import stream

Indices: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Partition:
    """Per client, the sorted positions of its training samples."""

    name: str
    parts: tuple[Indices, ...]

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, client: int) -> Indices:
        return self.parts[client]

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(part.size for part in self.parts)


def iid(labels: Indices, clients: int, seed: int) -> Partition:
    """Samples dealt out uniformly at random, in equal numbers (give or take one)."""
    check_request(labels.size, clients)
    order = stream(seed, "partition").permutation(labels.size)
    return make("iid", np.array_split(order, clients))


def make(name: str, parts: list[Indices]) -> Partition:
    """A partition of these parts, each sorted."""
    return Partition(name, tuple(np.sort(part).astype(np.int64, copy=False) for part in parts))


def check_request(samples: int, clients: int) -> None:
    """No client may be empty, so there must be at least as many samples as clients."""
    if clients < 1:
        raise UserError(f"a partition needs at least 1 client, not {clients}")
    if clients > samples:
        raise UserError(
            f"{clients} clients cannot share {samples} training samples (use bootstrap to reuse samples)"
        )
