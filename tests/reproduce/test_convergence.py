"""The four measurements on small worlds, and that what was done is not done again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pool_functions
import pytest

from pool_here import run_jobs_here
from swiftfl.errors import UserError
from swiftfl.report import page
from swiftfl.reproduce import parts
from swiftfl.reproduce.convergence import delay, lemma, settings
from swiftfl.reproduce.convergence.experiment import measure
from swiftfl.reproduce.convergence.problems import convex
from swiftfl.reproduce.convergence.settings import coefficients_of, influence
from swiftfl.reproduce.report import convergence as report

TINY = replace(
    settings.SIZES["smoke"], rate_exponents=(9, 10, 11, 12), reach_exponent=9, delay_exponent=9,
    lemma_exponent=6, lemma_runs=1, numbers=(2, 4), numbers_exponents=(6, 7, 8, 9, 10), levels=(0.1,),
)  # fmt: skip


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("out") / "convergence"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(settings.SIZES, "smoke", TINY)
        patch.setattr(parts, "run_jobs", run_jobs_here)
        measure("smoke", 2, folder)
    return folder


def again(folder: Path, monkeypatch: pytest.MonkeyPatch, seeds: int = 2) -> list[str]:
    """The parts that a repeated call computes."""
    said: list[str] = []
    monkeypatch.setitem(settings.SIZES, "smoke", TINY)
    monkeypatch.setattr(parts, "run_jobs", run_jobs_here)
    measure("smoke", seeds, folder, lambda what, k, n: said.append(what))
    return said[1:]


def test_a_repeated_call_computes_nothing(done: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (done / "results.json").read_text()
    assert again(done, monkeypatch) == []
    assert (done / "results.json").read_text() == before


def test_missing_torn_and_other_parts_are_done_anew(done: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (done / "results.json").read_text()
    names = ["lemma-iid-uniform-seed0", "reach-seed1", "clients-ring-2-seed0"]
    missing, torn, other = (done / "parts" / f"{name}.json" for name in names)
    missing.unlink()
    torn.write_text(torn.read_text()[:50])
    changed = json.loads(other.read_text())
    changed["parameters"]["levels"] = [0.5]
    other.write_text(json.dumps(changed))
    assert sorted(again(done, monkeypatch)) == sorted(names)
    assert (done / "results.json").read_text() == before
    assert not list(done.rglob(".*"))


def test_fewer_seeds_use_what_is_there(done: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert again(done, monkeypatch, seeds=1) == []
    assert json.loads((done / "results.json").read_text())["seeds"] == 1
    assert again(done, monkeypatch) == []


def test_processes_find_the_same(done: Path, tmp_path: Path) -> None:
    some = delay.parts(TINY, 1)[:3]
    found = parts.run_parts(some, tmp_path, lambda *_: None, workers=1)
    kept = [json.loads((done / "parts" / f"{part.name}.json").read_text())["result"] for part in some]
    assert found == kept


def test_a_folder_of_another_scale_is_refused_and_left_alone(done: Path, tmp_path: Path) -> None:
    """Also when the other scale was interrupted before it had results."""
    before = {file: file.read_bytes() for file in done.rglob("*.json")}
    with pytest.raises(UserError, match=r"convergence holds the measurements of scale smoke.*--out"):
        measure("small", 2, done)
    assert {file: file.read_bytes() for file in done.rglob("*.json")} == before
    (tmp_path / "experiment.json").write_bytes((done / "experiment.json").read_bytes())
    with pytest.raises(UserError, match="scale smoke"):
        measure("paper", 2, tmp_path)
    assert len(list(tmp_path.iterdir())) == 1


@pytest.fixture
def pool_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "run_jobs", run_jobs_here)


@pytest.mark.usefixtures("pool_here")
def test_a_part_that_diverges_is_kept_with_null(tmp_path: Path) -> None:
    part = parts.Part("some", pool_functions.diverging, {"x": 2.0})
    for _ in range(2):
        assert parts.run_parts([part], tmp_path, lambda *_: None, 1) == [{"averaged": [2.0, None]}]
    text = (tmp_path / "some.json").read_text()
    assert "null" in text
    assert "Infinity" not in text


@pytest.mark.usefixtures("pool_here")
def test_a_part_that_fails_does_not_cost_the_others(tmp_path: Path) -> None:
    some = [parts.Part(f"part{x}", pool_functions.diverging, {"x": x}) for x in (-1.0, 1.0)]
    with pytest.raises(UserError, match=r"1 of 2 parts failed; the first, part-1.0: ZeroDivisionError"):
        parts.run_parts(some, tmp_path, lambda *_: None, 1)
    assert [file.name for file in tmp_path.iterdir()] == ["part1.0.json"]


def test_wrong_calls_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="scale"):
        measure("huge", 1, tmp_path)
    with pytest.raises(UserError, match="seeds"):
        measure("smoke", 0, tmp_path)


def test_the_theorem_holds_where_it_can_be_reached(done: Path) -> None:
    found = json.loads((done / "results.json").read_text())["reach"]
    assert found["bound"]["log10_smallest_T"] <= np.log10(found["T"])
    assert all(np.log10(value) < found["bound"]["log10_printed"][0] for value in found["averaged"])


def test_the_report_has_every_table_and_figure(done: Path) -> None:
    results = json.loads((done / "results.json").read_text())
    names = [table.name for table in report.tables(results)]
    assert names == [f"convergence-{name}" for name in ("rate", "reach", "delay", "lemma", "clients")]
    for table in report.tables(results):
        assert table.rows
        assert all(form for form in (page.table(table), table.latex(), table.csv()))
    for picture in report.pictures(results):
        assert picture.draw().axes[0].lines


# --- Lemma 1 -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", ["uniform", "skewed"])
def test_the_sums_of_the_lemma_are_the_models_of_the_run(p: str) -> None:
    """x̄ - x_i = -step_size sum_j G^j W_{j+1} ... W_t u_i, from the engine's own models."""
    scores, T = influence(p, 5), 200
    coefficients = coefficients_of("ring", scores)
    past = lemma.history(convex(scores, False), coefficients, T, seed=3)
    seen = lemma.errors_at(past, coefficients, T - 1)
    np.testing.assert_allclose(seen.deviation, (past.models.mean(axis=0) - past.models).T, atol=1e-12)


def test_the_lemmas_errors_are_those_of_their_definition() -> None:
    scores, T = influence("skewed", 4), 12
    coefficients = coefficients_of("ring", scores)
    past = lemma.history(convex(scores, False), coefficients, T, seed=1)
    seen = lemma.errors_at(past, coefficients, T - 1)
    W = [coefficients.active_matrix(i) for i in range(4)]
    mean = sum(p * w for p, w in zip(scores, W, strict=True))
    U = np.full((4, 4), 0.25) - np.eye(4)
    printed, needed = np.zeros((2, 4))
    for j in range(T):
        G = np.zeros((10, 4))
        G[:, past.active[j]] = past.G[j]
        of_differences = drawn = expected = np.eye(4)
        for q in range(j + 1, T):
            of_differences = of_differences @ (W[past.active[q]] - mean)
            drawn, expected = drawn @ W[past.active[q]], expected @ mean
        printed += ((G @ of_differences @ U) ** 2).sum(axis=0)
        needed += ((G @ (drawn - expected) @ U) ** 2).sum(axis=0)
    np.testing.assert_allclose(seen.printed, printed, rtol=1e-10)
    np.testing.assert_allclose(seen.needed, needed, rtol=1e-10)


def test_the_proof_leaves_something_out(done: Path) -> None:
    """The product of sums is not the sum of the products: the mixed terms are no small part."""
    for row in json.loads((done / "results.json").read_text())["lemma"]:
        assert min(row["missed_share"]) > 0.1
        assert row["contraction"] < 1
        assert row["printed"]["log10_largest_ratio_to_bound"] < 0


# --- delays ------------------------------------------------------------------------------------------


def test_the_slow_client_acts_at_the_rate_that_p_says(done: Path) -> None:
    for row in json.loads((done / "results.json").read_text())["delay"]:
        share = delay.true_rates(row["n"], row["factor"])[delay.SLOW]
        T = 2 ** row["log2_T"]
        for steps in row["steps_of_slow"]:
            assert abs(steps - share * T) <= 0.1 * share * T + 3


def test_adpsgds_delay_grows_with_the_slow_client(done: Path) -> None:
    rows = [r for r in json.loads((done / "results.json").read_text())["delay"] if r["method"] == "adpsgd"]
    slow, even = ([r for r in rows if r["factor"] == factor] for factor in (100, 1))
    assert min(min(r["largest_delay"]) for r in slow) > 10 * max(max(r["largest_delay"]) for r in even)
