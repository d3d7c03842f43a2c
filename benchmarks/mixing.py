"""Averaging many clients' models as one sparse product, against one by one, in one run.

    python benchmarks/mixing.py
    python benchmarks/mixing.py --processes    # against handing an average to another process

The latter counts only copies: the models into memory that both share, and the average out of it.
"""

from __future__ import annotations

import argparse
import mmap
import time
from collections.abc import Callable

import numpy as np

from swiftfl.engines.simulation.batched_mix import mix_many
from swiftfl.kernels import copy
from swiftfl.recycled import like
from swiftfl.vector import Vector, Weights, mix
from swiftfl.verbs import Mix

CLIENTS = 400


def case(parameters: int, degree: int, clients: int = CLIENTS) -> list[Mix]:
    draw = np.random.default_rng(0)
    models = [draw.standard_normal(parameters, dtype=np.float32) for _ in range(clients)]
    share = 1 / (degree + 1)
    verbs = []
    for i in range(clients):
        neighbours = [(i + k + 1) % clients for k in range(degree)]
        verbs.append(
            Mix(
                Weights(share, dict.fromkeys(neighbours, share)),
                models[i],
                {k: models[k] for k in neighbours},
            )
        )
    return verbs


def best(work: Callable[[], object], repeats: int = 7) -> float:
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def handed_over() -> None:
    """What an average takes in the run's own process, and what only its copies take for another one."""
    print("Microseconds per average: here, and the copies for another process")
    for parameters, degree in ((650, 2), (650, 8), (5_000, 2), (100_000, 2), (11_200_000, 2)):
        verbs = case(parameters, degree, max(degree + 1, min(CLIENTS, 8_000_000 // parameters)))
        shared = mmap.mmap(-1, 4 * parameters * (degree + 1))
        there = np.frombuffer(shared, np.float32).reshape(degree + 1, -1)

        def averages(verbs: list[Mix] = verbs) -> None:
            for verb in verbs:
                mix(verb.w, verb.x, verb.inbox)

        def copies(verbs: list[Mix] = verbs, there: Vector = there) -> None:
            for verb in verbs:
                for row, x in zip(there, (verb.x, *verb.inbox.values()), strict=True):
                    copy(row, x)
                copy(like(verb.x), there[0])

        here = best(averages, 5)
        over = best(copies, 5)
        print(
            f"{parameters:>10,} parameters, {degree} neighbours: here {1e6 * here / len(verbs):9.1f}   "
            f"copies {1e6 * over / len(verbs):9.1f}   ratio {over / here:.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--processes", action="store_true", help="against handing over")
    if parser.parse_args().processes:
        handed_over()
        return
    print(f"{CLIENTS} clients, microseconds per client")
    for parameters in (650, 5_000, 20_000, 100_000):
        for degree in (2, 4, 8, 32):
            verbs = case(parameters, degree)
            alone = best(lambda verbs=verbs: [mix(v.w, v.x, v.inbox) for v in verbs])  # type: ignore[misc]
            together = best(lambda verbs=verbs: mix_many(verbs))  # type: ignore[misc]
            times = (1e6 * alone / CLIENTS, 1e6 * together / CLIENTS)
            print(
                f"{parameters:>7} parameters, {degree:>2} neighbours: one by one {times[0]:7.1f}   "
                f"product {times[1]:7.1f}   ratio {alone / together:.2f}"
            )


if __name__ == "__main__":
    main()
