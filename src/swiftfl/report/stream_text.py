"""Who computes, communicates and waits, as rows of characters: one row per client, time to the right."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.text import Text

from swiftfl.palette import PARTS

Span = tuple[int, str, float, float]
"""A client, what it does (compute, communication or waiting), from when, until when."""
Window = tuple[float, float]

_NAMES = tuple(PARTS)
_BLOCKS = "█▒· "
_ASCII = "#+. "
"""Characters for the parts in their order, and for a time in which the client was not there."""
_WIDEST = 60
_NO_SHARE = 1e-6
"""Of a column: what rounding makes of a time that ends where the column begins."""
_GAP = 3


def dominant(
    spans: Iterable[Span], clients: Sequence[int], window: Window, columns: int
) -> npt.NDArray[np.intp]:
    """For each client and column the number of the part that most of its time is spent in; the number of
    parts where there is none."""
    rows = {client: row for row, client in enumerate(clients)}
    begin, end = window
    spent = np.zeros((len(clients), columns, len(_NAMES)))
    scale = columns / (end - begin)
    for client, what, start, stop in spans:
        first, last = max(0.0, (start - begin) * scale), min(float(columns), (stop - begin) * scale)
        if client not in rows or last <= first:
            continue
        left = np.arange(int(first), min(columns, int(np.ceil(last))))
        share = np.minimum(left + 1, last) - np.maximum(left, first)
        spent[rows[client], left, _NAMES.index(what)] += share
    found: npt.NDArray[np.intp] = spent.argmax(axis=2)
    found[spent.max(axis=2) < _NO_SHARE] = len(_NAMES)
    return found


def print_streams(
    console: Console,
    streams: Mapping[str, Sequence[Span]],
    window: Window,
    named: Mapping[int, str] | None = None,
    step: float = math.inf,
) -> None:
    """Several runs of the same clients beside each other, or where the terminal is narrow below each other.

    In colours on a terminal; characters tell the parts apart where there are none. `named` clients have
    words beside their number. A column is not longer than `step` seconds, or what is shorter than a column
    would be there or not by chance: where there are too few, the window begins later.
    """
    signs = _BLOCKS if console.encoding.lower().startswith("utf") else _ASCII
    clients = sorted({span[0] for spans in streams.values() for span in spans})
    labels = [f"{i} {(named or {}).get(i, '')}".strip() for i in clients]
    margin = max(map(len, ("client", *labels)))
    room = (console.width - margin) // len(streams) - _GAP
    beside = list(streams.items())
    groups = [beside] if room >= 20 else [[one] for one in beside]
    columns = min(_WIDEST, room if room >= 20 else console.width - margin - _GAP)
    begin, end = window
    begin = max(begin, end - columns * step)
    for group in groups:
        gap = " " * _GAP
        console.print(
            "client".rjust(margin) + "".join(gap + name.ljust(columns) for name, _ in group).rstrip()
        )
        drawn = [dominant(spans, clients, (begin, end), columns) for _, spans in group]
        for row, label in enumerate(labels):
            line = Text(label.rjust(margin), no_wrap=True)
            for found in drawn:
                line.append(gap)
                for part in found[row].tolist():
                    line.append(signs[part], style=_style(part))
            line.rstrip()
            console.print(line)
    key = ", ".join(f"{sign} {name}" for sign, name in zip(signs, _NAMES, strict=False))
    console.print(f"{key}; from {begin:.3g} s to {end:.3g} s of the run")


def _style(part: int) -> str:
    """In colours that are legible on black and on white terminals; waiting is faint."""
    if part >= len(_NAMES):
        return ""
    return "dim" if _NAMES[part] == "waiting" else PARTS[_NAMES[part]].light
