"""`swiftfl reproduce`: what it writes, how it goes on, and how it says no."""

from __future__ import annotations

import fcntl
import io
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from swiftfl.cli import campaign_screen, reproduction
from swiftfl.cli.main import run_command
from swiftfl.data import cifar10
from swiftfl.errors import UserError
from swiftfl.experiment.campaign import CampaignProgress
from swiftfl.reproduce import prediction
from swiftfl.reproduce.plan import ReproductionOptions
from swiftfl.reproduce.report import document as report


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing and measuring this machine have tests of their own, and take their time."""
    monkeypatch.setattr(report, "write", lambda out, progress: out / "report.html")
    monkeypatch.setattr(reproduction, "write_live", lambda experiment, folder, scale: None)
    monkeypatch.setattr(prediction, "sensitivity", lambda experiment, batch_size: {})
    monkeypatch.setattr("sys.argv", ["swiftfl", "reproduce", "baseline", "--out", "a b"])


def reproduce(*arguments: object) -> int:
    return run_command(["reproduce", *map(str, arguments)])


def test_one_command_writes_everything_and_again_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ("baseline", "--epochs", 1, "--jobs", 1, "--out", tmp_path)
    assert reproduce(*command) == 0
    assert "Report: " in capsys.readouterr().out
    folder = tmp_path / "baseline"
    described = json.loads((folder / "experiment.json").read_text())
    assert described["scale"] == "smoke"
    assert described["seeds"] == [0]
    assert described["command"] == "swiftfl reproduce baseline --out 'a b'"
    assert list(described["methods"])[:3] == ["swift_c0", "swift_c1", "dsgd_c0"]
    assert len(described["topologies"]["ring16"]["edges"]) == 16
    assert set(json.loads((folder / "predicted.json").read_text())["ring16"]) == set(described["methods"])
    assert list(tmp_path.rglob(".*")) == []  # no lock and no temporary file stays
    summaries = [folder / run["path"] / "summary.json" for run in described["runs"]]
    assert len(summaries) == 6
    before = [file.stat().st_mtime_ns for file in summaries]
    assert reproduce(*command) == 0
    assert [file.stat().st_mtime_ns for file in summaries] == before

    capsys.readouterr()
    assert reproduce("baseline", "--epochs", 2, "--jobs", 1, "--out", tmp_path) == 2
    told = capsys.readouterr().err
    assert "seed0 holds a run with other settings" in told
    assert told.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nothing",), "nothing"),
        (("baseline", "--scale", "tiny"), "tiny"),
        (("baseline", "--seeds", 0), "--seeds"),
        (("baseline", "--jobs", 0), "--jobs"),
        (("baseline", "--model", "resnet18"), "--scale paper"),
        (("baseline", "--engine", "local", "--device", "cuda:99"), "cannot be used here"),
        (("baseline", "--out", "/proc/nowhere"), "/proc/nowhere"),
        (("baseline", "--scale", "small", "--data", "/nowhere"), "--data DIR"),
        (("all", "--scale", "small"), "--data DIR"),
        (("baseline", "--device", "nonsense"), "nonsense"),
        (("all", "--device", "nonsense"), "nonsense"),
        (("baseline", "--data", "/nowhere"), "--data needs --scale small or paper"),
        (("baseline", "--engine", "local", "--jobs", 2), "--jobs"),
        (("convergence", "--engine", "local"), "convergence does not use --engine"),
        (("convergence", "--hardware", "measured"), "convergence does not use --hardware"),
        (("convergence", "--epochs", 2, "--device", "cuda"), "does not use --device, --epochs"),
        (("convergence", "--data", "/nowhere", "--model", "resnet18"), "does not use --data, --model"),
        (("convergence", "--baseline-weights", "uniform"), "does not use --baseline-weights"),
        (("convergence", "--fidelity", "authors"), "does not use --fidelity"),
        (("baseline", "--fidelity", "mine"), "mine"),
        (("rivals", "--engine", "local"), "rivals does not use --engine"),
        (("better", "--epochs", 3), "better does not use --epochs"),
        (("shift", "--scale", "paper"), "shift has no scale paper: choose from smoke, small"),
        (("influence", "--seeds", 101), "seeds must be 1 to 100"),
    ],
)
def test_mistakes_are_reported_on_one_line(
    arguments: tuple[object, ...],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_network(name: str, archive: object, folder: Path) -> None:
        raise UserError(f"{name}: its files are not in {folder}")

    monkeypatch.setattr(cifar10, "fetch", no_network)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    assert reproduce(*arguments) == 2
    told = capsys.readouterr().err
    assert words in told
    assert told.count("\n") == 1
    assert not (tmp_path / "reproductions").exists()


def test_a_failed_run_is_reported_and_gives_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = CampaignProgress(6, 100, runs_done=5, failed={"runs/x": "it diverged"})
    monkeypatch.setattr(reproduction, "campaign", lambda jobs, workers, show: broken)
    assert reproduce("baseline", "--out", tmp_path) == 1
    captured = capsys.readouterr()
    assert "failed: runs/x: it diverged" in captured.err
    assert "Report: " in captured.out
    assert json.loads((tmp_path / "baseline" / "failed.json").read_text()) == {"runs/x": "it diverged"}


def test_two_fidelities_never_share_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even in different experiments, of which one report would be made."""
    monkeypatch.setattr(reproduction, "campaign", lambda jobs, workers, show: CampaignProgress(0, 0))
    monkeypatch.setattr(reproduction, "write_predictions", lambda experiment, folder: None)
    monkeypatch.chdir(tmp_path)
    assert reproduce("baseline", "--fidelity", "authors") == 0
    folder = tmp_path / "reproductions" / "smoke-authors"
    assert json.loads((folder / "baseline" / "experiment.json").read_text())["fidelity"] == "authors"
    capsys.readouterr()
    for name in ("baseline", "noniid"):
        assert reproduce(name, "--out", folder) == 2
        told = capsys.readouterr().err
        assert "holds results with fidelity authors, not paper: choose another --out" in told
        assert told.count("\n") == 1
    assert not (folder / "noniid").exists()
    assert reproduce("noniid", "--fidelity", "authors", "--out", folder) == 0


def test_what_is_measured_in_parts_has_no_fidelity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that `reproduce all --fidelity authors` can be given again after convergence has been measured."""
    monkeypatch.setattr(reproduction, "campaign", lambda jobs, workers, show: CampaignProgress(0, 0))
    monkeypatch.setattr(reproduction, "write_predictions", lambda experiment, folder: None)
    for name in ("convergence", "rivals"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "experiment.json").write_text(json.dumps({"name": name, "scale": "smoke"}))
    assert reproduce("baseline", "--fidelity", "authors", "--out", tmp_path) == 0


@pytest.mark.parametrize(("scale", "beyond"), [("smoke", 4), ("small", 4), ("paper", 0)])
def test_all_are_those_of_the_scale(scale: str, beyond: int, tmp_path: Path) -> None:
    task = reproduction.Task(scale, 1, tmp_path, "paper", ReproductionOptions(), 1, "")
    names = task.all_names()
    assert len(names) == 6 + beyond
    assert names[:6] == ["baseline", "noniid", "slowdown", "clients", "topologies", "convergence"]
    assert names[6:] == ["rivals", "better", "influence", "shift"][:beyond]


def test_a_stop_says_how_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(jobs: object, workers: int, show: object) -> CampaignProgress:
        raise KeyboardInterrupt

    monkeypatch.setattr(reproduction, "campaign", stopped)
    assert reproduce("baseline", "--out", tmp_path) == 130
    assert "to go on: swiftfl reproduce baseline" in capsys.readouterr().err


def test_two_commands_do_not_work_in_one_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "baseline").mkdir()
    with (tmp_path / "baseline" / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert reproduce("baseline", "--out", tmp_path) == 2
    assert f"{tmp_path / 'baseline'} is in use" in capsys.readouterr().err


def test_mpi_gets_a_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tmp_path = tmp_path / "my runs"  # its name must be quoted
    assert reproduce("baseline", "--engine", "mpi", "--out", tmp_path) == 2
    told = capsys.readouterr().err
    command = re.search(r"6 runs: (sh .*); then this command again", told)
    assert command is not None
    assert shlex.split(command[1]) == ["sh", str(tmp_path / "baseline" / "mpi.sh")]
    script = tmp_path / "baseline" / "mpi.sh"
    done = tmp_path / "baseline" / "runs" / "ring16" / "swift_c0" / "seed0"
    begun = done.parents[1] / "dsgd_c0" / "seed0"
    for file in (done / "summary.json", begun / "config.json"):
        file.parent.mkdir(parents=True)
        file.write_text("{}")
    said = subprocess.run(
        ["sh", str(script)], env={"MPIEXEC": "echo mpiexec"}, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert len(said) == 5
    assert f"mpiexec -n 16 swiftfl resume {begun}" in said
    runs = [line.split(" run ")[1].split(" --out ")[0] for line in said if " run " in line]
    assert {json.loads(Path(name).read_text())["engine"]["name"] for name in runs} == {"mpi"}


def test_measured_hardware_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ("baseline", "--hardware", "measured", "--epochs", 1, "--jobs", 1, "--out", tmp_path)
    monkeypatch.setattr(reproduction, "campaign", lambda jobs, workers, show: CampaignProgress(0, 0))
    assert reproduce(*command) == 0
    kept = (tmp_path / "baseline" / "hardware.json").read_text()
    assert reproduce(*command) == 0
    assert (tmp_path / "baseline" / "hardware.json").read_text() == kept


def test_what_a_killed_command_left_half_written_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Temporary files of a process that is gone go away; the user's files stay."""
    figures = tmp_path / "baseline" / "figures"
    figures.mkdir(parents=True)
    leave = "import sys; from swiftfl.files import _temporary_name as n; open(sys.argv[1] + n('a.svg'), 'w')"
    for folder in (figures, figures.parent):
        (folder / "mine.txt").write_text("kept")
        subprocess.run([sys.executable, "-c", leave, f"{folder}/"], check=True, timeout=120)
        assert len(list(folder.glob(".swiftfl-*"))) == 1
    monkeypatch.setattr(reproduction, "campaign", lambda runs, workers, show: CampaignProgress(0, 0))
    assert reproduce("baseline", "--out", tmp_path) == 0
    assert list(tmp_path.rglob(".*")) == []
    assert len(list(tmp_path.rglob("mine.txt"))) == 2


@pytest.mark.parametrize("width", [60, 120])
def test_a_line_of_progress_fits_the_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name and what matters most stay, whatever the width."""
    out = io.StringIO()
    monkeypatch.setattr(
        campaign_screen, "Console", lambda stderr: Console(file=out, force_terminal=True, width=width)
    )
    with campaign_screen.CampaignScreen("topologies") as campaign:
        campaign(CampaignProgress(30, 345_678, 12, 123_456, 4000.0, {"run": "reason"}))
    with campaign_screen.StageScreen("convergence") as stage:
        stage("", 0, 37)
        stage("rate-noniid-skewed-seed0", 37, 37)
    drawn = out.getvalue().replace("\r", "\n")  # each time from the beginning of the line
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn).splitlines()
    assert max(map(len, lines)) <= width
    shown = [line for line in lines if "12/30 runs, 1 failed, 67 min left" in line]
    assert shown
    assert all(line.startswith("topologies ") for line in shown)
    assert lines[-1].startswith("convergence ")
    assert lines[-1].rstrip().endswith("37/37 parts")


def test_in_a_pipe_every_stage_says_when_it_begins_and_what_was_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However short it is; and a line is not said twice."""
    out = io.StringIO()
    monkeypatch.setattr(campaign_screen, "Console", lambda stderr: Console(file=out))
    with campaign_screen.StageScreen("rivals") as stage:
        for done in range(4):
            stage(f"part{done}", done, 3)
    with campaign_screen.StageScreen("shift") as stage:
        stage("", 2, 2)
    with campaign_screen.CampaignScreen("baseline") as campaign:
        campaign.doing("predicting times")
        campaign(CampaignProgress(2, 20))
        campaign(CampaignProgress(2, 20, 2, 20))
    stopped = campaign_screen.StageScreen("report")
    for done in range(2):
        stopped("", done, 2)
    stopped.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert out.getvalue().splitlines() == [
        "rivals: 0/3 parts, after part0",
        "rivals: 3/3 parts",
        "shift: 2/2 parts",
        "baseline: predicting times",
        "baseline: 2/2 runs, 20/20 steps",
        "report: 0/2 parts",
    ]
