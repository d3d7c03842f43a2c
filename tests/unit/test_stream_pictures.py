"""Who computes, communicates and waits: as characters, and as a picture."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from swiftfl.palette import PARTS
from swiftfl.report.stream_figure import stream_figure
from swiftfl.report.stream_text import Span, dominant, print_streams

NAMES = list(PARTS)
SWIFT: list[Span] = [(i, "compute", 0.0, 1.0) for i in range(3)]
DSGD: list[Span] = [(0, "compute", 0.0, 1.0)] + [
    (i, what, start, end)
    for i in (1, 2)
    for what, start, end in (("compute", 0.0, 0.2), ("waiting", 0.2, 0.9), ("communication", 0.9, 1.0))
]


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from(NAMES), st.integers(0, 90), st.integers(1, 40)),
        max_size=12,
    ),
    st.sampled_from([1, 2, 3, 5, 6, 10, 12, 15, 20, 30, 60]),
    st.integers(0, 30),
)
def test_a_column_is_what_most_of_its_time_is_spent_in(
    raw: list[tuple[int, str, int, int]], columns: int, begin: int
) -> None:
    """Against counting tenths of a second."""
    spans = [(who, what, start / 10, (start + length) / 10) for who, what, start, length in raw]
    found = dominant(spans, [0, 2], (begin / 10, begin / 10 + 6.0), columns)
    for row, client in enumerate((0, 2)):
        for column in range(columns):
            tenths = begin + np.arange(column * 60 // columns, (column + 1) * 60 // columns)
            spent = [
                sum(
                    int(((tenths >= a) & (tenths < a + length)).sum())
                    for who, what, a, length in raw
                    if (who, what) == (client, name)
                )
                for name in NAMES
            ]
            part = found[row, column]
            assert spent[part] == max(spent) if max(spent) else part == len(NAMES)


def shown(width: int, *, terminal: bool = False, encoding: str = "utf-8") -> str:
    raw = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(
        file=raw, width=width, force_terminal=terminal, color_system="truecolor" if terminal else None
    )
    print_streams(console, {"SWIFT": SWIFT, "D-SGD": DSGD}, (0.0, 1.0), {0: "slow"})
    raw.flush()
    raw.seek(0)
    return raw.read()


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_two_runs_beside_each_other(width: int) -> None:
    lines = shown(width).splitlines()
    assert max(map(len, lines)) <= width
    assert re.fullmatch(r"client +SWIFT +D-SGD", lines[0])
    first, second, third = (line[6:].split() for line in lines[1:4])
    assert lines[1].startswith("0 slow")
    assert set(first[0] + first[1] + second[0] + third[0]) == {"█"}
    assert second[1] == third[1]
    assert re.fullmatch("█+·+▒+", second[1])
    assert second[1].count("·") == pytest.approx(0.7 * len(second[1]), abs=1)
    assert "\x1b" not in "".join(lines)


def test_a_step_is_not_lost_between_two_columns() -> None:
    """Steps of 1 s every 4 s, seen at 24 columns: none falls between two."""
    spans: list[Span] = []
    for k in range(30):
        begin = 4 * k + 0.4
        spans += [(0, "compute", begin, begin + 1), (0, "waiting", begin + 1, begin + 4)]
    console = Console(file=io.StringIO(), width=60, force_terminal=False)
    print_streams(console, {"a": spans, "b": spans}, (10.0, 100.0), step=1.0)
    assert isinstance(console.file, io.StringIO)
    row = console.file.getvalue().splitlines()[1].split()[1]
    assert row.count("█") == pytest.approx(len(row) / 4, abs=1)


def test_below_each_other_on_a_narrow_terminal() -> None:
    lines = shown(40).splitlines()
    assert max(map(len, lines[:-1])) <= 40
    assert [line.split()[-1] for line in lines if line.startswith("client")] == ["SWIFT", "D-SGD"]


def test_in_colours_on_a_terminal_and_in_ascii_where_there_is_nothing_else() -> None:
    assert "\x1b[38;2;0;114;178m" in shown(80, terminal=True)  # blue: compute
    assert "\x1b[2m" in shown(80, terminal=True)  # faint: waiting
    plain = shown(80, encoding="ascii")
    assert plain.isascii()
    assert re.search(r"#+\.+\++", plain)


def test_the_picture_has_a_row_per_client_and_a_shape_per_part() -> None:
    figure = stream_figure({"SWIFT": SWIFT, "D-SGD": DSGD}, (0.0, 0.5), clients={0: "slow"}, columns=2)
    left, right = figure.axes
    assert [label.get_text() for label in right.get_yticklabels()] == ["slow", "1", "2"]
    assert len(left.patches) == 1  # nobody waits
    assert len(right.patches) == 2  # communication comes later than what is shown
    assert left.get_xlim() == right.get_xlim() == (0.0, 0.5)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == NAMES
