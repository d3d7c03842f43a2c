"""What the documentation shows is what happens; what it links to is there."""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
NUMBER = re.compile(r"\d+(?:\.\d+)?")


def test_the_readme_example_prints_what_it_says() -> None:
    """Words and virtual times exactly; learned numbers to a little, since libraries differ."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"```python\n(.*?)```.*?```text\n(.*?)```", text, re.S)
    assert found is not None
    program, told = found.groups()
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        exec(compile(program, "README.md", "exec"), {})
    printed = shown.getvalue()
    assert NUMBER.sub("#", printed) == NUMBER.sub("#", told)
    expected = [float(number) for number in NUMBER.findall(told)]
    assert [float(number) for number in NUMBER.findall(printed)] == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("page", ["verbs.md", "runs.md", "cifar10.md", "optimizers.md", "data.md"])
def test_the_sessions_of_a_page_are_true(page: str) -> None:
    failures, tried = doctest.testfile(str(ROOT / "docs" / page), module_relative=False, encoding="utf-8")
    assert tried > 0
    assert failures == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if not target.startswith(("http", "#")):
            assert (page.parent / target.split("#")[0]).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_are_named_exist(page: Path) -> None:
    """`engines/setup.py` and the like, in code marks, are files of the package or of the repository."""
    for name in re.findall(r"`([\w/]+/[\w.]+\.(?:py|md))", page.read_text(encoding="utf-8")):
        assert any((base / name).exists() for base in (ROOT, ROOT / "src" / "swiftfl")), (
            f"{page.name}: {name}"
        )


@pytest.mark.parametrize("program", sorted((ROOT / "examples").glob("*.py")), ids=lambda file: file.name)
def test_examples_run(program: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(program)], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") >= 4
    assert list(tmp_path.iterdir()) == []
