"""How much faster a group's gradients are together than one by one, per model and group size.

Both ways are timed alternately in this run, on the same clients; the ratio is of the medians. The last
column is what `batching="auto"` chose for itself.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import torch

from swiftfl.data.batches import Batches
from swiftfl.data.dataset import Dataset
from swiftfl.data.digits import digits
from swiftfl.data.synthetic import synthetic
from swiftfl.sample import Batch
from swiftfl.vector import Vector
from swiftfl.workload.models import model
from swiftfl.workload.module import ModuleWorkload

DIGITS = "digits 8x8", digits
IMAGES = "images 28x28", lambda: synthetic(2000, (1, 28, 28), 10, seed=0)
CASES: list[tuple[str, tuple[str, Callable[[], Dataset]], str | None, tuple[int, ...]]] = [
    ("logistic", DIGITS, None, (1, 4, 16, 100, 1000)),
    ("mlp", DIGITS, None, (1, 4, 16, 100, 1000)),
    ("logistic", IMAGES, None, (1, 16, 100)),
    ("cnn", IMAGES, None, (4, 16)),
    ("cnn", IMAGES, "batch", (4, 16)),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=2.0, help="time per line")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'model':<16}{'data':<14}{'group':>6}{'loop':>10}{'batched':>10}{'ratio':>8}  form      auto")
    for name, (data_name, load), norm, groups in CASES:
        data = load()
        factory = model(name, data.shape, data.classes or 0, norm=norm)
        for group in groups:
            line(
                name,
                data_name,
                norm,
                group,
                ModuleCase(factory, data, arguments.batch_size),
                arguments.seconds,
            )


class ModuleCase:
    """The same problem as a loop, batched, and as chosen."""

    def __init__(self, factory: Callable[[], torch.nn.Module], data: Dataset, batch_size: int) -> None:
        self.loop, self.batched, self.auto = (
            ModuleWorkload(factory, data, batching=batching) for batching in ("off", "on", "auto")
        )
        self.size, self.batch_size = data.size, batch_size

    def clients(self, group: int) -> tuple[list[Vector], list[Batch]]:
        start = self.loop.initial(0)
        draw = np.random.default_rng(0)
        xs = [start + draw.normal(0, 0.01, start.size).astype(start.dtype) for _ in range(group)]
        return xs, [Batches(np.arange(self.size), self.batch_size, 0, i)(1) for i in range(group)]


def line(name: str, data: str, norm: str | None, group: int, case: ModuleCase, budget: float) -> None:
    xs, batches = case.clients(group)
    ways = case.loop, case.batched
    for way in (*ways, case.auto):
        way.gradients(xs, batches)
    times: list[list[float]] = [[], []]
    end = time.perf_counter() + budget
    while time.perf_counter() < end or len(times[1]) < 3:
        for way, taken in zip(ways, times, strict=True):
            start = time.perf_counter()
            way.gradients(xs, batches)
            taken.append((time.perf_counter() - start) / group)
    loop, batched = (float(np.median(taken)) for taken in times)
    choices = case.auto.choices()
    title = f"{name}-{norm}" if norm else name
    chosen = choices["groups"] or choices["reason"]
    print(
        f"{title:<16}{data:<14}{group:>6}{loop * 1e6:>8.1f}us{batched * 1e6:>8.1f}us{loop / batched:>7.1f}x"
        f"  {choices['form']!s:<9} {chosen}",
        flush=True,
    )


if __name__ == "__main__":
    main()
