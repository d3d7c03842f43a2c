"""Objects of a user's own in the place of names: the same run, recorded by name, resumed with the objects."""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from swiftfl.algorithms import Context, Swift
from swiftfl.client import Client, State
from swiftfl.data.registry import dataset
from swiftfl.errors import UserError
from swiftfl.experiment.build import build
from swiftfl.experiment.config import Config, parse
from swiftfl.experiment.given import Given
from swiftfl.experiment.run import RunStopped, resume, run
from swiftfl.rules import SgdRule, UpdateRule
from swiftfl.verbs import WaitFree
from swiftfl.workload.models import model

SMALL = Config().with_changes(
    {
        "data.dataset": "synthetic",
        "data.options": {"samples": 160, "shape": 6, "classes": 3},
        "model.name": "logistic",
        "topology.clients": 4,
        "engine.epochs": 2,
        "evaluation.metrics": ["accuracy"],
    }
)


def linear() -> nn.Module:
    return model("logistic", (6,), 3)()


def doubled(outputs: Tensor, labels: Tensor) -> Tensor:
    return 2 * nn.functional.cross_entropy(outputs, labels)


def share(outputs: Tensor, labels: Tensor) -> float:
    return float((outputs.argmax(1) == labels).double().mean())


@dataclass(frozen=True)
class Mine:
    rule: UpdateRule = SgdRule()
    name: str = "mine"
    in_rounds: ClassVar[bool] = False

    def step(self, me: Client, s: State) -> Generator[WaitFree, object, State]:
        return (yield from Swift(rule=self.rule).step(me, s))


def test_the_same_model_and_data_give_the_same_bits_by_name_and_as_objects() -> None:
    data = dataset("synthetic", samples=160, shape=6, classes=3)
    named = run(SMALL)
    given = run(SMALL, given=Given(model=linear, data=data, metrics={"share": share}))
    assert all(np.array_equal(a, b) for a, b in zip(named.models, given.models, strict=True))
    assert given.config.model.name == "given:linear"
    assert given.config.data.dataset == "given:synthetic"
    assert given.config.evaluation.metrics == ("accuracy", "given:share")
    assert given.summary["metrics"]["share"] == given.summary["metrics"]["accuracy"]


def test_a_loss_an_algorithm_and_a_schedule_of_ones_own() -> None:
    plain = SMALL.with_changes({"algorithm.step_size.initial": 0.2})
    twice = run(SMALL, given=Given(loss=doubled))
    assert twice.config.model.loss == "given:doubled"
    np.testing.assert_allclose(twice.models[0], run(plain).models[0], atol=1e-5)  # twice the slope

    mine = run(SMALL, given=Given(algorithm=Mine(SgdRule(momentum=0.9))))
    assert mine.config.algorithm.name == "given:Mine"
    assert mine.config.algorithm.rule == "given:SgdRule"
    assert mine.config.algorithm.weights == "ccs"
    assert np.array_equal(mine.models[0], run(SMALL).models[0])

    made = run(SMALL, given=Given(algorithm=lambda context: Mine(context.rule)))
    assert made.config.algorithm.rule == "sgd"

    halved = run(SMALL, given=Given(schedule=lambda epoch: 2.0))
    assert np.array_equal(halved.models[0], run(plain).models[0])
    assert halved.config.algorithm.step_size.schedule == "given:<lambda>"


def test_a_maker_of_algorithms_gets_the_rule_of_the_configuration() -> None:
    seen: list[Context] = []

    def make(context: Context) -> Mine:
        seen.append(context)
        return Mine(SgdRule(momentum=0.5))

    run(SMALL.with_changes({"algorithm.momentum": 0.25}), given=Given(algorithm=make))
    assert getattr(seen[0].rule, "momentum", None) == 0.25


@pytest.mark.parametrize("engine", ["virtual", "local"])
def test_a_run_with_given_objects_is_recorded_and_goes_on_with_them(engine: str, tmp_path: Path) -> None:
    config = SMALL.with_changes({"engine.name": engine, "engine.epochs": 30, "engine.live.save_steps": 5})
    given = Given(model=lambda: nn.Linear(6, 3), data=dataset("synthetic", samples=160, shape=6, classes=3))
    folder = tmp_path / "run"
    calls = 0

    def stop(done: int, total: int, last: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:  # the second time it would not be awaited
            raise KeyboardInterrupt

    slow = config.with_changes({"engine.live.evaluate_seconds": 0.05}) if engine == "local" else config
    with pytest.raises(RunStopped, match=r"to go on: swiftfl\.train\(\.\.\., resume="):
        run(slow, folder, progress=stop, given=given)
    assert calls
    recorded = json.loads((folder / "config.json").read_text())
    assert recorded["model"]["name"] == "given:<lambda>"
    assert parse(recorded).data.dataset == "given:synthetic"
    with pytest.raises(UserError, match=r"model.name is <lambda>, which was given in Python and is not here"):
        resume(folder)
    with pytest.raises(UserError, match="model was <lambda> when the run began, and is linear now"):
        resume(folder, given=replace(given, model=linear))
    found = resume(folder, given=given)
    assert found.summary["iterations"] > 0
    if engine == "virtual":
        whole = run(config, given=given)
        assert all(np.array_equal(a, b) for a, b in zip(whole.models, found.models, strict=True))


def test_an_object_where_the_configuration_has_a_name_is_refused() -> None:
    with pytest.raises(UserError, match=r"model\.name is logistic in the configuration, not given:linear"):
        build(SMALL, Given(model=linear))
    with pytest.raises(UserError, match=r"evaluation\.metrics is f, which was given in Python"):
        build(SMALL.with_changes({"evaluation.metrics": ["given:f"]}))


def test_a_given_name_has_no_options() -> None:
    with pytest.raises(UserError, match=r"model.options.hidden"):
        SMALL.with_changes({"model.name": "given:Net", "model.options": {"hidden": 3}})


def test_a_module_that_is_given_starts_from_its_own_values() -> None:
    module = nn.Linear(6, 3)
    data = dataset("synthetic", samples=160, shape=6, classes=3)
    parts = build(Given(model=module, data=data).described(SMALL), Given(model=module, data=data))
    flat = torch.cat([module.weight.detach().reshape(-1), module.bias.detach()]).numpy()
    assert np.array_equal(parts.workload.initial(5), flat)
