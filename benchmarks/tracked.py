"""Gradient tracking in SWIFT's manner (after R-FAST, Zhu et al. 2023), and why it is behind SWIFT on a CNN.

    python benchmarks/tracked.py            # the tables of docs/what-to-use.md: about ten minutes
    python benchmarks/tracked.py --quick    # one seed, fewer steps

Six tables: how far it steps, by theory and measured; how noisy its direction is; which steps are stable;
trainings in which one thing at a time is different, on an MLP and a CNN; and the CNN by step size, twice.
The task is that of `swiftfl reproduce better` (8 clients in a ring, digits, momentum 0.9), with its rule for
step sizes and fresh seeds. The algorithm is not offered by the library: the page says why.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from torch import nn

import swiftfl
from swiftfl.algorithm import Algorithm, Around
from swiftfl.algorithms import Swift
from swiftfl.algorithms.look_ahead import SwiftLookAhead
from swiftfl.algorithms.registry import Context, algorithm
from swiftfl.client import Client, State
from swiftfl.costs import Costs
from swiftfl.data.batches import NoSamples
from swiftfl.engines import Setup, VirtualEngine
from swiftfl.experiment.build import build_costs
from swiftfl.experiment.recipes import recipe
from swiftfl.graph import communication_coefficients
from swiftfl.graph.directed import Directed, directed
from swiftfl.report.numbers import interval, mean
from swiftfl.reproduce.laboratory import digits
from swiftfl.reproduce.laboratory.law import REGIMES, Regime, factor, predicted
from swiftfl.reproduce.laboratory.methods import MESSAGE_BYTES
from swiftfl.reproduce.laboratory.plan import SCALES, STEPS, InquiryScale, at, time_to_loss
from swiftfl.reproduce.laboratory.trials import fresh, run, tune
from swiftfl.rules import Remembering, SgdRule, UpdateRule
from swiftfl.schedule import constant
from swiftfl.vector import Memory, Vector, narrow, wide
from swiftfl.verbs import Fetch, Gradient, Publish, Verb, WaitFree
from swiftfl.workload.base import Workload
from swiftfl.workload.basic_models import cnn
from swiftfl.workload.models import MODELS
from swiftfl.workload.quadratic import Quadratic

CLIENTS = digits.CLIENTS
RING = swiftfl.ring(CLIENTS)
DEGREE, OWN, MOMENTUM = 2, 1 / 3, 0.9


@dataclass(frozen=True)
class Tracked:
    """Each client tracks the mean gradient z_i of all; sums of all that was sent lose nothing on the way:

    v_i = x_i + move(z_i);  publish (v_i, rho_i);  x_i <- sum_j w_ji v_j;  g_i at x_i
    z' = z_i + sum_j (rho_j - seen_j) + g_i - g_i(before);  z_i, and rho_i's growth, are z' / (1 + degree)
    """

    graph: Directed
    base: UpdateRule = SgdRule()
    name: str = "tracked"
    in_rounds: ClassVar[bool] = False
    fixed_network: ClassVar[bool] = True
    only_simulated: ClassVar[str] = "sends more than its model"

    def first_message(self, x: Vector) -> Vector:
        return np.concatenate((x, narrow(np.zeros(x.size), x.dtype)))

    @cached_property
    def rule(self) -> Remembering:
        return Remembering(self.base, self._first)

    def _first(self, x: Vector) -> Memory:
        nothing = narrow(np.zeros(x.size), x.dtype)
        seen = np.zeros(self.graph.most_into * nothing.size, dtype=x.dtype)
        return {"tracked": nothing, "before": np.zeros_like(x), "sent": nothing, "seen": seen}

    def step(self, me: Client, s: State) -> Generator[WaitFree, object, State]:
        tracked = wide(s.memory["tracked"], s.x)
        move, memory = self.rule.update(tracked.astype(s.x.dtype), s.x, me.step_size(s.c), s.memory)
        v: Vector = s.x + move
        yield from Publish(np.concatenate((v, s.memory["sent"])), me.neighbours, version=s.c)
        inbox = yield from Fetch(me.neighbours)
        x, seen, size = me.w.own * v, s.memory["seen"].copy(), s.memory["sent"].size
        for position, k in enumerate(self.graph.into[me.index]):
            x = x + me.w.of[k] * inbox[k][: v.size]
            old = seen[position * size : (position + 1) * size]
            tracked += wide(inbox[k][v.size :], s.x) - wide(old, s.x)
            old[:] = inbox[k][v.size :]
        x = x.astype(s.x.dtype)
        slope = yield from Gradient(x, me.batch(s.c))
        tracked += slope.g.astype(np.float64) - s.memory["before"]
        share = tracked / (1 + len(me.neighbours))
        sent = narrow(wide(s.memory["sent"], s.x) + share, s.x.dtype)
        own = {"tracked": narrow(share, s.x.dtype), "before": slope.g, "sent": sent, "seen": seen}
        return State(x, s.c + 1, {**memory, **own})


def _make(context: Context) -> Tracked:
    """SWIFT with gradient tracking."""
    return Tracked(directed(context.topology, "both"), context.rule)


def _digits_cnn(shape: Sequence[int], classes: int) -> nn.Module:
    """The library's CNN on the digits, which come as rows of 64 numbers."""
    return nn.Sequential(nn.Unflatten(1, (1, 8, 8)), cnn((1, 8, 8), classes, width=8))


def register() -> None:
    """Not by importing this file, which a test does."""
    algorithm("tracked", weights="ccs")(_make)
    MODELS.add("digits_cnn")(_digits_cnn)


def tracked(momentum: float = MOMENTUM) -> Tracked:
    return Tracked(directed(RING, "both"), SgdRule(momentum))


def predicted_tracked(age: float) -> float:
    """The factor of the tracked steps, with gradients that never change.

    Twice it counts that what comes from neighbours is one gradient older than in SWIFT, because it is fetched
    before the gradient. All that was ever tracked is the sum of the gradients. A client keeps 1 / (1 +
    degree) of what it has after a step and sends the rest, which is back in somebody's z after 1 + age steps:
    of a mean gradient of 1 there are 1 / (1 + degree (1 + age)) in z, the rest is under way. And the models
    move along a line L(t) = V t with L(t + 1) = w_ii L(t) + (1 - w_ii) L(t - age) - step_size z.
    """
    return 1 / (1 + DEGREE * (1 + age)) / (OWN + (1 - OWN) * (1 + age))


def steps_table(steps: int) -> None:
    print("| network | age | SWIFT: γ_eff / γ, predicted | measured | tracked, predicted | measured |")
    print("|---|--:|--:|--:|--:|--:|")
    for regime in (REGIMES[key] for key in ("lockstep", "spread", "one", "three")):
        swift = predicted(OWN, regime.age), factor(regime, Swift(), RING, steps)
        ours = predicted_tracked(regime.age), factor(regime, tracked(0.0), RING, steps)
        numbers = " | ".join(f"{number:.3f}" for number in (*swift, *ours))
        print(f"| {regime.label} | {regime.age:.2f} | {numbers} |", flush=True)


@dataclass(frozen=True)
class Directions(Around[Verb]):
    """An algorithm whose directions are kept: what the step size multiplies, without and with momentum."""

    plain: list[Vector] = field(default_factory=list)
    smooth: list[Vector] = field(default_factory=list)

    def step(self, me: Client, s: State) -> Generator[Verb, object, State]:
        after = yield from self.algorithm.step(me, s)
        if "tracked" in after.memory:
            self.plain.append(after.memory["tracked"])
        self.smooth.append(after.memory["momentum"])
        return after


def make_engine(
    method: Algorithm[Verb], workload: Workload, costs: Costs, step_size: float, steps: int
) -> VirtualEngine:
    w = communication_coefficients(RING)
    clients = range(CLIENTS)
    engine = VirtualEngine(
        Setup(
            method,
            workload,
            [w.weights(i) for i in clients],
            [NoSamples(i, 10) for i in clients],
            constant(step_size),
            w.influence.tolist(),
            costs=costs,
            iterations=CLIENTS * steps,
        )
    )
    engine.start()
    return engine


def noise_table(steps: int) -> None:
    """Gradients that are noise of variance 1 and nothing else, so that the step size does not matter."""
    flat = np.zeros((CLIENTS, 50))
    workload = Quadratic(flat, flat, noise=1.0, seed=1)
    print("| network | one step's direction | with momentum 0.9 |")
    print("|---|--:|--:|")
    for key in ("lockstep", "spread", "one"):
        regime, late = REGIMES[key], CLIENTS * steps // 3
        seen = {"SWIFT": Directions(Swift(rule=SgdRule(MOMENTUM))), "tracked": Directions(tracked())}
        for watched in seen.values():
            make_engine(watched, workload, regime.costs, 1.0, steps).advance(10**9)
        share = 1 / (1 + DEGREE * (1 + regime.age))  # of a mean gradient of 1
        smooth = {name: float(np.mean(np.square(each.smooth[late:]))) for name, each in seen.items()}
        plain = float(np.mean(np.square(seen["tracked"].plain[late:]))) / share**2
        print(
            f"| {regime.label} | {plain:.2f} | {smooth['tracked'] / share**2 / smooth['SWIFT']:.2f} |",
            flush=True,
        )


ALIKE, APART = np.ones((CLIENTS, CLIENTS)), CLIENTS * np.eye(CLIENTS)
CURVATURES = {
    "the same for all": ALIKE,
    "half of it one client's alone": (ALIKE + APART) / 2,
    "each direction one client's alone": APART,
}
"""Quadratics of eight numbers: curvatures per client, whose mean over clients is 1 in every direction."""


def _stable(
    method: Algorithm[Verb], curvature: npt.NDArray[np.float64], costs: Costs, step_size: float, steps: int
) -> bool:
    """Whether models are closer to the minimiser, 0, in the last third of the steps than in the second."""
    engine = make_engine(
        method, Quadratic(curvature, np.zeros_like(curvature)), costs, step_size, 3 * (steps // 3)
    )
    furthest = [0.0, 0.0, 0.0]
    for k in range(3 * (steps // 3)):
        engine.advance(CLIENTS)
        third = k // (steps // 3)
        furthest[third] = max(furthest[third], float(np.abs(np.array(engine.models)).max()))
    return bool(np.isfinite(furthest[2])) and furthest[2] < furthest[1]


def largest_step(
    method: Algorithm[Verb], curvature: npt.NDArray[np.float64], costs: Costs, steps: int
) -> float:
    low, high = 1e-2, 64.0
    for _ in range(9):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if _stable(method, curvature, costs, middle, steps) else (low, middle)
    return low


def stability_table(steps: int) -> None:
    rule = SgdRule(MOMENTUM)
    print("| network | curvature | SWIFT | SWIFT look-ahead | tracked | tracked / SWIFT |")
    print("|---|---|--:|--:|--:|--:|")
    for key in ("lockstep", "spread", "one"):
        regime = REGIMES[key]
        factors = [predicted(OWN, regime.age)] * 2 + [predicted_tracked(regime.age)]
        for label, curvature in CURVATURES.items():
            methods: list[Algorithm[Verb]] = [Swift(rule=rule), SwiftLookAhead(rule=rule), tracked()]
            swift, ahead, ours = (
                largest_step(method, curvature, regime.costs, steps) * longer
                for method, longer in zip(methods, factors, strict=True)
            )
            cells = f"{swift:.2f} | {ahead:.2f} | {ours:.2f} | {ours / swift:.2f}"
            print(f"| {regime.label} | {label} | {cells} |", flush=True)


MODELS_TRIED = {"MLP": {"model.name": "mlp"}, "CNN": {"model.name": "digits_cnn"}}
METHODS: dict[str, dict[str, Any]] = {
    "SWIFT": {"algorithm.name": "swift"},
    "tracked": {"algorithm.name": "tracked"},
}


@dataclass(frozen=True)
class Variation:
    """One thing that is different from the first of them."""

    label: str
    data: str = "skew"
    network: str = "spread"
    longer: int = 1
    changes: dict[str, Any] = field(default_factory=dict)


VARIATIONS = (
    Variation("skew 0.7, 20 % spread"),
    Variation("IID", data="iid"),
    Variation("all data of a client in each batch", changes={"data.batch_size": 1000}),
    Variation("lockstep", network="lockstep"),
    Variation("no momentum", changes={"algorithm.momentum": 0.0}),
    Variation("four times the steps", longer=4),
)


def _factors(variation: Variation) -> dict[str, float]:
    """How much longer than they say the steps of each method are there."""
    world = {**digits.world(variation.data, variation.network, {}), "topology.clients": CLIENTS}
    sent = {"engine.costs.message_bytes": MESSAGE_BYTES}
    costs = build_costs(recipe("digits").with_changes({**world, **sent}))
    regime = Regime(variation.label, costs, float("nan"))
    return {"SWIFT": factor(regime, Swift(), RING), "tracked": factor(regime, tracked(0.0), RING)}


def _common(variation: Variation, model: dict[str, Any], method: str, scale: InquiryScale) -> dict[str, Any]:
    """What every run of a trial has in common."""
    steps = scale.steps * variation.longer
    world = digits.world(variation.data, variation.network, METHODS[method])
    return {
        "learner": digits.LEARNER,
        "world": {**world, **model, **variation.changes},
        "steps": steps,
        "seconds": 0.0,
        "every": steps // 6,
    }


def _accuracies(common: dict[str, Any], step_size: float, seeds: int, what: str = "accuracy") -> list[float]:
    """In percent, at the end of the steps, with fresh seeds."""
    runs = [fresh({**common, "choices": {"own": step_size}, "seed": seed}) for seed in range(seeds)]
    return [100 * at(run[f"{step_size:g}"]["rows"], STEPS, common["steps"], what) for run in runs]


def training_table(scale: InquiryScale, seeds: int) -> None:
    print(
        "| model | | γ_eff, SWIFT | tracked | accuracy, SWIFT | tracked | tracked - SWIFT (points) "
        "| clients' own (points) |"
    )
    print("|---|---|--:|--:|--:|--:|--:|--:|")
    for name, model in MODELS_TRIED.items():
        for variation in VARIATIONS:
            factors = _factors(variation)
            trials = [_common(variation, model, method, scale) for method in METHODS]
            tuning = {"step_sizes": list(scale.step_sizes), "seeds": [100, 101][: scale.tuning_seeds]}
            chosen = [tune({**trial, **tuning})["chosen"][STEPS] for trial in trials]
            (swift, swift_own), (ours, ours_own) = (
                [_accuracies(trial, step_size, seeds, what) for what in ("accuracy", "client_accuracy")]
                for trial, step_size in zip(trials, chosen, strict=True)
            )
            cells = [
                *(f"{lr * factors[method]:.3f}" for lr, method in zip(chosen, METHODS, strict=True)),
                *(interval(swift, 1), interval(ours, 1)),
                interval([a - b for a, b in zip(ours, swift, strict=True)], 1, sign="+"),
                interval([a - b for a, b in zip(ours_own, swift_own, strict=True)], 1, sign="+"),
            ]
            print(f"| {name} | {variation.label} | {' | '.join(map(str, cells))} |", flush=True)


PLATEAU_LEFT = 1.0
"""The test loss of a CNN that has begun to learn; one that knows nothing has 2.3."""
FIRST = {"SWIFT": 0.0125, "tracked": 0.1}
"""Of eight times the step size the tracked steps are about as long."""


def step_size_table(scale: InquiryScale, seeds: int) -> None:
    _by_step_size(4, range(6), scale, lambda common, lr: interval(_accuracies(common, lr, seeds), 1))


def plateau_table(scale: InquiryScale, seeds: int) -> None:
    def steps(common: dict[str, Any], step_size: float) -> str:
        often = {**common, "every": scale.steps // 24}
        runs = [run(often, step_size, seed, clients=False)["rows"] for seed in range(seeds)]
        reached = [time_to_loss(rows, PLATEAU_LEFT, STEPS) for rows in runs]
        there = [each for each in reached if each is not None]
        return f"{mean(there):.0f} ({len(there)} of {seeds})" if there else f"- (0 of {seeds})"

    _by_step_size(2, range(1, 5), scale, steps)


def _by_step_size(
    longer: int, exponents: range, scale: InquiryScale, cell: Callable[[dict[str, Any], float], str | None]
) -> None:
    print("| data | method | " + " | ".join(f"{2**k}x" for k in exponents) + " |")
    print("|---|---|" + "--:|" * len(exponents))
    for variation in (Variation("IID", data="iid", longer=longer), Variation("skew 0.7", longer=longer)):
        factors = _factors(variation)
        for method, first in FIRST.items():
            common = _common(variation, MODELS_TRIED["CNN"], method, scale)
            cells = [str(cell(common, first * 2**k)) for k in exponents]
            label = f"{method}, from γ_eff = {first * factors[method]:.4f}"
            print(f"| {variation.label} | {label} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Gradient tracking, and why it is behind SWIFT on a CNN.")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seeds", type=int, default=8)
    arguments = parser.parse_args()
    register()
    quick = arguments.quick
    print("How far the mean model moves per step, with gradients that never change:\n")
    steps_table(100 if quick else 400)
    print("\nVariance of the tracked direction, that of a client's own gradient being 1, both of mean 1:\n")
    noise_table(100 if quick else 400)
    print("\nThe largest stable γ_eff times mean curvature, momentum 0.9:\n")
    stability_table(60 if quick else 300)
    print("\nTrainings, each with its own tuned step size:\n")
    scale, seeds = SCALES["smoke" if quick else "small"], 1 if quick else arguments.seeds
    training_table(scale, seeds)
    print("\nAccuracy of the CNN after four times the steps, by step size:\n")
    step_size_table(scale, min(seeds, 3))
    print(f"\nClient steps until the CNN's test loss is {PLATEAU_LEFT:g}, of twice the steps:\n")
    plateau_table(scale, min(seeds, 3))


if __name__ == "__main__":
    main()
