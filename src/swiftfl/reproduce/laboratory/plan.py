"""What the experiments of the laboratory share: trials, two budgets, and the one rule for step sizes.

A *trial* is one method in one group (a network with some data). It has two budgets: so many client steps, all
clients together, and so many seconds, those in which SWIFT takes these steps. A run goes on until it has used
up both, so that one curve tells what a method has learnt after equal steps and after equal time.

**The rule for step sizes**, the same for every method: step sizes lie on a grid of powers of two. From its
middle go to smaller ones until two in a row are no better than the best so far, then from the middle to
larger ones in the same way; take the best. What is compared is the loss of the consensus model on test data
at the end of the budget, mean over the tuning seeds; each budget has its own step size. What is reported is
of fresh seeds, which were not tuned on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = Mapping[str, Any]
"""A measurement: iteration, time, loss, and whatever else is measured."""
FIRST_TUNING_SEED = 100
STEPS, TIME = "iteration", "time"
"""The two budgets, named as the columns in which they are counted."""
PATIENCE = 2
TARGET = "target"
"""In place of a budget: a step size for reaching the group's loss as early as possible."""


@dataclass(frozen=True)
class InquiryScale:
    """How much of everything: client steps in all, measurements on a curve, tuning seeds, step sizes, and
    the steps per client with which the law is measured (`law.py`)."""

    steps: int
    points: int
    tuning_seeds: int
    step_sizes: tuple[float, ...]
    law_steps: int


SCALES = {
    "smoke": InquiryScale(96, 6, 1, (0.05, 0.2, 0.8), 100),
    "small": InquiryScale(720, 24, 2, tuple(0.00625 * 2**k for k in range(11)), 400),
}


@dataclass(frozen=True)
class TrialGroup:
    """A network with some data: how long SWIFT takes for the steps, and a loss to reach."""

    label: str
    seconds: float
    target: float


@dataclass(frozen=True)
class Trial:
    """One method in one group; `world` is plain JSON, which the experiment's learner understands."""

    group: str
    method: str
    world: dict[str, Any]


@dataclass(frozen=True)
class Inquiry:
    """One experiment: its trials, and `learner`, the "module:function" that runs one of them.

    `carried` says for a group from which other one a step size is carried over, to be tried there too. With
    `to_target` there is a third step size, by the same rule, for the shortest time to the group's loss.
    """

    name: str
    title: str
    scale: InquiryScale
    groups: dict[str, TrialGroup]
    methods: dict[str, str]
    trials: tuple[Trial, ...]
    learner: str
    carried: dict[str, str] = field(default_factory=dict)
    to_target: bool = False


def walk(loss: Callable[[float], float], grid: Sequence[float]) -> float:
    """The step size that the rule finds. A loss that is not finite is worse than any other.

    >>> walk(lambda step_size: abs(step_size - 3.0), [1.0, 2.0, 4.0, 8.0, 16.0])
    4.0
    """
    found: dict[int, float] = {}

    def of(k: int) -> float:
        if k not in found:
            value = loss(grid[k])
            found[k] = value if math.isfinite(value) else math.inf
        return found[k]

    middle = best = len(grid) // 2
    for direction in (-1, 1):
        k, misses = middle, 0
        while misses < PATIENCE and 0 <= k + direction < len(grid):
            k += direction
            better = of(k) < of(best)
            best = k if better else best
            misses = 0 if better or of(best) == math.inf else misses + 1
    return grid[best]


def time_to_loss(rows: Sequence[Row], target: float, key: str = TIME) -> float | None:
    """When the test loss of the consensus model first is at most `target`, or None if it never is.

    Between two evaluations the loss is taken to be a straight line.

    >>> time_to_loss([{"time": 0.0, "loss": 2.0}, {"time": 4.0, "loss": 1.0}], 1.5)
    2.0
    """
    before = None
    for row in rows:
        if row["loss"] is None or not math.isfinite(row["loss"]):
            return None
        if row["loss"] <= target:
            if before is None or before["loss"] == row["loss"]:
                return float(row[key])
            share = (before["loss"] - target) / (before["loss"] - row["loss"])
            return float(before[key] + share * (row[key] - before[key]))
        before = row
    return None


def at(rows: Sequence[Row], budget: str, limit: float, what: str) -> float:
    """A measured number when so much of a budget was used, linear between measurements; infinite if the run
    diverged before.

    >>> at([{"time": 0.0, "loss": 2.0}, {"time": 4.0, "loss": 1.0}], "time", 1.0, "loss")
    1.75
    """
    before = None
    for row in rows:
        if row["loss"] is None or not math.isfinite(row["loss"]):
            return math.inf
        if row[budget] >= limit:
            if before is None or row[budget] == limit:
                return float(row[what])
            share = (limit - before[budget]) / (row[budget] - before[budget])
            return float(before[what] + share * (row[what] - before[what]))
        before = row
    return math.inf if before is None else float(before[what])
