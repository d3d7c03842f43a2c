"""The rows of a run as a table of comma-separated values, which any spreadsheet reads."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]


def flat(row: Row, separator: str = ".") -> dict[str, Any]:
    """The row without nesting: what stands in an inner object gets both names.

    >>> flat({"loss": 0.5, "metrics": {"f1": 0.25}})
    {'loss': 0.5, 'metrics.f1': 0.25}
    """
    found: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            found.update({f"{name}{separator}{inner}": v for inner, v in flat(value, separator).items()})
        else:
            found[name] = value
    return found


def columns_of(rows: Iterable[Row]) -> list[str]:
    """The names of all columns, in the order in which they first appear."""
    return list(dict.fromkeys(name for row in rows for name in flat(row)))


def csv_lines(rows: Iterable[Row], columns: Sequence[str]) -> str:
    """A line for each row; what a row does not have, or what is None, is an empty cell.

    >>> csv_lines([{"step": 1, "loss": None}, {"step": 2, "loss": 0.1}], ["step", "loss"])
    '1,\\n2,0.1\\n'
    """
    text = io.StringIO()
    csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n").writerows(map(flat, rows))
    return text.getvalue()


def csv_table(rows: Sequence[Row]) -> str:
    """The whole table, with the names of its columns as the first line."""
    if not rows:
        return ""
    columns = columns_of(rows)
    header = io.StringIO()
    csv.writer(header, lineterminator="\n").writerow(columns)
    return header.getvalue() + csv_lines(rows, columns)
