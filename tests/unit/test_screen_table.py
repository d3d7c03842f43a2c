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


def test_numbers_stay_whole_where_names_are_long_and_columns_many() -> None:
    """Eleven runs of `swiftfl compare`, with a column that nobody has."""
    columns = (
        *("run", "epochs", "test loss", "mean client test loss", "accuracy (%)", "mean client accuracy (%)"),
        *("train loss", "consensus distance", "time (s)", "state"),
    )
    numbers = ("1", "0.953", "0.995", "83.6", "77.9", "1.88", "0.0827", "0.240", "")
    rows = [[f"cmp-gossip_async_{k:02}", *numbers] for k in range(11)]
    for width in (72, 80, 120):
        console = Console(width=width, force_terminal=False)
        with console.capture() as captured:
            console.print(screen_table(Table("t", "t", columns, rows, ""), width))
        told = captured.get()
        assert max(map(len, told.splitlines())) <= width
        whole = [line.split()[-8:] for line in told.splitlines() if "0.0827" in line]
        assert whole == [list(numbers[:-1])] * 11
        assert "state" not in told


def test_a_table_without_rows_has_its_first_heading() -> None:
    assert COLUMNS[0] in shown(0, 80)
