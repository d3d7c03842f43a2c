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
from collections.abc import Callable, Collection, Generator
from dataclasses import dataclass, replace
from pathlib import Path

import swiftfl
from swiftfl.algorithm import Algorithm
from swiftfl.algorithms import AdPsgd, Swift, dsgd, ldsgd, pasgd
from swiftfl.client import Client, State
from swiftfl.engines import Setup
from swiftfl.experiment.build import build
from swiftfl.experiment.recipes import recipe
from swiftfl.graph import communication_coefficients
from swiftfl.reproduce.live_baseline import Accelerator, Spent, emulated, run_locally
from swiftfl.rules import SgdRule
from swiftfl.schedule import every
from swiftfl.vector import advance
from swiftfl.verbs import Gradient, Verb

CLIENTS, SIZE, STEPS = 16, 98_026, 32

Measure = Callable[[Setup], Spent]


@dataclass(frozen=True)
class Alone:
    """The floor: the same steps, and nobody to talk to."""

    rule: SgdRule = SgdRule()
    name: str = "floor"
    in_rounds: bool = False

    def step(self, me: Client, s: State) -> Generator[Verb, object, State]:
        slope = yield from Gradient(s.x, me.batch(s.c))
        move, memory = self.rule.update(slope.g, s.x, me.step_size(s.c), s.memory)
        return State(advance(s.x, move, slope.statistics), s.c + 1, memory)


def contestants(rule: SgdRule) -> dict[str, tuple[Algorithm[Verb], str]]:
    """Algorithm and weights."""
    return {
        "floor": (Alone(rule), "metropolis"),
        "SWIFT C_0": (Swift(every(0), rule), "ccs"),
        "SWIFT C_1": (Swift(every(1), rule), "ccs"),
        "D-SGD": (dsgd(rule), "metropolis"),
        "PA-SGD": (pasgd(1, rule), "metropolis"),
        "LD-SGD": (ldsgd(1, 2, rule), "metropolis"),
        "AD-PSGD": (AdPsgd(rule), "metropolis"),
        "floor again": (Alone(rule), "metropolis"),
    }


def show(title: str, rows: dict[str, Spent], steps: int) -> None:
    floor = (rows["floor"].total + rows["floor again"].total) / 2
    heads = ("epoch s", "/floor", "compute", "commun.", "waiting", "CPU")
    print(f"\n{title} (the last four: ms per step)")
    print(f"{'':12}" + "".join(f"{head:>9}" for head in heads))
    for name, row in rows.items():
        each = [1e3 * part / steps for part in (row.compute, row.communication, row.waiting, row.cpu)]
        numbers = (row.total, row.total / floor, *each)
        print(f"{name:12}" + "".join(f"{number:9.3f}" for number in numbers), flush=True)


def asleep(
    clients: int, epochs: int, seconds: float, measure: Measure, only: Collection[str] = ()
) -> dict[str, Spent]:
    """Everybody, or the floors and `only` those, with gradients that are sleeps."""
    like = Accelerator(seconds, SIZE, STEPS, epochs)
    ring = swiftfl.ring(clients)
    return {
        name: measure(emulated(algorithm, ring, weights, like))
        for name, (algorithm, weights) in contestants(SgdRule(0.9)).items()
        if not only or name in only or name.startswith("floor")
    }


def busy(clients: int, epochs: int, measure: Measure) -> tuple[dict[str, Spent], int]:
    """Everybody, with real gradients; and the steps of an epoch."""
    data = {"samples": 4096, "shape": [1, 16, 16], "classes": 10}
    changes = {"data.options": data, "model.name": "cnn", "engine.name": "local", "engine.epochs": epochs}
    setup = build(recipe("synthetic").with_changes({**changes, "topology.clients": clients})).setup
    rows = {}
    for name, (algorithm, method) in contestants(SgdRule(0.9)).items():
        coefficients = communication_coefficients(swiftfl.ring(clients), None, method)
        weights = [coefficients.weights(i) for i in range(clients)]
        rows[name] = measure(replace(setup, algorithm=algorithm, weights=weights, network=None))
    return rows, setup.batches[0].steps_per_epoch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.04, help="of an emulated gradient")
    parser.add_argument("--no-cnn", action="store_true", help="leave out part 2")
    parser.add_argument("--no-mpi", action="store_true", help="leave out part 3")
    given = parser.parse_args()
    sleeps = f"{STEPS} steps per epoch, {given.seconds * 1e3:.0f} ms sleeps"
    rows = asleep(CLIENTS, given.epochs, given.seconds, run_locally)
    show(f"{CLIENTS} clients, ring, {SIZE:,} float32, {sleeps}", rows, STEPS)
    if not given.no_cnn:
        show(f"{CLIENTS} clients, ring, real gradients of a small CNN", *busy(CLIENTS, 2, run_locally))
    if not given.no_mpi:
        again = [
            str(Path(__file__).with_name("mpi.py")),
            f"--epochs={given.epochs}",
            f"--seconds={given.seconds}",
        ]
        subprocess.run([sys.executable, *again], check=False)


if __name__ == "__main__":
    main()
