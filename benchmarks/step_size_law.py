"""How far SWIFT's mean model moves per step: predicted and measured; and what correcting its steps does.

    python benchmarks/step_size_law.py            # the tables of docs/step-size.md
    python benchmarks/step_size_law.py --seeds 1  # quicker

First table: the law, as `swiftfl reproduce better` measures it. Second table: eight clients in a ring learn
the digits of the package, labels skewed, with the same step size in every regime; loss and accuracy of the
consensus model on test data, means over seeds.
"""

from __future__ import annotations

import argparse
from contextlib import closing
from typing import Any

import numpy as np

from swiftfl.engines import VirtualEngine
from swiftfl.experiment.build import build
from swiftfl.experiment.measure import measure
from swiftfl.experiment.recipes import recipe
from swiftfl.reproduce.laboratory.law import REGIMES, SPREAD
from swiftfl.reproduce.laboratory.law import measure as measure_law

STEPS = 400


def law() -> None:
    print("| regime | age, predicted | measured | γ_eff / γ, predicted | measured | corrected |")
    print("|---|--:|--:|--:|--:|--:|")
    for regime in REGIMES:
        label, *numbers = measure_law({"regime": regime, "steps": STEPS}).values()
        print(f"| {label} | {' | '.join(f'{number:.3f}' for number in numbers)} |", flush=True)


NETWORKS: dict[str, dict[str, Any]] = {
    "lockstep": {},
    "20 % spread": {"engine.costs.spread": SPREAD},
    "latency of one step": {"engine.costs.spread": SPREAD, "engine.costs.latency": 0.010},
    "latency of three steps": {"engine.costs.spread": SPREAD, "engine.costs.latency": 0.030},
}


def learnt(changes: dict[str, Any], seed: int) -> tuple[float, float]:
    """Loss and accuracy of the consensus model on test data."""
    common = {
        "topology.clients": 8, "data.partition": "label_skew:0.7", "engine.epochs": 6, "seed": seed,
        "algorithm.name": "swift", "algorithm.momentum": 0.9,
    }  # fmt: skip
    with closing(VirtualEngine(build(recipe("digits").with_changes({**common, **changes})).setup)) as engine:
        engine.start()
        engine.advance(10**9)
        found = measure(engine, clients=0)
    return found.loss, found.accuracy or 0.0


def digits(seeds: int) -> None:
    print("\n| network | γ | loss | loss, corrected | accuracy | accuracy, corrected |")
    print("|---|--:|--:|--:|--:|--:|")
    for step_size in (0.03, 0.1):
        for name, network in NETWORKS.items():
            changes = {**network, "algorithm.step_size.initial": step_size}
            cells = []
            for corrected in (False, True):
                more = {**changes, "algorithm.step_size.corrected": corrected}
                cells.append(np.mean([learnt(more, seed) for seed in range(seeds)], axis=0))
            (loss, accuracy), (loss_corrected, accuracy_corrected) = cells
            print(
                f"| {name} | {step_size} | {loss:.3f} | {loss_corrected:.3f} "
                f"| {accuracy:.1%} | {accuracy_corrected:.1%} |",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description="SWIFT's effective step size.")
    parser.add_argument("--seeds", type=int, default=3)
    seeds = parser.parse_args().seeds
    law()
    digits(seeds)


if __name__ == "__main__":
    main()
