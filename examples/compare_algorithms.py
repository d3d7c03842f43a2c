"""Several algorithms on the same data and the same network, one client four times slower.

Run it with `python examples/compare_algorithms.py`.
"""

from __future__ import annotations

from swiftfl.experiment.recipes import digits
from swiftfl.experiment.run import run

CHANGES = {
    "data.partition": "label_skew:0.5",
    "topology.name": "ring_of_cliques",
    "topology.clusters": 4,
    "engine.epochs": 10,
    "engine.costs.slowdowns": [{"client": 5, "factor": 4.0}],
    "evaluation.every_epochs": 10,
}


def main() -> None:
    print(f"{'':10}{'accuracy':>9}{'loss':>8}{'s/epoch':>9}{'waiting':>9}")
    for name in ("swift", "adpsgd", "dsgd", "pasgd", "allreduce"):
        found = run(digits().with_changes({**CHANGES, "algorithm.name": name})).summary
        print(
            f"{name:10}{found['accuracy']:9.1%}{found['loss']:8.3f}"
            f"{found['seconds_per_epoch']:9.4f}{found['waiting_seconds_per_epoch']:9.4f}"
        )


if __name__ == "__main__":
    main()
