"""`swiftfl watch`: on terminals of 60 and 120 columns, in a pipe, and on folders that are none."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from facts_made import make_facts
from swiftfl.cli.main import run_command
from swiftfl.cli.watch import RunScreen
from swiftfl.cli.watch_picture import Pen, plain_line
from swiftfl.cli.watching import Watcher, told
from swiftfl.errors import UserError
from swiftfl.views import RunView
from terminals import Terminal

COMMAND = [sys.executable, "-m", "swiftfl", "watch"]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """100 clients, of which two are lost, that meet in rounds and wait for the slow client 0."""
    return make_facts(tmp_path_factory.mktemp("runs") / "many", 100, 10_000, "d-sgd", lost=(3, 41))


def as_running(folder: Path) -> Path:
    """As if this process wrote it."""
    (folder / ".lock").write_text(f"process {os.getpid()} on {platform.node()}\n")
    return folder


@pytest.mark.parametrize("columns", [60, 120])
@pytest.mark.parametrize("clients", [5, 100, 1500])
def test_every_line_fits_the_terminal(tmp_path: Path, columns: int, clients: int) -> None:
    watcher = Watcher(
        RunView(make_facts(tmp_path / "a-run-with-a-long-name", clients, 20 * clients, lost=(3,)))
    )
    seen, lanes = watcher.look(), watcher.lanes(columns - 12, 16, whole=True)
    assert lanes is not None
    assert len(lanes.labels) == min(clients, 16)
    for fancy in (True, False):
        lines = [line.plain for line in Pen(columns, fancy).picture(seen, lanes)]
        assert max(map(len, lines)) <= columns
        assert fancy or "\n".join(lines).isascii()
    text = "\n".join(lines)
    assert "50%" in text
    assert f"clients: 1 lost (3), {clients - 1:,} stopped" in text
    assert "slowest (times the median step): client 0 " in text


@pytest.mark.parametrize("columns", [60, 120])
def test_on_a_terminal(many: Path, columns: int) -> None:
    with Terminal([*COMMAND, str(many), "--once"], columns) as terminal:
        text = terminal.to_end()
        assert terminal.process.returncode == 0
    lines = text.splitlines()
    assert lines[0].split() == ["many", "d-sgd,", "100", "clients,", "virtual", "stopped"]
    assert "clients: 2 lost (3, 41), 98 stopped" in lines
    assert sum(line.lstrip().startswith(f"{first}-") for line in lines for first in (0, 6, 94)) == 3
    assert "░ waiting" in text
    assert "client 41 lost" in text
    assert "slowest (times the median step): client 0 " in text  # for whom all wait
    colours = {cell.fg for row in terminal.screen.buffer.values() for cell in row.values()}
    assert {"blue", "red"} <= colours


def test_a_run_that_goes_on_is_followed_to_its_end(tmp_path: Path) -> None:
    folder = as_running(make_facts(tmp_path / "run", 6, 600))
    with Terminal([*COMMAND, str(folder)], 80) as terminal:
        first = terminal.until(lambda text: "clients: 6 running" in text)
        assert " running" in first.splitlines()[0]
        with (folder / "events.jsonl").open("a") as file:
            file.write(
                json.dumps({"event": "lost", "client": 2, "time": 1.5, "reason": "killed by SIGKILL"}) + "\n"
            )
        terminal.until(lambda text: "client 2 lost: killed by SIGKILL" in text)
        (folder / "summary.json").write_text('{"loss": 0.1}')
        text = terminal.to_end()
        assert terminal.process.returncode == 0
    assert "finished" in text.splitlines()[0]
    assert text.count("clients: ") == 1  # the picture was replaced, not added to


def test_in_a_pipe_there_are_plain_lines(tmp_path: Path) -> None:
    folder = as_running(make_facts(tmp_path / "run", 6, 600))
    with subprocess.Popen([*COMMAND, str(folder)], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        first = program.stdout.readline()
        assert first.startswith("run: 50%, ")
        assert "6 running" in first
        with (folder / "events.jsonl").open("a") as file:
            file.write(json.dumps({"event": "lost", "client": 2, "time": 1.5, "reason": "gone"}) + "\n")
        assert program.stdout.readline() == "run: 1.5 s client 2 lost: gone\n".replace("s c", "s  c")
        (folder / "summary.json").write_text('{"loss": 0.1}')
        rest = program.stdout.read()
    assert program.returncode == 0
    assert rest.startswith("run: finished, 50%, ")
    assert "\x1b" not in first + rest


def test_once_in_a_pipe(
    many: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    assert run_command(["watch", str(many), "--once"]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert max(map(len, shown.splitlines())) <= 70
    assert run_command(["watch", str(many.parent), "--once"]) == 0  # the newest run of a folder
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize("what", ["nothing", "empty", "file"])
def test_what_is_no_run_is_one_line(tmp_path: Path, what: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    assert run_command(["watch", str(tmp_path / what)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert str(tmp_path / what) in error


def test_waiting_for_a_run(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, str(tmp_path / "run"), "--wait"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as program:
        assert program.stderr is not None
        assert program.stderr.readline() == f"swiftfl: waiting for a run in {tmp_path / 'run'}\n"
        made = make_facts(tmp_path / "made", 4, 40, finished=True)
        made.rename(tmp_path / "run")
        out, _ = program.communicate(timeout=60)
    assert out.startswith("run: finished, ")


def test_a_run_without_facts_is_shown_as_far_as_it_is_known(many: Path, tmp_path: Path) -> None:
    for name in ("config.json", "metrics.jsonl", "events.jsonl"):
        (tmp_path / name).write_bytes((many / name).read_bytes())
    watcher = Watcher(RunView(tmp_path))
    seen = watcher.look()
    assert watcher.lanes(40, 10, whole=True) is None
    assert "loss 0.115" in plain_line(seen)
    assert Pen(60).picture(seen, None)


def test_damaged_facts_are_one_line(many: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("config.json", "metrics.jsonl", "events.jsonl"):
        (tmp_path / name).write_bytes((many / name).read_bytes())
    (tmp_path / "facts").mkdir()
    (tmp_path / "facts" / "layout.json").write_text("{")
    code = run_command(["watch", str(tmp_path), "--once"])
    shown = capsys.readouterr()
    assert (code, shown.err.count("\n")) in ((2, 1), (0, 0))  # an error of one line, or no facts


def test_events_as_they_are_told() -> None:
    assert told({"event": "start", "time": 0.0}) is None
    assert told(
        {"event": "renew", "time": 2.0, "clients": 15}
    ) == "2 s weights renewed among 15 clients".replace("s w", "s  w")
    assert told({"event": "return", "client": 3}) == "client 3 back"
    assert told({"event": "warning", "client": 1, "text": "one\ntwo"}) == "one two"
    assert told({"event": "something new", "client": 1}) == "client 1 something new"


def test_what_commands_a_terminal_is_not_passed_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of names, configuration and events; also in a pipe, which may end in a terminal."""
    bad = "\x1b[2J\x1b]52;c;aGk=\x07\x9b1m\ud800"
    folder = make_facts(tmp_path / "run\x1b[2J", 4, 40, finished=True)
    config = {"algorithm": {"name": bad}, "engine": {"name": bad}}
    (folder / "config.json").write_text(json.dumps(config))
    rows = [
        {"event": "warning", "text": bad},
        {"event": "lost", "client": bad, "reason": bad},
        {"event": bad},
    ]
    (folder / "events.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for options in ([], ["--once"]):
        assert run_command(["watch", str(folder), *options]) == 0
        shown = capsys.readouterr().out
        assert "run?[2J" in shown
        assert "]52;c;aGk=" in shown
        assert all(letter.isprintable() for letter in shown.replace("\n", ""))


def test_of_many_events_all_are_counted(tmp_path: Path) -> None:
    folder = make_facts(tmp_path / "run", 4, 40)
    rows = [{"event": "edge_down", "edge": [0, 1], "time": float(k)} for k in range(5000)]
    (folder / "events.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    watcher = Watcher(RunView(folder))
    assert watcher.new_events()[-1] == "and 4,992 more events"
    assert watcher.new_events() == []


def test_a_run_shows_itself_on_a_terminal_also_without_facts(tmp_path: Path) -> None:
    run = [sys.executable, "-m", "swiftfl", "run", "digits", "--clients", "4", "--epochs", "4000"]
    with Terminal([*run, "--facts", "off", "--out", str(tmp_path / "run")], 60) as terminal:
        text = terminal.until(lambda text: " steps/s" in text and " left" in text)
        assert " of 368,000 steps" in text
        assert "clients: " not in text


def test_whatever_is_wrong_with_the_files_a_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_facts(tmp_path / "run", 4, 40)
    screen = RunScreen(folder)
    monkeypatch.setattr(RunView, "now", _damaged)
    with screen:
        for _ in range(3):
            screen(1, 10, None)  # type: ignore[arg-type]


def _damaged(view: RunView) -> None:
    raise UserError("cannot read facts")


def test_a_run_whose_folder_was_removed_is_still_said_to_run(tmp_path: Path) -> None:
    folder = as_running(make_facts(tmp_path / "run", 5, 100))
    watcher = Watcher(RunView(folder))
    watcher.look((100, 400))
    shutil.rmtree(folder)
    line = plain_line(watcher.look((200, 400)))
    assert "50%" in line
    assert "stopped" not in line
