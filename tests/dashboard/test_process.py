"""Real servers on this machine: how they start, what watchers are sent, how they end."""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import termios
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from facts_made import make_facts
from swiftfl.dashboard import beside
from swiftfl.errors import UserError
from swiftfl.transports import launch

pytest.importorskip("starlette", reason="the extra dashboard is not installed: make install-dashboard")
pytest.importorskip("uvicorn", reason="the extra dashboard is not installed: make install-dashboard")

PATIENCE = 60.0


def start(*arguments: str, **more: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "swiftfl", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)


@contextlib.contextmanager
def dashboard(*arguments: str, **more: Any) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    process = start("dashboard", *arguments, **more)
    assert process.stdout is not None
    try:
        url = process.stdout.readline().strip()
        assert url, process.communicate()[1]
        yield url, process
    finally:
        process.kill()
        process.communicate()


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=PATIENCE) as reply:
        return json.loads(reply.read())


def wait_until(what: Any) -> None:
    end = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < end
        time.sleep(0.05)


class Watcher:
    """A connection for server-sent events."""

    def __init__(self, url: str) -> None:
        host, _, rest = url.removeprefix("http://").partition("/")
        self._connection = http.client.HTTPConnection(host, timeout=PATIENCE)
        self._connection.request("GET", f"/api/live{rest}")
        self.reply = self._connection.getresponse()
        assert self.reply.status == 200
        assert self.reply.getheader("content-type", "").startswith("text/event-stream")

    def next(self) -> dict[str, Any]:
        while True:
            line = self.reply.readline()
            assert line, "the stream has ended"
            if line.startswith(b"data: "):
                found: dict[str, Any] = json.loads(line[6:])
                return found

    def close(self) -> None:
        self.reply.close()
        self._connection.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = make_facts(tmp_path / "run", clients=3, rows=30)
    (made / ".lock").write_text(f"process {os.getpid()} on {os.uname().nodename}")
    return made


def test_changes_are_told_and_ctrl_c_ends_it(folder: Path) -> None:
    with dashboard(str(folder), "--port", "0") as (url, process):
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", url)
        [card] = get(f"{url}api/runs")
        assert (card["name"], card["state"]) == ("run", "running")
        watchers = [Watcher(url) for _ in range(3)]
        for watcher in watchers:  # who begins to watch is told everything that is new
            first = [watcher.next(), watcher.next()]
            assert {"run": None, "changed": ["runs"]} in first
            assert {"run": card["id"], "changed": ["curves", "events", "now", "run", "steps"]} in first
        with (folder / "metrics.jsonl").open("a") as stream:
            stream.write('{"time": 99.0, "loss": 0.125}\n')
        for watcher in watchers:
            news = watcher.next()
            assert (news["run"], "curves" in news["changed"]) == (card["id"], True)
        assert get(f"{url}api/runs/{card['id']}/curves")["columns"]["loss"][-1] == 0.125
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, out) == (0, "")
        assert err.splitlines() == ["Ctrl-C ends the dashboard."]
        for watcher in watchers:
            watcher.close()


def test_a_token_where_others_can_reach_it(folder: Path) -> None:
    with dashboard(str(folder), "--host", "0.0.0.0", "--port", "0") as (url, process):
        port, token = re.fullmatch(r"http://[^:/]+:(\d+)/\?token=([\w-]{32,})", url).groups()  # type: ignore[union-attr]
        here = f"http://127.0.0.1:{port}/"
        for path in ("", "api/runs", "api/live", "?token=wrong"):
            with pytest.raises(urllib.error.HTTPError) as refused:
                get(here + path)
            assert refused.value.code == 403
            refused.value.close()
        assert [card["name"] for card in get(f"{here}api/runs?token={token}")] == ["run"]
        watcher = Watcher(f"{here}?token={token}")
        watcher.close()
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
        assert token not in out + err


def test_a_port_that_is_taken(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = start("dashboard", str(folder), "--port", str(port))
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    assert re.fullmatch(rf"swiftfl: cannot serve at 127\.0\.0\.1, port {port}: .*in use\n", err)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "nowhere is not a folder"),
        ([], "there is no folder runs here"),
        ([".", "--host", "no such host"], "--host"),
    ],
)
def test_wrong_requests_are_one_line(tmp_path: Path, arguments: list[str], words: str) -> None:
    process = start("dashboard", *arguments, cwd=tmp_path)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err.count("\n")) == (2, "", 1)
    assert words in err


def test_without_the_server_part_one_line_says_what_to_install(tmp_path: Path) -> None:
    """As it is where Starlette is not installed: it is hidden from the program."""
    hide = tmp_path / "sitecustomize.py"
    hide.write_text(
        "import importlib.util as util\n"
        "found = util.find_spec\n"
        "util.find_spec = lambda name, package=None: None if name == 'starlette' else found(name, package)\n"
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path}
    for arguments in (["dashboard", "."], ["run", "digits", "--dashboard", "--out", "run"]):
        process = start(*arguments, cwd=tmp_path, env=environment)
        out, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, out) == (2, "")
        assert err == "swiftfl: the dashboard needs Starlette and uvicorn: pip install 'swiftfl[dashboard]'\n"
    assert not (tmp_path / "run").exists()


SMALL = ["run", "synthetic", "--clients", "3", "--epochs", "1"]


def start_under_mpi(ranks: int, command: list[str]) -> subprocess.Popen[str]:
    try:
        launcher = launch.command(ranks, ["-m", "swiftfl", *command])
    except (UserError, OSError) as error:
        pytest.skip(str(error))
    return subprocess.Popen(
        launcher,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=launch.environment(),
    )


def address_of(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        if line.startswith("Dashboard: "):
            return line.removeprefix("Dashboard: ").strip()
        said.append(line)
    process.communicate(timeout=PATIENCE)
    raise AssertionError(f"no address was printed: {''.join(said)}")


def gone(url: str) -> bool:
    """Whether nobody serves there any more."""
    host, port = url.removeprefix("http://").strip("/").split(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError:
        return True
    return False


@pytest.mark.parametrize(
    "engine",
    [
        "virtual",
        pytest.param("sampled", marks=pytest.mark.slow),
        pytest.param("local", marks=pytest.mark.slow),
        pytest.param("mpi", marks=pytest.mark.slow),
    ],
)
def test_a_dashboard_beside_a_run_ends_with_it(tmp_path: Path, engine: str) -> None:
    """Under MPI the first rank has it: one address is printed."""
    command = [*SMALL, "--engine", engine, "--out", str(tmp_path / "run"), "--dashboard", "--json"]
    if engine == "mpi":
        process = start_under_mpi(3, command)
    else:
        process = start(*command)
    url = address_of(process)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert json.loads(out)["run"] == str(tmp_path / "run")
    assert "Dashboard:" not in err
    assert gone(url)


@pytest.mark.slow
def test_the_page_of_a_run_follows_it(tmp_path: Path) -> None:
    """The folder appears after the server; when the run is stopped, or killed, the server ends, too."""
    long = [*SMALL[:-4], "--epochs", "100000", "--out"]
    for number, how in enumerate((signal.SIGINT, signal.SIGKILL)):
        out = tmp_path / f"run{number}"
        process = start(*long, str(out), "--dashboard", stdin=subprocess.DEVNULL)
        url = address_of(process)
        try:
            wait_until(lambda url=url: [card["state"] for card in get(f"{url}api/runs")] == ["running"])
            [card] = get(f"{url}api/runs")
            assert card["path"] == str(out)
            process.send_signal(how)
            process.communicate(timeout=PATIENCE)
            wait_until(lambda url=url: gone(url))
        finally:
            process.kill()
            process.communicate()


def test_a_run_that_is_refused_leaves_no_server(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/x").write_text("x")
    process = start(*SMALL, "--out", str(tmp_path / "full"), "--dashboard")
    url = address_of(process)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    assert "is not an empty folder" in err
    assert gone(url)


@pytest.mark.slow
def test_on_a_terminal_the_page_stays_after_the_run(tmp_path: Path) -> None:
    """Until Ctrl-C, which ends the command with the code of the run."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "swiftfl", *SMALL, "--out", str(tmp_path / "run"), "--dashboard"],
        stdin=theirs,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # its own terminal, whose Ctrl-C it gets
    )
    os.close(theirs)
    try:
        said = ""
        while "until Ctrl-C" not in said:
            said += os.read(ours, 4096).decode(errors="replace")
        url = re.findall(r"http://[\d.]+:\d+/", said)[-1]
        assert [card["state"] for card in get(f"{url}api/runs")] == ["finished"]
        os.write(ours, b"\x03")
        with contextlib.suppress(OSError):  # the other end is closed when the command has ended
            while os.read(ours, 4096):
                pass
        assert process.wait(PATIENCE) == 0
        assert gone(url)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_a_dashboard_beside_that_does_not_start_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho first >&2\necho 'swiftfl: no address is free' >&2\nexit 2\n")
    broken.chmod(0o755)
    for executable, why in ((str(broken), "no address is free"), ("/bin/false", "it gave no address")):
        monkeypatch.setattr(sys, "executable", executable)
        with pytest.raises(UserError, match=f"^the dashboard did not start: {why}$"):
            beside.DashboardBeside(tmp_path / "run").__enter__()
