"""`swiftfl launch`: real processes over shared memory, their output, their deaths, and the end."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from loop_program import loss_of, network
from test_against_engines import Problem

import swiftfl
from swiftfl.cli.main import run_command
from swiftfl.engines.live.replay import replay
from swiftfl.errors import UserError
from swiftfl.loop.federation import federation
from swiftfl.loop.launched import receive, send
from swiftfl.loop.launcher import Launcher, LaunchOptions
from swiftfl.loop.processes import Lines, share
from swiftfl.record.facts import FactsReader
from swiftfl.sample import Batch, Slope
from swiftfl.vector import Memory, Vector
from swiftfl.views.run import RunView

HERE = Path(__file__).parent
SOURCE = Path(swiftfl.__file__).parents[1]
PROGRAM = HERE / "loop_program.py"


def launch(n: int, program: Path, *arguments: str, restarts: int = 3, **more: Any) -> tuple[int, str, str]:
    """A launch by this process, which has imported everything already: exit code, output, messages."""
    out: list[str] = []
    err: list[str] = []
    options = LaunchOptions(restarts, more.pop("journal", None), more.pop("out", None))
    command = [sys.executable, str(program), *arguments]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(SOURCE))
        code = Launcher(federation(n, **more), command, out.append, err.append, options).run()
    return code, "\n".join(out), "\n".join(err)


def said(out: str, client: int, word: str) -> list[str]:
    """What a client has printed after a word."""
    return re.findall(rf"^\[{client}\] {word} (.*)$", out, re.MULTILINE)


class LoopProblem(Problem):
    """The gradients of `loop_program`, as an engine asks for them."""

    parameters = sum(p.numel() for p in network().parameters())

    def __init__(self, x0: Vector) -> None:
        self.x0 = x0

    def initial(self, seed: int) -> Vector:
        return self.x0

    def gradient(self, x: Vector, batch: Batch) -> Slope:
        net = filled(x)
        loss = loss_of(net, batch.client, batch.counter)
        loss.backward()
        return Slope(flat([p.grad for p in net.parameters() if p.grad is not None]), loss.item())


class Momentum:
    """torch.optim.SGD(lr=0.1, momentum=0.9) as a pure rule, made anew for each update."""

    def init(self, x: Vector) -> Memory:
        return {"m": np.zeros_like(x)}

    def update(self, g: Vector, x: Vector, step_size: float, memory: Memory) -> tuple[Vector, Memory]:
        net, past, grads = filled(x), filled(memory["m"]), filled(g)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        for p, m, grad in zip(net.parameters(), past.parameters(), grads.parameters(), strict=True):
            p.grad = grad.detach()
            optimizer.state[p]["momentum_buffer"] = m.detach()
        optimizer.step()
        memory = {"m": flat([optimizer.state[p]["momentum_buffer"] for p in net.parameters()])}
        return flat(list(net.parameters())) - x, memory


def flat(tensors: list[torch.Tensor]) -> Vector:
    out: Vector = torch.cat([t.detach().reshape(-1) for t in tensors]).numpy()
    return out


def filled(x: Vector) -> torch.nn.Sequential:
    net = network()
    sizes = [p.numel() for p in net.parameters()]
    with torch.no_grad():
        for p, values in zip(
            net.parameters(), torch.split_with_sizes(torch.from_numpy(x.copy()), sizes), strict=True
        ):
            p.copy_(values.view(p.shape))
    return net


def test_two_processes_train_together_and_a_replay_gives_their_models_bit_for_bit(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    journal.mkdir()
    code, out, err = launch(2, PROGRAM, "40", "--sleep", "0.002", journal=journal)
    assert code == 0, err
    assert err.splitlines()[-1] == "swiftfl: all 2 clients ended well"
    torch.manual_seed(7)
    x0 = flat(list(network().parameters()))
    assert said(out, 0, "start") == said(out, 1, "start")  # the first client's model is everybody's
    last = [np.frombuffer(bytes.fromhex(said(out, i, "last")[0]), np.float32) for i in range(2)]
    ends = [said(out, i, "consensus")[0] for i in range(2)]
    assert ends[0] == ends[1]
    assert ends[0].startswith("2 ")
    mean = np.frombuffer(bytes.fromhex(ends[0][2:]), np.float32)
    assert np.allclose(mean, (last[0] + last[1]) / 2, atol=1e-6)

    setup = replace(federation(2).setup(Momentum()), workload=LoopProblem(x0))
    again = replay(setup, journal)
    for i in range(2):
        assert np.array_equal(again[i], last[i])
    assert any("fetched" in line for line in (journal / "client-0000.jsonl").read_text().splitlines())


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A launch of three whose client 1 is killed at its fifth step: its folder, output and messages."""
    folder = tmp_path_factory.mktemp("killed") / "launch"
    steps = ("60", "--sleep", "0.02", "--kill", "1", "5")
    code, out, err = launch(3, PROGRAM, *steps, topology="complete", out=folder)
    assert code == 0, err
    return folder, out, err


def test_a_killed_client_is_started_again_and_joins(killed: tuple[Path, str, str]) -> None:
    _, out, err = killed
    assert "swiftfl: client 1 was killed by SIGKILL; it is started again" in err
    assert err.splitlines()[-1] == "swiftfl: all 3 clients ended well; 1 restart"
    starts = said(out, 1, "start")
    assert len(starts) == 2
    assert starts[1].endswith(" again")
    assert starts[1].split()[0] != starts[0]  # the newest model of a neighbour, not the first one
    assert len({said(out, i, "consensus")[0] for i in range(3)}) == 1
    assert said(out, 0, "consensus")[0].startswith("3 ")


def test_whoever_watches_a_launch_sees_its_clients(
    killed: tuple[Path, str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """`--out`: facts, events and how it ended, read as those of a run are."""
    out, _, _ = killed
    run = RunView(out)
    card, about, now = run.card(), run.about(), run.now()
    assert (card["state"], card["engine"], card["algorithm"], card["clients"]) == (
        "finished", "launch", "swift", 3,
    )  # fmt: skip
    assert len(about["graph"]["edges"]) == 6
    assert about["graph"]["weights"] == pytest.approx([1 / 3] * 6)
    assert now is not None
    assert now["columns"]["state"] == ["finished"] * 3
    steps = now["columns"]["steps"]
    assert steps[0] == steps[2] == 60
    rows = FactsReader(out).rows()
    assert np.bincount(rows["client"], rows["steps"]).tolist()[0] == 60
    assert (rows["compute"] >= 0).all()
    events = [event["event"] for event in run.events()["events"]]
    assert events[0] == "start"
    assert events[-1] == "end"
    assert "lost" in events
    assert run.stream(bins=20) is not None
    assert json.loads((out / "summary.json").read_text())["restarts"] == 1
    assert run_command(["watch", str(out), "--once"]) == 0
    assert "finished" in capsys.readouterr().out
    assert run_command(["resume", str(out)]) == 2
    assert "launch" in capsys.readouterr().err
    with pytest.raises(UserError, match="not an empty folder"):
        launch(3, PROGRAM, "1", topology="complete", out=out)


@pytest.mark.slow
def test_without_restarts_the_others_go_on_among_themselves() -> None:
    code, out, err = launch(3, PROGRAM, "40", "--sleep", "0.02", "--kill", "2", "3", restarts=0)
    assert code == 1
    assert err.splitlines()[-1] == "swiftfl: 2 of 3 clients ended well; client 2 was killed by SIGKILL"
    assert [said(out, i, "neighbours") for i in range(2)] == [["[1]"], ["[0]"]]
    assert [said(out, i, "consensus")[0][:2] for i in range(2)] == ["2 ", "2 "]


PRINTS = """
import sys
sys.stdout.write("half "); sys.stdout.flush(); print("a line", *sys.argv[1:])
print("10%\\r50%\\r100%", file=sys.stderr)
sys.stdout.write("no end")
"""


def test_output_is_whole_lines_with_the_client_in_front(tmp_path: Path) -> None:
    program = tmp_path / "prints.py"
    program.write_text(PRINTS)
    code, out, err = launch(2, program, "--n", "-x")
    assert code == 0
    assert sorted(out.splitlines()) == [
        f"[{i}] {line}" for i in range(2) for line in ("half a line --n -x", "no end")
    ]
    assert sorted(err.splitlines()[:2]) == ["[0] 100%", "[1] 100%"]


def test_a_program_that_fails_at_once_is_not_started_again(tmp_path: Path) -> None:
    program = tmp_path / "fails.py"
    program.write_text("import swiftfl\nraise SystemExit(3)\n")
    code, _, err = launch(2, program)
    assert code == 1
    assert err.splitlines()[-1] == (
        "swiftfl: 0 of 2 clients ended well; client 0 ended with code 3; client 1 ended with code 3"
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_are_passed_on(tmp_path: Path, number: signal.Signals) -> None:
    program = tmp_path / "waits.py"
    program.write_text(
        "import signal, sys, time\n"
        f"signal.signal({int(number)}, lambda *a: (print('told'), sys.exit(0)))\n"
        "print('up'); time.sleep(200)\n"
    )
    out: list[str] = []

    def tell(line: str) -> None:
        out.append(line)
        if sorted(out) == ["[0] up", "[1] up"]:
            os.kill(os.getpid(), number)

    err: list[str] = []
    code = Launcher(federation(2), [sys.executable, str(program)], tell, err.append).run()
    assert sorted(out[2:]) == ["[0] told", "[1] told"]
    assert code == 128 + number
    assert err == ["swiftfl: all 2 clients ended well"]


@pytest.mark.slow
def test_processes_end_with_a_launcher_that_is_killed(tmp_path: Path) -> None:
    program = tmp_path / "joins.py"
    program.write_text("import os, time, swiftfl\nswiftfl.join()\nprint(os.getpid()); time.sleep(200)\n")
    command = [sys.executable, "-m", "swiftfl", "launch", "-n", "2", str(program)]
    env = {**os.environ, "PYTHONPATH": str(SOURCE)}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout is not None
        pids = [int(job.stdout.readline().split()[1]) for _ in range(2)]
        job.kill()
        end = time.monotonic() + 120
        while any(Path(f"/proc/{pid}").exists() and alive(pid) for pid in pids) and time.monotonic() < end:
            time.sleep(0.05)
        assert not any(alive(pid) for pid in pids)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["none.py"], "there is no program none.py"),
        (["-n", "0", __file__], "-n must be at least 1, not 0"),
        (["--restarts", "-1", __file__], "--restarts must be at least 0, not -1"),
        (["-n", "4", "--topology", "rign", __file__], "did you mean ring"),
        (["--journal", str(HERE), __file__], "it exists already, give a new folder"),
        (["-n", "3", "--algorithm", "sgp", __file__], "sgp does not send its model"),
        (["-n", "3", "--algorithm", "divshare", __file__], "divshare sends fragments of models"),
    ],
)
def test_wrong_uses_are_named(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["launch", *arguments]) == 2
    assert sentence in capsys.readouterr().err


def test_who_has_ended_is_no_error_for_who_sends_to_it() -> None:
    """Neither a closed end, nor one that was closed with something unread in it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    send(ours, {"unread": 1})
    theirs.close()
    assert receive(ours) is None
    send(ours, {"first": True}, np.zeros(3, np.float32))
    ours.close()


def test_lines_are_told_when_they_are_whole() -> None:
    told: list[str] = []
    lines = Lines(7, told.append)
    lines.feed(b"one\ntw")
    assert told == ["[7] one"]
    lines.feed(b"o\n" + b"x" * 70_000)
    assert told[1] == "[7] two"
    assert len(told[2]) == 4 + 65_536
    lines.end()
    lines.end()
    assert len(told) == 4


def test_cores_are_shared_out() -> None:
    parts = [share(range(8), i, 3) for i in range(3)]
    assert parts == [{0, 1}, {2, 3}, {4, 5}]
    assert share(range(2), 0, 3) is None
