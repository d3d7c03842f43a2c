"""Averaging many clients' models as one sparse product, against one by one, in one run."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from swiftfl.engines.simulation.batched_mix import mix_many
from swiftfl.vector import Weights, mix
from swiftfl.verbs import Mix

CLIENTS = 400


def case(parameters: int, degree: int) -> list[Mix]:
    draw = np.random.default_rng(0)
    models = [draw.standard_normal(parameters).astype(np.float32) for _ in range(CLIENTS)]
    share = 1 / (degree + 1)
    verbs = []
    for i in range(CLIENTS):
        neighbours = [(i + k + 1) % CLIENTS for k in range(degree)]
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


def main() -> None:
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
