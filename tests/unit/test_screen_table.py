"""Tables on a terminal: whichever way they are turned, numbers stay whole."""

from __future__ import annotations

from rich.console import Console

from swiftfl.report.screen import screen_table
from swiftfl.report.table import Table

COLUMNS = (
    "run",
    "test loss",
    "accuracy (%)",
    "time (s)",
    "epoch (s)",
    "of it waiting (s)",
    "to loss 0.859 (s)",
)


def shown(runs: int, width: int) -> str:
    rows = [[f"method_{k}", *(f"{k}.{column:02}1" for column in range(1, 7))] for k in range(1, runs + 1)]
    console = Console(width=width, force_terminal=False)
    with console.capture() as captured:
        console.print(screen_table(Table("t", "t", COLUMNS, rows, ""), width))
    return captured.get()


def test_few_runs_are_columns_where_the_terminal_is_narrow() -> None:
    assert "method_1   method_2" in shown(2, 60)
    assert "method_1   method_2" not in shown(2, 160)


def test_many_runs_are_lines_on_any_terminal() -> None:
    """As columns, thirteen of them are cut into pieces of three characters."""
    for width in (80, 120, 160):
        told = shown(13, width)
        for k in range(1, 14):
            assert f"method_{k} " in told
            assert all(f"{k}.{column:02}1" in told for column in range(1, 7))
