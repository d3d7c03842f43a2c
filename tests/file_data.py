"""Samples that are read by position through a file that is open."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

SAMPLES, WIDTH, CLASSES = 96, 64, 3


class InAFile(torch.utils.data.Dataset[tuple[Tensor, int]]):
    """Images of 8 x 8, each read in small steps: whoever else moves the place in the file is noticed."""

    def __init__(self, file: FileIO) -> None:
        self.file = file

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, k: int) -> tuple[Tensor, int]:
        self.file.seek(4 * WIDTH * k)
        found = bytearray(b"".join(self.file.read(16) for _ in range(WIDTH // 4)))
        return torch.frombuffer(found, dtype=torch.float32).reshape(1, 8, 8), k % CLASSES


@contextmanager
def in_a_file(path: Path) -> Iterator[InAFile]:
    numbers = np.random.default_rng(0).standard_normal((SAMPLES, WIDTH)).astype(np.float32)
    path.write_bytes(numbers.tobytes())
    with FileIO(path) as file:
        yield InAFile(file)
