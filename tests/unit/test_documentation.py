"""What the documentation shows is what happens; what it links to is there."""

from __future__ import annotations

import ast
import contextlib
import doctest
import io
import re
import runpy
import sys
import tempfile
from pathlib import Path

import pytest
import torch

from swiftfl.loop import peer

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
NUMBER = re.compile(r"\d+(?:\.\d+)?")


def test_the_readme_leads_to_every_page() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"}  # which is the site's first
    assert pages - set(re.findall(r"\]\(docs/([\w-]+\.md)\)", text)) == set()


def test_the_readme_example_prints_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words and virtual times exactly; learned numbers to a little, since libraries differ."""
    monkeypatch.chdir(tmp_path)
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
    assert (tmp_path / "loss.svg").stat().st_size > 1000


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if "\n>>> " in page.read_text(encoding="utf-8")],
    ids=lambda page: page.name,
)
def test_the_sessions_of_a_page_are_true(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # where they make their runs
    failures, tried = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
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
def test_examples_run(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """In this process, which has imported torch already; what `swiftfl.join()` remembers is forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(peer, "_joined", None)
    monkeypatch.setattr(sys, "argv", [str(program)])
    with torch.random.fork_rng():
        runpy.run_path(str(program), run_name="__main__")
    assert capfd.readouterr().out.count("\n") >= 2
    assert [file.name for file in tmp_path.iterdir()] in ([], [f"{program.stem}.svg"])


def test_two_algorithms_with_an_own_cnn_dataset_and_graph_take_twenty_lines() -> None:
    tree = ast.parse((ROOT / "examples" / "cnn.py").read_text(encoding="utf-8"))
    told = {line for node in ast.walk(tree) if _is_text(node) for line in _lines(node)}
    lines = {line for node in ast.walk(tree) for line in _lines(node)} - told
    text = (ROOT / "examples" / "cnn.py").read_text(encoding="utf-8").splitlines()
    assert len([line for line in lines if text[line - 1].strip()]) <= 20


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _lines(node: ast.AST) -> range:
    first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", -1)
    return range(first, last + 1) if first else range(0)
