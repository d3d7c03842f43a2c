"""A table in each of its forms, read back by something that knows nothing of this code."""

from __future__ import annotations

import csv
import io
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from swiftfl.report import page
from swiftfl.report.table import Table, escape_latex

NASTY = r"50% & $x_1$ #2 {a} ~b^c \input{/etc/passwd} <script>alert('1')</script> | ±"
TABLE = Table(
    "some-table",
    "Title & <b>more</b>",
    ("group", "method", "epoch (s)", "change (%)"),
    [
        ["ring", "SWIFT C_0", 1.0194287, -34.6],
        ["ring", NASTY, None, 0.1],
        ["other", 'quote " and, comma\nnew line', 2.0, None],
    ],
    "A note < 1",
)


def test_csv_is_read_back_with_every_digit() -> None:
    head, *rows = csv.reader(io.StringIO(TABLE.csv()))
    assert tuple(head) == tuple(TABLE.columns)
    assert [[cell or None for cell in row] for row in rows] == [
        [None if cell is None else str(cell) for cell in row] for row in TABLE.rows
    ]
    assert float(rows[0][2]) == 1.0194287


def without_escapes(text: str) -> str:
    """LaTeX with every escape that the table writes removed: what is left must be plain."""
    known = (
        r"\\textbackslash\{\}|\\textasciitilde\{\}|\\textasciicircum\{\}|\\ldots\{\}|\\[{}$&%#_]"
        r"|\$(?:<|>|-|_\d|\\pm|\\times)\$"
    )
    return re.sub(known, "", text)


def test_latex_has_one_cell_per_column_and_no_command_of_the_text() -> None:
    lines = TABLE.latex().splitlines()
    start, end = lines.index(r"\midrule"), lines.index(r"\bottomrule")
    head, body = lines[lines.index(r"\toprule") + 1], " ".join(lines[start + 1 : end])
    rows = [row for row in re.split(r" \\\\", body) if row.strip()]
    assert len(rows) == len(TABLE.rows)
    for row in [head.removesuffix(r" \\"), *rows]:
        plain = without_escapes(row)
        assert plain.count("&") == len(TABLE.columns) - 1
        assert not set(plain) & set("\\${}%#_^~")
    assert r"\begin{tabular}{llrr}" in lines
    assert r"SWIFT C$_0$ & 1.019 & $-$34.6" in lines[start + 1]
    for name in ("table", "tabular"):
        assert TABLE.latex().count(rf"\begin{{{name}}}") == TABLE.latex().count(rf"\end{{{name}}}") == 1
    assert TABLE.latex().count(r"\toprule") == 1


@pytest.mark.parametrize("character", list(r"\{}$&%#_~^<>±−×–—…·≤≥"))
def test_every_special_character_is_escaped(character: str) -> None:
    assert escape_latex(character) != character


class Reader(HTMLParser):
    """Collects rows of cells, and any tag that is open at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.seen.add(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data


def test_html_is_well_formed_and_escaped() -> None:
    reader = Reader()
    reader.feed(page.table(TABLE))
    assert not reader.open
    assert not reader.seen & {"b", "script"}
    assert reader.rows == [
        ["method", "epoch (s)", "change (%)"],
        ["ring"],
        ["SWIFT C0", "1.019", "−34.6"],
        [NASTY, "–", "+0.1"],
        ["other"],
        ['quote " and, comma\nnew line', "2.000", "–"],
    ]


def test_markdown_has_one_line_per_row_and_no_tags() -> None:
    head, *rows = [line for line in TABLE.markdown().splitlines() if line.startswith("|")]
    assert head == "| group | method | epoch (s) | change (%) |"
    assert rows[:2] == ["|---|---|--:|--:|", "| ring | SWIFT C_0 | 1.019 | -34.6 |"]
    assert len(rows) == 1 + len(TABLE.rows)
    assert not any("<" in line for line in rows)
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 5 for line in rows)


def test_files(tmp_path: Path) -> None:
    TABLE.save(tmp_path / "tables")
    names = {file.name for file in (tmp_path / "tables").iterdir()}
    assert names == {"some-table.csv", "some-table.tex", "some-table.md"}


def test_a_table_without_rows_has_all_forms() -> None:
    empty = Table("empty", "Empty", ("a", "b"), [])
    assert empty.csv() == "a,b\n"
    assert empty.latex()
    assert "<caption>" in page.table(empty)
