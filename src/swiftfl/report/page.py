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
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from swiftfl import palette
from swiftfl.report.table import GROUP, Table, with_minus

if TYPE_CHECKING:
    from jinja2 import Environment

_TELEPHONE = 44
"""Characters of a table that a telephone is as wide as."""
_ROW_NAME = 18
"""Characters after which the name of a row is broken on a telephone."""


@dataclass(frozen=True)
class PageSection:
    """A section of the page: its anchor, its heading, and its blocks."""

    anchor: str
    heading: str
    body: Markup


def page(title: str, opening: Markup, sections: Iterable[PageSection]) -> str:
    """The whole document. Its content policy forbids to load anything from elsewhere."""
    template = _environment().get_template("page.html.j2")
    return (
        template.render(title=title, opening=opening, sections=list(sections), palette=Markup(palette.css()))
        + "\n"
    )


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
    """An SVG file inside the page: nothing is loaded, identifiers of two figures cannot clash, and the
    colours follow the reader's setting."""
    shown = palette.themed(_compact(svg.read_text(encoding="utf-8"))).encode()
    return _block("figure", base64.b64encode(shown).decode("ascii"), caption, wide)


def _compact(svg: str) -> str:
    """The same picture in fewer bytes: lengths to a hundredth of a point, without spaces and remarks.

    >>> _compact("<svg> <!-- a --> <path d='M 1.234567 0.015625 \\nL 2.000001 3'/></svg>")
    "<svg><path d='M 1.23 0.015625 L 2 3'/></svg>"
    """
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r"\s+", " ", svg).replace("> <", "><")
    return re.sub(
        r"\b[1-9]\d*\.\d{3,}", lambda number: f"{float(number[0]):.2f}".rstrip("0").rstrip("."), svg
    )


def definitions(values: Mapping[str, object]) -> Markup:
    return _block("definitions", values) if values else Markup()


def links(targets: Mapping[str, str]) -> Markup:
    """Words, and the pages beside this one that they lead to."""
    return _block("links", targets) if targets else Markup()


def command(text: str) -> Markup:
    return _block("command", text) if text else Markup()


def table(shown: Table) -> Markup:
    """A table; a first column named GROUP becomes headings between the rows, and columns that say the same
    before a comma ("epoch, paper (s)", "epoch, here (s)") share a heading of two lines."""
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
    over = heads(shown.columns[grouped:])
    return _block("table", shown.title, columns[grouped:], over, groups, shown.note, _is_wide(shown, grouped))


def _is_wide(shown: Table, grouped: bool) -> bool:
    """Whether a telephone shows only a part of the columns."""
    names = [max(map(len, re.split(r"[ -]", name))) for name in shown.columns]
    cells = zip(*shown.cells(), strict=True) if shown.rows else [() for _ in names]
    widest = [max([name, *map(len, column)]) for name, column in zip(names, cells, strict=True)][grouped:]
    widest[0] = min(widest[0], _ROW_NAME)
    return sum(width + 2 for width in widest) > _TELEPHONE


@dataclass(frozen=True)
class Head:
    """A heading over one column, or over the parts of several."""

    name: str
    parts: tuple[str, ...] = ()


def heads(columns: Iterable[str]) -> list[Head]:
    """The headings of columns.

    >>> heads(["method", "epoch, paper (s)", "epoch, here (s)"])
    [Head(name='method', parts=()), Head(name='epoch', parts=('paper (s)', 'here (s)'))]
    """
    found = []
    for common, names in groupby(columns, key=lambda name: name.rpartition(", ")[0]):
        shared = list(names)
        if common and len(shared) > 1:
            found.append(Head(common, tuple(name.removeprefix(f"{common}, ") for name in shared)))
        else:
            found += map(Head, shared)
    return found


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
    from jinja2 import Environment, PackageLoader, StrictUndefined  # pictures alone do not need it

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
