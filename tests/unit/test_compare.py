"""`swiftfl compare`: what was recorded, beside each other."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest

from swiftfl.cli.main import run_command
from swiftfl.experiment.recipes import digits
from swiftfl.experiment.run import run

SHORT = {"engine.epochs": 2, "topology.clients": 4, "evaluation.clients": 2}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for name in ("swift", "dsgd"):
        run(digits().with_changes({**SHORT, "algorithm.name": name}), folder / name)
    return folder


def last_row(folder: Path) -> dict[str, float]:
    row: dict[str, float] = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
    return row


def test_last_evaluations(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["compare", f"SWIFT={runs / 'swift'}", str(runs / "dsgd"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found.keys() == {"SWIFT", "dsgd"}
    assert found["SWIFT"] == {**last_row(runs / "swift"), "finished": True}
    assert found["dsgd"]["mean_client_loss"] == last_row(runs / "dsgd")["mean_client_loss"]


def test_table(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["compare", str(runs / "swift"), str(runs / "dsgd")]) == 0
    shown = capsys.readouterr().out
    for name in ("swift", "dsgd"):
        assert name in shown
        assert f"{100 * last_row(runs / name)['accuracy']:.1f}" in shown
    assert "\x1b" not in shown
    assert "not finished" not in shown


def test_every_evaluation_as_csv(runs: Path, tmp_path: Path) -> None:
    file = tmp_path / "curves.csv"
    assert run_command(["compare", f"a={runs / 'swift'}", f"b={runs / 'dsgd'}", "--csv", str(file)]) == 0
    rows = list(csv.DictReader(file.read_text().splitlines()))
    assert [(row["run"], float(row["epoch"])) for row in rows] == [
        (label, epoch) for label in "ab" for epoch in (0.0, 1.0, 2.0)
    ]
    assert float(rows[2]["mean_client_loss"]) == last_row(runs / "swift")["mean_client_loss"]


@pytest.mark.parametrize("over", ["epoch", "time", "iteration"])
def test_picture_has_both_kinds_of_curves(runs: Path, tmp_path: Path, over: str) -> None:
    file = tmp_path / "loss.svg"
    assert run_command(["compare", f"SWIFT={runs / 'swift'}", "--plot", str(file), "--over", over]) == 0
    drawn = file.read_text()
    assert "mean of the clients" in drawn
    assert "stroke-dasharray" in drawn


def test_unfinished_run_is_said_to_be(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("config.json", "metrics.jsonl"):
        (tmp_path / name).write_bytes((runs / "swift" / name).read_bytes())
    assert run_command(["compare", f"half={tmp_path}"]) == 0
    assert "not finished" in capsys.readouterr().out


def test_folders_of_one_name_are_told_apart_by_their_parents(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for parent in ("lr=0.1", "lr=0.2"):
        (tmp_path / parent).mkdir()
        (tmp_path / parent / "seed-0").symlink_to(runs / "swift")
        shutil.copytree(runs / "swift", tmp_path / parent / "seed-1")
    given = [str(tmp_path / parent / "seed-1") for parent in ("lr=0.1", "lr=0.2")]
    assert run_command(["compare", *given, str(runs / "dsgd"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out).keys() == {"lr=0.1/seed-1", "lr=0.2/seed-1", "dsgd"}
    twice = [str(tmp_path / parent / "seed-0") for parent in ("lr=0.1", "lr=0.2")]
    assert run_command(["compare", *twice]) == 2, "the same folder by two links"
    assert "two runs are called 'swift'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{runs}/swift", "{runs}/swift"], "two runs are called 'swift'"),
        (["x={runs}/nowhere"], "nowhere is not a run folder"),
        (["{runs}/swift", "--plot", "{out}/loss.txt"], "must end in .svg"),
        (["{empty}"], "has no evaluation yet"),
        (["{foreign}"], "is not a run folder of swiftfl"),
    ],
)
def test_wrong_requests(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    empty, foreign = tmp_path / "empty", tmp_path / "foreign"
    for folder, rows in ((empty, ""), (foreign, '{"a": 1}\n')):
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        (folder / "metrics.jsonl").write_text(rows)
    places = {"runs": runs, "out": tmp_path, "empty": empty, "foreign": foreign}
    assert run_command(["compare", *(text.format(**places) for text in arguments)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not list(tmp_path.glob("loss.*"))
