"""`swiftfl report`: what the page has inside, and what is refused. (tests/browser opens it.)"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from facts_made import make_facts
from report_data import data_in, embedded_in
from swiftfl.cli.main import run_command
from swiftfl.record.facts import FactsReader
from swiftfl.report import embedded, paper
from swiftfl.report.bundle import bundled_script
from swiftfl.report.paper import spans_of
from swiftfl.views import RunView
from swiftfl.views.stream import decoded


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_facts(tmp_path / "mine", clients=14, rows=1400, lost=(3,))


def test_the_page_has_all_views_of_a_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["report", str(run)]) == 0
    page = run / "report.html"
    assert capsys.readouterr().out == f"Report: {page}\n"
    there, view = embedded_in(page), RunView(run)
    assert there["curves"] == view.curves()
    assert there["now"] == view.now()
    assert there["events"]["events"] == view.events()["events"]
    assert there["about"]["graph"] == view.about()["graph"]
    assert there["about"]["path"] is None
    assert str(run) not in page.read_text()
    rows = FactsReader(run).rows()
    kept = {(row["client"], row["c"]): (row["steps"], row["age"]) for row in rows}
    for step in there["steps"][:50]:
        steps_there, age = kept[step[0], step[1]]
        assert step[7:] == [steps_there, pytest.approx(float(age), rel=1e-5)]
    steps = np.array([step[:6] for step in there["steps"]])
    assert len(steps) == len({(step[0], step[1]) for step in there["steps"]})
    now = view.now()
    assert now is not None
    for place, name in ((3, "compute"), (5, "communication")):
        totals = np.bincount(steps[:, 0].astype(int), steps[:, place], 14)
        assert totals == pytest.approx(now["columns"][name], rel=1e-4)


def test_a_run_with_too_many_steps_has_its_bins(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "MOST_STEPS", 1000)
    monkeypatch.setattr(embedded, "MOST_CELLS", 1400)
    assert run_command(["report", str(run), "--out", str(tmp_path / "page.html")]) == 0
    there = embedded_in(tmp_path / "page.html")
    assert there["steps"] is None
    assert (there["stream"]["rows"], there["stream"]["bins"]) == (14, 100)
    assert len(base64.b64decode(there["stream"]["state"])) == 1400


def test_several_runs_are_compared(run: Path, tmp_path: Path) -> None:
    other = make_facts(tmp_path / "other", clients=14, rows=1400, algorithm="d-sgd", finished=True)
    page = tmp_path / "both.html"
    assert run_command(["report", f"SWIFT={run}", f"D-SGD={other}", "--out", str(page)]) == 0
    data = data_in(page)
    assert [one["name"] for one in data["runs"]] == ["SWIFT", "D-SGD"]
    assert data["compare"]["differences"] == [{"key": "algorithm.name", "values": ["swift", "d-sgd"]}]
    assert list(data["of"]) == [one["id"] for one in data["runs"]]


def test_folders_of_this_machine_are_not_told(run: Path, tmp_path: Path) -> None:
    other = make_facts(tmp_path / "other", clients=14, rows=1400, algorithm="d-sgd", finished=True)
    for folder, name in ((run, "one.py"), (other, "two.py")):
        file = f"/home/private/{name}"
        config = json.loads((folder / "config.json").read_text())
        config.update(imports=[file], sources={file: {"sha256": "0"}}, experiment=f"{file}:Mine")
        config["data"] = {**config.get("data", {}), "folder": f"/home/private/{name}-data"}
        (folder / "config.json").write_text(json.dumps(config))
    page, figures = tmp_path / "both.html", tmp_path / "figures"
    assert run_command(["report", str(run), str(other), "--out", str(page), "--figures", str(figures)]) == 0
    data = data_in(page)
    assert "private" not in json.dumps(data)
    config = data["of"][data["runs"][0]["id"]]["about"]["config"]
    assert config["imports"] == ["one.py"]
    assert config["experiment"] == "one.py:Mine"
    assert {"key": "data.folder", "values": ["one.py-data", "two.py-data"]} in data["compare"]["differences"]
    tables = [path.read_text() for path in figures.iterdir() if path.suffix in (".csv", ".tex", ".md")]
    assert any("two.py:Mine" in text for text in tables)
    assert not any("private" in text for text in tables)


@pytest.mark.parametrize("style", ["screen", "paper"])
def test_figures_and_tables_are_written_beside(run: Path, tmp_path: Path, style: str) -> None:
    other = make_facts(tmp_path / "other", clients=14, rows=1400, algorithm="d-sgd", finished=True)
    folder = tmp_path / ("both-figures" if style == "paper" else "figures")
    where = [] if style == "paper" else ["--figures", str(folder)]
    page = tmp_path / "both.html"
    given = [f"SWIFT C_0={run}", f"D-SGD={other}", "--out", str(page), "--style", style, *where]
    assert run_command(["report", *given]) == 0
    drawn = ["accuracy", "consensus_distance", "graph-D-SGD", "graph-SWIFT-C_0", "loss", "rates", "stream"]
    assert sorted(path.stem for path in folder.glob("*.svg")) == drawn
    assert {path.stem for path in folder.glob("*.pdf")} == {path.stem for path in folder.glob("*.svg")}
    width = re.search(r'<svg [^>]*width="([\d.]+)pt"', (folder / "loss.svg").read_text())
    assert width is not None
    assert float(width[1]) == 3.25 * 72
    fonts = (folder / "loss.pdf").read_bytes().count(b"/FontFile2")
    assert (fonts > 0) == (style == "paper")
    assert "mean of the clients" in (folder / "loss.svg").read_text()  # what the thin lines are
    table = (folder / "results.tex").read_text()
    assert r"\toprule" in table
    assert r"SWIFT C$_0$ &" in table
    assert "algorithm.name,swift,d-sgd" in (folder / "differences.csv").read_text()


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("engine") / "sampled"
    given = ["--engine", "sampled", "--clients", "3", "--epochs", "1", "--evaluate-every", "0.5", "--out"]
    assert run_command(["run", "digits", *given, str(folder)]) == 0
    return folder


def test_the_clients_losses_of_a_sampled_run_are_over_its_iterations(sampled: Path) -> None:
    curves = RunView(sampled).curves()
    clients, measured = curves["clients"], curves["columns"]
    assert clients["iteration"][-1] <= measured["iteration"][-1]
    assert clients["iteration"][-1] > measured["iteration"][-1] * 0.9
    share = clients["iteration"][5] / measured["iteration"][-1]
    assert clients["epoch"][5] == pytest.approx(share * measured["epoch"][-1], rel=0.05)


def test_figures_of_runs_by_different_clocks_say_so(sampled: Path, run: Path, tmp_path: Path) -> None:
    labels: list[tuple[str, str]] = []
    kept = paper._panel

    def panel(xlabel: str, ylabel: str, height: float = 2.1) -> tuple[Figure, Axes]:
        labels.append((xlabel, ylabel))
        return kept(xlabel, ylabel, height)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(paper, "_panel", panel)
        for chosen in ([sampled, run], [sampled]):
            paper.write_figures(tmp_path / str(len(chosen)), [RunView(one) for one in chosen], paper=True)
    assert {x for x, y in labels if "steps per" not in y} == {"client steps"}
    rates = [(x, y) for x, y in labels if "steps per" in y]
    assert rates == [
        ("virtual time (s)", "steps per second of a client"),
        ("iterations", "steps per iteration of a client"),
    ]
    assert {path.stem for path in (tmp_path / "2").glob("stream*.svg")} == {"stream", "stream-iterations"}
    row = (tmp_path / "2" / "results.csv").read_text().splitlines()[1].split(",")
    assert row[0] == "sampled"
    assert row[3:] == ["", "", ""]  # no time, no waiting, no time to a loss


def test_the_spans_of_a_stream_are_its_bins(run: Path) -> None:
    reply = RunView(run).stream(bins=200)
    assert reply is not None
    states, _ = decoded(reply)
    spans = spans_of(reply)
    width = (reply["to"] - reply["from"]) / 200
    for state, part in enumerate(("compute", "communication", "waiting"), start=1):
        length = sum(end - begin for _, what, begin, end in spans if what == part)
        assert length == pytest.approx(width * np.count_nonzero(states == state))
    assert len(spans) == np.count_nonzero(np.diff(states.astype(int), axis=1, prepend=0) * (states > 0))


def test_the_policy_of_the_page_allows_its_own_scripts_and_styles_only(run: Path) -> None:
    run_command(["report", str(run)])
    text = (run / "report.html").read_text()
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; ")
    assert "unsafe" not in policy[1]
    inside = [*re.findall(r"<style>(.*?)</style>", text, re.S)]
    inside += re.findall(r'<script(?: type="module")?>(.*?)</script>', text, re.S)
    assert len(inside) == 5
    for part in inside:
        assert base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() in policy[1]
    assert not re.search(r'(src|href)="(?!data:|#)', text)


def test_modules_stand_after_those_that_they_need() -> None:
    script = bundled_script("app.js")
    made = [found.start() for found in re.finditer(r'^modules\["', script, re.M)]
    assert len(made) == 10
    assert not re.search(r"^(import|export) ", script, re.M)
    for used in re.finditer(r'= modules\["(.+)"\];', script):
        assert script.index(f'modules["{used[1]}"] = (') < used.start()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere is not a run folder: it has no config.json"),
        (["{run}", "--out", "page.pdf"], "--out page.pdf: the file must end in .html"),
        (["{run}", "--out", "{run}/not/there.html"], "cannot write"),
        (["{run}", "{run}"], "two runs are called 'mine': give each a label, as in mine_1=FOLDER"),
    ],
)
def test_what_cannot_be_reported_is_refused(
    run: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert run_command(["report", *(word.format(run=run) for word in arguments)]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert not list(run.glob("*.html"))
