"""Every block of Python or bash in README and docs is run, in order, page by page.

A block after the line `<!-- slow -->` takes long, and is run with the slow tests, together with those before
it. What cannot be run is a block of `text`. Sessions (`>>>`) are compared with what they show
(`test_documentation.py`).
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer.main

from swiftfl.cli.main import app, run_command

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LANGUAGES = {"python", "bash", "text", "json", "yaml", "toml", "{toctree}", "{eval-rst}"}
BLOCK = re.compile(r"^(?P<slow><!-- slow -->\n+)?```(?P<language>[^\n`]*)\n(?P<code>.*?)^```$", re.M | re.S)
COMMAND = re.compile(r"(?:^|&& )(?:mpiexec -n \d+ )?(swiftfl \w[^&|;]*)")


@dataclass(frozen=True)
class Block:
    """A block of code of a page."""

    language: str
    code: str
    slow: bool
    line: int

    @property
    def runs(self) -> bool:
        return self.language in ("python", "bash") and ">>> " not in self.code


def blocks_of(text: str) -> list[Block]:
    return [
        Block(
            found["language"].strip(),
            found["code"],
            bool(found["slow"]),
            text.count("\n", 0, found.start()) + 1,
        )
        for found in BLOCK.finditer(text)
    ]


def pages(slow: bool) -> list[Any]:
    found = []
    for page in PAGES:
        blocks = [block for block in blocks_of(page.read_text(encoding="utf-8")) if block.runs]
        if any(block.slow for block in blocks) if slow else any(not block.slow for block in blocks):
            found.append(pytest.param(page, id=str(page.relative_to(ROOT))))
    return found


def run_page(text: str, name: str, slow: bool) -> None:
    """Run the blocks of a page in this folder: Python in one namespace, commands in this process."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in blocks_of(text):
        if not block.runs or (block.slow and not slow):
            continue
        if block.language == "python":
            exec(compile("\n" * block.line + block.code, name, "exec"), namespace)
        elif re.fullmatch(r"(swiftfl [^\n|&;<>$]*\n)+", block.code):
            for line in block.code.splitlines():
                code = run_command(shlex.split(line, comments=True)[1:])
                assert code == 0, f"{name}, line {block.line}: {line}: exit code {code}"
        else:
            run_in_bash(block, name)


def run_in_bash(block: Block, name: str) -> None:
    here = Path.cwd() / ".bin"
    here.mkdir(exist_ok=True)
    (here / "swiftfl").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m swiftfl "$@"\n')
    (here / "swiftfl").chmod(0o755)
    path = os.pathsep.join([str(here), str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.code],
        env={**os.environ, "PATH": path, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"{name}, line {block.line}:\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("page", pages(slow=False))
def test_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(page.read_text(encoding="utf-8"), page.name, slow=False)


@pytest.mark.slow
@pytest.mark.parametrize("page", pages(slow=True))
def test_slow_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")  # pages name files of the repository
    run_page(page.read_text(encoding="utf-8"), page.name, slow=True)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_says_what_it_is(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    blocks = blocks_of(text)
    assert len(re.findall(r"^```", text, re.M)) == 2 * len(blocks)
    assert [block for block in blocks if block.language not in LANGUAGES] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_that_are_shown_exist(page: Path) -> None:
    """Also those that are only shown: the command is there, and has the options."""
    group = typer.main.get_command(app)
    for line in re.findall(r"^(?: {4}|)((?:mpiexec|swiftfl) .*)$", page.read_text(encoding="utf-8"), re.M):
        for shown in COMMAND.findall(line):
            words, command = shown.partition(" #")[0].split(), group
            while hasattr(command, "commands"):
                words = words[1:]
                command = command.commands.get(words[0])
                assert command is not None, f"{page.name}: {line}"
            known = {option for parameter in command.params for option in parameter.opts}
            options = {
                word.partition("=")[0] for word in words[1:] if re.fullmatch(r"--[a-z][\w-]*(=.*)?", word)
            }
            assert options <= known | {"--help"}, f"{page.name}: {line}"


def test_a_block_that_fails_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = "```python\nx = 1\n```\n\n<!-- slow -->\n```python\nassert x == 2\n```\n"
    run_page(page, "page.md", slow=False)
    with pytest.raises(AssertionError):
        run_page(page, "page.md", slow=True)
    with pytest.raises(AssertionError, match="exit code 2"):
        run_page("```bash\nswiftfl run nothing\n```\n", "page.md", slow=False)
    with pytest.raises(AssertionError, match=r"page\.md, line 1"):
        run_page("```bash\nfalse | true\n```\n", "page.md", slow=False)
    assert not [block for block in blocks_of("```text\nrm -rf /\n```\n") if block.runs]
