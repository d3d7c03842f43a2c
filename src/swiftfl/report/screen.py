"""A table on a terminal."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table as Screen

from swiftfl.report.table import Table

_WIDE = 160
"""Columns of a terminal that a comparison with one line per run needs."""


def screen_table(table: Table, width: int) -> Screen:
    """A line per run, or a line per number where that is narrower and the terminal is, too; no line for what
    nobody has."""
    lines = [list(table.columns), *table.cells()]
    turned = [list(line) for line in zip(*lines, strict=True)]
    if _needed(turned) < _needed(lines) and width < min(_WIDE, _needed(lines)):
        lines = turned
    lines = [line for line in lines if any(line[1:])]
    screen = Screen(box=box.SIMPLE_HEAD)
    short = max(len(line[0]) for line in lines) <= width // 3  # then headings are folded, and no names
    for number, heading in enumerate(lines[0]):
        screen.add_column(
            heading,
            justify="right" if number else "left",
            overflow="fold",
            no_wrap=short and not number,
        )
    for line in lines[1:]:
        screen.add_row(*line)
    return screen


def _needed(lines: list[list[str]]) -> int:
    return sum(3 + max(map(len, column)) for column in zip(*lines, strict=True))


def text(table: Table) -> str:
    """The table as plain text, as wide as the terminal."""
    console = Console(force_jupyter=False, force_terminal=False, highlight=False)
    with console.capture() as captured:
        console.print(screen_table(table, console.width))
        if table.note:
            console.print(table.note)
    return captured.get().strip("\n")
