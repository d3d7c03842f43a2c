"""The page over a folder of recorded runs: complete and incomplete."""

from __future__ import annotations

import html
import json
import re
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from markupsafe import escape
from matplotlib.figure import Figure

import report_folder
from swiftfl.errors import UserError
from swiftfl.palette import themed
from swiftfl.report.figures import save
from swiftfl.report.table import Table
from swiftfl.reproduce.laboratory.plan import time_to_loss
from swiftfl.reproduce.report import document
from swiftfl.reproduce.report.document import write
from swiftfl.reproduce.report.figures import loss_pictures, sensitivity_pictures
from swiftfl.reproduce.report.findings import overview
from swiftfl.reproduce.report.learning import (
    NOT_REACHED,
    learning_table,
    ratios_to_common_loss,
    reached,
)
from swiftfl.reproduce.report.recorded import recorded

TRAINED = ["swift_c0", "dsgd_c0"]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two experiments and the report over them."""
    folder = tmp_path_factory.mktemp("reproduction")
    report_folder.build(folder / "baseline", "baseline", {"ring16": "16-client ring"}, TRAINED)
    groups = {
        "1x": "no slowdown",
        "4x": "one client of all clients computes four times as slowly as it should",
    }
    report_folder.build(folder / "slowdown", "slowdown", groups, TRAINED)
    write(folder, workers=1)
    return folder


def text(out: Path) -> str:
    return re.sub(r"[ \n]+", " ", html.unescape(re.sub(r"<[^>]*>", "", (out / "report.html").read_text())))


def test_the_page_is_self_contained_and_escaped(out: Path) -> None:
    page = (out / "report.html").read_text()
    assert not re.search(r"src=\"(?!data:)", page)
    linked = re.findall(r"href=\"(?!data:|#)([^\"]*)\"", page)
    assert linked == ["baseline/pages/ring16.html", "slowdown/pages/1x.html", "slowdown/pages/4x.html"]
    for target in linked:  # what `swiftfl report` writes of the runs
        assert "<title>comparison of 2 runs" in (out / target).read_text()
    assert not re.search(r"url\(|@import|<script|<iframe", page)
    assert "https:" not in page
    assert "<friends>" not in page
    assert "baseline &amp; &lt;friends&gt;" in page
    assert len(page) < 10e6
    for expected in ("baseline", "slowdown"):
        assert f'<a href="#{expected}">' in page
        assert f'<section id="{expected}">' in page


def test_the_page_says_what_it_must(out: Path) -> None:
    words = text(out)
    for said in (
        "SWIFT against D-SGD at a glance",
        "Where this differs from the paper, and why",
        "a barrier over everybody and takes as long as all its bytes together",
        "swiftfl reproduce slowdown --scale smoke",
        "AD-PSGD's predicted epoch is",
        "the paper quotes −15.9\u00a0%",
        "Measured on this machine",
        "torch",
    ):
        assert said in words, said


def test_files_beside_the_page(out: Path) -> None:
    for name in ("baseline", "slowdown"):
        tables, figures = out / name / "tables", out / name / "figures"
        assert {f"{name}-{kind}.{form}" for kind in ("times", "learning") for form in ("csv", "tex")} <= {
            file.name for file in tables.iterdir()
        }
        drawn = sorted(file.stem for file in figures.glob("*.svg"))
        assert drawn == sorted(file.stem for file in figures.glob("*.png"))
        assert len(drawn) >= 8


def test_the_mean_of_the_clients_losses_stands_beside_the_consensus(out: Path) -> None:
    baseline = recorded(out / "baseline")
    table = learning_table(baseline)
    assert table is not None
    column = list(table.columns).index("mean client test loss")
    for row, method in zip(table.rows, TRAINED, strict=True):
        losses = [run.summary["mean_client_loss"] for run in baseline.of("ring16", method)]
        assert str(row[column]).startswith(f"{sum(losses) / 2:.3f}")
    drawn = {file.stem for file in (out / "baseline" / "figures").glob("*.svg")}
    for loss in ("test-loss", "mean-client-test-loss", "train-loss"):
        assert {f"baseline-{loss}-over-{axis}-ring16" for axis in ("time", "epoch")} <= drawn


@pytest.mark.usefixtures("quick")
def test_clients_that_were_not_evaluated_have_no_panel(copy: Path) -> None:
    for file in copy.rglob("metrics.jsonl"):
        rows = [json.loads(line) | {"mean_client_loss": None} for line in file.read_text().splitlines()]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    baseline = recorded(copy / "baseline")
    assert not any("mean-client" in picture.name for picture in loss_pictures(baseline))
    table = learning_table(baseline)
    assert table is not None
    assert table.rows[0][list(table.columns).index("mean client test loss")] is None


def test_the_same_runs_give_the_same_bytes(out: Path, copy: Path) -> None:
    files = [
        file.relative_to(out) for folder in ("figures", "tables") for file in out.glob(f"baseline/{folder}/*")
    ]
    shutil.rmtree(copy / "slowdown")
    for folder in ("figures", "tables"):
        shutil.rmtree(copy / "baseline" / folder)
    write(copy, workers=1)
    assert len(files) > 30
    assert [file.name for file in files if (out / file).read_bytes() != (copy / file).read_bytes()] == []


def test_at_a_glance_pictures_come_first_and_every_run_has_a_number(out: Path) -> None:
    page = (out / "report.html").read_text()
    glance = page[page.index('<section id="overview">') : page.index('<section id="baseline">')]
    assert glance.index("<figure") < glance.index("<table")
    assert "SWIFT C<sub>0</sub>, one client of all clients" in glance
    assert "These clients wait for 0\u00a0% of that time" in glance
    assert NOT_REACHED not in glance
    table = overview([recorded(out / "baseline"), recorded(out / "slowdown")])
    assert table is not None
    for row in table.rows:
        assert None not in row[-3:]


def test_the_same_loss_is_one_that_both_have_come_to(out: Path) -> None:
    slowdown = recorded(out / "slowdown")
    ratios = ratios_to_common_loss(slowdown, "4x", "swift_c0")
    assert len(ratios) == 2
    pairs = zip(slowdown.of("4x", "swift_c0"), slowdown.of("4x", "dsgd_c0"), strict=True)
    for ratio, (run, reference) in zip(ratios, pairs, strict=True):
        lowest = [min(row["loss"] for row in one.rows) for one in (run, reference)]
        took, its = (time_to_loss(one.rows, max(lowest)) for one in (run, reference))
        assert took is not None
        assert its is not None
        assert ratio == pytest.approx(took / its)
    assert ratios_to_common_loss(slowdown, "4x", "dsgd_c0") == [1.0, 1.0]


def test_tick_labels_of_sensitivities_do_not_overprint(out: Path) -> None:
    baseline = recorded(out / "baseline")
    for picture in sensitivity_pictures(baseline):
        figure = picture.draw()
        figure.draw_without_rendering()
        boxes = [label.get_window_extent() for label in figure.axes[0].get_xticklabels() if label.get_text()]
        assert len(boxes) >= 2
        assert all(a.x1 < b.x0 for a, b in pairwise(boxes)), picture.name


def test_every_colour_of_a_figure_has_its_partner_in_the_dark(out: Path) -> None:
    for svg in out.rglob("*.svg"):
        left = set(re.findall(r"#[0-9a-f]{6}\b", re.sub(r"<style>.*?</style>", "", themed(svg.read_text()))))
        assert left == set(), svg.name


def test_time_to_the_loss_of_dsgd_per_seed(out: Path) -> None:
    """D-SGD with one slow client: its own time is at most its last evaluation; ratios are per seed."""
    slowdown = recorded(out / "slowdown")
    reach = reached(slowdown, "4x", "swift_c0")
    assert reach.seeds == 2
    for run, reference in zip(slowdown.of("4x", "swift_c0"), slowdown.of("4x", "dsgd_c0"), strict=True):
        target = reference.rows[-1]["loss"]
        own = time_to_loss(reference.rows, target)
        assert own is not None
        assert own <= reference.rows[-1]["time"]
        took = time_to_loss(run.rows, target)
        if took is not None:
            assert took / own == pytest.approx(reach.ratios[reach.seconds.index(took)])
    own = reached(slowdown, "4x", "dsgd_c0")
    assert own.ratios == [1.0, 1.0]


@pytest.fixture
def copy(out: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "copy"
    shutil.copytree(out, folder)
    return folder


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are made but not written, which takes most of a report's time."""
    monkeypatch.setattr(document, "drawn", lambda pictures, folder: [escape(str(p.draw())) for p in pictures])
    monkeypatch.setattr(document, "write_run_page", lambda *arguments, **more: None)


@pytest.fixture
def baseline_only(copy: Path, quick: None) -> Path:
    shutil.rmtree(copy / "slowdown")
    return copy


@pytest.mark.usefixtures("quick")
def test_missing_files_are_said(copy: Path) -> None:
    for name in ("predicted", "timelines", "sensitivity", "live"):
        (copy / "baseline" / f"{name}.json").unlink()
    shutil.rmtree(copy / "slowdown")
    shutil.rmtree(copy / "baseline" / "figures")
    words = text(write(copy, workers=1).parent)
    for file in ("predicted.json", "timelines.json", "sensitivity.json", "live.json"):
        assert f"{file} is missing" in words
    assert "What was learnt" in words
    assert "Measured on this machine" not in words


def test_unfinished_and_absent_runs_are_left_out(baseline_only: Path) -> None:
    copy = baseline_only
    runs = copy / "baseline" / "runs" / "ring16"
    (runs / "swift_c0" / "seed1" / "summary.json").unlink()
    shutil.rmtree(runs / "dsgd_c0" / "seed0")
    (runs / "dsgd_c0" / "seed1" / "metrics.jsonl").unlink()
    words = text(write(copy, workers=1).parent)
    assert "2 of 4 runs have not finished" in words
    table = learning_table(recorded(copy / "baseline"))
    assert table is not None
    assert [row[1:3] for row in table.rows] == [["SWIFT C_0", 1]]
    assert table.rows[0][-1] is None  # there is no run of D-SGD to compare with


def evaluated_once(run: Path) -> None:
    """Only the last evaluation stays, as of an MPI run that was not evaluated on its way."""
    file = run / "metrics.jsonl"
    file.write_text(file.read_text().splitlines()[-1] + "\n")


@pytest.mark.parametrize("methods", [["dsgd_c0"], ["swift_c0"], ["swift_c0", "dsgd_c0"]])
def test_runs_that_were_evaluated_once_have_a_loss_and_no_time_to_it(
    baseline_only: Path, methods: list[str]
) -> None:
    copy = baseline_only
    for method in methods:
        for seed in (0, 1):
            evaluated_once(copy / "baseline" / "runs" / "ring16" / method / f"seed{seed}")
    words = text(write(copy, workers=1).parent)
    assert f"{2 * len(methods)} of 4 runs were evaluated only once" in words
    assert "learnt nothing" not in words
    table = learning_table(recorded(copy / "baseline"))
    assert table is not None
    assert all(row[3] is not None for row in table.rows)  # the final loss
    assert table.rows[0][-1] is None  # SWIFT's time over D-SGD's


@pytest.mark.parametrize("all_seeds", [False, True])
def test_diverged_runs_are_named_in_their_row(baseline_only: Path, all_seeds: bool) -> None:
    copy = baseline_only
    for seed in (0, 1)[: 1 + all_seeds]:
        run = copy / "baseline" / "runs" / "ring16" / "swift_c0" / f"seed{seed}"
        summary = json.loads((run / "summary.json").read_text())
        (run / "summary.json").write_text(json.dumps({**summary, "loss": None}))
    table = learning_table(recorded(copy / "baseline"))
    assert table is not None
    row = next(row for row in table.rows if row[1] == "SWIFT C_0")
    assert row[2] == ("0 of 2, 2 diverged" if all_seeds else "1 of 2, 1 diverged")
    assert (row[3] == "diverged") == all_seeds
    assert "Diverged, and left out" in text(write(copy, workers=1).parent)


EVIL = "../../evil"


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("where", ["name", "groups", "methods", "topologies", "runs", "timelines"])
def test_names_that_lead_out_of_the_folder_are_refused(copy: Path, where: str) -> None:
    """Names of experiment.json become names of files."""
    file = copy / "baseline" / ("timelines.json" if where == "timelines" else "experiment.json")
    tree = json.loads(file.read_text())
    if where == "name":
        tree["name"] = EVIL
    elif where == "runs":
        tree["runs"][0]["path"] = EVIL
    elif where == "timelines":
        tree[EVIL] = tree.pop("ring16")
    else:
        tree[where][EVIL] = tree[where].pop(next(iter(tree[where])))
    file.write_text(json.dumps(tree))
    before = {file for file in copy.parent.rglob("*") if file.name != "report.html"}
    with pytest.raises(UserError, match=r"evil"):
        write(copy, workers=1)
    assert {file for file in copy.parent.rglob("*") if file.name != "report.html"} == before


def test_no_figure_and_no_table_is_written_outside_its_folder(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(UserError, match="is not a name"):
        save(Figure(), tmp_path / "in", "../evil")
    with pytest.raises(UserError, match="is not a name"):
        Table("../evil", "Title", ("a",), []).save(tmp_path / "in")
    assert [file.name for file in tmp_path.rglob("*")] == ["in"]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_section_that_cannot_be_made_says_why(copy: Path, workers: int) -> None:
    file = copy / "slowdown" / "runs" / "1x" / "swift_c0" / "seed0" / "metrics.jsonl"
    file.write_text("{\n" + file.read_text())
    shutil.rmtree(copy / "baseline" / "runs")
    words = text(write(copy, workers=workers).parent)
    assert f"This section could not be made: cannot read {file}, line 1" in words
    assert "4 of 4 runs have not finished" in words


def test_a_diverged_run_does_not_stop_the_report(baseline_only: Path) -> None:
    copy = baseline_only
    file = copy / "baseline" / "runs" / "ring16" / "swift_c0" / "seed0" / "metrics.jsonl"
    first, *others = (json.loads(line) for line in file.read_text().splitlines())
    rows = [first, *({**row, "loss": float("nan"), "train_loss": float("nan")} for row in others)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert not re.search(r"\bnan\b", text(write(copy, workers=1).parent))


def test_where_dsgd_learnt_nothing_there_is_nothing_to_reach(copy: Path) -> None:
    """Its first model has its final loss already: zero seconds are no time to compare with."""
    for seed in (0, 1):
        file = copy / "baseline" / "runs" / "ring16" / "dsgd_c0" / f"seed{seed}" / "metrics.jsonl"
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        rows[-1]["loss"] = rows[0]["loss"] + 0.1
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    reach = reached(recorded(copy / "baseline"), "ring16", "swift_c0")
    assert (reach.seeds, reach.void, reach.ratios) == (0, 2, [])
    assert reach.cell(reach.ratios, 2) == "D-SGD learnt nothing"


@pytest.mark.usefixtures("quick")
def test_an_experiment_that_has_only_begun(copy: Path) -> None:
    shutil.rmtree(copy / "slowdown" / "runs")
    words = text(write(copy, workers=1).parent)
    assert "8 of 8 runs have not finished" in words


def test_a_folder_without_experiments_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no experiment"):
        write(tmp_path)
    with pytest.raises(UserError, match="not a folder"):
        write(tmp_path / "nowhere")
    (tmp_path / "baseline").mkdir()
    (tmp_path / "baseline" / "experiment.json").write_text("{")
    with pytest.raises(UserError, match="cannot read"):
        write(tmp_path)
