"""SWIFTFL_LOG: what loggers say, on standard error, in every process of a run."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from forked import forked
from swiftfl.errors import UserError
from swiftfl.logs import switch_on_logs

LINE = re.compile(r"\d\d:\d\d:\d\d\.\d{3} (\d+) (DEBUG|INFO|WARNING|ERROR) (swiftfl[.\w]*): .+")


def said(setting: str | None, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "SWIFTFL_LOG"}
    if setting is not None:
        environment["SWIFTFL_LOG"] = setting
    return forked(*arguments, cwd=cwd, env=environment)


def test_loggers_of_all_processes_of_a_run_speak(tmp_path: Path) -> None:
    line = ("run", "digits", "--clients", "3", "--engine", "local", "--epochs", "1", "--out", "run", "--json")
    done = said("info,swiftfl.engines.live.saves=debug,swiftfl.record=debug", *line, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    spoke = [match.groups() for match in map(LINE.fullmatch, done.stderr.splitlines()) if match]
    saves = {pid for pid, _, name in spoke if name == "swiftfl.engines.live.saves"}
    runs = {pid for pid, _, name in spoke if name == "swiftfl.experiment.run"}
    assert len(saves) == 3  # each client's own process
    assert len(runs) == 1
    assert not saves & runs
    debugging = {name for _, level, name in spoke if level == "DEBUG"}
    assert debugging == {"swiftfl.engines.live.saves"}


def test_without_it_nothing_is_said(tmp_path: Path) -> None:
    line = ("graph", "ring", "--clients", "4", "--json")
    assert said(None, *line, cwd=tmp_path).stderr == ""
    assert "swiftfl.graph.methods: ccs weights of 4 clients" in said("debug", *line, cwd=tmp_path).stderr


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("loud", "'loud' is no level: give debug, info, warning, error"),
        ("info,swiftfl.engines=", "'' is no level"),
        ("swiftfl.enginse=debug", "there is no module or package 'swiftfl.enginse'"),
        ("numpy=debug", "there is no module or package 'numpy'"),
    ],
)
def test_a_wrong_value_is_refused(setting: str, told: str) -> None:
    with pytest.raises(UserError, match=told):
        switch_on_logs({"SWIFTFL_LOG": setting})


def test_a_wrong_value_is_one_line(tmp_path: Path) -> None:
    refused = said("loud", "list", cwd=tmp_path)
    assert refused.returncode == 2
    assert refused.stderr.startswith("swiftfl: SWIFTFL_LOG=loud: ")
    assert refused.stderr.count("\n") == 1
