"""HTML of reports: self-contained, without scripts, readable on a telephone.

The templates are in `report/templates`; everything that they insert is escaped.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from swiftfl.report.table import GROUP, Table, with_minus


@dataclass(frozen=True)
class PageSection:
    """A section of the page: its anchor, its heading, and its blocks."""

    anchor: str
    heading: str
    body: Markup


def page(title: str, opening: Markup, sections: Iterable[PageSection]) -> str:
    """The whole document. Its content policy forbids to load anything from elsewhere."""
    template = _environment().get_template("page.html.j2")
    return template.render(title=title, opening=opening, sections=list(sections)) + "\n"


# --- the blocks of a section; one that has no content is empty -------------------------------------------


def paragraph(text: str, kind: str = "") -> Markup:
    return _block("paragraph", text, kind)


def bullets(sentences: Iterable[str]) -> Markup:
    items = list(sentences)
    return _block("bullets", items) if items else Markup()


def part(heading: str, *blocks: Markup) -> Markup:
    """Blocks under a heading."""
    there = [block for block in blocks if block]
    return _block("part", heading, there) if there else Markup()


def folded(heading: str, *blocks: Markup) -> Markup:
    """Blocks that the reader unfolds."""
    there = [block for block in blocks if block]
    return _block("folded", heading, there) if there else Markup()


def gallery(figures: Iterable[Markup]) -> Markup:
    there = list(figures)
    return _block("gallery", there) if there else Markup()


def joined(blocks: Iterable[Markup]) -> Markup:
    return Markup("\n").join(block for block in blocks if block)


def figure(svg: Path, caption: str, wide: bool = False) -> Markup:
    """An SVG file inside the page: nothing is loaded, and identifiers of two figures cannot clash."""
    return _block("figure", base64.b64encode(svg.read_bytes()).decode("ascii"), caption, wide)


def definitions(values: Mapping[str, object]) -> Markup:
    return _block("definitions", values) if values else Markup()


def command(text: str) -> Markup:
    return _block("command", text) if text else Markup()


def table(shown: Table) -> Markup:
    """A table; a first column named GROUP becomes headings between the rows."""
    grouped = shown.columns[0] == GROUP
    columns = [
        {"name": name, "right": right} for name, right in zip(shown.columns, shown.numeric(), strict=True)
    ]
    if not grouped:
        groups = [{"name": None, "rows": shown.cells()}]
    else:
        groups = [
            {"name": name, "rows": [row[1:] for row in rows]}
            for name, rows in groupby(shown.cells(), key=lambda row: row[0])
        ]
    return _block("table", shown.title, columns[grouped:], groups, shown.note)


def words(text: str) -> Markup:
    """Text as HTML: escaped, with a minus sign before numbers and the index of C_0 below the line; a
    number and its % stay on one line.

    >>> print(words("SWIFT C_0 < -3"))
    SWIFT C<sub>0</sub> &lt; −3
    """
    together = re.sub(r"(?<=\d) %", "\u00a0%", with_minus(str(escape(text))))
    return Markup(re.sub(r"\bC_(\d)", r"C<sub>\1</sub>", together))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("swiftfl.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["words"] = words
    return environment


@cache
def _blocks() -> Any:
    return _environment().get_template("blocks.html.j2").module


def _block(name: str, *arguments: object) -> Markup:
    macro: Callable[..., Markup] = getattr(_blocks(), name)
    return Markup(macro(*arguments).strip())
