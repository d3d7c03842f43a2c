"""Quasi-global momentum (Lin et al., ICML 2021, QG-DSGDm).

Momentum follows the move of the averaged model, not the client's own gradients, which point elsewhere where
data differ:

    d_i   = mu m_i + g_i
    x_i'  = sum_j w_{j,i} (x_j - step_size d_j)
    m_i  <- (1 - beta) m_i + beta (x_i - x_i') / step_size;    x_i <- x_i'

mu is the momentum of the update rule `sgd` (with its weight decay, Nesterov's form and clipping if they are
set), beta 0.1 as in the authors' code. Clients meet in rounds, as in D-SGD.

`order="swift"` is the same momentum in SWIFT's wait-free step, x_i' = sum_j w_{j,i} x_j - step_size d_i
with whatever models have arrived. It is not in the paper. There m also sees the pull of old models: with
models of mean age a (in steps, when they are fetched) the mean model moves by step_size / (1 - (1 - w_ii)(1
- a)), and with (1 - w_ii)(1 - a) > 1 - mu the momentum feeds itself and the run diverges. Such a client is
refused: `age` is the a to count with. 0.5 is what short links and unequal speeds give; 1 is lockstep, and
the sampled engine.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from swiftfl.algorithms.registry import Context, algorithm
from swiftfl.client import Client, State
from swiftfl.errors import UserError
from swiftfl.rules import SgdRule, UpdateRule, applied
from swiftfl.schedule import MomentumOrder
from swiftfl.settings import NotBelowZero, Share
from swiftfl.vector import Memory, Vector
from swiftfl.verbs import Exchange, Fetch, Gradient, Mix, Publish, Verb, WaitFree

_MOMENTUM = "momentum"


def momentum_of(rule: UpdateRule) -> float:
    """The mu of a rule that remembers a momentum and nothing else."""
    nothing = np.zeros(1)
    if set(rule.init(nothing)) != {_MOMENTUM}:
        raise UserError(
            "quasi_global changes the momentum of the rule sgd: it needs --rule sgd with a momentum above 0"
        )
    return float(rule.update(nothing, nothing, 1.0, {_MOMENTUM: np.ones(1)})[1][_MOMENTUM][0])


def quasi_global_momentum(m: Vector, moved: Vector, step_size: float, beta: float) -> Memory:
    """The momentum after the model has moved from x to x' = x - moved."""
    if step_size == 0.0:  # at the beginning of a warm-up
        return {_MOMENTUM: m}
    return {_MOMENTUM: (1.0 - beta) * m + (beta / step_size) * moved}


@dataclass(frozen=True)
class QuasiGlobal:
    """D-SGD with quasi-global momentum."""

    rule: UpdateRule = SgdRule(momentum=0.9)
    beta: float = 0.1
    name: str = "quasi_global"
    in_rounds: ClassVar[bool] = True

    def __post_init__(self) -> None:
        momentum_of(self.rule)

    def step(self, me: Client, s: State) -> Generator[Verb, object, State]:
        step_size = me.step_size(s.c)
        slope = yield from Gradient(s.x, me.batch(s.c))
        x, _, _ = applied(self.rule, s.x, slope, s.x, step_size, s.memory)
        inbox = yield from Exchange(x, me.neighbours, round=s.c)
        x = yield from Mix(me.w, x, inbox)
        return State(x, s.c + 1, quasi_global_momentum(s.memory[_MOMENTUM], s.x - x, step_size, self.beta))


@dataclass(frozen=True)
class WaitFreeQuasiGlobal:
    """SWIFT with quasi-global momentum, where models are not too young for it."""

    rule: UpdateRule = SgdRule(momentum=0.9)
    beta: float = 0.1
    age: float = 0.5
    name: str = "quasi_global"
    in_rounds: ClassVar[bool] = False

    def step(self, me: Client, s: State) -> Generator[WaitFree, object, State]:
        self.check(me)
        step_size = me.step_size(s.c)
        yield from Publish(s.x, me.neighbours, version=s.c)
        slope = yield from Gradient(s.x, me.batch(s.c))
        inbox = yield from Fetch(me.neighbours)
        half = yield from Mix(me.w, s.x, inbox)
        x, _, _ = applied(self.rule, half, slope, s.x, step_size, s.memory)
        return State(x, s.c + 1, quasi_global_momentum(s.memory[_MOMENTUM], s.x - x, step_size, self.beta))

    def check(self, me: Client) -> None:
        mu = momentum_of(self.rule)
        pull = (1.0 - me.w.own) * (1.0 - self.age)
        if pull > 1.0 - mu + 1e-9:
            raise UserError(
                f"quasi_global in SWIFT's order diverges for client {me.index}: "
                f"(1 - w_ii)(1 - age) = {pull:.2f} is above 1 - momentum = {1.0 - mu:.2f}; "
                "give --order update_first, or a smaller --momentum"
            )


@algorithm("quasi_global")
def quasi_global(
    context: Context, *, beta: Share = 0.1, order: MomentumOrder = "update_first", age: NotBelowZero = 0.5
) -> QuasiGlobal | WaitFreeQuasiGlobal:
    """D-SGD whose momentum follows the averaged model; waits for the neighbours, as D-SGD does."""
    if order == "swift":
        return WaitFreeQuasiGlobal(context.rule, beta, age)
    return QuasiGlobal(context.rule, beta)
