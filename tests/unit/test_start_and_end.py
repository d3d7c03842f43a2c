"""A run that is stopped while it starts, or killed while it ends: what is left can be gone on with."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_experiment import same, small

from forked import forked
from swiftfl.cli.main import run_command
from swiftfl.experiment.run import resume, run
from swiftfl.record import RunFolder

LIMIT = 120.0

SLOW = """
import os, signal
from pathlib import Path
from swiftfl.rules import SgdRule, update_rule

def pause():
    \"\"\"Say that we are here, and wait until a signal has come.\"\"\"
    told, tell = os.pipe()
    os.set_blocking(tell, False)
    signal.set_wakeup_fd(tell)
    Path("here").write_text("")
    os.read(told, 1)

class Slow(SgdRule):
    def init(self, x):
        if Path("run", "config.json").exists() and not Path("here").exists():
            pause()
        return super().init(x)

@update_rule("slow")
def slow() -> Slow:
    return Slow()
"""


def stopped_while_it_starts(
    folder: Path, module: str, number: signal.Signals, *options: str
) -> tuple[int, str]:
    """A command to which a signal is sent when a module of one's own says that it is there."""
    (folder / "own.py").write_text(module)
    line = ["run", "digits", "--clients", "4", "--epochs", "2", "--out", "run", "--import", "own.py"]
    process = subprocess.Popen(
        [sys.executable, "-m", "swiftfl", *line, *options], cwd=folder, stderr=subprocess.PIPE, text=True
    )
    try:
        end = time.monotonic() + LIMIT
        while not (folder / "here").exists():
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.01)
        process.send_signal(number)
        _, said = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
        process.communicate()
    return process.returncode, said


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGINT, id="SIGINT"),
        pytest.param(signal.SIGTERM, id="SIGTERM", marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, id="SIGHUP", marks=pytest.mark.slow),
    ],
)
def test_before_anything_is_written_a_signal_ends_the_command(tmp_path: Path, number: signal.Signals) -> None:
    assert stopped_while_it_starts(tmp_path, f"{SLOW}\npause()\n", number) == (130, "swiftfl: stopped\n")
    assert not (tmp_path / "run").exists()


def test_a_signal_while_a_class_is_made_ends_the_command_as_any_other_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Up to Python 3.11 what comes out of `__set_name__` is wrapped; every dataclass calls it."""

    def loading(*arguments: object, **more: object) -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as interrupt:
            raise RuntimeError("Error calling __set_name__ on 'Field' instance") from interrupt

    monkeypatch.setattr("swiftfl.cli.main.app", loading)
    assert run_command(["list"]) == 130
    assert capsys.readouterr().err == "swiftfl: stopped\n"


@pytest.mark.parametrize("engine", ["virtual", pytest.param("local", marks=pytest.mark.slow)])
def test_in_a_folder_that_has_been_made_the_run_starts_and_stops(tmp_path: Path, engine: str) -> None:
    """While its engine is made: nobody looks at signals there, and the folder holds a configuration."""
    code, said = stopped_while_it_starts(tmp_path, SLOW, signal.SIGTERM, "--rule", "slow", "--engine", engine)
    assert code == 130, said
    assert said.splitlines()[-1] == "swiftfl: stopped; to go on: swiftfl resume run"
    assert RunFolder(tmp_path / "run").has_saves()
    resumed = forked("resume", "run", "--json", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr


def test_the_summary_is_the_last_file_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever finds it finds everything else complete; without it, the run goes on and ends once."""
    out, write = tmp_path / "run", RunFolder.write_json

    def die(folder: RunFolder, name: str, value: object) -> None:
        if name == "summary.json":
            raise SystemExit("killed")
        write(folder, name, value)

    with monkeypatch.context() as patched:
        patched.setattr(RunFolder, "write_json", die)
        with pytest.raises(SystemExit):
            run(small(), out, checkpoint_every=0.0)
    folder = RunFolder.open(out)
    assert folder.read_rows("events.jsonl")[-1]["event"] == "end"
    assert len(folder.read_models()["models"]) == small().topology.clients
    assert not (out / "summary.json").exists()
    same(resume(out), run(small()))
    events = [row["event"] for row in folder.read_rows("events.jsonl")]
    assert (events.count("end"), events[-1]) == (1, "end")
    assert (out / "summary.json").exists()
