"""What influence does to labels that only slow clients hold.

    python benchmarks/rare_labels.py            # the table of docs/convergence.md
    python benchmarks/rare_labels.py --seeds 1  # quicker

Digits on eight clients in a ring, virtual time, momentum 0.9. Clients 0 and 4 hold all images of the digits
8 and 9 and nothing else, the others share the rest; the two are 1, 4 or 10 times as slow. Every run takes
the same number of client steps. Accuracy of the consensus model on all test images, and on those of 8 and 9
(recall), means over seeds. In the last row of each speed the same two clients are slow but data are IID:
what slowness alone costs.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from swiftfl.data.dataset import Dataset
from swiftfl.data.digits import digits
from swiftfl.data.partition import make
from swiftfl.data.registry import DATASETS
from swiftfl.engines import VirtualEngine
from swiftfl.experiment.build import build
from swiftfl.experiment.recipes import recipe
from swiftfl.streams import stream
from swiftfl.vector import consensus

CLIENTS, SLOW, RARE, STEPS = 8, (0, 4), (8, 9), 2400
CHOICES: dict[str, dict[str, Any]] = {
    "uniform": {},
    "measured": {"influence": "measured"},
    "measured, steps scaled (as_given)": {"influence": "measured", "objective": "as_given"},
    "uniform, IID data": {"data.dataset": "digits", "data.partition": "iid"},
}


@DATASETS.add("rare_labels")
def rare_labels() -> Dataset:
    """The digits, of which two clients hold all 8s and 9s, and nothing else."""
    data = digits()
    order = stream(0, "rare").permutation(data.size)
    rare = np.isin(data.labels[order], RARE)
    scarce, common = iter(np.array_split(order[rare], len(SLOW))), order[~rare]
    others = iter(np.array_split(common, CLIENTS - len(SLOW)))
    parts = [next(scarce) if i in SLOW else next(others) for i in range(CLIENTS)]
    return Dataset("rare labels", data.train, data.test, classes=10, parts=make("rare", parts))


def run(choice: str, factor: float, seed: int) -> tuple[float, float]:
    """Accuracy, and recall of the rare labels."""
    changes = {
        "data.dataset": "rare_labels", "data.partition": "given", "topology.clients": CLIENTS, "seed": seed,
        "engine.epochs": None, "engine.iterations": STEPS, "engine.costs.spread": 0.2,
        "engine.costs.slowdowns": [{"client": i, "factor": factor} for i in SLOW],
        "algorithm.momentum": 0.9, "algorithm.step_size.initial": 0.05, **CHOICES[choice],
    }  # fmt: skip
    parts = build(recipe("digits").with_changes(changes))
    engine = VirtualEngine(parts.setup)
    engine.start()
    engine.advance(10**9)
    outputs = parts.workload.outputs(consensus(engine.models), parts.data.test_inputs)
    labels = parts.data.test_labels.numpy()
    right = outputs.detach().numpy().argmax(axis=1) == labels
    return float(right.mean()), float(right[np.isin(labels, RARE)].mean())


def main() -> None:
    parser = argparse.ArgumentParser(description="Labels that only slow clients hold.")
    parser.add_argument("--seeds", type=int, default=3)
    seeds = parser.parse_args().seeds
    print("| slower | influence | accuracy | recall of 8 and 9 |")
    print("|--:|---|--:|--:|")
    for factor in (1.0, 4.0, 10.0):
        for choice in CHOICES:
            accuracy, recall = np.mean([run(choice, factor, seed) for seed in range(seeds)], axis=0)
            print(f"| {factor:g}x | {choice} | {accuracy:.1%} | {recall:.1%} |", flush=True)


if __name__ == "__main__":
    main()
