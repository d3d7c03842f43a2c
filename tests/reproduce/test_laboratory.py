"""The laboratory: budgets, the rule for step sizes, parts that are kept, and what its report says."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from pool_here import run_jobs_here
from swiftfl.engines import VirtualEngine
from swiftfl.errors import UserError
from swiftfl.report.numbers import half_width, interval
from swiftfl.reproduce import parts
from swiftfl.reproduce.laboratory import better, digits, experiment, influence, rivals, shift
from swiftfl.reproduce.laboratory.methods import METHODS
from swiftfl.reproduce.laboratory.plan import SCALES, STEPS, TIME, at, walk
from swiftfl.reproduce.report import document, laboratory
from swiftfl.reproduce.report import laboratory_findings as sentences
from swiftfl.reproduce.report.laboratory_findings import laboratory_findings
from swiftfl.reproduce.report.measured import MeasuredInquiry

TINY = replace(SCALES["smoke"], steps=32, points=4, step_sizes=(0.05, 0.2))
NAMES = ("rivals", "better", "shift", "influence")


# --- the rule -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("best", [1.0, 2.0, 4.0, 8.0, 16.0])
def test_the_walk_finds_the_lowest_of_a_valley(best: float) -> None:
    grid = [1.0, 2.0, 4.0, 8.0, 16.0]
    tried: list[float] = []

    def loss(step_size: float) -> float:
        tried.append(step_size)
        return math.inf if step_size > 8 and best <= 2 else abs(math.log(step_size / best))

    assert walk(loss, grid) == best
    assert len(set(tried)) <= 5


def test_the_walk_leaves_a_region_where_everything_diverges() -> None:
    assert (
        walk(lambda step_size: math.nan if step_size > 1 else 1 - step_size, [0.5, 1.0, 2.0, 4.0, 8.0]) == 1
    )


def test_numbers_at_a_budget_are_linear_between_measurements_and_infinite_after_divergence() -> None:
    rows = [{"time": float(t), "iteration": 10.0 * t, "loss": 4.0 - t} for t in range(4)]
    assert at(rows, TIME, 1.5, "loss") == pytest.approx(2.5)
    assert at(rows, STEPS, 20, "loss") == pytest.approx(2.0)
    assert at(rows, TIME, 99.0, "loss") == pytest.approx(1.0)
    torn = [*rows[:2], {"time": 2.0, "iteration": 20.0, "loss": math.inf}]
    assert at(torn, TIME, 1.0, "loss") == pytest.approx(3.0)
    assert at(torn, TIME, 1.5, "loss") == math.inf


@pytest.mark.parametrize("count", [2, 3, 5, 10, 11, 12, 20, 50])
def test_intervals_are_students(count: int) -> None:
    values = [math.sin(k) for k in range(count)]
    low, high = stats.t.interval(0.95, count - 1, sum(values) / count, stats.sem(values))
    assert half_width(values) == pytest.approx((high - low) / 2, rel=2e-3)
    assert interval(values[:1], 2, sign="+") == "+0.00"


# --- runs ---------------------------------------------------------------------------------------------


def learnt(method: str, network: str, steps: int = 96) -> dict[str, object]:
    world = digits.world("skew", network, METHODS[method].changes)
    seconds = digits.swift_seconds(digits.NETWORKS[network][1], steps)
    return digits.learn(world, step_size=0.1, seed=0, steps=steps, seconds=seconds, every=16, clients=True)


@pytest.mark.parametrize("network", digits.NETWORKS)
def test_the_time_of_the_budget_is_that_of_swift(network: str) -> None:
    """Computed from the costs, and measured in the engine."""
    rows = learnt("swift", network)["rows"]
    predicted = digits.swift_seconds(digits.NETWORKS[network][1], 96)
    assert at(rows, STEPS, 96, "time") == pytest.approx(predicted, rel=0.12)  # whole steps of eight clients


def test_who_waits_gets_less_far_in_equal_time_and_runs_until_equal_steps() -> None:
    found = {method: learnt(method, "slow_clients") for method in ("swift", "dsgd")}
    seconds = digits.swift_seconds(digits.NETWORKS["slow_clients"][1], 96)
    done = {m: at(f["rows"], TIME, seconds, "iteration") for m, f in found.items()}
    assert done["dsgd"] < 0.5 * done["swift"]
    for one in found.values():
        assert one["rows"][-1]["iteration"] >= 96
        assert one["rows"][-1]["time"] >= seconds
    assert found["swift"]["waiting"] == 0
    assert found["dsgd"]["waiting"] > 0.3
    assert found["swift"]["models"] == pytest.approx(2 + 2 * 8 / 96)  # eight steps have begun


def test_a_run_that_diverges_ends_at_once() -> None:
    world = digits.world("skew", "lockstep", METHODS["swift"].changes)
    found = digits.learn(world, step_size=1e30, seed=0, steps=96, seconds=1.0, every=8, clients=False)
    assert len(found["rows"]) < 12
    assert at(found["rows"], STEPS, 96, "loss") == math.inf


def test_a_run_lets_go_of_the_processes_that_helped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that fails: a series of runs would collect them."""
    closed = []
    monkeypatch.setattr(digits.VirtualEngine, "close", lambda engine: closed.append(engine.iteration))
    budget = {"seed": 0, "steps": 8, "seconds": 0.0, "every": 8, "clients": False}
    digits.learn(digits.world("iid", "lockstep", {}), step_size=0.1, **budget)

    def fails(engine: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        digits.learn(digits.world("iid", "lockstep", {}), step_size=0.1, between=fails, **budget)
    assert closed == [8, 8]


def test_slow_links_are_those_of_a_quarter_of_the_clients() -> None:
    links = digits.NETWORKS["slow_links"][1]["engine.costs.links"]
    assert {frozenset(link["edge"]) for link in links} == {
        frozenset(edge) for edge in ((1, 2), (2, 3), (5, 6), (6, 7))
    }
    assert {link["bandwidth"] for link in links} == {1e9 / 20}


# --- whole experiments --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All four, as small as they can be, with the report over them."""
    folder = tmp_path_factory.mktemp("laboratory")
    with pytest.MonkeyPatch.context() as patch:
        small(patch)
        patch.setattr(parts, "run_jobs", run_jobs_here)
        for name in NAMES:
            experiment.measure(name, "smoke", 2, folder / name, command=f"swiftfl reproduce {name}")
    document.write(folder, workers=1)
    return folder


def small(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(SCALES, "smoke", TINY)
    patch.setattr(rivals, "RIVALS", ("swift", "dsgd", "hogwild"))
    patch.setattr(better, "COMPARED", ("swift", "corrected", "look_ahead", "both", "dsgd"))
    patch.setattr(better, "NETWORKS", ("lockstep", "slow_clients"))
    patch.setattr(influence, "SMOKE_STEPS", 256)


def results(out: Path, name: str) -> MeasuredInquiry:
    return MeasuredInquiry(json.loads((out / name / "results.json").read_text()))


def test_a_repeated_call_computes_nothing_and_more_seeds_only_what_is_new(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch)
    before = (out / "rivals" / "results.json").read_text()
    files = {file: file.stat().st_mtime_ns for file in (out / "rivals" / "parts").iterdir()}
    experiment.measure("rivals", "smoke", 2, out / "rivals", command="swiftfl reproduce rivals")
    assert (out / "rivals" / "results.json").read_text() == before
    assert {file: file.stat().st_mtime_ns for file in (out / "rivals" / "parts").iterdir()} == files


def test_step_sizes_are_those_of_the_lowest_loss_that_was_seen(out: Path) -> None:
    for name in NAMES:
        found = results(out, name)
        for cell in found.results["cells"]:
            for budget in (STEPS, TIME):
                seen = {lr: loss for lr, loss in cell["tuning"][budget].items() if loss is not None}
                assert f"{cell['step_sizes'][budget]:g}" == min(seen, key=lambda lr: seen[lr])


def test_tables_hold_what_the_parts_hold(out: Path) -> None:
    part = json.loads((out / "rivals" / "parts" / "slow_clients-dsgd-seed1.json").read_text())
    found = results(out, "rivals")
    lr = f"{found.step_size('slow_clients', 'dsgd', STEPS):g}"
    last = next(row for row in part["result"][lr]["rows"] if row["iteration"] == TINY.steps)
    assert found.percents("slow_clients", "dsgd", STEPS)[1] == pytest.approx(100 * last["accuracy"])
    table = laboratory.tables(found)[0]
    row = next(row for row in table.rows if row[:2] == ["slow clients", "D-SGD"])
    values = found.percents("slow_clients", "dsgd", STEPS)
    assert row[list(table.columns).index("accuracy, equal steps (%)")] == interval(values, 1)


def test_the_step_size_of_lockstep_is_carried_to_every_network(out: Path) -> None:
    found = results(out, "better")
    for group in found.groups:
        for method in found.methods:
            lockstep = found.step_size("skew_lockstep", method, STEPS)
            assert found.step_size(group, method, "carried") == lockstep
    assert any("step size of lockstep" in sentence for sentence in laboratory_findings(found))


def test_the_map_names_the_best_mean_first(out: Path) -> None:
    found = results(out, "better")
    for group in found.groups:
        means = {m: sum(found.finals(group, m, STEPS, "accuracy")) for m in found.methods}
        best = laboratory.leaders(found, group, STEPS, "accuracy")
        assert means[best[0]] == max(means.values())


def test_one_seed_does_not_tell_who_is_better(out: Path) -> None:
    """No counts of who is ahead, no word of intervals, and it is said first."""
    for name in NAMES:
        several = results(out, name)
        assert not any("One seed" in sentence for sentence in laboratory_findings(several))
        cells = [{**cell, "runs": cell["runs"][:1]} for cell in several.results["cells"]]
        alone = MeasuredInquiry({**several.results, "seeds": 1, "cells": cells})
        said = laboratory_findings(alone)
        assert said[0].startswith("One seed: ")
        assert not any("ahead in" in sentence or "cannot tell" in sentence for sentence in said)
        assert not any("±" in table.note or "95 %" in table.note for table in laboratory.tables(alone))


def test_a_mean_says_of_how_many_seeds_it_is(out: Path) -> None:
    """A seed that diverged is not in it."""
    tree = results(out, "rivals").results
    cell = next(c for c in tree["cells"] if (c["group"], c["method"]) == ("spread", "dsgd"))
    before = {tuple(row[:2]): row for row in laboratory.tables(MeasuredInquiry(tree))[0].rows}
    for run in cell["runs"][0]["by_step_size"].values():
        run["rows"][-1]["loss"] = None
    after = {tuple(row[:2]): row for row in laboratory.tables(MeasuredInquiry(tree))[0].rows}
    place = list(laboratory.tables(MeasuredInquiry(tree))[0].columns).index("accuracy, equal steps (%)")
    assert "of 2)" not in str(before["20 % spread", "D-SGD"][place])
    assert str(after["20 % spread", "D-SGD"][place]).endswith(" (1 of 2)")


def test_many_methods_have_a_panel_each(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = results(out, "better")
    together = sentences.laboratory_pictures(found)[0].draw()
    assert [len(axes.lines) for axes in together.axes] == [5]
    monkeypatch.setattr(sentences, "_MANY", 4)
    apart = sentences.laboratory_pictures(found)[0].draw()
    shown = {axes.get_title(loc="left"): len(axes.lines) for axes in apart.axes if axes.get_visible()}
    assert shown == {"SWIFT corrected": 3, "SWIFT look-ahead": 3, "SWIFT with both": 3}


def test_the_page_has_a_section_for_each(out: Path) -> None:
    page = (out / "report.html").read_text()
    for name in NAMES:
        assert f'<section id="{name}">' in page
        assert f"swiftfl reproduce {name}" in page
        drawn = list((out / name / "figures").glob("*.svg"))
        assert len(drawn) == len(results(out, name).groups)
        assert list((out / name / "tables").glob("*.md"))
    assert "could not be made" not in page
    assert "not complete" not in page
    assert not re.search(r"\bnan\b|\binf\b", re.sub(r"<[^>]*>", "", page))


def test_what_a_torn_result_says(out: Path, tmp_path: Path) -> None:
    (tmp_path / "shift").mkdir()
    (tmp_path / "shift" / "results.json").write_text('{"name": "shift"}')
    document.write(tmp_path, workers=1)
    assert "results.json is not complete" in (tmp_path / "report.html").read_text()


def test_only_its_own_scales_and_seeds(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="rivals has no scale paper: choose from smoke, small"):
        experiment.measure("rivals", "paper", 1, tmp_path)
    with pytest.raises(UserError, match="seeds must be 1 to 100"):
        experiment.measure("rivals", "smoke", 101, tmp_path)
    assert not list(tmp_path.iterdir())


def test_labels_turn_a_third_of_the_way() -> None:
    inquiry = shift.plan(SCALES["small"])
    turned = {t.group: t.world["data.shift"] for t in inquiry.trials if t.method == "swift"}
    assert turned["nobody"] == []
    assert turned["all"][0]["at"] == pytest.approx(inquiry.scale.steps / 90 / 3)
    assert turned["quarter"][0]["clients"] == [2, 6]


def test_influence_reacts_to_losses() -> None:
    """Shares by loss, within bounds; in a run, clients whose labels turned come to count for more."""
    p = shift.influence_of(np.array([1.0, 1.0, 1.0, 9.0]))
    assert p.sum() == pytest.approx(1.0)
    assert p[3] / p[0] == pytest.approx(9.0)
    assert shift.influence_of(np.array([1e-9, 1.0])).min() == pytest.approx(1 / 9)
    weights: list[float] = []

    class Noted(shift.Reaction):
        def __call__(self, engine: VirtualEngine) -> None:
            super().__call__(engine)
            weights.append(float(engine.churn.membership.influence[2]))  # type: ignore[union-attr]

    inquiry = shift.plan(replace(SCALES["small"], steps=240, points=8))
    trial = next(t for t in inquiry.trials if (t.group, t.method) == ("quarter", shift.REACTING))
    settings = {key: value for key, value in trial.world.items() if key != shift.REACTING}
    options = {"step_size": 0.2, "seed": 0, "steps": 360, "seconds": 0.0, "every": 30, "clients": False}
    digits.learn(settings, **options, between=Noted())  # type: ignore[arg-type]
    assert weights[-1] > 1.2 * weights[2]  # before labels turned there, and after


def test_optimal_influence_is_predicted_to_be_no_worse() -> None:
    trials = influence.plan(SCALES["smoke"]).trials
    for group in {trial.group for trial in trials}:
        levels = {t.method: t.world["predicted"] for t in trials if t.group == group}
        assert levels["optimal"] <= min(levels.values()) + 1e-12
