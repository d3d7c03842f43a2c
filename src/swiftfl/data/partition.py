"""Which client holds which training samples: a `Partition`, and what it looks like."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from swiftfl.errors import UserError

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

    def histogram(self, labels: Indices, classes: int | None = None) -> Indices:
        """(clients, classes): how many samples of each label each client holds."""
        classes = int(labels.max()) + 1 if classes is None else classes
        return np.stack([np.bincount(labels[part], minlength=classes) for part in self.parts])

    def draw_histogram(self, path: str | Path, labels: Indices, classes: int | None = None) -> None:
        """The label histogram as a picture."""
        from swiftfl.data.picture import draw_histogram  # loads matplotlib, which few runs need

        draw_histogram(path, self.name, self.histogram(labels, classes))


def make(name: str, parts: Iterable[Indices]) -> Partition:
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


def even_sizes(samples: int, clients: int) -> list[int]:
    """Equal sizes, the first ones larger by one where that does not come out even."""
    return [samples // clients + (i < samples % clients) for i in range(clients)]
