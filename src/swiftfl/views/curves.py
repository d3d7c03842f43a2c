"""Curves: what was measured, and what the rows of steps say of all clients over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from swiftfl.record.facts import Table
from swiftfl.record.table import flat
from swiftfl.views.reading import number
from swiftfl.views.spreading import Floats, GrowingBins, folded
from swiftfl.views.steps import Steps, ends

Columns = dict[str, list[float | None]]
MOST_POINTS = 200
_MOST_COLUMNS = 200
_MOST_GROUPS = 4096  # of clients, whose means stand for them where there are more
_THERE, _STEPS, _LOSS, _LOSS_THERE, _AGE, _AGE_THERE = range(6)


def measured(rows: Sequence[dict[str, Any]]) -> Columns:
    """One list per number that any evaluation has; an own metric is `metrics.NAME`.

    >>> measured([{"time": 0, "loss": 2.5}, {"time": 1, "metrics": {"f1": 0.5}, "note": "x"}])
    {'time': [0.0, 1.0], 'loss': [2.5, None], 'metrics.f1': [None, 0.5]}
    """
    table = [flat(row) for row in rows]
    names = [
        name
        for name in dict.fromkeys(name for row in table for name in row)
        if any(number(row.get(name)) is not None for row in table)
    ]
    return {name: [number(row.get(name)) for row in table] for name in names[:_MOST_COLUMNS]}


class ClientCurves:
    """Means and spread over clients of the losses, rates and ages of their steps, in bins of time."""

    def __init__(self, steps: Steps, clients: int) -> None:
        self._steps = steps
        self._per_row = -(-clients // _MOST_GROUPS)
        self._rows = -(-clients // self._per_row)
        self._start()

    def _start(self) -> None:
        self._bins = GrowingBins(self._rows, 6, 2 * MOST_POINTS)
        self._generation, self._known = self._steps.generation, 0

    def columns(self, curves: Columns) -> Columns | None:
        """The columns; what the run's clock does not count is interpolated from what was measured."""
        self._follow()
        layers = [folded(layer, 2) for layer in self._bins.layers]
        width = 2 * self._bins.width
        used = min(int(np.ceil(self._steps.end / width - 1e-9)), len(layers[0]))
        if used == 0:
            return None
        there, steps, loss, loss_there, age, age_there = (
            layer[:used].T.astype(np.float64) for layer in layers
        )
        time = np.minimum((np.arange(used) + 0.5) * width, self._steps.end)
        with np.errstate(divide="ignore", invalid="ignore"):
            losses = np.where(loss_there > 0, loss / loss_there, np.nan)
            rates = np.where(there > 0, steps / there, np.nan)
            ages = age.sum(axis=0) / age_there.sum(axis=0)
        layout = self._steps.layout
        clock = "iteration" if layout is not None and layout.clock == "iterations" else "time"
        found: dict[str, Floats] = {
            name: time if name == clock else _interpolated(time, curves, clock, name)
            for name in ("time", "iteration", "epoch")
        }
        for name, values in (("loss", losses), ("rate", rates)):
            mean, low, high = _spread_of(values)
            found.update({name: mean, f"{name}_low": low, f"{name}_high": high})
        found["age"] = ages
        return {name: [number(value) for value in values.tolist()] for name, values in found.items()}

    def _follow(self) -> None:
        if self._generation != self._steps.generation:
            self._start()
        self._bins.cover(self._steps.end)
        for rows in self._steps.since(self._generation, self._known):
            self._add(rows)
            self._known += len(rows)

    def _add(self, rows: Table) -> None:
        """Every row over the time that it took: its steps, its loss and its age, where it has them."""
        start = np.ascontiguousarray(rows["start"])
        length = ends(rows) - start
        some = length > 0
        rows, start, length = rows[some], start[some], length[some]
        loss, age = rows["loss"].astype(np.float64), rows["age"].astype(np.float64)
        has_loss, has_age = np.isfinite(loss), np.isfinite(age)
        values: list[Floats | None] = [
            None,
            rows["steps"] / length,
            np.where(has_loss, loss, 0.0),
            has_loss.astype(np.float64),
            np.where(has_age, age, 0.0),
            has_age.astype(np.float64),
        ]
        at = rows["client"].astype(np.int64) // self._per_row
        self._bins.add(range(6), at, start, length, values)


def _spread_of(values: Floats) -> tuple[Floats, Floats, Floats]:
    """Mean, 10th and 90th percentile of every column; NaN where nobody has a number."""
    there = np.isfinite(values)
    count = there.sum(axis=0)
    ordered = np.sort(np.where(there, values, np.inf), axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(there, values, 0.0).sum(axis=0) / count
    return mean, _percentile(ordered, count, 0.1), _percentile(ordered, count, 0.9)


def _percentile(ordered: Floats, count: npt.NDArray[np.int64], share: float) -> Floats:
    """As `numpy.percentile` has it, of the first `count` entries of each sorted column."""
    place = share * np.maximum(count - 1, 0)
    low = np.floor(place).astype(np.int64)
    high = np.minimum(low + 1, np.maximum(count - 1, 0))
    columns = np.arange(ordered.shape[1])
    below, above = ordered[low, columns], ordered[high, columns]
    with np.errstate(invalid="ignore"):
        found: Floats = np.where(count > 0, below + (place - low) * (above - below), np.nan)
    return found


def _interpolated(time: Floats, curves: Columns, clock: str, name: str) -> Floats:
    """What a measured column was at these times; NaN outside of what was measured."""
    pairs = [
        (t, value)
        for t, value in zip(curves.get(clock, []), curves.get(name, []), strict=False)
        if t is not None and value is not None
    ]
    if len(pairs) < 2:
        return np.full(len(time), np.nan)
    known = np.array(sorted(pairs))
    found: Floats = np.interp(time, known[:, 0], known[:, 1], left=np.nan, right=np.nan)
    return found
