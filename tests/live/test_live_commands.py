"""`swiftfl run --engine local`, Ctrl-C, `resume` and `replay`, as a user types them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from forked import forked
from swiftfl.cli.main import run_command

pytestmark = pytest.mark.usefixtures("without_pictures")

LIMIT = 120.0
COMMAND = [sys.executable, "-c", "from swiftfl.cli import main; main()"]
SMALL = ["run", "digits", "--engine", "local", "--clients", "4", "--partition", "iid", "--json"]


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def swiftfl(capfd: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """Run a command in this process, which has imported torch already."""

    def command(*arguments: str) -> Done:
        capfd.readouterr()
        code = run_command(list(arguments))
        return Done(code, *capfd.readouterr())

    return command


def processes_of(folder: Path) -> list[int]:
    """Processes that have anything to do with this run folder, by their command line."""
    found = []
    for status in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(folder) in status.read_text():
                found.append(int(status.parent.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


def test_run_and_replay(swiftfl: Callable[..., Done], tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = swiftfl(*SMALL, "--epochs", "4", "--slowdown", "1:3", "--out", str(out))
    assert done.returncode == 0, done.stderr
    numbers = json.loads(done.stdout)
    assert numbers["lost"] == []
    assert numbers["refused"] == 0
    assert numbers["accuracy"] > 0.8
    parts = ("compute", "communication", "waiting")
    assert numbers["seconds_per_epoch"] == pytest.approx(
        sum(numbers[f"{k}_seconds_per_epoch"] for k in parts)
    )
    assert numbers["influence_true"][1] < 0.25
    assert numbers["influence_gap"] > 0
    assert numbers["row_sum_error"] > 0
    assert {"summary.json", "models.safetensors", "config.json", "clients"} <= {f.name for f in out.iterdir()}
    again = swiftfl("replay", str(out), "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["same"] == 4
    finished = swiftfl("resume", str(out))
    assert finished.returncode == 2
    assert "nothing to resume" in finished.stderr


HELD = """
import time
from pathlib import Path
from torch import nn

class Held(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))

    def forward(self, x):
        if self.training and Path(__file__).with_name("hold").exists():
            time.sleep(0.05)
        return self.layers(x)
"""
"""A model whose gradients take their time as long as there is a file: until the test has stopped the run."""


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGINT, id="Ctrl-C"),
        pytest.param(signal.SIGHUP, id="SIGHUP", marks=pytest.mark.slow),
        pytest.param(signal.SIGUSR1, id="SIGUSR1", marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, id="SIGTERM", marks=pytest.mark.slow),
    ],
)
def test_a_stopped_run_is_resumed_to_its_end(
    number: signal.Signals, swiftfl: Callable[..., Done], tmp_path: Path
) -> None:
    out, model = tmp_path / "run", tmp_path / "held.py"
    model.write_text(HELD)
    (tmp_path / "hold").touch()
    running = subprocess.Popen(
        [*COMMAND, *SMALL, "--epochs", "15", "--model", f"{model}:Held", "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )
    record = out / "clients" / "client-0003.jsonl"
    end = time.monotonic() + LIMIT
    while not (record.is_file() and record.read_text().count('"fetched"') >= 20):
        assert running.poll() is None, running.stderr.read() if running.stderr else ""
        assert time.monotonic() < end
        time.sleep(0.02)
    os.killpg(running.pid, number)  # to its clients as well, as a terminal or a batch system does
    _, said = running.communicate(timeout=LIMIT)
    (tmp_path / "hold").unlink()
    assert running.returncode == 130, said
    assert f"swiftfl resume {out}" in said
    assert "Traceback" not in said
    assert processes_of(out) == []
    assert len(list((out / "clients").glob("client-000?.safetensors"))) == 4
    done = swiftfl("resume", str(out), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["iterations"] == 4 * 15 * 23
    again = swiftfl("replay", str(out), "--json")
    assert again.returncode == 0, again.stdout + again.stderr


BLOCKING = """
import time
from pathlib import Path
from swiftfl.algorithms import Swift, algorithm, dsgd

class Blocking:
    \"\"\"Client 1 sleeps for ever in its eighth step, once.\"\"\"

    def __init__(self, inner):
        self.inner, self.rule, self.name, self.in_rounds = inner, inner.rule, "blocking", inner.in_rounds

    def step(self, me, s):
        if me.index == 1 and s.c == 8 and not Path("blocked").exists():
            Path("blocked").write_text("")
            time.sleep(10**6)
        return (yield from self.inner.step(me, s))

@algorithm("blocking_dsgd")
def blocking_dsgd(context) -> Blocking:
    return Blocking(dsgd(context.rule))

@algorithm("blocking_swift", weights="ccs")
def blocking_swift(context) -> Blocking:
    return Blocking(Swift(rule=context.rule))
"""
IMPATIENT = """
from dataclasses import replace
from swiftfl.cli import main
from swiftfl.experiment.runners import local
options = local.live_options
local.live_options = lambda config: replace(options(config), patience=1.0)
main()
"""


@pytest.mark.parametrize("algorithm", ["dsgd", pytest.param("swift", marks=pytest.mark.slow)])
def test_a_blocked_client_does_not_keep_a_stopped_run_from_being_saved(
    algorithm: str, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text(BLOCKING)
    line = [
        *SMALL,
        "--epochs",
        "1",
        "--import",
        "own.py",
        "--algorithm",
        f"blocking_{algorithm}",
        "--out",
        "run",
    ]
    running = subprocess.Popen(
        [sys.executable, "-c", IMPATIENT, *line, "--set", "engine.live.save_steps=3"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        end = time.monotonic() + LIMIT
        while not (tmp_path / "blocked").exists():
            assert running.poll() is None
            assert time.monotonic() < end
            time.sleep(0.02)
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=LIMIT)
    finally:
        running.kill()
        running.communicate()
    assert running.returncode == 130, said
    assert said.splitlines()[-1] == "swiftfl: stopped; to go on: swiftfl resume run"
    done = forked("resume", "run", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["lost"] == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--barrier", "global"], "--barrier is for algorithms that meet in rounds, and swift does not"),
        (["--device", "meta"], "cpu"),
    ],
)
def test_what_a_live_run_cannot_do_is_said_in_one_line(
    options: list[str], message: str, swiftfl: Callable[..., Done], tmp_path: Path
) -> None:
    failed = swiftfl(*SMALL, "--epochs", "1", *options, "--out", str(tmp_path / "run"))
    assert failed.returncode == 2
    assert message in failed.stderr
    assert failed.stderr.count("\n") == 1


def test_a_virtual_run_needs_no_replay(swiftfl: Callable[..., Done], tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert swiftfl("run", "digits", "--clients", "4", "--epochs", "1", "--out", str(out)).returncode == 0
    failed = swiftfl("replay", str(out))
    assert failed.returncode == 2
    assert "virtual engine" in failed.stderr
