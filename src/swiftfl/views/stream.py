"""The stream: who computed, communicated and waited when, one row per client, at any zoom.

Where few rows of steps are in view, they are spread over just the bins that were asked for. Where there are
many, the picture comes from a pyramid: bins of fixed places that are kept and added to while the run goes on,
of which as many are put together, by powers of two, as fit the request. Both are exact sums of the same rows;
only the edges of bins differ, and the reply says where they are.
"""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from swiftfl.errors import UserError
from swiftfl.record.facts import Table
from swiftfl.views.reading import number
from swiftfl.views.spreading import GrowingBins, Sums, folded, spread
from swiftfl.views.steps import Steps

STATES = ("compute", "communication", "waiting")
"""The states by their number in a reply, from 1 on; 0 is nothing."""
MOST_SHOWN_ROWS = 1024
MOST_BINS = 4096
MOST_CELLS = 1 << 20
FEW_ROWS = 250_000
"""So many rows of steps are spread anew for each request."""
FEW_STEPS = 2000
"""So many steps are told one by one."""
_PYRAMID_ROWS = 2048
_PYRAMID_BINS = 4096
_PYRAMID_CELLS = 4 << 20


@dataclass(frozen=True)
class Window:
    """What is asked for: a stretch of time, how many bins, and the clients `first` to `last`."""

    begin: float
    end: float
    bins: int
    first: int
    last: int


class Stream:
    """The stream of one run, over its rows of steps."""

    def __init__(self, steps: Steps, clients: int) -> None:
        self._steps, self.clients = steps, clients
        self._pyramid: _Pyramid | None = None

    def window(
        self,
        begin: object = None,
        end: object = None,
        bins: object = None,
        first: object = None,
        last: object = None,
        until: float = 0.0,
    ) -> Window:
        """A request that makes sense, with what was left out; `until` is the time of the run now."""
        whole = max(self._steps.end, until)
        t0 = 0.0 if begin is None else _time(begin, "from")
        t1 = (whole if whole > t0 else t0 + 1.0) if end is None else _time(end, "to")
        if t1 <= t0:
            raise UserError(f"a stretch of time from {t0:g} to {t1:g} has no length")
        least = max(1e-9, 1e-12 * max(abs(t0), abs(t1)))
        i = 0 if first is None else _index(first, "first")
        k = self.clients - 1 if last is None else min(_index(last, "last"), self.clients - 1)
        if i > k:
            raise UserError(f"there are no clients from {i} to {k} in a run of {self.clients}")
        rows = min(k - i + 1, MOST_SHOWN_ROWS)
        count = 600 if bins is None else _index(bins, "bins")
        if count < 1:
            raise UserError("a picture has at least one bin")
        return Window(t0, max(t1, t0 + least), min(count, MOST_BINS, MOST_CELLS // rows), i, k)

    def reply(self, window: Window, until: float = 0.0) -> dict[str, Any]:
        """State and share of every row and bin, and single steps where they are few."""
        many = self._steps.about(window.begin, window.end) > FEW_ROWS
        if many:
            shown, per_row, layers = self._from_pyramid(window)
        else:
            shown, per_row, layers = self._from_rows(window)
        clients = _clients_of_rows(shown.first, shown.last, per_row)
        state, share = dominant(layers, clients)
        return {
            "from": shown.begin,
            "to": shown.end,
            "bins": shown.bins,
            "first": shown.first,
            "last": shown.last,
            "rows": len(clients),
            "per_row": per_row,
            "begin": 0.0,
            "end": max(self._steps.end, until),
            "state": base64.b64encode(state.T.tobytes()).decode(),
            "share": base64.b64encode(share.T.tobytes()).decode(),
            "steps": None if many else self._single(window),
        }

    def _from_rows(self, window: Window) -> tuple[Window, int, list[Sums]]:
        """Exactly the bins that were asked for."""
        per_row = -(-(window.last - window.first + 1) // MOST_SHOWN_ROWS)
        rows = (window.last - window.first) // per_row + 1
        width = (window.end - window.begin) / window.bins
        layers = [np.zeros((window.bins, rows), np.float32) for _ in STATES]
        for part in self._steps.between(window.begin, window.end, window.first, window.last):
            at = (part["client"].astype(np.int64) - window.first) // per_row
            for layer, (start, length) in zip(layers, stretches(part), strict=True):
                spread([layer], at, start, length, window.begin, width)
        return window, per_row, layers

    def _from_pyramid(self, window: Window) -> tuple[Window, int, list[Sums]]:
        if self._pyramid is None:
            self._pyramid = _Pyramid(self._steps, self.clients)
        self._pyramid.follow()
        return self._pyramid.view(window)

    def _single(self, window: Window) -> list[list[Any]] | None:
        """Steps one by one; None where there are too many."""
        found: list[list[Any]] = []
        for rows in self._steps.between(window.begin, window.end, window.first, window.last):
            if len(found) + len(rows) > FEW_STEPS:
                return None
            found += _as_lists(rows)
        return found


class _Pyramid:
    """Bins of the whole run, of every client or of groups of clients that follow each other."""

    def __init__(self, steps: Steps, clients: int) -> None:
        self._steps, self._clients = steps, clients
        self.per_row = -(-clients // _PYRAMID_ROWS)
        self._start()

    def _start(self) -> None:
        rows = -(-self._clients // self.per_row)
        bins = _PYRAMID_BINS
        while bins > 256 and rows * bins > _PYRAMID_CELLS:
            bins //= 2
        self._bins = GrowingBins(rows, len(STATES), bins)
        self._generation, self._known = self._steps.generation, 0

    def follow(self) -> None:
        """Take up the rows that are new."""
        if self._generation != self._steps.generation:
            self._start()
        self._bins.cover(self._steps.end)
        for rows in self._steps.since(self._generation, self._known):
            at = rows["client"].astype(np.int64) // self.per_row
            for layer, (start, length) in enumerate(stretches(rows)):
                self._bins.add([layer], at, start, length)
            self._known += len(rows)

    def view(self, window: Window) -> tuple[Window, int, list[Sums]]:
        """The part of the picture that covers the window, with at most as many bins."""
        times = 1
        while True:
            width = self._bins.width * times
            # Within a billionth of a bin its edge is meant: what a browser asks for again has been rounded.
            begin = max(math.floor(window.begin / width + 1e-9), 0)
            end = min(max(math.ceil(window.end / width - 1e-9), begin + 1), -(-self._bins.bins // times))
            if end - begin <= window.bins or times >= self._bins.bins:
                break
            times *= 2
        begin = min(begin, end - 1)
        top, bottom = window.first // self.per_row, window.last // self.per_row
        first, last = top * self.per_row, min((bottom + 1) * self.per_row, self._clients) - 1
        join = -(-(bottom - top + 1) // MOST_SHOWN_ROWS)
        layers = []
        for layer in self._bins.layers:
            part = folded(layer[begin * times : end * times, top : bottom + 1], times)
            layers.append(
                part if join == 1 else np.add.reduceat(part, np.arange(0, part.shape[1], join), axis=1)
            )
        shown = Window(begin * width, end * width, end - begin, first, last)
        return shown, join * self.per_row, layers


def dominant(
    layers: list[Sums], clients: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """The state with the most time in each bin, and its share of the whole bin, from 0 to 255.

    Of states with equal times it is the first; what is there at all has a share of at least 1.
    """
    best, state = layers[0].copy(), np.ones(layers[0].shape, np.uint8)
    for code, layer in enumerate(layers[1:], start=2):
        more = layer > best
        state[more] = code
        np.maximum(best, layer, out=best)
    state[best <= 0.0] = 0
    best *= (255.0 / clients).astype(np.float32)
    share = np.clip(np.rint(best), 1, 255).astype(np.uint8)
    share[state == 0] = 0
    return state, share


def decoded(reply: dict[str, Any]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """States and shares of a reply, as arrays of rows and bins."""
    states, shares = (
        np.frombuffer(base64.b64decode(reply[name]), np.uint8).reshape(reply["rows"], reply["bins"])
        for name in ("state", "share")
    )
    return states, shares


def stretches(rows: Table) -> list[tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]]:
    """Start and length of what each row spent in each of the `STATES`."""
    compute, waiting, communication = (
        rows[k].astype(np.float64) for k in ("compute", "waiting", "communication")
    )
    start = np.ascontiguousarray(rows["start"])
    wait = start + compute
    return [(start, compute), (wait + waiting, communication), (wait, waiting)]


def _clients_of_rows(first: int, last: int, per_row: int) -> npt.NDArray[np.int64]:
    """How many clients each row of a picture stands for."""
    begins = np.arange(first, last + 1, per_row)
    return np.diff(np.append(begins, last + 1))


def _as_lists(rows: Table) -> list[list[Any]]:
    names = ("client", "c", "start", "compute", "waiting", "communication", "loss", "steps")
    columns = [rows[name].tolist() for name in names]
    return [[number(value) if name == "loss" else value for name, value in zip(names, row, strict=True)]
            for row in zip(*columns, strict=True)]  # fmt: skip


def _time(value: object, name: str) -> float:
    found = number(value)
    if found is None and isinstance(value, str):
        try:
            found = number(float(value))
        except ValueError:
            found = None
    if found is None or abs(found) > 1e12:
        raise UserError(f"{name}={value!r} is not a time")
    return found


def _index(value: object, name: str) -> int:
    """A whole number that is not negative, as a number or as its digits."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 12:
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**12:
        return value
    raise UserError(f"{name}={str(value)[:40]!r} is not a whole number")
