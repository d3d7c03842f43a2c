"""Joining rows of steps, two and two: half the space, the same sums."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from swiftfl.record.facts.format import Table

_DURATIONS = ("compute", "waiting", "communication")


def join(rows: Table, over_gaps: bool = False) -> Table:
    """Every two rows of a client that follow each other become one, in the order of time.

    Sums of steps and of each kind of time are kept. A row stands for one stretch of time from its start on,
    so rows between which the client was away for longer than both took are not joined, unless `over_gaps`.
    """
    rows = rows[np.lexsort((rows["start"], rows["client"]))]
    partner = _partners(rows, over_gaps)
    joined = rows.copy()
    first, second = rows[partner], rows[partner + 1]
    into = joined[partner]
    into["steps"] = np.minimum(first["steps"].astype(np.int64) + second["steps"], 2**32 - 1)
    for name in _DURATIONS:
        into[name] = first[name].astype(np.float64) + second[name]
    for name in ("loss", "age"):
        into[name] = _mean(first[name], second[name], first["steps"], second["steps"])
    joined[partner] = into
    kept = np.ones(len(rows), bool)
    kept[partner + 1] = False
    ordered: Table = joined[kept][np.argsort(joined["start"][kept], kind="stable")]
    return ordered


def duration(rows: Table) -> NDArray[np.float64]:
    """The seconds that each row stands for."""
    total: NDArray[np.float64] = sum(
        (rows[name].astype(np.float64) for name in _DURATIONS), np.zeros(len(rows))
    )
    return total


def _partners(rows: Table, over_gaps: bool) -> NDArray[np.intp]:
    """The first one of each pair of rows that become one; rows are in the order of client and start."""
    if len(rows) < 2:
        return np.zeros(0, np.intp)
    length = duration(rows)
    gap = rows["start"][1:] - (rows["start"][:-1] + length[:-1])
    linked = rows["client"][1:] == rows["client"][:-1]
    if not over_gaps:
        linked &= gap <= length[1:] + length[:-1]
    # Of each chain of rows that are linked, every second link is used, from the chain's beginning on.
    index = np.arange(len(rows))
    begins = np.concatenate([[True], ~linked])
    place = index - np.maximum.accumulate(np.where(begins, index, 0))
    return np.flatnonzero(linked & (place[:-1] % 2 == 0))


def _mean(
    a: NDArray[np.float32], b: NDArray[np.float32], a_steps: NDArray[np.uint32], b_steps: NDArray[np.uint32]
) -> NDArray[np.float64]:
    """The mean by steps; of a number that is missing the other one."""
    weights = a_steps.astype(np.float64), b_steps.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        both = (weights[0] * a + weights[1] * b) / (weights[0] + weights[1])
    mean: NDArray[np.float64] = np.where(np.isnan(a), b, np.where(np.isnan(b), a, both))
    return mean
