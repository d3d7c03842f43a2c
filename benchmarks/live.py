"""What communication costs real clients: 16 processes in a ring on this machine, all in one run.

    python benchmarks/live.py [--epochs 3] [--seconds 0.04] [--no-cnn] [--no-mpi]

Part 1, the emulated accelerator: a model of 98,026 float32, 32 steps per epoch, each gradient replaced by
a sleep (the machine has fewer cores than clients). `floor` takes the same steps without communication;
it is measured first and last, and the ratio is to the mean of the two. Part 2, real gradients of a small
CNN: the processors are busy, so what counts is CPU time per step. Times are means over clients; an epoch
is compute + communication + waiting. Targets for SWIFT: at most 0.3 ms of communication per step, and an
epoch at most 1.02 times the floor. Part 3, if MPI is installed, is part 1 with ranks (`benchmarks/mpi.py`).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import swiftfl
from swiftfl.algorithm import Algorithm
from swiftfl.algorithms import AdPsgd, Swift, dsgd, ldsgd, pasgd
from swiftfl.client import Client, State
from swiftfl.data.batches import NoSamples
from swiftfl.engines import Setup
from swiftfl.engines.local import Local
from swiftfl.engines.process import Options
from swiftfl.experiment.build import build
from swiftfl.graph import communication_coefficients
from swiftfl.recipes import recipe
from swiftfl.rules import SGD
from swiftfl.sample import Batch, Slope
from swiftfl.schedule import constant, every
from swiftfl.vector import Vector, advance
from swiftfl.verbs import Gradient, Verb
from swiftfl.workload.base import Evaluation
from swiftfl.workload.emulated import Emulated

CLIENTS, SIZE, STEPS = 16, 98_026, 32
LIMIT = 600.0


@dataclass(frozen=True)
class Alone:
    """The floor: the same steps, and nobody to talk to."""

    rule: SGD = SGD()
    name: str = "floor"
    in_rounds: bool = False

    def step(self, me: Client, s: State) -> Generator[Verb, object, State]:
        slope = yield from Gradient(s.x, me.batch(s.c))
        move, memory = self.rule.update(slope.g, s.x, me.step_size(s.c), s.memory)
        return State(advance(s.x, move, slope.statistics), s.c + 1, memory)


class Numbers:
    """A model of a given size that learns nothing."""

    name, parameters, buffers = "numbers", SIZE, 0

    def initial(self, seed: int) -> Vector:
        return np.random.default_rng(seed).standard_normal(SIZE).astype(np.float32)

    def gradient(self, x: Vector, batch: Batch) -> Slope:
        return Slope(np.zeros_like(x), 0.0)

    def gradients(self, xs: Sequence[Vector], batches: Sequence[Batch]) -> list[Slope]:
        return [self.gradient(x, batch) for x, batch in zip(xs, batches, strict=True)]

    def evaluate(self, xs: Sequence[Vector]) -> list[Evaluation]:
        return [Evaluation(0.0, None) for _ in xs]


@dataclass(frozen=True)
class Row:
    """Milliseconds per step but for the epoch (seconds)."""

    name: str
    epoch: float
    compute: float
    communication: float
    waiting: float
    cpu: float
    wall: float


def contestants(rule: SGD) -> list[tuple[str, Algorithm[Verb]]]:
    return [
        ("floor", Alone(rule)),
        ("SWIFT C_0", Swift(every(0), rule)),
        ("SWIFT C_1", Swift(every(1), rule)),
        ("D-SGD", dsgd(rule)),
        ("PA-SGD", pasgd(1, rule)),
        ("LD-SGD", ldsgd(1, 2, rule)),
        ("AD-PSGD", AdPsgd(rule)),
        ("floor again", Alone(rule)),
    ]


def weights_of(setup: Setup, name: str) -> Setup:
    method = "ccs" if name.startswith("SWIFT") else "metropolis"
    coefficients = communication_coefficients(swiftfl.ring(setup.n), None, method)
    return replace(setup, weights=[coefficients.weights(i) for i in range(setup.n)], network=None)


def measure(name: str, setup: Setup) -> Row:
    engine = Local(weights_of(setup, name), None, Options(save_seconds=None))
    try:
        engine.start()
        assert engine.wait(LIMIT), f"{name} is not over after {LIMIT} s"
        assert not engine.lost, engine.errors
        board, steps = engine.board, np.array(engine.board.column("steps"))
        spent = {k: np.array(board.column(k)) / steps for k in ("compute", "communication", "waiting", "cpu")}
        per_epoch = np.array([b.steps_per_epoch for b in setup.batches])
        epoch = (spent["compute"] + spent["communication"] + spent["waiting"]) * per_epoch
        means = {k: 1e3 * float(v.mean()) for k, v in spent.items()}
        return Row(name, float(epoch.mean()), **means, wall=engine.now)
    finally:
        engine.close()


def show(title: str, rows: list[Row]) -> None:
    floors = [row.epoch for row in rows if row.name.startswith("floor")]
    floor = sum(floors) / len(floors)
    heads = ("epoch s", "/floor", "compute", "commun.", "waiting", "CPU")
    print(f"\n{title} (the last four: ms per step)")
    print(f"{'':12}" + "".join(f"{head:>9}" for head in heads))
    for row in rows:
        numbers = (row.epoch, row.epoch / floor, row.compute, row.communication, row.waiting, row.cpu)
        print(f"{row.name:12}" + "".join(f"{number:9.3f}" for number in numbers), flush=True)


def emulated(epochs: int, seconds: float, measure: Callable[[str, Setup], Row] = measure) -> list[Row]:
    graph = communication_coefficients(swiftfl.ring(CLIENTS))
    setup = Setup(
        algorithm=Alone(),
        workload=Emulated(Numbers(), seconds),
        weights=[graph.weights(i) for i in range(CLIENTS)],
        batches=[NoSamples(i, STEPS) for i in range(CLIENTS)],
        step_size=constant(0.1),
        influence=graph.influence.tolist(),
        epochs=epochs,
    )
    return [measure(name, replace(setup, algorithm=method)) for name, method in contestants(SGD(0.9))]


def real(epochs: int, measure: Callable[[str, Setup], Row] = measure) -> list[Row]:
    data = {"samples": 4096, "shape": [1, 16, 16], "classes": 10}
    changes = {"data.options": data, "model.name": "cnn", "engine.name": "local", "engine.epochs": epochs}
    setup = build(recipe("synthetic").with_changes(changes)).setup
    return [measure(name, replace(setup, algorithm=method)) for name, method in contestants(SGD(0.9))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.04, help="of an emulated gradient")
    parser.add_argument("--no-cnn", action="store_true", help="leave out part 2")
    parser.add_argument("--no-mpi", action="store_true", help="leave out part 3")
    given = parser.parse_args()
    sleeps = f"{STEPS} steps per epoch, {given.seconds * 1e3:.0f} ms sleeps"
    show(f"{CLIENTS} clients, ring, {SIZE:,} float32, {sleeps}", emulated(given.epochs, given.seconds))
    if not given.no_cnn:
        show(f"{CLIENTS} clients, ring, real gradients of a small CNN", real(2))
    if not given.no_mpi:
        again = [
            str(Path(__file__).with_name("mpi.py")),
            f"--epochs={given.epochs}",
            f"--seconds={given.seconds}",
        ]
        subprocess.run([sys.executable, *again], check=False)


if __name__ == "__main__":
    main()
