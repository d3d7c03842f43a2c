"""One run of an engine, with f and its gradient at the consensus model every few iterations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from swiftfl.algorithm import Algorithm
from swiftfl.algorithms import Swift
from swiftfl.costs import Costs
from swiftfl.data.batches import NoSamples
from swiftfl.engines import SampledEngine, Setup, VirtualEngine
from swiftfl.graph import Coefficients
from swiftfl.reproduce.convergence.problems import Array, Bowl
from swiftfl.schedule import constant
from swiftfl.verbs import Verb
from swiftfl.workload.base import Workload

_ROWS = 4096  # consensus models that are kept before they are evaluated together
DIVERGED = 1e6


def theorem_step_size(n: int, T: int, L: float, gap: float, M: int = 1) -> float:
    """gamma = sqrt(M n^2 Delta_f) / (sqrt(T L) + sqrt(M)), as Theorem 1 chooses it from T."""
    return n * math.sqrt(M * gap) / (math.sqrt(T * L) + math.sqrt(M))


def setup_of(
    problem: Workload,
    coefficients: Coefficients,
    step_size: float,
    iterations: int,
    seed: int,
    algorithm: Algorithm[Verb] = Swift(),
    costs: Costs | None = None,
) -> Setup:
    """A federation that trains `problem` with these coefficients."""
    n = coefficients.topology.n
    return Setup(
        algorithm=algorithm,
        workload=problem,
        weights=[coefficients.weights(i) for i in range(n)],
        batches=[NoSamples(i, 1 << 30) for i in range(n)],
        step_size=constant(step_size),
        influence=coefficients.influence.tolist(),
        costs=costs or Costs(),
        iterations=iterations,
        seed=seed,
    )


@dataclass(frozen=True)
class WatchedRun:
    """Of the iterations `at`: |grad f|^2 and f - f* of the consensus model."""

    at: Array
    gradient: Array
    gap: Array

    @property
    def averaged(self) -> float:
        """(1/T) sum_{t<T} |grad f(x^t)|^2, linear between evaluations; infinite if the run diverged."""
        first, second, steps = self.gradient[:-1], self.gradient[1:], np.diff(self.at)
        return float((steps * first + 0.5 * (steps - 1.0) * (second - first)).sum() / self.at[-1])

    @property
    def last_gap(self) -> float:
        """f - f*, averaged over the last tenth of the run."""
        return float(self.gap[-max(1, len(self.gap) // 10) :].mean())

    def first_below(self, level: float) -> float | None:
        """The first evaluated iteration at which |grad f|^2 is at most `level`."""
        hits = np.flatnonzero(self.gradient <= level)
        return float(self.at[hits[0]]) if len(hits) else None


def watch(
    engine: SampledEngine | VirtualEngine,
    objectives: Sequence[Bowl],
    every: int,
    averages: Sequence[Array] = (),
) -> list[WatchedRun]:
    """Run to the end, evaluating at t = 0, every, 2 every, ..., T; one result per objective.

    Each objective is evaluated at the average of the clients' models with its weights in `averages`;
    without any, at the consensus model.
    """
    T, n = engine.setup.iterations, engine.n
    assert T is not None
    weights = np.stack(averages or [np.full(n, 1.0 / n)] * len(objectives))
    at: list[int] = []
    rows: list[Array] = []
    seen: list[list[tuple[Array, Array]]] = [[] for _ in objectives]
    engine.start()
    finite = True
    while finite and (not at or at[-1] < T):
        engine.advance(min(every, T - engine.iteration) if at else 0)
        at.append(engine.iteration)
        rows.append(weights @ np.asarray(engine.models))
        finite = bool(np.abs(rows[-1]).max() < DIVERGED)
        if len(rows) == _ROWS or at[-1] >= T or not finite:
            for k, f in enumerate(objectives):
                x = np.asarray(rows)[:, k]
                seen[k].append(((f.gradients_of_f(x) ** 2).sum(axis=1), f.f(x)))
            rows.clear()
    return [_watched(at, parts, f.minimum, finite) for parts, f in zip(seen, objectives, strict=True)]


def _watched(
    at: Sequence[int], parts: Sequence[tuple[Array, Array]], minimum: float, finite: bool
) -> WatchedRun:
    gradient, value = (np.concatenate([part[k] for part in parts]) for k in (0, 1))
    if not finite:
        gradient[-1] = value[-1] = np.inf
    return WatchedRun(np.asarray(at, np.float64), gradient, value - minimum)
