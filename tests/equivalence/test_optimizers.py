"""One client with each update rule is torch's own optimizer, with schedules and clipping, in an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import swiftfl
from swiftfl.algorithms import AdPsgd, Swift, dsgd
from swiftfl.data.batches import Batches
from swiftfl.data.digits import digits
from swiftfl.engines import SampledEngine, Setup, VirtualEngine
from swiftfl.graph import communication_coefficients
from swiftfl.optimizers import Description
from swiftfl.rules import Clipped, LionRule, UpdateRule
from swiftfl.rules.clipped import norm
from swiftfl.vector import Memory, Vector
from swiftfl.workload import ModuleWorkload
from worlds import run_to_end

DIGITS = digits()
STEPS, EPOCHS = 20, 15
Parameters: TypeAlias = Iterable[Tensor]


def module() -> nn.Module:
    """With running buffers. A bias before BatchNorm would have rounding for a gradient; Adam enlarges it."""
    first = nn.Linear(64, 6, bias=False)
    return nn.Sequential(first, nn.BatchNorm1d(6, momentum=0.25), nn.Tanh(), nn.Linear(6, 10))


class TorchLion(torch.optim.Optimizer):
    """The program of the Lion paper, which torch does not have."""

    def __init__(self, params: Parameters, **defaults: Any) -> None:
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                update = m * group["betas"][0] + p.grad * (1 - group["betas"][0])
                p.add_(torch.sign(update), alpha=-group["lr"])
                m.mul_(group["betas"][1]).add_(p.grad, alpha=1 - group["betas"][1])


CASES: dict[str, tuple[Description, Callable[[Parameters], torch.optim.Optimizer]]] = {
    "sgd": (swiftfl.SGD(lr=0.1), lambda p: torch.optim.SGD(p, lr=0.1)),
    "sgd, momentum and decay": (
        swiftfl.SGD(lr=0.05, momentum=0.9, weight_decay=0.01),
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01),
    ),
    "sgd, nesterov": (
        swiftfl.SGD(lr=0.05, momentum=0.9, weight_decay=0.01, nesterov=True),
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01, nesterov=True),
    ),
    "adam": (swiftfl.Adam(lr=0.01), lambda p: torch.optim.Adam(p, lr=0.01)),
    "adam, decay": (
        swiftfl.Adam(lr=0.01, beta1=0.8, beta2=0.99, epsilon=1e-6, weight_decay=0.1),
        lambda p: torch.optim.Adam(p, lr=0.01, betas=(0.8, 0.99), eps=1e-6, weight_decay=0.1),
    ),
    "adamw": (swiftfl.AdamW(lr=0.01), lambda p: torch.optim.AdamW(p, lr=0.01)),
    "adamw, decay": (
        swiftfl.AdamW(lr=0.01, weight_decay=0.5),
        lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.5),
    ),
    "rmsprop": (swiftfl.RMSprop(lr=0.01), lambda p: torch.optim.RMSprop(p, lr=0.01)),
    "rmsprop, momentum and decay": (
        swiftfl.RMSprop(lr=0.003, alpha=0.9, momentum=0.8, weight_decay=0.1),
        lambda p: torch.optim.RMSprop(p, lr=0.003, alpha=0.9, momentum=0.8, weight_decay=0.1),
    ),
    "lion": (
        swiftfl.Lion(lr=0.002, weight_decay=0.3),
        lambda p: TorchLion(p, lr=0.002, betas=(0.9, 0.99), weight_decay=0.3),
    ),
}


def one_client(optimizer: Description, algorithm: Any = Swift) -> Setup:
    coefficients = communication_coefficients(swiftfl.from_edges([], 1))
    return Setup(
        algorithm=algorithm(rule=optimizer.update_rule()),
        workload=ModuleWorkload(module, DIGITS, dtype=torch.float64, batching="off"),
        weights=[coefficients.weights(0)],
        batches=[Batches(np.arange(16 * STEPS), 16, seed=3, client=0)],
        step_size=optimizer.step_size(EPOCHS),
        influence=[1.0],
        epochs=EPOCHS,
    )


def with_torch(
    setup: Setup,
    make: Callable[[Parameters], torch.optim.Optimizer],
    schedule: Callable[[torch.optim.Optimizer], Any] | None = None,
    each: int = 1,
    clip: float | None = None,
) -> Vector:
    """The plain loop of torch; a schedule goes on after `each` steps."""
    own = module().double()
    x0 = torch.from_numpy(setup.workload.initial(setup.seed)).double()
    nn.utils.vector_to_parameters(x0[: setup.workload.parameters], own.parameters())
    optimizer = make(own.parameters())
    scheduler = schedule(optimizer) if schedule else None
    for c in range(1, EPOCHS * STEPS + 1):
        chosen = setup.batches[0](c).indices
        optimizer.zero_grad()
        outputs = own(DIGITS.train_inputs[chosen].double())
        functional.cross_entropy(outputs, DIGITS.train_labels[chosen]).backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(own.parameters(), clip)
        optimizer.step()
        if scheduler is not None and c % each == 0:
            scheduler.step()
    running = [buffer.reshape(-1) for buffer in own.buffers() if buffer.is_floating_point()]
    return torch.cat([nn.utils.parameters_to_vector(own.parameters()), *running]).detach().numpy()


def assert_same(ours: Vector, theirs: Vector) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("case", CASES)
def test_one_client_is_torchs_own_optimizer(case: str) -> None:
    """With weight decay, which must not touch BatchNorm's running mean and variance, the vector's tail."""
    optimizer, make = CASES[case]
    setup = one_client(optimizer)
    assert_same(run_to_end(VirtualEngine(setup)).models[0], with_torch(setup, make))


@pytest.mark.parametrize("algorithm", [dsgd, AdPsgd])
def test_other_algorithms_and_the_other_engine(algorithm: Any) -> None:
    optimizer, make = CASES["adamw, decay"]
    setup = one_client(optimizer, algorithm)
    assert_same(run_to_end(SampledEngine(setup)).models[0], with_torch(setup, make))


SCHEDULES: dict[str, tuple[dict[str, Any], Callable[[Any], Any], int]] = {
    "step": (
        {"schedule": {"name": "step", "at": (4, 9), "rate": 0.3}},
        lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [4, 9], 0.3),
        STEPS,
    ),
    "cosine, to the end of the run": (
        {"schedule": "cosine"},
        lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, EPOCHS * STEPS),
        1,
    ),
    "cosine to a share": (
        {"schedule": {"name": "cosine", "epochs": 20, "final": 0.1}},
        lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 20 * STEPS, 0.1 * o.param_groups[0]["lr"]),
        1,
    ),
    "warm-up": (
        {"warmup": 2.5},
        lambda o: torch.optim.lr_scheduler.LinearLR(o, 0.1, total_iters=int(2.5 * STEPS)),
        1,
    ),
    "a function of whole epochs": (
        {"schedule": lambda epoch: [1.0, 0.5, 0.2][epoch // 5]},
        lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda epoch: [1.0, 0.5, 0.2, 0.0][epoch // 5]),
        STEPS,
    ),
}


@pytest.mark.parametrize("case", SCHEDULES)
def test_schedules_are_torchs_own(case: str) -> None:
    options, schedule, each = SCHEDULES[case]
    setup = one_client(swiftfl.AdamW(lr=0.01, weight_decay=0.2, **options))
    theirs = with_torch(setup, lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.2), schedule, each)
    assert_same(run_to_end(VirtualEngine(setup)).models[0], theirs)


@pytest.mark.parametrize("clip", [0.05, 0.5, 50.0])
def test_clipping_is_torchs_own(clip: float) -> None:
    """Always, sometimes, never."""
    setup = one_client(swiftfl.SGD(lr=0.1, momentum=0.9, weight_decay=0.01, clip=clip))
    theirs = with_torch(
        setup, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01), clip=clip
    )
    assert_same(run_to_end(VirtualEngine(setup)).models[0], theirs)


def test_the_norm_of_numbers_whose_squares_overflow() -> None:
    g = np.full(4, 1e30, dtype=np.float32)
    assert norm(g) == pytest.approx(2e30)
    move, _ = Clipped(swiftfl.SGD(lr=1).update_rule(), 1.0).update(g, g, 1.0, {})
    np.testing.assert_allclose(move, -0.5, rtol=1e-6)


def test_clipping_lets_numbers_that_are_not_finite_through() -> None:
    """So that the engine leaves the step out; clipped to nothing, it would go unnoticed."""
    for wrong in (np.nan, np.inf):
        with np.errstate(all="ignore"):
            move, _ = Clipped(swiftfl.SGD(lr=1).update_rule(), 1.0).update(
                np.array([1.0, wrong]), np.zeros(2), 1.0, {}
            )
        assert not np.isfinite(move).all()


RULES: dict[str, UpdateRule] = {case: optimizer.update_rule() for case, (optimizer, _) in CASES.items()}
RULES["clipped"] = Clipped(LionRule(), 0.1)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rules_are_pure_and_keep_the_type(name: str, dtype: Any) -> None:
    """Nothing that was given is written into, nor part of what is returned; memory keeps names and shapes."""
    rule, draw = RULES[name], np.random.default_rng(0)
    x: Vector = draw.normal(size=9).astype(dtype)
    memory: Memory = rule.init(x)
    for _ in range(3):
        g = draw.normal(size=9).astype(dtype)
        given = [g, x, *memory.values()]
        before = [array.copy() for array in given]
        move, after = rule.update(g, x, 0.1, memory)
        assert all((array == copy).all() for array, copy in zip(given, before, strict=True))
        assert not any(np.shares_memory(new, old) for new in (move, *after.values()) for old in given)
        assert move.dtype == dtype
        assert {k: (v.shape, v.dtype) for k, v in after.items()} == {
            k: (v.shape, v.dtype) for k, v in memory.items()
        }
        memory, x = after, x + move


def test_the_step_size_may_stand_alone() -> None:
    """As in `swiftfl.SGD(0.1)`; everything else is said by name."""
    kinds = (swiftfl.SGD, swiftfl.Adam, swiftfl.AdamW, swiftfl.RMSprop, swiftfl.Lion)
    assert [kind(0.02) for kind in kinds] == [kind(lr=0.02) for kind in kinds]
