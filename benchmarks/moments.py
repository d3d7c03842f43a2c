"""What averaging does to momentum and to Adam's moments: kept, reset, or averaged with the models.

    python benchmarks/moments.py            # docs/optimizers.md has the table
    python benchmarks/moments.py --seeds 1  # quicker

Eight clients in a ring learn the digits of the package, each with few of the classes (`dirichlet:0.2`). Every
row is the mean over seeds of runs of the same length in virtual time, with the step size that is the best of
three for the first seed.

`kept` and `reset` are settings (`--moments`). `averaged` is none: it is tried here with vectors that hold the
moments behind the model, so that whoever averages models averages both, and messages are that much longer.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from swiftfl.engines import Setup, VirtualEngine
from swiftfl.experiment.build import build
from swiftfl.experiment.measure import measure
from swiftfl.experiment.recipes import recipe
from swiftfl.rules import UpdateRule
from swiftfl.sample import Batch, Slope
from swiftfl.vector import Memory, Vector
from swiftfl.workload.base import Evaluation, Workload

ALGORITHMS: dict[str, dict[str, Any]] = {
    "swift, every step": {"algorithm.name": "swift", "algorithm.communication_set": 0},
    "swift, every 10th": {"algorithm.name": "swift", "algorithm.communication_set": 9},
}
RULES: dict[str, dict[str, Any]] = {
    "sgd, momentum 0.9": {"algorithm.rule": "sgd", "algorithm.momentum": 0.9},
    "adam": {"algorithm.rule": "adam"},
}
STEP_SIZES = {"sgd, momentum 0.9": (0.03, 0.1, 0.3), "adam": (0.003, 0.01, 0.03)}


@dataclass(frozen=True)
class Carried:
    """A rule whose arrays stand behind the model in its vector, and are averaged with it."""

    rule: UpdateRule
    parameters: int

    def _split(self, x: Vector) -> tuple[Vector, dict[str, Vector]]:
        names = [name for name, array in self.rule.init(x[: self.parameters]).items() if array.size > 1]
        model, *arrays = np.split(x, len(names) + 1)
        return model, dict(zip(names, arrays, strict=True))

    def init(self, x: Vector) -> Memory:
        return {
            name: array for name, array in self.rule.init(x[: self.parameters]).items() if array.size == 1
        }

    def update(self, g: Vector, x: Vector, step_size: float, memory: Memory) -> tuple[Vector, Memory]:
        model, arrays = self._split(x)
        move, after = self.rule.update(g[: self.parameters], model, step_size, {**arrays, **memory})
        moves = [after[name] - array for name, array in arrays.items()]
        return np.concatenate([move, *moves]), {name: after[name] for name in memory}


class Carrying:
    """A workload without running buffers whose vectors have space for the moments of a rule."""

    def __init__(self, workload: Workload, rule: UpdateRule) -> None:
        self._workload, self.name = workload, workload.name
        self.parameters, self.buffers = workload.parameters, 0
        arrays = rule.init(workload.initial(0)).values()
        self._space = sum(array.size for array in arrays if array.size > 1)

    def initial(self, seed: int) -> Vector:
        x = self._workload.initial(seed)
        return np.concatenate([x, np.zeros(self._space, x.dtype)])

    def gradient(self, x: Vector, batch: Batch) -> Slope:
        return self.gradients([x], [batch])[0]

    def gradients(self, xs: Sequence[Vector], batches: Sequence[Batch]) -> list[Slope]:
        slopes = self._workload.gradients([x[: self.parameters] for x in xs], batches)
        return [Slope(np.concatenate([s.g, np.zeros(self._space, s.g.dtype)]), s.loss) for s in slopes]

    def evaluate(self, xs: Sequence[Vector]) -> list[Evaluation]:
        return self._workload.evaluate([np.ascontiguousarray(x[: self.parameters]) for x in xs])


def averaging_moments(setup: Setup) -> Setup:
    algorithm: Any = setup.algorithm
    carried = Carried(algorithm.rule, setup.workload.parameters)
    workload = Carrying(setup.workload, algorithm.rule)
    return replace(setup, algorithm=replace(algorithm, rule=carried), workload=workload)


def run(changes: dict[str, Any], moments: str, seed: int) -> tuple[float, float, float]:
    """Accuracy of the consensus, mean accuracy of the clients, megabytes that a client sent."""
    common = {
        "topology.clients": 8, "data.partition": "dirichlet:0.2", "engine.epochs": 12, "seed": seed,
        "algorithm.moments": "reset" if moments == "reset" else "kept",
        "algorithm.decay_at": "average",  # the rule then sees the averaged moments; there is no weight decay
    }  # fmt: skip
    setup = build(recipe("digits").with_changes({**common, **changes})).setup
    engine = VirtualEngine(averaging_moments(setup) if moments == "averaged" else setup)
    engine.start()
    engine.advance(10**9)
    found, sent = measure(engine, clients=8), engine.figures()["communication"]["bytes"]
    return found.accuracy or 0.0, found.mean_client_accuracy or 0.0, float(np.mean(sent)) / 1e6


def with_best_step_size(
    changes: dict[str, Any], step_sizes: Sequence[float], moments: str, seeds: int
) -> tuple[float, list[float]]:
    """The step size whose consensus is best for the first seed, and the means over all seeds with it."""
    tried = {lr: run({**changes, "algorithm.step_size.initial": lr}, moments, 0) for lr in step_sizes}
    best = max(tried, key=lambda lr: tried[lr])
    changes = {**changes, "algorithm.step_size.initial": best}
    more = [run(changes, moments, seed) for seed in range(1, seeds)]
    return best, np.mean([tried[best], *more], axis=0).tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description="What averaging does to moments.")
    parser.add_argument("--seeds", type=int, default=3)
    seeds = parser.parse_args().seeds
    print("| algorithm | rule | lr | moments | accuracy | mean of clients | MB sent |")
    print("|---|---|--:|---|--:|--:|--:|")
    for algorithm, chosen in ALGORITHMS.items():
        for rule, options in RULES.items():
            for moments in ("kept", "reset", "averaged"):
                lr, found = with_best_step_size({**chosen, **options}, STEP_SIZES[rule], moments, seeds)
                numbers = f"{found[0]:.1%} | {found[1]:.1%} | {found[2]:.1f}"
                print(f"| {algorithm} | {rule} | {lr} | {moments} | {numbers} |", flush=True)


if __name__ == "__main__":
    main()
