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
from swiftfl.engines import VirtualEngine
from swiftfl.errors import UserError
from swiftfl.experiment.config import Config, TopologyConfig
from swiftfl.experiment.costs_config import CostsConfig
from swiftfl.reproduce.hardware import paper_costs
from swiftfl.reproduce.plan import ALGORITHMS, METHODS, SYNCHRONOUS, Case, Experiment
from swiftfl.reproduce.prediction import clients_shown, predict, steps_per_epoch, write_predictions
from swiftfl.reproduce.printed import printed
from worlds import quadratic_setup, slow

STEPS, COMPUTE, LATENCY, SIZE = 98, 0.0095, 0.00005, 703_272
RATE = 32 * SIZE / (0.627 / STEPS - LATENCY)
OWN = 0.086 / STEPS  # SWIFT's own part: two sends, two mixes
JOURNEY = LATENCY + SIZE / RATE


def case(method: str, clients: int = 16, costs: CostsConfig | None = None, **more: Any) -> Config:
    config = Config(topology=TopologyConfig(clients=clients))
    changes = {f"algorithm.{key}": value for key, value in ALGORITHMS[method].items()}
    changes["engine.costs"] = (costs or paper_costs()).model_dump() | more
    changes["engine.barrier"] = "global" if method in SYNCHRONOUS else "neighbours"
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
        ("dsgd_c0", 0.627),
        ("swift_c0", STEPS * OWN),
        ("swift_c1", STEPS * 0.75 * OWN),  # every model is sent, every other one is averaged
        ("pasgd_c1", 0.627 / 2),
        ("ldsgd_c1", 0.627 * 65 / 98),  # two of three steps, and 98 = 3 * 32 + 2
    ],
)
def test_epochs_on_the_ring_in_closed_form(method: str, communication: float) -> None:
    times = predict(case(method)).times
    assert times["compute"] == pytest.approx(STEPS * COMPUTE)
    assert times["communication"] == pytest.approx(communication)
    assert times["waiting"] == pytest.approx(0.0, abs=1e-9)


def test_adpsgd_hides_two_journeys_and_one_average_a_step_behind_its_gradient() -> None:
    hidden = predict(case("adpsgd_c0")).times
    assert hidden["compute"] == pytest.approx(STEPS * COMPUTE)
    assert hidden["communication"] == 0
    shown = predict(case("adpsgd_c0").with_changes({"algorithm.averaging": "after"})).times
    assert shown["communication"] == pytest.approx(STEPS * (2 * JOURNEY + OWN / 4))
    assert shown["waiting"] > hidden["waiting"] > 0


@pytest.mark.parametrize("factor", [2.0, 4.0, 16.0])
def test_a_slow_client_sets_the_pace_of_dsgd_and_not_of_swift(factor: float) -> None:
    """D-SGD's pace is that of the slow client, for whom everybody waits."""
    slowed = {"slowdowns": [{"client": 5, "factor": factor}]}
    times = predict(case("dsgd_c0", **slowed)).times
    assert sum(times.values()) == pytest.approx(STEPS * factor * COMPUTE + 0.627)
    assert times["communication"] == pytest.approx(0.627)
    swift = predict(case("swift_c0", **slowed)).times
    assert swift["waiting"] == 0.0
    assert swift["compute"] == pytest.approx(STEPS * COMPUTE * (15 + factor) / 16)


def test_a_slow_link_is_paid_by_dsgd_and_not_by_swift() -> None:
    """With two clients there is no other link: each step of D-SGD takes the whole journey."""
    link = {"links": [{"edge": (0, 1), "latency": 0.01, "bandwidth": 703_272 / 0.08}]}
    steps = steps_per_epoch(2, 32)
    assert predict(case("dsgd_c0", 2, **link)).times["communication"] == pytest.approx(
        steps * (0.09 + OWN / 4)  # the average comes after the journey
    )
    assert predict(case("swift_c0", 2, **link)).times["communication"] == pytest.approx(steps * OWN / 2)


@pytest.mark.parametrize(("clients", "messages"), [(2, 2), (4, 8), (8, 16), (16, 32), (64, 128)])
def test_more_clients_make_the_exchange_longer(clients: int, messages: int) -> None:
    """All messages pass through the memory of one host; an epoch has fewer steps.

    Of two clients, one message's journey and one average take longer than two messages together.
    """
    times = predict(case("dsgd_c0", clients)).times
    exchange = LATENCY + messages * SIZE / RATE if clients > 2 else JOURNEY + OWN / 4
    assert times["communication"] == pytest.approx(steps_per_epoch(clients, 32) * exchange)
    assert times["compute"] == pytest.approx(steps_per_epoch(clients, 32) * COMPUTE)


def test_synchronous_communication_rises_with_the_clients_as_printed() -> None:
    predicted = {n: predict(case("dsgd_c0", n)).times["communication"] for n in (2, 8, 16)}
    table = printed()["clients_ring_resnet18"]
    assert predicted[2] < predicted[8]
    for n, seconds in predicted.items():
        assert seconds == pytest.approx(table[str(n)]["dsgd_c0"]["comm"], rel=0.25)


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
    engine = VirtualEngine(setup)
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
        "send_share": [0.25, 0.5, 0.75],
        "latency": pytest.approx([0.000025, 0.00005, 0.000075]),
        "spread": [0.0, 0.1, 0.3],
    }
    for name in ("send_share", "latency"):
        assert varied[name]["dsgd_c0"]["communication"] == pytest.approx([0.627] * 3)
        assert varied[name]["swift_c0"]["communication"] == pytest.approx([0.086] * 3)
    every_other = [0.086 * (share + (1 - share) / 2) for share in varied["send_share"]["values"]]
    assert varied["send_share"]["swift_c1"]["communication"] == pytest.approx(every_other)
    assert varied["spread"]["dsgd_c0"]["waiting"][2] > varied["spread"]["dsgd_c0"]["waiting"][1] > 0


def test_other_experiments_have_no_sensitivity_and_groups_alike_are_alike(tmp_path: Path) -> None:
    groups = {key: {"swift_c0": case("swift_c0", 10)} for key in ("0.25", "0.5")}
    write_predictions(experiment("noniid", groups), tmp_path / "new")
    assert sorted(f.name for f in (tmp_path / "new").iterdir()) == ["predicted.json", "timelines.json"]
    predicted = json.loads((tmp_path / "new" / "predicted.json").read_text())
    assert predicted["0.25"] == predicted["0.5"]
