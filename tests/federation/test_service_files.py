"""The systemd unit and the container file of docs/federation.md: what they say is what there is."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from swiftfl.cli.main import app

PAGE = (Path(__file__).parents[2] / "docs" / "federation.md").read_text(encoding="utf-8")
UNIT = next(block for block in re.findall(r"```text\n(.*?)```", PAGE, re.S) if "[Service]" in block)
CONTAINER = next(block for block in re.findall(r"```text\n(.*?)```", PAGE, re.S) if "FROM " in block)


def options_exist(words: list[str]) -> None:
    """That `swiftfl WORDS` is a command with these options."""
    command = get_command(app).get_command(None, words[0])  # type: ignore[attr-defined, arg-type]
    known = {name for parameter in command.params for name in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known


def test_the_unit(tmp_path: Path) -> None:
    start = next(line for line in UNIT.splitlines() if line.startswith("ExecStart="))
    program, *words = shlex.split(start.partition("=")[2])
    assert program.endswith("/swiftfl")
    options_exist(words)
    assert "Restart=always" in UNIT
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    unit = tmp_path / "swiftfl-node.service"
    unit.write_text(UNIT.replace(program, sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False
    )
    ours = [line for line in done.stderr.splitlines() if "swiftfl-node" in line]
    assert ours == [], done.stderr


def test_the_container_file() -> None:
    lines = CONTAINER.strip().splitlines()
    said = [line.split(" ", 1) for line in lines]
    assert [word for word, _ in said] == ["FROM", "RUN", "RUN", "USER", "WORKDIR", "ENV", "ENTRYPOINT"]
    program, *words = json.loads(dict(said)["ENTRYPOINT"])
    assert program == "swiftfl"
    options_exist(words)
    assert "swiftfl[federation]" in CONTAINER
