"""What evaluations during an MPI run cost its clients: 16 ranks here, with and without, in one run.

    python benchmarks/evaluation.py [--every 2] [--busy 0.2] [--rounds 3] [--clients 16]

It starts itself under mpiexec. SWIFT with a model of 98,026 float32, each gradient replaced by a sleep of
40 ms. `with`: every few seconds rank 0 asks everybody for its model, and a process of the lowest priority
computes on them for `--busy` seconds. Runs with and without alternate; what counts is the median of the
time of a step. Target: evaluations cost less than 1 % of a step.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from statistics import median

import numpy as np

import swiftfl
from live import SIZE, STEPS
from swiftfl.algorithms import Swift
from swiftfl.engines.live.mpi.engine import MpiEngine
from swiftfl.engines.live.options import LiveOptions
from swiftfl.errors import UserError
from swiftfl.reproduce.live_baseline import Accelerator, emulated, spent
from swiftfl.rules import SgdRule
from swiftfl.schedule import every
from swiftfl.transports import launch
from swiftfl.transports.mpi import world
from swiftfl.transports.ranks import rank_here
from swiftfl.vector import Vector


def evaluate(models: list[Vector], busy: float) -> dict[str, float]:
    """A mean of the models, and as much computing as was asked for."""
    until = time.process_time() + busy
    norm = 0.0
    while time.process_time() < until:
        norm = float(np.linalg.norm(np.mean(models, axis=0)))
    return {"norm": norm}


def measure(given: argparse.Namespace, evaluates: bool) -> tuple[float, int]:
    """Milliseconds of a step, and how many evaluations there were (both on the first rank only)."""
    like = Accelerator(0.04, SIZE, STEPS, given.epochs)
    setup = emulated(Swift(every(0), SgdRule(0.9)), swiftfl.ring(given.clients), "ccs", like)
    engine = MpiEngine(setup, world(), None, LiveOptions(save_seconds=None))
    if evaluates:
        engine.evaluate_with(lambda models, epochs: evaluate(models, given.busy))
    engine.start()
    due, count = time.monotonic() + given.every, 0
    while not engine.wait(0.1):
        if not evaluates or engine.me != 0:
            continue
        count += engine.take_evaluation() is not None
        if time.monotonic() >= due and engine.status.started:
            engine.request_evaluation()
            due = time.monotonic() + given.every
    row = spent(engine).total if engine.has_result else 0.0
    engine.close()
    return 1e3 * row / STEPS, count


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--every", type=float, default=2.0, help="seconds between evaluations")
    parser.add_argument("--busy", type=float, default=0.2, help="CPU seconds of one evaluation")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--clients", type=int, default=16)
    return parser.parse_args()


def main() -> None:
    given = arguments()
    if rank_here() is None:
        try:
            command = launch.command(given.clients, sys.argv, [])
        except UserError as error:
            sys.exit(f"without MPI: {error}")
        os.execve(command[0], command, launch.environment())
    without, with_them, counts = [], [], []
    for _ in range(given.rounds):
        without.append(measure(given, evaluates=False)[0])
        step, count = measure(given, evaluates=True)
        with_them.append(step)
        counts.append(count)
    if world().rank == 0:
        ratio = median(with_them) / median(without)
        steps = ", ".join(f"{a:.2f}/{b:.2f}" for a, b in zip(without, with_them, strict=True))
        print(f"{given.clients} ranks, an evaluation every {given.every:g} s of {given.busy:g} CPU seconds")
        print(f"ms of a step without/with: {steps}; evaluations: {counts}")
        verdict = "kept" if ratio < 1.01 else "missed"
        print(f"with evaluations, a step takes {ratio:.4f} of its time without (below 1.01: {verdict})")
    world().leave()


if __name__ == "__main__":
    main()
