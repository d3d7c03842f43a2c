"""What one client in eight that misbehaves does to the others, by how they average.

    python benchmarks/poison.py            # the tables of docs/robust.md
    python benchmarks/poison.py --seeds 1  # quicker
    python benchmarks/poison.py --ways     # what else could make a slow client's own labels count

Digits on eight clients, each with four neighbours, SWIFT in virtual time, momentum 0.9. Client 3 sends its
model times -10, noise, or a model that slowly drifts away. Every run takes the same number of client steps.
Accuracy is that of the seven others: the mean of their own models on the test images.

In the second table client 0 is honest, four times as slow as the others, and holds two thirds of the images
of 8 and 9, or nine tenths, or all of them. The recall of 8 and 9 by the others (without clients 0 and 3) says
whether its data count; in the last line it has no such images. In brackets: how much of what its images add
to the recall in the plain average among honest clients they add here.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from swiftfl.data.dataset import Dataset
from swiftfl.data.digits import digits
from swiftfl.data.partition import make
from swiftfl.data.registry import DATASETS
from swiftfl.engines import VirtualEngine
from swiftfl.experiment.build import build
from swiftfl.experiment.recipes import recipe
from swiftfl.mixing.base import mixing_rule
from swiftfl.mixing.by_distance import ClippedMixing, threshold
from swiftfl.streams import stream

CLIENTS, BAD, SLOW, FACTOR, OWN = 8, 3, 0, 4.0, (8, 9)
KINDS: dict[str, dict[str, Any] | None] = {
    "as the others": None,
    "times -10": {"kind": "scaled", "factor": -10.0},
    "noise": {"kind": "noise", "scale": 1.0},
    "drift": {"kind": "drift", "rate": 0.02},
}
MIXINGS: dict[str, dict[str, Any]] = {
    "plain": {"algorithm.mixing": "plain"},
    "clipped": {"algorithm.mixing": "clipped"},
    "clipped, b = 0.1": {"algorithm.mixing": "clipped", "algorithm.tolerate": 0.1},
    "trimmed": {"algorithm.mixing": "trimmed"},
}
"""Every neighbour weighs 0.2 here: with b = 0.1 only the farthest one is clipped, else the farthest two."""
WAYS: dict[str, dict[str, Any]] = {
    "4 neighbours": {},
    "4 neighbours, data count as given": {"influence": "measured", "objective": "as_given"},
    "6 neighbours": {"topology.options": {"degree": 6}},
    "all are neighbours": {"topology.name": "complete", "topology.options": {}},
    "all are neighbours, data count as given": {
        "topology.name": "complete", "topology.options": {}, "influence": "measured", "objective": "as_given",
    },
}  # fmt: skip
"""Whatever the graph, each client tolerates one neighbour."""


@dataclass(frozen=True)
class WiderClipping(ClippedMixing):
    """Clipped at `times` tau: nearer to the plain average, for whoever is far."""

    times: float = 1.0

    def shares(self, weights: Mapping[int, float], distances: Mapping[int, float], b: float) -> list[float]:
        tau = self.times * threshold(weights, distances, b)
        return [1.0 if d <= tau else tau / d for d in distances.values()]


@mixing_rule("wider")
def wider(*, times: float) -> WiderClipping:
    return WiderClipping(None, times)


TRIED = {
    **{name: MIXINGS[name] for name in ("plain", "clipped")},
    "clipped at 2 tau": {"algorithm.mixing": "wider", "algorithm.times": 2.0},
    "clipped at 3 tau": {"algorithm.mixing": "wider", "algorithm.times": 3.0},
}
SHARES = {"two thirds": 2 / 3, "nine tenths": 0.9, "all": 1.0}
"""How much of the digits 8 and 9 the slow client holds."""


def with_own_labels(share: float, there: bool) -> Callable[[], Dataset]:
    """The digits, of which the slow client has this share of all 8s and 9s, and others as the rest allows."""

    def made() -> Dataset:
        data = digits()
        order = stream(0, "own labels").permutation(data.size)
        own = order[np.isin(data.labels[order], OWN)]
        mine, left = np.split(own, [round(share * own.size)])
        rest = np.concatenate([order[~np.isin(data.labels[order], OWN)], left])
        rest = rest[stream(0, "the rest").permutation(rest.size)]
        more = max(0, rest.size // CLIENTS - mine.size) if there else rest.size // CLIENTS
        others = iter(np.array_split(rest[more:], CLIENTS - 1))
        held = np.concatenate([mine, rest[:more]]) if there else rest[:more]
        parts = [held if i == SLOW else next(others) for i in range(CLIENTS)]
        return Dataset("labels of its own", data.train, data.test, classes=10, parts=make("own", parts))

    return made


for _name, _share in SHARES.items():
    for _there in (True, False):
        DATASETS.register(f"{_name}, {_there}", with_own_labels(_share, _there))


def run(
    mixing: str, kind: str, seed: int, steps: int, data: str | None = None, way: str = "4 neighbours"
) -> tuple[float, float]:
    """Of the honest clients: mean accuracy, and recall of 8 and 9 without the one who holds them."""
    changes: dict[str, Any] = {
        "topology.name": "random_regular", "topology.options": {"degree": 4}, "topology.clients": CLIENTS,
        "seed": seed, "engine.epochs": None, "engine.iterations": steps, "engine.costs.spread": 0.2,
        "algorithm.momentum": 0.9, "algorithm.step_size.initial": 0.05,
        **{**MIXINGS, **TRIED}[mixing], **WAYS[way],
    }  # fmt: skip
    if data is not None:
        slow = [{"client": SLOW, "factor": FACTOR}]
        changes |= {"data.dataset": data, "data.partition": "given", "engine.costs.slowdowns": slow}
    bad = KINDS[kind]
    if bad is not None:
        changes["faults.poison"] = [{"client": BAD, **bad}]
    parts = build(recipe("digits").with_changes(changes))
    engine = VirtualEngine(parts.setup)
    engine.start()
    engine.advance(10**9)
    labels = parts.data.test_labels.numpy()
    own = np.isin(labels, OWN)
    accuracy, recall = [], []
    for i in range(CLIENTS):
        if i != BAD:
            outputs = parts.workload.outputs(engine.models[i], parts.data.test_inputs).detach().numpy()
            right = outputs.argmax(axis=1) == labels
            accuracy.append(right.mean())
            if i != SLOW:
                recall.append(right[own].mean())
    return float(np.mean(accuracy)), float(np.mean(recall))


def misbehaving(seeds: range, steps: int) -> None:
    print("| client 3 sends | mixing | accuracy | points lost |\n|---|---|--:|--:|")
    undisturbed = None
    for kind in KINDS:
        for mixing in MIXINGS:
            accuracy = np.mean([run(mixing, kind, seed, steps)[0] for seed in seeds])
            undisturbed = accuracy if undisturbed is None else undisturbed
            lost = 100 * (undisturbed - accuracy)
            print(f"| {kind} | {mixing} | {accuracy:.1%} | {lost:.1f} |", flush=True)


def with_a_slow_client(seeds: range, steps: int) -> None:
    columns = " | ".join(f"{name}: accuracy | recall of 8 and 9" for name in SHARES)
    print(f"| client 3 sends | mixing | {columns} |\n|---|---|{'--:|' * 2 * len(SHARES)}")

    def means(kind: str, mixing: str, there: bool) -> list[tuple[float, float]]:
        found = [[run(mixing, kind, seed, steps, f"{name}, {there}") for seed in seeds] for name in SHARES]
        return [tuple(np.mean(each, axis=0)) for each in found]

    plain, without = means("as the others", "plain", True), means("as the others", "plain", False)
    for kind in KINDS:
        for mixing in MIXINGS:
            numbers = [
                f"{accuracy:.1%} | {recall:.1%} ({max(0.0, (recall - least) / (most - least)):.0%})"
                for (accuracy, recall), (_, most), (_, least) in zip(
                    means(kind, mixing, True), plain, without, strict=True
                )
            ]
            print(f"| {kind} | {mixing} | {' | '.join(numbers)} |", flush=True)
    numbers = [f"{accuracy:.1%} | {recall:.1%} (0%)" for accuracy, recall in without]
    print(f"| as the others, without these images | plain | {' | '.join(numbers)} |")


def ways(seeds: range, steps: int) -> None:
    shares = ("nine tenths", "all")
    columns = " | ".join(f"{name}: accuracy | recall of 8 and 9" for name in shares)
    print(f"| graph | mixing | client 3 sends | {columns} |\n|---|---|---|{'--:|' * 2 * len(shares)}")
    rows = [("4 neighbours", mixing) for mixing in TRIED]
    rows += [(way, mixing) for way in list(WAYS)[1:] for mixing in ("plain", "clipped")]
    for way, mixing in rows:
        for kind in KINDS if mixing != "plain" else ("as the others",):
            found = [
                [run(mixing, kind, seed, steps, f"{name}, True", way) for seed in seeds] for name in shares
            ]
            means = [np.mean(each, axis=0) for each in found]
            numbers = " | ".join(f"{accuracy:.1%} | {recall:.1%}" for accuracy, recall in means)
            print(f"| {way} | {mixing} | {kind} | {numbers} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="One client in eight that misbehaves.")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2400, help="of all clients together")
    parser.add_argument("--ways", action="store_true", help="only the ways to make a slow client count")
    chosen = parser.parse_args()
    seeds = range(chosen.seeds)
    if chosen.ways:
        ways(seeds, chosen.steps)
        return
    misbehaving(seeds, chosen.steps)
    print()
    with_a_slow_client(seeds, chosen.steps)


if __name__ == "__main__":
    main()
