"""The files of the page: complete, unchanged where they are others', and nothing from elsewhere."""

from __future__ import annotations

import hashlib
import re
from importlib.resources import files
from pathlib import Path

import pytest

from swiftfl import palette

STATIC = Path(str(files("swiftfl.views") / "static"))
MODULES = sorted(path.name for path in STATIC.glob("*.js"))


def test_uplot_is_the_file_that_its_readme_names() -> None:
    told = re.findall(
        r"^ +([0-9a-f]{64})  dist/(\S+)$", (STATIC / "uplot/README.md").read_text(), re.MULTILINE
    )
    assert {name for _, name in told} == {"uPlot.iife.min.js", "uPlot.min.css"}
    for digest, name in told:
        assert hashlib.sha256((STATIC / "uplot" / name).read_bytes()).hexdigest() == digest
    assert "MIT" in (STATIC / "uplot/LICENSE").read_text()


def test_the_page_names_only_files_that_are_there() -> None:
    page = (STATIC / "index.html").read_text()
    named = re.findall(r'(?:src|href)="static/([^"]+)"', page)
    assert len(named) == 5
    for name in named:
        assert (STATIC / name).is_file()


def test_the_colours_are_those_of_every_picture() -> None:
    assert (STATIC / "palette.css").read_text() == palette.css()


@pytest.mark.parametrize("name", MODULES)
def test_a_module_imports_what_another_exports(name: str) -> None:
    for names, other in re.findall(r'^import \{ (.+) \} from "\./(.+)";$', (STATIC / name).read_text(), re.M):
        exported = re.findall(
            r"^export (?:async )?(?:function|class|const) (\w+)", (STATIC / other).read_text(), re.M
        )
        assert set(names.split(", ")) <= set(exported)


def test_nothing_is_loaded_from_elsewhere_and_nothing_stands_in_line() -> None:
    for path in [*STATIC.glob("*.js"), *STATIC.glob("*.css"), STATIC / "index.html"]:
        text = path.read_text()
        assert not re.search(r"https?://", text), path
        assert "innerHTML" not in text, path
        assert "eval(" not in text, path
    page = (STATIC / "index.html").read_text()
    assert "<style" not in page
    assert not re.search(r"<script(?![^>]*\bsrc=)", page)
