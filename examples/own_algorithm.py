"""Your own algorithm: lazy SWIFT, which averages only when it has drifted far from its neighbours.

Run it with `python examples/own_algorithm.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from swiftfl.algorithm import WaitFreeAlgorithm
from swiftfl.algorithms import Swift
from swiftfl.client import Client, State
from swiftfl.engines import Virtual
from swiftfl.experiment.build import build
from swiftfl.experiment.measure import measure
from swiftfl.experiment.recipes import digits
from swiftfl.rules import SGD
from swiftfl.vector import advance
from swiftfl.verbs import Fetch, Gradient, Mix, Publish, WaitFree


@dataclass(frozen=True)
class Lazy:
    """SWIFT that averages when some neighbour's model is further away than `far`."""

    far: float
    rule: SGD = SGD(momentum=0.9)
    name: str = "lazy"
    in_rounds: ClassVar[bool] = False

    def step(self, me: Client, s: State) -> Generator[WaitFree, object, State]:
        yield from Publish(s.x, me.neighbours, version=s.c)
        slope = yield from Gradient(s.x, me.batch(s.c))
        inbox = yield from Fetch(me.neighbours)
        half = s.x
        if max((float(np.linalg.norm(x - s.x)) for x in inbox.values()), default=0.0) > self.far:
            half = yield from Mix(me.w, s.x, inbox)
        move, memory = self.rule.update(slope.g, s.x, me.step_size(s.c), s.memory)
        return State(advance(half, move, slope.statistics), s.c + 1, memory)


def main() -> None:
    parts = build(digits().with_changes({"engine.epochs": 20}))
    algorithms: list[WaitFreeAlgorithm] = [Swift(rule=SGD(momentum=0.9)), Lazy(1.0), Lazy(3.0)]
    print(f"{'':12}{'accuracy':>9}{'distance':>10}{'communication (s)':>19}")
    for algorithm in algorithms:
        engine = Virtual(replace(parts.setup, algorithm=algorithm))
        engine.start()
        engine.advance(sys.maxsize)
        found = measure(engine, clients=0)
        label = f"{algorithm.name} {getattr(algorithm, 'far', '')}"
        seconds = sum(engine.seconds()["communication"])
        print(f"{label:12}{found.accuracy or 0:9.1%}{found.consensus_distance:10.3f}{seconds:19.3f}")


if __name__ == "__main__":
    main()
