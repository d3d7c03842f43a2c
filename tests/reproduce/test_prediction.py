"""Predicted times against what can be worked out by hand; timelines against clocks."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import swiftfl
from swiftfl.algorithms import dsgd
from swiftfl.costs import Costs
from swiftfl.engines import Virtual
from swiftfl.errors import UserError
from swiftfl.experiment.config import Config, CostsConfig, TopologyConfig
from swiftfl.reproduce.hardware import paper_costs
from swiftfl.reproduce.plan import ALGORITHMS, METHODS, Case, Experiment
from swiftfl.reproduce.prediction import clients_shown, predict, steps_per_epoch, write_predictions
from worlds import quadratic_setup, slow

STEPS, COMPUTE, OWN = 98, 0.0095, 4 * 0.00015  # a step's own part of communication: two sends, two mixes
JOURNEY = 0.627 / 98 - OWN


def case(method: str, clients: int = 16, costs: CostsConfig | None = None, **more: Any) -> Config:
    config = Config(topology=TopologyConfig(clients=clients))
    changes = {f"algorithm.{key}": value for key, value in ALGORITHMS[method].items()}
    changes["engine.costs"] = (costs or paper_costs()).model_dump() | more
    return config.with_changes(changes)


def experiment(name: str, groups: dict[str, dict[str, Config]]) -> Experiment:
    cases = [Case(group, method, config) for group, row in groups.items() for method, config in row.items()]
    return Experiment(name, name, {group: group for group in groups}, METHODS, tuple(cases))


def test_steps_per_epoch_are_the_papers() -> None:
    assert [steps_per_epoch(n, 32) for n in (2, 4, 8, 10, 16, 64, 256)] == [782, 391, 196, 157, 98, 25, 7]
    assert steps_per_epoch(16, 64) == 49


@pytest.mark.parametrize(
    ("method", "communication"),
    [
        ("dsgd_c0", STEPS * (OWN + JOURNEY)),
        ("swift_c0", STEPS * OWN),
        ("swift_c1", STEPS * 0.75 * OWN),  # every model is sent, every other one is averaged
        ("pasgd_c1", STEPS / 2 * (OWN + JOURNEY)),
        ("ldsgd_c1", 65 * (OWN + JOURNEY)),  # two of three steps, and 98 = 3 * 32 + 2
    ],
)
def test_epochs_on_the_ring_in_closed_form(method: str, communication: float) -> None:
    times = predict(case(method)).times
    assert times["compute"] == pytest.approx(STEPS * COMPUTE)
    assert times["communication"] == pytest.approx(communication)
    assert times["waiting"] == pytest.approx(0.0, abs=1e-9)


def test_adpsgd_pays_two_journeys_and_one_average_a_step_and_waits_for_busy_partners() -> None:
    times = predict(case("adpsgd_c0")).times
    assert times["communication"] == pytest.approx(STEPS * (2 * JOURNEY + 0.00015))
    assert times["waiting"] > 0


@pytest.mark.parametrize("factor", [2.0, 4.0, 16.0])
def test_a_slow_client_sets_the_pace_of_dsgd_and_not_of_swift(factor: float) -> None:
    """D-SGD's pace is the slowest cycle of who waits for whom, per round.

    That is the slow client by itself, whose neighbours' models are already there (no journey), or it
    and a neighbour that wait for each other's models in turn.
    """
    slowed = {"slowdowns": [{"client": 5, "factor": factor}]}
    times = predict(case("dsgd_c0", **slowed)).times
    alone, together = factor * COMPUTE, (factor + 1) / 2 * COMPUTE + JOURNEY
    # Not all of a run: it takes 8 rounds until the slow client is felt everywhere.
    assert sum(times.values()) == pytest.approx(STEPS * (max(alone, together) + OWN), rel=0.03)
    swift = predict(case("swift_c0", **slowed)).times
    assert swift["waiting"] == 0.0
    assert swift["compute"] == pytest.approx(STEPS * COMPUTE * (15 + factor) / 16)


def test_a_slow_link_is_paid_by_dsgd_and_not_by_swift() -> None:
    """With two clients there is no other link: each step of D-SGD takes the whole journey."""
    link = {"links": [{"edge": (0, 1), "latency": 0.01, "bandwidth": 703_272 / 0.08}]}
    steps = steps_per_epoch(2, 32)
    assert predict(case("dsgd_c0", 2, **link)).times["communication"] == pytest.approx(
        steps * (2 * 0.00015 + 0.09)
    )
    assert predict(case("swift_c0", 2, **link)).times["communication"] == pytest.approx(steps * 2 * 0.00015)


def test_many_clients_take_the_same_time_per_step() -> None:
    times = predict(case("dsgd_c0", 256)).times
    assert sum(times.values()) == pytest.approx(7 * (COMPUTE + OWN + JOURNEY))


def test_the_larger_network_takes_its_own_costs_and_batch() -> None:
    costs = paper_costs("resnet50")
    times = predict(case("swift_c0", costs=costs), batch_size=64).times
    assert times["compute"] == pytest.approx(49 * costs.compute)
    assert times["communication"] == pytest.approx(49 * OWN * 545_930 / 175_818)


def test_a_prediction_needs_the_size_of_a_message() -> None:
    with pytest.raises(UserError, match="message_bytes"):
        predict(Config())


# --- timelines ---------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_intervals_fill_the_time_of_every_client_shown(method: str) -> None:
    config = case(method, slowdowns=[{"client": 3, "factor": 4.0}])
    found = predict(config)
    shown = {k.client for k in found.intervals}
    assert len(shown) == 8
    assert 3 in shown
    assert found.seconds == pytest.approx(12 * (COMPUTE + JOURNEY))
    for client in shown:
        own = [k for k in found.intervals if k.client == client]
        assert own[0].start == 0.0
        assert own[-1].end == pytest.approx(found.seconds)
        for before, after in pairwise(own):
            assert before.end == pytest.approx(after.start, abs=1e-12)
            assert (before.activity, before.end) != (after.activity, after.start), "not merged"


def test_a_whole_timeline_adds_up_to_the_clocks() -> None:
    setup, _, _ = quadratic_setup(dsgd(), epochs=4, costs=Costs(slowdowns=slow({2: 3.0})))
    engine = Virtual(setup)
    timeline = engine.watch(range(6), float("inf"))
    engine.start()
    engine.advance(10**9)
    for i in range(6):
        for activity in ("compute", "communication", "waiting"):
            spent = sum(
                k.end - k.start for k in timeline.intervals if (k.client, k.activity) == (i, activity)
            )
            assert spent == pytest.approx(engine.seconds()[activity][i])


def test_clients_near_a_slow_link_are_the_interesting_ones() -> None:
    costs = CostsConfig.model_validate({"links": [{"edge": (4, 5), "latency": 1.0, "bandwidth": 1.0}]})
    assert clients_shown(swiftfl.ring(16), costs) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert clients_shown(swiftfl.ring(4), CostsConfig()) == [0, 1, 2, 3]


# --- files -------------------------------------------------------------------------------------


def test_every_case_is_written_and_the_constants_are_varied(tmp_path: Path) -> None:
    write_predictions(experiment("baseline", {"ring16": {m: case(m) for m in METHODS}}), tmp_path)
    predicted = json.loads((tmp_path / "predicted.json").read_text())
    assert list(predicted["ring16"]) == list(METHODS)
    assert set(predicted["ring16"]["swift_c0"]) == {"compute", "communication", "waiting"}
    timeline = json.loads((tmp_path / "timelines.json").read_text())["ring16"]["dsgd_c0"]
    assert timeline["clients"] == 16
    assert timeline["intervals"][0] == [0, "compute", 0.0, 0.0095]
    varied = json.loads((tmp_path / "sensitivity.json").read_text())
    assert {name: row["values"] for name, row in varied.items()} == {
        "send": [0.000075, 0.00015, 0.0003],
        "mix": [0.000075, 0.00015, 0.0003],
        "latency": [0.000025, 0.00005, 0.0001],
        "spread": [0.0, 0.1, 0.3],
    }
    for name in ("send", "mix", "latency"):
        assert varied[name]["dsgd_c0"]["communication"] == pytest.approx([0.627] * 3)
    sends = [STEPS * 2 * (send + 0.00015) for send in varied["send"]["values"]]
    assert varied["send"]["swift_c0"]["communication"] == pytest.approx(sends)
    assert varied["spread"]["dsgd_c0"]["waiting"][2] > varied["spread"]["dsgd_c0"]["waiting"][1] > 0


def test_other_experiments_have_no_sensitivity_and_groups_alike_are_alike(tmp_path: Path) -> None:
    groups = {key: {"swift_c0": case("swift_c0", 10)} for key in ("0.25", "0.5")}
    write_predictions(experiment("noniid", groups), tmp_path / "new")
    assert sorted(f.name for f in (tmp_path / "new").iterdir()) == ["predicted.json", "timelines.json"]
    predicted = json.loads((tmp_path / "new" / "predicted.json").read_text())
    assert predicted["0.25"] == predicted["0.5"]
