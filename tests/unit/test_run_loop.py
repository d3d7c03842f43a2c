"""The run loop where things go wrong: signals, divergence, disks, damaged or locked folders, absurd sizes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from test_experiment import StopAt, same, small

from swiftfl.cli.main import run_command
from swiftfl.engines.simulation.virtual import VirtualEngine
from swiftfl.errors import UserError
from swiftfl.experiment.config import Config
from swiftfl.experiment.differences import difference
from swiftfl.experiment.facts import FactsRecorder
from swiftfl.experiment.measure import Measurement
from swiftfl.experiment.run import RunResult, RunStopped, resume, run
from swiftfl.experiment.runners.simulated import SimulatedRunner
from swiftfl.experiment.saving import SavingTimes
from swiftfl.record import RunFolder
from swiftfl.record.facts import ClientState
from swiftfl.record.facts.writer import StepsWriter

HUGE = {"algorithm.step_size.initial": 1e300, "data.batch_size": 4}


class At:
    """A progress display during whose call something happens, once."""

    def __init__(self, call: int, happens: Callable[[], object]) -> None:
        self.left, self.happens = call, happens

    def __call__(self, done: int, total: int, last: Measurement) -> None:
        self.left -= 1
        if self.left == 0:
            self.happens()


def strict(folder: Path) -> None:
    """Every JSON file is one that any reader takes."""
    files = [*folder.rglob("*.json"), *folder.rglob("*.jsonl")]
    assert files
    for file in files:
        for line in file.read_text().splitlines() if file.suffix == ".jsonl" else [file.read_text()]:
            json.loads(line, parse_constant=lambda name, file=file: pytest.fail(f"{file}: {name}"))


def events(folder: Path) -> list[str]:
    return [event["event"] for event in RunFolder(folder).read_rows("events.jsonl")]


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files of this test's own."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return tmp_path / "temporary"


# --- signals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_every_signal_that_asks_for_a_stop_saves(tmp_path: Path, number: signal.Signals) -> None:
    out = tmp_path / "it's mine"
    with pytest.raises(RunStopped) as stop:
        run(small(), out, At(2, lambda: os.kill(os.getpid(), number)))
    quoted = re.escape(str(out)).replace("'", "'\"'\"'")
    assert re.fullmatch(rf"stopped; to go on: swiftfl resume '{quoted}'", str(stop.value))
    assert (out / "checkpoint").is_dir()
    same(resume(out), run(small()))


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.slow)])
def test_a_terminated_command_says_how_to_go_on(tmp_path: Path, number: signal.Signals) -> None:
    out = tmp_path / "run"
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "swiftfl",
            "run",
            "synthetic",
            "--clients",
            "8",
            "--epochs",
            "1000000",
            "--out",
            out,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    rows = out / "metrics.jsonl"
    while process.poll() is None and (not rows.exists() or rows.read_text().count("\n") < 3):
        time.sleep(0.01)
    process.send_signal(number)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert said.splitlines()[-1] == f"swiftfl: stopped; to go on: swiftfl resume {out}"
    assert (out / "checkpoint").is_dir()


# --- divergence ----------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["virtual", "sampled"])
def test_a_run_that_diverges_says_so_and_stops(
    tmp_path: Path, engine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    result = run(small(engine__epochs=30, engine__name=engine).with_changes(HUGE), out)
    said = capsys.readouterr().err
    assert re.search(r"^swiftfl: diverged at epoch [\d.]+: .*; try a smaller --lr$", said, re.MULTILINE)
    assert said.count("diverged") == 1
    assert result.diverged
    assert result.summary["diverged"] is True
    assert result.curve[-1]["epoch"] < 30
    assert events(out)[-2:] == ["diverged", "end"]
    strict(out)
    with pytest.raises(UserError, match="has finished"):
        resume(out)


def test_the_command_of_a_diverged_run_has_its_own_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["run", "digits", "--clients", "4", "--epochs", "5", "--lr", "1e300", "--out"]
    assert run_command([*line, str(tmp_path / "run"), "--json"]) == 3
    shown = capsys.readouterr()
    assert json.loads(shown.out, parse_constant=pytest.fail)["diverged"] is True
    assert re.fullmatch(r"(swiftfl: warning: .* was left out\n)*swiftfl: diverged at epoch .*\n", shown.err)
    assert run_command([*line, str(tmp_path / "again")]) == 3


def test_a_run_that_learns_has_not_diverged() -> None:
    assert run(small()).summary["diverged"] is False


# --- disks ---------------------------------------------------------------------------------------


def check_elsewhere(result: RunResult, whole: RunResult, out: Path, said: str) -> None:
    assert result.elsewhere
    assert result.folder is not None
    assert result.folder != out
    assert said.count("the run goes on") == 1
    assert f"the result could not be written to {out}" in said
    assert f"it is in {result.folder}" in said
    assert RunFolder.open(result.folder).read_json("summary.json") == result.summary == whole.summary
    assert len(RunFolder(result.folder).read_rows("metrics.jsonl")) == len(whole.curve)
    assert events(result.folder)[0] == "start"
    assert events(result.folder)[-1] == "end"


def test_a_folder_that_is_removed_costs_no_result(
    tmp_path: Path, temporary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    result = run(small(), out, At(2, lambda: shutil.rmtree(out)))
    check_elsewhere(result, run(small()), out, capsys.readouterr().err)
    assert result.folder is not None
    assert result.folder.parent == temporary


def test_where_nothing_can_be_written_the_result_is_still_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"

    def full(*_: object) -> None:
        raise UserError("No space left on device")

    def fill() -> None:
        for name in ("append", "write_json", "write_models", "rewrite_rows"):
            monkeypatch.setattr(RunFolder, name, full)

    result = run(small(), out, At(2, fill))
    monkeypatch.undo()
    assert result.summary == run(small()).summary
    assert result.folder is None
    assert result.elsewhere
    assert "nor to any other place" in capsys.readouterr().err


def test_a_disk_that_has_room_again_has_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    append, calls = RunFolder.append, []

    def full_for_a_while(folder: RunFolder, name: str, row: dict[str, Any]) -> None:
        calls.append(name)
        if 3 <= len(calls) <= 5:
            raise UserError(f"cannot write {folder.path / name}: No space left on device")
        append(folder, name, row)

    monkeypatch.setattr(RunFolder, "append", full_for_a_while)
    result = run(small(), tmp_path / "run")
    assert not result.elsewhere
    assert capsys.readouterr().err.count("No space left on device; the run goes on") == 1
    assert RunFolder(tmp_path / "run").read_rows("metrics.jsonl") == result.curve


def test_a_stop_on_a_full_disk_says_that_nothing_was_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise UserError("No space left on device")

    monkeypatch.setattr("swiftfl.record.checkpoints.Checkpoints.write", full)
    with pytest.raises(RunStopped, match="could not be saved: No space left"):
        run(small(), tmp_path / "run", StopAt(2))


def test_what_is_for_developers_is_not_shown_to_users() -> None:
    """Python prints warnings of loggers that nobody has configured: each message would come twice."""
    program = (
        "import logging, swiftfl; logging.getLogger('swiftfl.experiment.recorder').error('for developers')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == ""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for the beginning of a run, but not for its models."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=48k", "tmpfs", place],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", place], check=True)


def test_a_full_disk_from_a_shell(
    small_disk: Path, temporary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = small_disk / "run"
    line = ["run", "digits", "--clients", "4", "--epochs", "3", "--out", str(out), "--json"]
    assert run_command(line) == 1
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert found["accuracy"] > 0.5
    assert Path(found["run"]).parent == temporary
    assert (Path(found["run"]) / "models.safetensors").is_file()
    assert "No space left on device" in shown.err


def test_warnings_are_shown_at_once_the_first_five(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    warnings = [{"event": "warning", "text": f"number {i}", "iteration": 1, "time": 0.0} for i in range(12)]
    pending, shown = [warnings], []
    monkeypatch.setattr(VirtualEngine, "take_log", lambda engine: pending.pop() if pending else [])
    run(small(), tmp_path / "run", At(1, lambda: shown.append(capsys.readouterr().err)))
    (shown_at_once,) = shown
    assert [line for line in shown_at_once.splitlines() if "warning: " in line] == [
        f"swiftfl: warning: number {i}" for i in range(5)
    ]
    assert shown_at_once.count("there are further warnings") == 1
    recorded = RunFolder.open(tmp_path / "run").read_rows("events.jsonl")
    assert [row for row in recorded if row["event"] == "warning"] == warnings


# --- what was saved ------------------------------------------------------------------------------


def stopped(out: Path, config: Config | None = None) -> None:
    """A run that was stopped twice: it has two checkpoints."""
    with pytest.raises(RunStopped):
        run(config or small(), out, StopAt(1))
    with pytest.raises(RunStopped):
        resume(out, StopAt(1))


def spoil(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(content)


@pytest.mark.parametrize("name", ["tree.json", "arrays.safetensors"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    stopped(out)
    spoil(out / "checkpoint" / name)
    same(resume(out), run(small()))
    said = capsys.readouterr().err
    assert f"{out / 'checkpoint' / name} is damaged" in said
    assert "goes on from the checkpoint before it" in said


@pytest.mark.parametrize("sums", ["{}", "[]"])
def test_checksums_that_are_missing_are_named(
    tmp_path: Path, sums: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    stopped(out)
    for generation in ("checkpoint", "checkpoint.old"):
        (out / generation / "sha256.json").write_text(sums)
    assert run_command(["resume", str(out)]) == 2
    told = f"{out / 'checkpoint' / 'sha256.json'} is damaged: it has no checksum of tree.json"
    assert told in capsys.readouterr().err


def test_without_a_readable_checkpoint_a_run_begins_again_only_when_told_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    stopped(out)
    for generation in ("checkpoint", "checkpoint.old"):
        spoil(out / generation / "tree.json")
    before = sorted(out.rglob("*"))
    assert run_command(["resume", str(out)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"{out / 'checkpoint' / 'tree.json'} is damaged" in said
    assert "nor can the one before it be used: --from-start" in said
    assert sorted(out.rglob("*")) == before
    assert run_command(["resume", str(out), "--from-start", "--json"]) == 0
    shown = capsys.readouterr()
    assert "starts from its beginning" in shown.err
    assert json.loads(shown.out)["loss"] == run(small()).summary["loss"]


def test_a_checkpoint_that_was_edited_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(RunStopped):
        run(small(), out, StopAt(1))
    file = out / "checkpoint" / "tree.json"
    tree = json.loads(file.read_text())
    for key in tree:
        file.write_text(json.dumps({**tree, key: "edited"}))
        with pytest.raises(UserError, match="is damaged") as error:
            resume(out)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("command", ["resume", "replay"])
def test_a_configuration_that_is_no_object_is_one_line(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text("[1, 2]")
    assert run_command([command, str(tmp_path)]) == 2
    said = f"{tmp_path / 'config.json'} must hold an object of settings, not a list"
    assert capsys.readouterr().err == f"swiftfl: {said}\n"


def test_a_checkpoint_of_another_version_is_one_line(tmp_path: Path) -> None:
    out = tmp_path / "run"
    stopped(out)
    folder = RunFolder.open(out)
    saved = folder.checkpoints.read()
    assert saved is not None
    folder.checkpoints.write({}, saved.arrays, saved.config)
    with pytest.raises(UserError, match="checkpoint") as error:
        resume(out)
    assert "\n" not in str(error.value)


def test_where_the_data_lies_may_change() -> None:
    here, there = (small(data__dataset="cifar10", data__options={}, data__folder=f) for f in ("/a", "/b"))
    assert difference(here, there) is None
    assert difference(small(), small(seed=6)) == "seed was 5 and is 6"


# --- one process at a time -----------------------------------------------------------------------


def test_a_run_cannot_be_resumed_while_it_runs(tmp_path: Path) -> None:
    out = tmp_path / "run"
    refused: list[str] = []

    def intrude() -> None:
        with pytest.raises(UserError, match=f"in use by process {os.getpid()}") as error:
            resume(out)
        refused.append(str(error.value))

    same(run(small(), out, At(2, intrude)), run(small()))
    assert len(refused) == 1
    assert not (out / ".lock").exists()


def test_a_folder_of_a_run_that_was_killed_is_free(tmp_path: Path) -> None:
    out = tmp_path / "run"
    stopped(out)
    (out / ".lock").write_text("process 1 on elsewhere\n")
    same(resume(out), run(small()))


# --- nobody left, absurd sizes -------------------------------------------------------------------


def test_a_run_of_which_nobody_is_left_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, network = tmp_path / "run", tmp_path / "network.json"
    network.write_text(json.dumps({"crash_rate": 100.0}))  # by chance; a plan that leaves nobody is refused
    line = ["run", "digits", "--clients", "4", "--epochs", "3", "--network", str(network), "--out", str(out)]
    assert run_command(line) == 2
    assert capsys.readouterr().err.startswith("swiftfl: no client is left")
    assert events(out)[-1] == "failed"
    assert not (out / "summary.json").exists()


def test_an_evaluation_that_never_comes(tmp_path: Path) -> None:
    result = run(small(evaluation__every_epochs=1e308), tmp_path / "run")
    assert [row["iteration"] for row in result.curve] == [0, result.summary["iterations"]]


ABSURD: dict[str, dict[str, Any]] = {
    "spread": {"engine.costs.spread": 1e308},
    "compute": {"engine.costs.compute": 1e308},
    "latency": {"engine.costs.latency": 1e308},
    "jitter": {"engine.costs.jitter": 1e308},
    "slowdown": {"engine.costs.slowdowns": [{"client": 1, "factor": 1e308}]},
    "bandwidth": {"engine.costs.bandwidth": 1e-308},
}


@pytest.mark.parametrize("what", ABSURD)
@pytest.mark.parametrize("algorithm", ["swift", "dsgd"])
def test_absurd_costs_end_with_a_result_or_in_one_line(tmp_path: Path, what: str, algorithm: str) -> None:
    out = tmp_path / "run"
    if what == "spread":
        with pytest.raises(UserError, match="spread must be at most"):
            run(small(algorithm__name=algorithm).with_changes(ABSURD[what]), out)
        assert not out.exists()
        return
    result = run(small(algorithm__name=algorithm).with_changes(ABSURD[what]), out)
    assert result.summary["iterations"] > 0
    strict(out)


def test_many_events_are_written_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network that changes a thousand times in an epoch costs one write per look, not one per event."""
    config = small(engine__network={"edge_down_rate": 100.0, "edge_up_rate": 100.0})
    writes: list[int] = []
    append = RunFolder.append

    def count(folder: RunFolder, name: str, *rows: dict[str, Any]) -> None:
        if name == "events.jsonl":
            writes.append(len(rows))
        append(folder, name, *rows)

    monkeypatch.setattr(RunFolder, "append", count)
    run(config, tmp_path / "run")
    rows = RunFolder.open(tmp_path / "run").read_rows("events.jsonl")
    assert len(rows) == sum(writes) > 100
    assert len(writes) < len(rows) / 2


def test_checkpoints_are_written_between_evaluations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is evaluated once a day must not lose a day."""
    monkeypatch.setattr("swiftfl.experiment.runners.simulated._LONGEST", 0.0)
    config = small(evaluation__every_epochs=1000)
    done = run(config, tmp_path / "run", checkpoint_every=0.0)
    rows = RunFolder.open(tmp_path / "run").read_rows("events.jsonl")
    saved = [row["iteration"] for row in rows if row["event"] == "checkpoint"]
    assert len(saved) > 1
    assert all(0 < iteration < done.summary["iterations"] for iteration in saved)


def test_saves_that_take_long_take_a_small_share_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a million clients a save takes a minute; every half minute one would be most of the run."""
    monkeypatch.setattr("swiftfl.experiment.runners.simulated._LONGEST", 0.0)
    monkeypatch.setattr("swiftfl.experiment.saving._LONG_SAVE", 0.0)
    monkeypatch.setattr("swiftfl.experiment.saving._SHARE_OF_SAVING", 1e9)
    run(small(), tmp_path / "run", checkpoint_every=0.0)
    assert events(tmp_path / "run").count("checkpoint") == 1


def test_a_save_during_which_the_process_was_stopped_does_not_put_off_the_next_for_hours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr("swiftfl.experiment.saving.time.monotonic", lambda: now)
    times = SavingTimes(30.0)
    with times.timed():
        now += 36_000.0
    now += 1_799.0
    assert not times.due
    now += 1.0
    assert times.due


def test_who_is_asked_to_stop_while_saving_does_not_save_the_same_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = SimulatedRunner.save

    def interrupted(self: SimulatedRunner, folder: RunFolder, config: dict[str, Any]) -> bool:
        os.kill(os.getpid(), signal.SIGTERM)
        return save(self, folder, config)

    monkeypatch.setattr("swiftfl.experiment.runners.simulated._LONGEST", 0.0)
    monkeypatch.setattr(SimulatedRunner, "save", interrupted)
    with pytest.raises(RunStopped, match="to go on"):
        run(small(), tmp_path / "run", checkpoint_every=0.0)
    assert events(tmp_path / "run").count("checkpoint") == 1
    monkeypatch.undo()
    same(resume(tmp_path / "run"), run(small()))


def test_facts_that_take_long_are_written_seldom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a million clients a table takes seconds; two a second would be most of the run."""
    writes: list[float] = []
    write = FactsRecorder.write

    def count(self: FactsRecorder, at_the_end: ClientState | None = None) -> None:
        writes.append(time.monotonic())
        write(self, at_the_end)

    monkeypatch.setattr("swiftfl.experiment.runners.simulated._LONGEST", 0.0)
    monkeypatch.setattr("swiftfl.experiment.facts._EVERY", 0.0)
    monkeypatch.setattr("swiftfl.experiment.facts._SHARE", 0)
    monkeypatch.setattr(FactsRecorder, "write", count)
    run(small(), tmp_path / "often")
    often = len(writes)
    monkeypatch.setattr("swiftfl.experiment.facts._SHARE", 1e9)
    run(small(), tmp_path / "seldom")
    assert often > 2
    assert len(writes) - often == 2, "at the start and at the end"
    monkeypatch.setattr("swiftfl.experiment.facts._AT_MOST", 0.0)
    run(small(), tmp_path / "no longer than that")
    assert len(writes) - often > 4


def test_the_time_that_steps_take_does_not_make_facts_seldom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a slow disk: the longer the interval, the more steps there are to write, and so on without end."""
    waits: list[float] = []
    write, steps = FactsRecorder.write, StepsWriter.write

    def slow(self: StepsWriter, *rows: Any) -> None:
        time.sleep(0.3)
        steps(self, *rows)

    def look(self: FactsRecorder, at_the_end: ClientState | None = None) -> None:
        write(self, at_the_end)
        waits.append(self._due - time.monotonic())

    monkeypatch.setattr(StepsWriter, "write", slow)
    monkeypatch.setattr(FactsRecorder, "write", look)
    run(small(), tmp_path / "run")
    assert max(waits) < 5.0, "and not 30 times 0.3"
