"""One client is four times as slow: what the others' epoch costs, and how long it takes to a given loss.

    python benchmarks/slow_client.py [--factor 4] [--loss 0.3] [--seconds 0.02]

Digits, a small MLP, 16 clients in a ring on this machine. Gradients are real, and padded by a sleep to a
given length (an emulated accelerator: the machine has fewer cores than clients). Each algorithm runs with
and without the slow client; `others` is the mean epoch of the clients that are not slow.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from swiftfl.costs import Costs, Slowdown
from swiftfl.engines import Setup
from swiftfl.engines.live.local.engine import LocalEngine
from swiftfl.engines.live.options import LiveOptions
from swiftfl.experiment.build import build
from swiftfl.experiment.recipes import recipe
from swiftfl.sample import Batch, Slope
from swiftfl.vector import Vector, consensus
from swiftfl.workload.base import Evaluation, Workload

SLOW, LIMIT, LOOK = 5, 300.0, 0.25


class Paced:
    """A workload whose gradients take a given time at least."""

    def __init__(self, workload: Workload, seconds: float) -> None:
        self.workload, self.seconds = workload, seconds
        self.name, self.parameters, self.buffers = workload.name, workload.parameters, workload.buffers

    def initial(self, seed: int) -> Vector:
        return self.workload.initial(seed)

    def gradient(self, x: Vector, batch: Batch) -> Slope:
        began = time.perf_counter()
        slope = self.workload.gradient(x, batch)
        time.sleep(max(0.0, self.seconds - (time.perf_counter() - began)))
        return slope

    def gradients(self, xs: Sequence[Vector], batches: Sequence[Batch]) -> list[Slope]:
        return [self.gradient(x, batch) for x, batch in zip(xs, batches, strict=True)]

    def evaluate(self, xs: Sequence[Vector]) -> list[Evaluation]:
        return self.workload.evaluate(xs)


@dataclass(frozen=True)
class Run:
    """Seconds: until the loss was reached, and per epoch of the clients that are not slow."""

    until: float
    others: float


def setup_of(algorithm: str, seconds: float, slow: float | None) -> Setup:
    changes = {"engine.name": "local", "engine.epochs": 500, "algorithm.name": algorithm}
    setup = build(recipe("digits").with_changes(changes)).setup
    slowdowns = () if slow is None else (Slowdown(SLOW, slow),)
    return replace(setup, workload=Paced(setup.workload, seconds), costs=Costs(slowdowns=slowdowns))


def until_loss(setup: Setup, loss: float) -> Run:
    """Run until the consensus model's test loss is at most `loss`."""
    engine = LocalEngine(setup, None, LiveOptions(save_seconds=None))
    try:
        engine.start()
        while not engine.status.started and not engine.over:
            time.sleep(0.01)
        while not engine.wait(LOOK):
            now = engine.now
            (found,) = setup.workload.evaluate([consensus(engine.models)])
            if found.loss <= loss:
                return Run(now, _others(engine))
            assert now < LIMIT, f"loss {found.loss} after {LIMIT} s"
        raise AssertionError(f"the run ended above a loss of {loss}: {engine.supervisor.warnings}")
    finally:
        engine.close()


def _others(engine: LocalEngine) -> float:
    names = ("compute", "communication", "waiting")
    spent = sum(np.array(engine.status.column(name)) for name in names) / np.array(
        engine.status.column("steps")
    )
    epochs = [spent[i] * engine.setup.batches[i].steps_per_epoch for i in range(engine.n) if i != SLOW]
    return float(np.mean(epochs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--factor", type=float, default=4.0)
    parser.add_argument("--loss", type=float, default=0.3)
    parser.add_argument("--seconds", type=float, default=0.02)
    given = parser.parse_args()
    length = f"{given.seconds * 1e3:.0f} ms"
    print(f"16 clients; gradients of {length}; client {SLOW} {given.factor:g}x slower, or not")
    print(f"{'':8} {'others, epoch s':>24} {'to loss ' + str(given.loss) + ', s':>24}")
    print(f"{'':8} {'all equal':>10} {'one slow':>9} {'':>3} {'all equal':>13} {'one slow':>9}")
    slow: dict[str, Run] = {}
    for name in ("swift", "dsgd"):
        equal = until_loss(setup_of(name, given.seconds, None), given.loss)
        slow[name] = until_loss(setup_of(name, given.seconds, given.factor), given.loss)
        change = slow[name].others / equal.others
        times = f"{equal.until:13.2f} {slow[name].until:9.2f}"
        print(f"{name:8} {equal.others:10.3f} {slow[name].others:9.3f} {change:4.2f}x {times}", flush=True)
    print(f"With the slow client SWIFT needs {slow['swift'].until / slow['dsgd'].until:.2f} of D-SGD's time.")


if __name__ == "__main__":
    main()
