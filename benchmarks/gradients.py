"""How much faster a group's gradients are together than one by one, per model and group size.

Both ways are timed alternately in this run, on the same clients; the ratio is of the medians. The last
column is what `batching="measure"` chose for itself.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from functools import partial

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import torch
from torch import nn

from swiftfl.data.batches import Batches
from swiftfl.data.dataset import Dataset
from swiftfl.data.digits import digits
from swiftfl.data.synthetic import synthetic
from swiftfl.sample import Batch
from swiftfl.vector import Vector
from swiftfl.workload.models import model
from swiftfl.workload.module import ModuleWorkload

Factory = Callable[[], nn.Module]


def layered() -> nn.Module:
    """A user's own module: an MLP with layer normalisation and dropout, which only vmap can batch."""
    return nn.Sequential(nn.Linear(64, 32), nn.LayerNorm(32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 10))


def cases() -> Iterator[tuple[str, Dataset, Factory, tuple[int, ...]]]:
    small, images = digits(), synthetic(2000, (1, 28, 28), 10, seed=0)
    yield "logistic 8x8", small, model("logistic", small.shape, 10), (1, 4, 16, 100, 1000)
    yield "mlp 8x8", small, model("mlp", small.shape, 10), (1, 4, 16, 100, 1000)
    yield "own module 8x8", small, layered, (1, 4, 16, 100)
    yield "logistic 28x28", images, model("logistic", images.shape, 10), (1, 16, 100)
    yield "cnn 28x28", images, model("cnn", images.shape, 10), (4, 16)
    yield "cnn-batch 28x28", images, model("cnn", images.shape, 10, norm="batch"), (4, 16)


def clients(data: Dataset, start: Vector, group: int, batch_size: int) -> tuple[list[Vector], list[Batch]]:
    draw = np.random.default_rng(0)
    xs = [start + draw.normal(0, 0.01, start.size).astype(start.dtype) for _ in range(group)]
    return xs, [Batches(np.arange(data.size), batch_size, seed=0, client=i)(1) for i in range(group)]


def alternate(ways: tuple[Callable[[], object], ...], budget: float) -> list[float]:
    """The median time of each, taken in turns so that a busy moment hits all of them."""
    times: list[list[float]] = [[] for _ in ways]
    end = time.perf_counter() + budget
    while time.perf_counter() < end or len(times[-1]) < 3:
        for way, taken in zip(ways, times, strict=True):
            start = time.perf_counter()
            way()
            taken.append(time.perf_counter() - start)
    return [float(np.median(taken)) for taken in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=2.0, help="time per line")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'model':<17}{'group':>6}{'loop':>11}{'batched':>11}{'ratio':>8}  {'form':<9}auto takes")
    for title, data, factory, groups in cases():
        for group in groups:
            off, on, auto = (ModuleWorkload(factory, data, batching=b) for b in ("off", "on", "measure"))
            xs, batches = clients(data, off.initial(0), group, arguments.batch_size)
            for workload in (off, on, auto):
                workload.gradients(xs, batches)
            ways = partial(off.gradients, xs, batches), partial(on.gradients, xs, batches)
            loop, batched = (taken / group * 1e6 for taken in alternate(ways, arguments.seconds))
            taken = auto.choices()
            ways_taken = taken["groups"]
            assert isinstance(ways_taken, dict)
            auto_takes = taken["reason"] or ", ".join(ways_taken.values())
            print(
                f"{title:<17}{group:>6}{loop:>9.1f}us{batched:>9.1f}us{loop / batched:>7.1f}x"
                f"  {taken['form'] or '-':<9}{auto_takes}",
                flush=True,
            )


if __name__ == "__main__":
    main()
