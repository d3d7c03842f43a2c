"""What a slow client does to the consensus model when data differ, and what can be done about it.

    python benchmarks/influence.py [--clients 8] [--factor 4] [--iterations 4000]

Digits, each class held by few clients; one client computes `factor` times as slowly. SWIFT runs live for a
given number of client steps in all, with the influence taken as uniform, as measured (its data count by
its speed), and as measured with step sizes scaled so that data keep their weight. Printed are the accuracy
of the consensus model, that on the test images of the classes that only the slow client and its like hold
(recall), the gap of rates, and the error of the expected matrix's row sums.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch

from swiftfl.experiment.build import build
from swiftfl.experiment.config import Config
from swiftfl.experiment.recipes import recipe
from swiftfl.experiment.run import run

CHOICES = {
    "uniform": {},
    "measured": {"influence": "measured"},
    "measured, objective as given": {"influence": "measured", "objective": "as_given"},
}
SLOW = 1


def configuration(clients: int, factor: float, iterations: int) -> Config:
    changes = {
        "topology.clients": clients,
        "data.partition": "cyclic_classes",
        "engine.name": "local",
        "engine.epochs": None,
        "engine.iterations": iterations,
        "engine.costs.slowdowns": [{"client": SLOW, "factor": factor}],
        "algorithm.momentum": 0.0,
        "engine.live.record": False,
    }
    return recipe("digits").with_changes(changes)


def recall(config: Config, model: np.ndarray) -> float:
    """On the test images of the slow client's most frequent class."""
    parts = build(config)
    labels = parts.data.train_labels[torch.from_numpy(parts.partition[SLOW])]
    its = int(labels.mode().values)
    chosen = parts.data.test_labels == its
    guesses = parts.workload.outputs(model, parts.data.test_inputs[chosen]).argmax(dim=1)
    return float((guesses == its).float().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--factor", type=float, default=4.0)
    parser.add_argument("--iterations", type=int, default=4000)
    given = parser.parse_args()
    base = configuration(given.clients, given.factor, given.iterations)
    print(f"{'influence':30} {'accuracy':>8} {'recall':>7} {'loss':>7} {'gap':>7} {'row sums':>9}")
    for name, changes in CHOICES.items():
        config = base.with_changes(changes)
        result = run(config)
        s = result.summary
        mean = np.mean(result.models, axis=0).astype(np.float32)
        print(f"{name:30} {s['accuracy']:8.1%} {recall(config, mean):7.1%} {s['loss']:7.3f} "
              f"{s['influence_gap']:7.1%} {s['row_sum_error']:9.2g}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
