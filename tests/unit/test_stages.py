"""What is being made before a run begins, on a terminal and elsewhere."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from rich.console import Console

from swiftfl.experiment import stages
from swiftfl.experiment.notices import notice
from swiftfl.experiment.recipes import recipe
from swiftfl.experiment.run import run
from terminals import Terminal

HELD = """
import sys, time
from pathlib import Path
from swiftfl.errors import UserError
from swiftfl.experiment import build, stages
from swiftfl.experiment.notices import notice

stages._AFTER = 0.05
real, said = build.split, Path(sys.argv[1])

def held(*arguments):
    while not said.exists():
        time.sleep(0.01)
    if said.read_text():
        raise UserError("no luck")
    notice("a word between")
    return real(*arguments)

build.split = held
"""
COMMAND = f"""{HELD}
from swiftfl.cli.main import run_command
line = "run digits --model logistic --clients 4 --iterations 8 --out".split()
sys.exit(run_command([*line, str(said.with_name("run"))]))
"""
TRAIN = f"""{HELD}
import swiftfl
swiftfl.train("logistic", "digits", clients=4, settings={{"engine.iterations": 8}})
print("trained")
"""
MADE = "sharing out the samples among 4 clients ..."


@pytest.mark.parametrize(("program", "after"), [(COMMAND, "swift on digits"), (TRAIN, "trained")])
def test_a_terminal_shows_what_is_made_until_the_run_begins(program: str, after: str, tmp_path: Path) -> None:
    with Terminal([sys.executable, "-c", program, str(tmp_path / "said")], 80) as terminal:
        shown = terminal.until(lambda text: MADE in text)
        assert shown == MADE
        (tmp_path / "said").touch()
        end = terminal.to_end()
    assert after in end
    assert "swiftfl: a word between\n" in end
    assert "..." not in end


def test_the_line_gives_way_to_an_error(tmp_path: Path) -> None:
    with Terminal([sys.executable, "-c", COMMAND, str(tmp_path / "said")], 30) as terminal:
        terminal.until(lambda text: text == MADE[:29])  # and not on two lines
        (tmp_path / "said").write_text("fail")
        assert terminal.to_end() == "swiftfl: no luck"


def test_pipes_are_told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "_AFTER", 0.0)
    for console in (Console(file=io.StringIO()), Console(file=io.StringIO(), force_terminal=False)):
        stages.show_stages(console)
        assert stages._Shown.line is None


def test_a_notebook_has_a_line_that_is_replaced(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without control codes, which notebooks may show as they are."""
    written = io.StringIO()
    line = stages.StageLine(Console(file=written, force_jupyter=True, width=80))
    monkeypatch.setattr(stages._Shown, "line", line)
    stages.stage("making this")
    assert written.getvalue() == ""  # it is not time yet
    line.show()
    assert written.getvalue() == "\r\rmaking this ...\r"
    notice("something else")
    assert written.getvalue().endswith(f"\r{' ' * 15}\r\r")
    assert capsys.readouterr().err == "swiftfl: something else\n"
    stages.stage("making that")
    assert written.getvalue().endswith("\r\rmaking that ...\r")
    stages.stages_over()
    stages.stage("never seen")
    line.show()
    assert written.getvalue().endswith(f"\r{' ' * 15}\r\r")


def test_every_part_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    class Line(stages.StageLine):
        def say(self, text: str) -> None:
            said.append(text.split()[-1])

    monkeypatch.setattr(stages._Shown, "line", Line(Console()))
    run(recipe("digits").with_changes({"topology.clients": 3, "engine.iterations": 3, "engine.epochs": None}))
    first = ["clients", "data", "clients", "model", "coefficients", "clients", "clients", "engine", "models"]
    assert said[: len(first)] == first
