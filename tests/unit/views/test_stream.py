"""The stream against a direct computation, second by second of every row."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swiftfl.errors import UserError
from swiftfl.record.facts import ROW, Table
from swiftfl.views import steps as steps_module
from swiftfl.views import stream as stream_module
from swiftfl.views.spreading import GrowingBins, folded, spread
from swiftfl.views.steps import Steps
from swiftfl.views.stream import Stream

STATES = {"compute": 1, "communication": 2, "waiting": 3}


def made(random: np.random.Generator, clients: int, rows: int, longest: float = 3.0) -> Table:
    """Rows of clients that compute, wait and communicate, with pauses in which they are not there."""
    found = np.zeros(clients * rows, ROW)
    found["client"] = np.repeat(np.arange(clients), rows)
    found["c"] = np.tile(np.arange(1, rows + 1), clients)
    found["steps"] = 1
    for name in STATES:
        length = random.exponential(longest / 3, clients * rows)
        found[name] = np.where(random.random(len(found)) < 0.2, 0.0, length)
    took = sum(found[name].astype(float) for name in STATES)
    pause = random.exponential(0.3, (clients, rows))
    ends = np.cumsum(took.reshape(clients, rows) + pause, axis=1)
    found["start"] = (ends - took.reshape(clients, rows)).reshape(-1)
    return found[random.permutation(len(found))]


def by_hand(rows: Table, begin: float, width: float, bins: int, clients: int) -> dict[str, Any]:
    """The seconds of each state in each bin, row by row and bin by bin."""
    seconds = {name: np.zeros((clients, bins)) for name in STATES}
    for row in rows:
        at = float(row["start"])
        for name in ("compute", "waiting", "communication"):
            until = at + float(row[name])
            for k in range(bins):
                left, right = begin + k * width, begin + (k + 1) * width
                seconds[name][row["client"], k] += max(0.0, min(until, right) - max(at, left))
            at = until
    return seconds


def decoded(reply: dict[str, Any], name: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(reply[name]), np.uint8).reshape(reply["rows"], reply["bins"])


def check(reply: dict[str, Any], rows: Table, clients: int) -> None:
    """Every cell shows what its seconds say; where two states are as long, either is right."""
    width = (reply["to"] - reply["from"]) / reply["bins"]
    seconds = by_hand(rows, reply["from"], width, reply["bins"], clients)
    state, share = decoded(reply, "state"), decoded(reply, "share")
    first, per_row = reply["first"], reply["per_row"]
    for row in range(reply["rows"]):
        members = range(first + row * per_row, min(first + (row + 1) * per_row, reply["last"] + 1))
        spent = {name: sum(seconds[name][i] for i in members) for name in STATES}
        for k in range(reply["bins"]):
            best = max(spent[name][k] for name in STATES)
            if best <= 1e-6 * width:
                assert share[row, k] <= 1
                continue
            shown = next(name for name, code in STATES.items() if code == state[row, k])
            assert spent[shown][k] == pytest.approx(best, rel=1e-3, abs=1e-4 * width)
            assert abs(share[row, k] - max(1, 255 * best / width / len(members))) <= 1.01


def stream_of(rows: Table, clients: int, tmp_path: Path) -> Stream:
    steps = Steps(tmp_path)
    steps.add(rows)
    return Stream(steps, clients)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    clients=st.integers(1, 5),
    each=st.integers(1, 12),
    bins=st.integers(1, 40),
    zoom=st.tuples(st.floats(0, 0.9), st.floats(0.01, 1)),
    few=st.sampled_from([0, 10**6]),
)
def test_each_cell_shows_what_took_most_of_its_time(
    seed: int, clients: int, each: int, bins: int, zoom: tuple[float, float], few: int
) -> None:
    """From rows themselves and from the pyramid alike, at any zoom, and for some of the clients."""
    random = np.random.default_rng(seed)
    rows = made(random, clients, each)
    stream = stream_of(rows, clients, Path("nowhere"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream_module, "FEW_ROWS", few)
        whole = stream.window(bins=bins)
        begin = zoom[0] * whole.end
        first, last = sorted(random.integers(0, clients, 2).tolist())
        part = stream.window(begin=begin, end=begin + zoom[1] * whole.end, bins=bins, first=first, last=last)
        for window in (whole, part):
            reply = stream.reply(window)
            assert reply["bins"] <= bins or bins == 1
            assert reply["from"] <= window.begin + 1e-6
            assert reply["to"] >= min(window.end, reply["end"]) - 1e-6
            check(reply, rows, clients)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), parts=st.integers(2, 6))
def test_a_pyramid_that_grows_is_the_one_of_all_rows(seed: int, parts: int) -> None:
    rows = made(np.random.default_rng(seed), 3, 30)
    rows = rows[np.argsort(rows["start"])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream_module, "FEW_ROWS", 0)
        patch.setattr(stream_module, "_PYRAMID_BINS", 64)
        patch.setattr(steps_module, "BLOCK", 16)
        grown = stream_of(rows[:0], 3, Path("nowhere"))
        for part in np.array_split(rows, parts):
            grown._steps.add(part)
            grown.reply(grown.window(bins=50))
        reply = grown.reply(grown.window(bins=50))
    check(reply, rows, 3)


def test_more_clients_than_can_be_shown_share_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = made(np.random.default_rng(1), 11, 6)
    for few, most in ((10**6, 4), (0, 4)):
        monkeypatch.setattr(stream_module, "FEW_ROWS", few)
        monkeypatch.setattr(stream_module, "MOST_SHOWN_ROWS", most)
        monkeypatch.setattr(stream_module, "_PYRAMID_ROWS", 6)
        stream = stream_of(rows, 11, Path("nowhere"))
        reply = stream.reply(stream.window(bins=9))
        assert reply["rows"] <= most
        assert reply["rows"] * reply["per_row"] >= 11
        check(reply, rows, 11)
        some = stream.reply(stream.window(bins=9, first=3, last=4))
        assert some["first"] <= 3
        assert some["last"] >= 4
        check(some, rows, 11)


def test_single_steps_are_told_where_they_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "FEW_STEPS", 20)
    rows = made(np.random.default_rng(2), 4, 50)
    stream = stream_of(rows, 4, Path("nowhere"))
    assert stream.reply(stream.window())["steps"] is None
    near = stream.reply(stream.window(begin=10.0, end=11.0, first=1, last=2))
    took = sum(rows[name].astype(float) for name in STATES)
    expected = rows[
        (rows["start"] < 11) & (rows["start"] + took > 10) & (rows["client"] >= 1) & (rows["client"] <= 2)
    ]
    assert sorted((step[0], step[1]) for step in near["steps"]) == sorted(
        zip(expected["client"].tolist(), expected["c"].tolist(), strict=True)
    )
    for step in near["steps"]:
        row = expected[(expected["client"] == step[0]) & (expected["c"] == step[1])][0]
        names = ("start", "compute", "waiting", "communication", "loss", "steps")
        assert step[2:] == [row[name].item() for name in names]


@pytest.mark.parametrize(
    "wrong",
    [
        {"begin": 3.0, "end": 3.0},
        {"begin": "x"},
        {"end": float("nan")},
        {"end": "1e999"},
        {"bins": 0},
        {"bins": "-1"},
        {"bins": "²"},
        {"first": 5},
        {"first": 2, "last": 1},
        {"last": "1.5"},
    ],
)
def test_a_window_that_cannot_be_is_an_error(wrong: dict[str, Any]) -> None:
    stream = stream_of(made(np.random.default_rng(3), 3, 4), 3, Path("nowhere"))
    with pytest.raises(UserError):
        stream.window(**wrong)


def test_a_window_outside_of_the_run_is_empty() -> None:
    stream = stream_of(made(np.random.default_rng(3), 3, 4), 3, Path("nowhere"))
    reply = stream.reply(stream.window(begin=1e6, end=1e6 + 1))
    assert not decoded(reply, "state").any()
    assert reply["steps"] == []


def test_a_run_that_is_too_long_for_memory_is_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times add up to the same; a row stands for several steps."""
    monkeypatch.setattr(steps_module, "MOST_ROWS", 200)
    rows = made(np.random.default_rng(4), 3, 120)
    steps = Steps(Path("nowhere"))
    for part in np.array_split(rows, 7):
        steps.add(part)
    kept = np.concatenate([block.rows for block in steps.blocks])
    assert steps.count == len(kept) <= 200
    assert kept["steps"].sum() == len(rows)
    for name in STATES:
        assert kept[name].sum() == pytest.approx(rows[name].sum(), rel=1e-5)


def test_spreading_adds_up_and_folding_keeps_means() -> None:
    random = np.random.default_rng(5)
    row, start, length = random.integers(0, 3, 200), random.uniform(0, 8, 200), random.uniform(0, 5, 200)
    value = random.uniform(0, 2, 200)
    sums = [np.zeros((32, 3), np.float32) for _ in range(2)]
    spread(sums, row, start, length, 0.0, 0.5, [None, value])
    for k in range(3):
        assert 0.5 * sums[0][:, k].sum() == pytest.approx(length[row == k].sum(), rel=1e-4)
        assert 0.5 * sums[1][:, k].sum() == pytest.approx((length * value)[row == k].sum(), rel=1e-4)
    assert np.allclose(folded(sums[0], 4), sums[0].reshape(8, 4, 3).mean(axis=1))
    bins = GrowingBins(1, 1, 4)
    bins.cover(1.0)
    bins.add([0], np.array([0]), np.array([0.0]), np.array([1.0]))
    bins.cover(3.0)
    assert bins.width == 1.0
    assert bins.layers[0][:, 0].tolist() == [1.0, 0.0, 0.0, 0.0]
