"""Seconds of rows, spread over bins of time.

A row of a step covers a stretch of time, from its start on: compute, then waiting, then communication.
`spread` adds to each bin the part of it that a stretch covers. That is exact, whatever the sizes of rows and
bins, and sums over rows may be taken in any order: bins grow with a file.

Sums have one line per bin and one column per client: rows that follow each other in a file are of all clients
and of one moment, so that they are added to places that lie together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
Sums: TypeAlias = npt.NDArray[np.float32]


def spread(
    into: Sequence[Sums],
    row: Ints,
    start: Floats,
    length: Floats,
    begin: float,
    width: float,
    values: Sequence[Floats | None] = (None,),
) -> None:
    """Add to `into[.][bin, row]` the share of the bin that [start, start + length) covers.

    Bin k begins at `begin + k * width`. What lies outside of the bins is left out. There may be several sums,
    of which each has values that shares are multiplied by (None: 1).

    >>> sums = np.zeros((3, 1), np.float32)
    >>> spread([sums], np.array([0]), np.array([0.5]), np.array([1.75]), 0.0, 1.0)
    >>> sums.tolist()
    [[0.5], [1.0], [0.25]]
    """
    bins = len(into[0])
    first = np.clip((start - begin) / width, 0.0, bins)
    end = np.clip((start + length - begin) / width, 0.0, bins)
    there = end > first
    if not there.all():
        row, first, end = row[there], first[there], end[there]
        values = _picked(values, there)
    if len(row) == 0:
        return
    at = np.minimum(first.astype(np.int64), bins - 1)
    until = np.minimum(end.astype(np.int64), bins - 1)
    over = at < until
    _add(into, row, at, np.where(over, at + 1.0, end) - first, values)
    if not over.any():
        return
    values = _picked(values, over)
    row, at, until = row[over], at[over], until[over]
    _add(into, row, until, end[over] - until, values)
    wide = until - at > 1
    if wide.any():
        _fill_between(into, row[wide], at[wide] + 1, until[wide], _picked(values, wide))


def _picked(values: Sequence[Floats | None], which: npt.NDArray[np.bool_]) -> list[Floats | None]:
    return [None if value is None else value[which] for value in values]


def _add(into: Sequence[Sums], row: Ints, at: Ints, share: Floats, values: Sequence[Floats | None]) -> None:
    cell = at * into[0].shape[1] + row
    for sums, value in zip(into, values, strict=True):
        product = share if value is None else share * value
        np.add.at(sums.reshape(-1), cell, product.astype(np.float32))


def _fill_between(
    into: Sequence[Sums], row: Ints, first: Ints, end: Ints, values: Sequence[Floats | None]
) -> None:
    """Add to the bins that are covered as a whole: where that begins and ends, then running sums."""
    begin = int(first.min())
    bins = int(end.max()) - begin
    touched, which = np.unique(row, return_inverse=True)
    for sums, value in zip(into, values, strict=True):
        changes = np.zeros((bins + 1, len(touched)), np.float32 if value is None else np.float64)
        by = np.ones(len(row), changes.dtype) if value is None else value
        np.add.at(changes.reshape(-1), (first - begin) * len(touched) + which, by)
        np.add.at(changes.reshape(-1), (end - begin) * len(touched) + which, -by)
        np.add.accumulate(changes, axis=0, out=changes)
        if len(touched) == sums.shape[1]:
            sums[begin : begin + bins] += changes[:bins].astype(np.float32, copy=False)
        else:
            sums[begin : begin + bins, touched] += changes[:bins].astype(np.float32, copy=False)


def folded(sums: Sums, times: int) -> Sums:
    """Bins `times` as wide: means of those within each; what is missing at the end counts as zero."""
    if times == 1:
        return sums
    bins, rows = sums.shape
    lacking = -bins % times
    if lacking:
        sums = np.pad(sums, ((0, lacking), (0, 0)))
    total: Sums = sums.reshape(-1, times, rows).sum(axis=1, dtype=np.float32)
    total /= np.float32(times)
    return total


class GrowingBins:
    """Sums per row and bin from time zero on, for a run whose end is not known: bins double when need be.

    Args:
        rows: how many rows.
        layers: how many sums are kept for each cell.
        bins: how many bins at most; at least half of them are used once the run has some length.
    """

    def __init__(self, rows: int, layers: int, bins: int) -> None:
        self.layers = [np.zeros((bins, rows), np.float32) for _ in range(layers)]
        self.bins = bins
        self.width = 2.0**-40
        self._empty = True

    def cover(self, end: float) -> None:
        """Make the bins wide enough for a run that lasts until `end`."""
        while self.width * self.bins < end:
            self.width *= 2.0
            if not self._empty:
                for layer in self.layers:
                    half = folded(layer, 2)
                    layer[: len(half)] = half
                    layer[len(half) :] = 0.0

    def add(
        self,
        layers: Sequence[int],
        row: Ints,
        start: Floats,
        length: Floats,
        values: Sequence[Floats | None] = (None,),
    ) -> None:
        """Spread over some of the layers; `cover` comes before."""
        self._empty = False
        spread([self.layers[k] for k in layers], row, start, length, 0.0, self.width, values)
