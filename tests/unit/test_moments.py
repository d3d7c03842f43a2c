"""What averaging does to what a rule remembers, and optimizers as users describe them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import swiftfl
from swiftfl.algorithms import AdPsgd, AllReduceSgd, DivShare, FedAvg, Gossip, Swarm, Swift, dsgd, pasgd
from swiftfl.engines import SampledEngine, VirtualEngine
from swiftfl.engines.setup import LocalStepSize
from swiftfl.errors import UserError
from swiftfl.experiment.build import build
from swiftfl.experiment.config import Config, parse
from swiftfl.moments import ResetMoments
from swiftfl.rules import AdamRule, Clipped, UpdateRule
from swiftfl.schedule import Cosine, Decay, WarmUp, every
from swiftfl.vector import Memory, Vector
from worlds import quadratic_setup, resumed, run_to_end

RING = swiftfl.ring(4)


class Counting:
    """Remembers how many updates it made since it began."""

    def init(self, x: Vector) -> Memory:
        return {"updates": np.zeros(1)}

    def update(self, g: Vector, x: Vector, step_size: float, memory: Memory) -> tuple[Vector, Memory]:
        return g * -step_size, {"updates": memory["updates"] + 1}


ALGORITHMS: dict[str, tuple[Callable[[UpdateRule], Any], list[int]]] = {
    "swift, C_2": (lambda rule: Swift(every(2), rule), [1, 2, 0, 1, 2, 0]),
    "swift, C_0": (lambda rule: Swift(every(0), rule), [0, 0, 0, 0, 0, 0]),
    "pasgd": (lambda rule: pasgd(2, rule), [1, 2, 0, 1, 2, 0]),
    "dsgd": (dsgd, [0, 0, 0, 0, 0, 0]),
    "fedavg": (lambda rule: FedAvg(every(1), rule), [1, 0, 1, 0, 1, 0]),
    "adpsgd": (AdPsgd, [0, 0, 0, 0, 0, 0]),
    "adpsgd, in the background": (lambda rule: AdPsgd(rule, averaging="background"), [0, 0, 0, 0, 0, 0]),
    "swarm": (lambda rule: Swarm(2, rule), [1, 0, 1, 0, 1, 0]),
    "divshare": (lambda rule: DivShare(2, 1, 2, rule), [1, 0, 1, 0, 1, 0]),
    "mean gradients": (AllReduceSgd, [1, 2, 3, 4, 5, 6]),
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_step_with_averaging_leaves_fresh_memory(name: str) -> None:
    make, expected = ALGORITHMS[name]
    for steps, memory in enumerate(expected, start=1):
        setup, _, _ = quadratic_setup(
            ResetMoments(make(Counting())), RING, method="metropolis", epochs=steps, steps_per_epoch=1
        )
        engine = run_to_end(VirtualEngine(setup))
        found = [record.start.memory["updates"].item() for record in engine.world.records]
        assert found == [memory] * 4


def test_gossip_forgets_only_where_a_partner_was_met() -> None:
    path = swiftfl.path(3)  # one pair per round, the third client has no partner
    algorithm = Gossip(path, Counting())
    setup, _, _ = quadratic_setup(ResetMoments(algorithm), path, epochs=1, steps_per_epoch=1)
    engine = run_to_end(VirtualEngine(setup))
    met = algorithm.matching(1) >= 0
    found = [record.start.memory["updates"].item() for record in engine.world.records]
    assert found == [0.0 if m else 1.0 for m in met]
    assert met.sum() == 2


def test_a_client_without_neighbours_forgets_nothing() -> None:
    alone = swiftfl.from_edges([], 1)
    models = []
    for algorithm in (Swift(rule=AdamRule()), ResetMoments(Swift(rule=AdamRule()))):
        setup, _, _ = quadratic_setup(algorithm, alone, iterations=30)
        models.append(run_to_end(VirtualEngine(setup)).models[0])
    assert (models[0] == models[1]).all()


@pytest.mark.parametrize("engine", [VirtualEngine, SampledEngine])
def test_a_pause_in_the_middle_of_a_step_changes_nothing(engine: Any) -> None:
    def setup() -> Any:
        algorithm = ResetMoments(Swift(every(2), Clipped(AdamRule(), 0.5)))
        return quadratic_setup(algorithm, swiftfl.ring(6), epochs=6)[0]

    whole = run_to_end(engine(setup()))
    paused = engine(setup())
    paused.start()
    paused.advance(77)
    again = resumed(paused, engine(setup()))
    again.advance(10**9)
    assert all((x == y).all() for x, y in zip(whole.models, again.models, strict=True))


# --- descriptions ---------------------------------------------------------------------------------


def test_a_description_is_the_same_run_as_its_settings() -> None:
    """As objects of a setup and as changes of a configuration."""
    optimizer = swiftfl.AdamW(
        lr=0.004, beta2=0.98, weight_decay=0.1, schedule={"name": "cosine", "final": 0.1}, warmup=2, clip=0.7
    )
    setup = build(Config().with_changes({**optimizer.changes(), "engine.epochs": 7})).setup
    assert (
        setup.algorithm.rule == optimizer.update_rule() == Clipped(AdamRule(0.9, 0.98, 1e-8, 0.1, True), 0.7)
    )
    assert setup.step_size == optimizer.step_size(7) == WarmUp(Cosine(0.004, 7, 0.1), 2)


def test_moments_become_the_algorithms_wrapper() -> None:
    changes = swiftfl.SGD(lr=0.1, momentum=0.5, moments="reset").changes()
    assert isinstance(build(Config().with_changes(changes)).setup.algorithm, ResetMoments)
    assert not isinstance(build(Config()).setup.algorithm, ResetMoments)


def test_step_schedules_of_older_configurations_mean_what_they_meant() -> None:
    tree = Config().model_dump(mode="json")
    tree["algorithm"]["step_size"] = {
        "initial": 0.8, "rate": 0.5, "at": [], "start": 200, "period": 10, "epoch_of_decay": "printed",
    }  # fmt: skip
    for new in ("clip", "moments"):
        del tree["algorithm"][new]
    found = parse(tree).algorithm
    assert found.step_size.make(300) == Decay(0.8, 0.5, (), 200, 10)
    assert (found.clip, found.moments) == (None, "kept")


def test_another_schedule_leaves_the_options_of_the_old_one_behind() -> None:
    first = Config().with_changes({"algorithm.step_size.rate": 0.1, "algorithm.step_size.at": [3]})
    second = first.with_changes({"algorithm.step_size.schedule": "cosine"})
    assert second.algorithm.step_size.options == {"epochs": None, "final": 0.0}


def test_schedules_are_asked_once_per_epoch_or_at_every_step() -> None:
    asked: list[float] = []

    def schedule(epoch: float) -> float:
        asked.append(epoch)
        return np.float64(0.5)

    by_epoch = LocalStepSize(schedule, steps_per_epoch=4)
    values = [by_epoch(c) for c in range(1, 10)]
    assert asked == [0, 1, 2]
    assert all(type(epoch) is int for epoch in asked)
    assert all(type(value) is float for value in values)  # float64 would widen models of float32
    asked.clear()
    schedule.per_step = True  # type: ignore[attr-defined]
    by_step = LocalStepSize(schedule, steps_per_epoch=4)
    assert all(type(by_step(c)) is float for c in range(1, 6))
    assert asked == [0, 0.25, 0.5, 0.75, 1.0]


WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: swiftfl.SGD(lr="fast"), "swiftfl.SGD: lr must be a number, not 'fast'"),  # type: ignore[arg-type]
    (lambda: swiftfl.SGD(lr=-1), "swiftfl.SGD: lr must be at least 0, not -1"),
    (lambda: swiftfl.SGD(lr=0.1, momentum=1.0), "swiftfl.SGD: momentum must be below 1, not 1.0"),
    (lambda: swiftfl.SGD(lr=0.1, nesterov=True), "Nesterov needs a momentum above 0"),
    (lambda: swiftfl.Adam(epsilon=0), "swiftfl.Adam: epsilon must be above 0, not 0"),
    (lambda: swiftfl.Lion(clip=0), "swiftfl.Lion: clip must be above 0, not 0"),
    (lambda: swiftfl.Adam(lr=lambda epoch: 0.1), "swiftfl.Adam: lr must be a number, not a fu"),  # type: ignore[arg-type]
    (lambda: swiftfl.Adam(moments="lost"), "swiftfl.Adam: moments must be one of"),  # type: ignore[arg-type]
    (lambda: swiftfl.Adam(schedule="cosin"), "there is no schedule 'cosin': did you mean cosine?"),
    (
        lambda: swiftfl.Adam(schedule={"name": "step", "rates": 1}),
        "swiftfl.Adam: schedule.rates: there",
    ),
    (lambda: swiftfl.Adam(schedule=3), "swiftfl.Adam: schedule must be a name"),  # type: ignore[arg-type]
    (lambda: swiftfl.Adam(schedule=lambda epoch: 1.0).changes(), "a schedule that is a function has no name"),
]


@pytest.mark.parametrize(("wrong", "said"), WRONG)
def test_a_wrong_description_is_refused_with_one_sentence(wrong: Callable[[], object], said: str) -> None:
    with pytest.raises(UserError) as error:
        wrong()
    assert str(error.value).startswith(said)
    assert "\n" not in str(error.value)


def test_the_names_are_imported_when_they_are_used() -> None:
    code = (
        "import sys, swiftfl\n"
        "assert 'swiftfl.optimizers' not in sys.modules and 'SGD' in dir(swiftfl)\n"
        "assert swiftfl.SGD(lr=0.1).rule == 'sgd' and 'torch' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
    with pytest.raises(AttributeError, match="no attribute 'Sgd'"):
        swiftfl.Sgd  # type: ignore[attr-defined]  # noqa: B018


def test_what_an_algorithm_itself_remembers_is_not_reset() -> None:
    """The local model of SwarmSGD: with and without, the same run where the rule has nothing to forget."""
    of = [
        np.stack(run_to_end(VirtualEngine(quadratic_setup(algorithm, RING, epochs=5)[0])).models)
        for algorithm in (Swarm(3), ResetMoments(Swarm(3)))
    ]
    assert (of[0] == of[1]).all()
