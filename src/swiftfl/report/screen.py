"""A table on a terminal."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table as Screen

from swiftfl.report.table import Table

_WIDE = 160
"""Columns of a terminal that a comparison with one line per run needs."""
_GAP = 3
"""Between two columns."""
_SHORTEST_NAME = 8


def screen_table(table: Table, width: int) -> Screen:
    """A line per run, or a line per number where that is narrower and the terminal is, too; nothing of what
    nobody has. Numbers stay whole: headings are folded, and names that are too long."""
    lines = [list(table.columns), *table.cells()]
    turned = [list(line) for line in zip(*lines, strict=True)]
    turned = [line for line in turned if any(line[1:])] or turned[:1]
    lines = [list(line) for line in zip(*turned, strict=True)]
    if _needed(turned) < _needed(lines) and width < min(_WIDE, _needed(lines)):
        lines = turned
    columns = list(zip(*lines, strict=True))
    widths = _widths([[max(map(len, cells), default=0), len(heading)] for heading, *cells in columns], width)
    screen = Screen(box=box.SIMPLE_HEAD)
    for number, (heading, each) in enumerate(zip(lines[0], widths, strict=True)):
        screen.add_column(heading, justify="right" if number else "left", overflow="fold", width=each)
    for line in lines[1:]:
        screen.add_row(*line)
    return screen


def _widths(needed: list[list[int]], width: int) -> list[int]:
    """For columns whose longest cell and whose heading are so long: cells stay whole. What is left makes room
    for headings, the narrowest first; if there is not enough, names are folded, and numbers at last."""
    widths = [longest for longest, _ in needed]
    spare = width - sum(_GAP + each for each in widths) - 1
    if spare < 0:
        kept = max(_SHORTEST_NAME, widths[0] + spare)
        spare, widths[0] = spare + widths[0] - kept, kept
    while spare < 0 and max(widths[1:], default=1) > 1:
        widths[1 + widths[1:].index(max(widths[1:]))] -= 1
        spare += 1
    while spare > 0 and (short := [k for k, (_, heading) in enumerate(needed) if widths[k] < heading]):
        widths[min(short, key=lambda k: widths[k])] += 1
        spare -= 1
    return widths


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
