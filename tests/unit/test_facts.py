"""Facts: what is written is what is read, whatever happens; sums survive joining; bad files do no harm."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from facts_made import make_facts, make_rows
from swiftfl.errors import UserError
from swiftfl.record.facts import (
    CLIENT,
    EDGE,
    ROW,
    ClientState,
    FactsReader,
    FactsWriter,
    Layout,
    StepsWriter,
    join,
    no_clients,
    no_edges,
)
from swiftfl.record.facts.joining import duration
from swiftfl.record.facts.writer import SEGMENTS, keep_steps

_PAIR = Layout(2, "local", "wall", 0.0, 100, (0, 1, 2), (1, 0))


def _writer(run: Path, limit: int = 1 << 20, layout: Layout = _PAIR) -> tuple[FactsWriter, StepsWriter]:
    facts = FactsWriter(run, layout, limit)
    return facts, facts.steps()


def _steps(count: int, client: int = 0, first: int = 1) -> NDArray[np.void]:
    rows = np.zeros(count, ROW)
    rows["client"], rows["steps"] = client, 1
    rows["c"] = np.arange(first, first + count)
    rows["start"] = np.arange(first - 1, first - 1 + count)
    rows["compute"], rows["communication"] = 0.75, 0.25
    rows["loss"] = rows["age"] = np.nan
    return rows


def _files(run: Path) -> list[str]:
    return sorted(file.name for file in (run / "facts").glob("steps-*"))


def _bytes(run: Path) -> int:
    return sum(file.stat().st_size for file in (run / "facts").glob("steps-*"))


def test_the_sizes_that_the_architecture_names():
    assert (ROW.itemsize, CLIENT.itemsize, EDGE.itemsize) == (40, 72, 16)


def test_a_reader_follows_what_is_written(tmp_path):
    facts, steps = _writer(tmp_path)
    reader = FactsReader(tmp_path)
    assert reader.poll().restarted
    steps.add(1, 7, start=0.5, compute=1.0, waiting=2.0, communication=3.0, loss=0.25, age=1.5)
    assert len(reader.poll().rows) == 0  # in the buffer
    steps.flush()
    update = reader.poll()
    assert update.rows.tolist() == [(1, 1, 7, 0.25, 0.5, 1.0, 2.0, 3.0, 1.5)]
    assert not update.restarted
    assert not update.more
    assert len(reader.poll().rows) == 0
    steps.add_row((0, 1, float("nan"), 9.0, 1.0, 0.0, 0.0, float("nan")))
    steps.close()
    assert reader.poll().rows["start"].tolist() == [9.0]
    assert len(reader.rows()) == 2
    facts.close()


def test_before_a_run_has_written_anything_there_is_nothing(tmp_path):
    reader = FactsReader(tmp_path)
    assert reader.layout is None
    assert len(reader.poll().rows) == 0
    assert len(reader.clients()) == len(reader.edges()) == len(reader.rows()) == 0


def test_tables_are_overwritten_in_place_also_in_parts(tmp_path):
    facts, _ = _writer(tmp_path)
    reader = FactsReader(tmp_path)
    assert reader.clients()["state"].tolist() == [ClientState.STARTING] * 2
    assert reader.edges()["version"].tolist() == [-1, -1]
    records = no_clients(2)
    records["state"], records["steps"] = [ClientState.LOST, ClientState.BACK], [3, 2**40]
    facts.clients.write(records)
    assert reader.clients().tobytes() == records.tobytes()
    part = no_edges(1)
    part["version"], part["since"] = 5, 1.25
    facts.edges.write(part, at=1)
    assert reader.edges()["version"][1] == 5
    assert reader.edges()["since"][1] == 1.25
    facts.close()
    facts.close()


# --- joining -------------------------------------------------------------------------------------

_times = st.floats(0, 100, width=32)
_rows = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 9), _times, _times, _times, st.floats(0, 1e6)), max_size=60
)


@given(_rows, st.booleans())
@settings(max_examples=200, deadline=None)
def test_sums_survive_joining(made, over_gaps):
    rows = np.zeros(len(made), ROW)
    for k, (client, steps, compute, waiting, communication, start) in enumerate(made):
        rows[k] = (client, steps, k, 0.5, start, compute, waiting, communication, np.nan)
    joined = join(rows, over_gaps)
    for client in range(4):
        before, after = rows[rows["client"] == client], joined[joined["client"] == client]
        assert after["steps"].sum() == before["steps"].sum()
        for name in ("compute", "waiting", "communication"):
            assert after[name].sum(dtype=float) == pytest.approx(before[name].sum(dtype=float), rel=1e-5)
        assert len(after) >= (len(before) + 1) // 2
        if over_gaps:
            assert len(after) == (len(before) + 1) // 2
        if len(before):
            assert after["start"].min() == before["start"].min()
    assert np.all(joined["loss"] == np.float32(0.5))
    assert np.all(np.isnan(joined["age"]))
    assert np.all(np.diff(joined["start"]) >= 0)


def test_losses_and_ages_are_means_by_steps():
    rows = _steps(2)
    rows["steps"], rows["loss"], rows["age"] = [1, 3], [4.0, 0.0], [np.nan, 2.0]
    (row,) = join(rows)
    assert (row["steps"], row["c"], row["loss"], row["age"]) == (4, 1, 1.0, 2.0)


def test_time_in_which_a_client_was_away_is_not_joined_over():
    rows = np.concatenate([_steps(2), _steps(3, first=100)])
    joined = join(rows)
    assert joined["start"].tolist() == [0.0, 99.0, 101.0]
    assert duration(joined).tolist() == [2.0, 2.0, 1.0]


# --- bounded -------------------------------------------------------------------------------------


def test_a_long_run_stays_within_its_limit_and_keeps_its_sums(tmp_path):
    limit = 400 * ROW.itemsize
    _, steps = _writer(tmp_path, limit)
    for begin in range(0, 20_000, 10):
        for row in _steps(10, first=begin + 1):
            steps.add(0, int(row["c"]), float(row["start"]), 0.75, 0.0, 0.25)
        steps.flush()
    steps.close()
    assert len(_files(tmp_path)) <= SEGMENTS
    assert _bytes(tmp_path) <= 1.2 * limit
    rows = np.sort(FactsReader(tmp_path).rows(), order="start")
    assert rows["steps"].sum() == 20_000
    assert rows["compute"].sum(dtype=float) == pytest.approx(15_000)
    assert rows["start"] + duration(rows) == pytest.approx(np.append(rows["start"][1:], 20_000))  # no gap
    assert rows["steps"][-1] == 1
    assert rows["steps"].max() <= 256


@pytest.mark.parametrize("at_once", [1, 60, 777])
def test_however_much_comes_at_once_the_limit_holds(tmp_path, at_once):
    """Of 7 clients, one of them often away, whose files do not become half as large when they are joined."""
    limit = 640 * ROW.itemsize
    _, steps = _writer(tmp_path, limit, Layout(7, "local", "wall", 0.0, 100, (0,) * 8, ()))
    most = 0
    for c in range(12_000):
        steps.add(c % 7, c // 7, float(c + (50 * c if c % 7 == 0 else 0)), 1.0, 0.0, 0.0)
        if len(steps) == at_once:
            steps.flush()
            most = max(most, _bytes(tmp_path))
    steps.close()
    assert limit / 2 < max(most, _bytes(tmp_path)) <= limit
    assert len(_files(tmp_path)) <= SEGMENTS
    assert FactsReader(tmp_path).rows()["steps"].sum() == 12_000


def test_a_client_that_is_always_away_does_not_break_the_limit(tmp_path):
    _, steps = _writer(tmp_path, 400 * ROW.itemsize)
    for c in range(5000):
        steps.add(0, c, 100.0 * c, 1.0, 0.0, 0.0)
        steps.flush()
    steps.close()
    assert (
        sum(file.stat().st_size for file in (tmp_path / "facts").glob("steps-*")) <= 1.2 * 400 * ROW.itemsize
    )
    assert FactsReader(tmp_path).rows()["steps"].sum() == 5000


@given(st.lists(st.tuples(st.integers(1, 30), st.booleans()), max_size=40), st.integers(1, 40))
@settings(max_examples=60, deadline=None)
def test_a_reader_that_looks_now_and_then_sees_every_step_once(tmp_path_factory, turns, at_once):
    run = tmp_path_factory.mktemp("run")
    _, steps = _writer(run, 80 * ROW.itemsize)
    reader = FactsReader(run, most_at_once=at_once * ROW.itemsize)
    seen: list[NDArray[np.void]] = []

    def look() -> bool:
        update = reader.poll()
        if update.restarted:
            seen.clear()
        seen.append(update.rows)
        return update.more

    c = 1
    for count, looks in turns:
        steps.write(_steps(count, first=c))
        c += count
        if looks:
            look()
    while look():
        pass
    steps.close()
    assert sum(int(rows["steps"].sum()) for rows in seen) == c - 1
    covered = sorted((row["c"], row["steps"]) for rows in seen for row in rows)
    assert [c for c, _ in covered] == [1, *np.cumsum([steps for _, steps in covered]) + 1][:-1]


# --- crashes and resumes -------------------------------------------------------------------------


def test_a_row_that_is_not_complete_waits_for_its_end(tmp_path):
    _, steps = _writer(tmp_path)
    reader = FactsReader(tmp_path)
    file = tmp_path / "facts/steps-all-1-1.bin"
    data = _steps(2).tobytes()
    file.write_bytes(data[:50])
    assert len(reader.poll().rows) == 1
    file.write_bytes(data)
    assert reader.poll().rows["c"].tolist() == [2]
    steps.close()


def test_a_writer_that_died_while_joining_leaves_every_step_once(tmp_path):
    _, steps = _writer(tmp_path)
    steps.write(_steps(4))
    steps.close()
    file = tmp_path / "facts/steps-all-1-1.bin"
    (tmp_path / "facts/steps-all-2-2.bin").write_bytes(_steps(4, first=5).tobytes() + b"torn")
    joined = join(np.concatenate([_steps(4), _steps(4, first=5)]))
    (tmp_path / "facts/steps-all-1-2.bin").write_bytes(joined.tobytes())  # and both parts are still there
    assert file.exists()
    assert FactsReader(tmp_path).rows()["steps"].tolist() == [2, 2, 2, 2]
    again = StepsWriter(tmp_path / "facts", "all", 1 << 20)
    assert _files(tmp_path) == ["steps-all-1-2.bin"]
    again.write(_steps(1, first=9))
    again.close()
    assert _files(tmp_path) == ["steps-all-1-2.bin", "steps-all-3-3.bin"]
    assert FactsReader(tmp_path).rows()["steps"].sum() == 9


def test_a_run_that_is_resumed_forgets_the_steps_after_its_save(tmp_path):
    facts, steps = _writer(tmp_path)
    reader = FactsReader(tmp_path)
    joined = join(_steps(8, client=1))  # 1-2, 3-4, 5-6, 7-8
    steps.write(np.concatenate([_steps(6), joined]))
    steps.close()
    facts.close()
    assert reader.poll().rows["steps"].sum() == 14
    keep_steps(tmp_path, np.array([4, 6]))  # client 0 goes on with step 4, client 1 with step 6
    FactsWriter(tmp_path, Layout(2, "local", "wall", 0.0, 100, (0, 1, 2), (1, 0), session=2), 1000).close()
    update = reader.poll()
    assert update.restarted
    rows = update.rows
    assert rows[rows["client"] == 0]["c"].tolist() == [1, 2, 3]
    assert rows[rows["client"] == 1]["steps"].tolist() == [2, 2, 1]
    assert duration(rows[rows["client"] == 1]).tolist() == [2.0, 2.0, 1.0]


def test_a_full_disk_is_an_error_of_one_line_and_leaves_no_part_of_a_row(tmp_path, monkeypatch):
    _, steps = _writer(tmp_path)
    steps.write(_steps(1))
    monkeypatch.setattr(os, "write", lambda handle, data: os.pwrite(handle, data[:13], 40))
    steps.add(0, 2, 1.0, 1.0, 0.0, 0.0)
    with pytest.raises(UserError, match="No space left on device"):
        steps.flush()
    monkeypatch.undo()
    assert (tmp_path / "facts/steps-all-1-1.bin").stat().st_size == 40
    steps.flush()  # there is space again, and nothing was lost
    steps.close()
    assert FactsReader(tmp_path).rows()["c"].tolist() == [1, 2]


# --- files that nobody should have written -------------------------------------------------------


def _layout(**changes: object) -> str:
    return json.dumps({**json.loads(_PAIR.to_json()), **changes})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1]",
        "{" * 100_000,
        _layout(format=99),
        _layout(clients=10**9),
        _layout(clients=-1),
        _layout(clients=True),
        _layout(total="many"),
        _layout(clock="sundial"),
        _layout(began=1e400),
        _layout(indptr=[0, 1]),
        _layout(indptr=[0, 3, 2]),
        _layout(indices=[1, 7]),
        _layout(indices=[1, -1]),
        _layout(indices=[1, None]),
        _layout(indices={}),
        _layout(session=0.5),
    ],
)
def test_a_layout_that_is_none_is_refused_in_one_line(tmp_path, text):
    (tmp_path / "facts").mkdir()
    (tmp_path / "facts/layout.json").write_text(text)
    with pytest.raises(UserError, match=r"^cannot read .*layout.json: [^\n]*$"):
        FactsReader(tmp_path).poll()
    assert FactsWriter.read_layout(tmp_path) is None


def test_rows_that_no_run_can_have_written_are_left_out(tmp_path):
    facts, steps = _writer(tmp_path)
    rows = _steps(6)
    rows["client"][0] = 2
    rows["start"][1] = np.inf
    rows["compute"][2] = -1
    rows["waiting"][3] = np.nan
    rows["steps"][4] = 0
    steps.write(rows)
    steps.close()
    records = no_clients(2)
    records["state"] = [77, ClientState.LOST]
    facts.clients.write(records)
    reader = FactsReader(tmp_path)
    assert reader.poll().rows["c"].tolist() == [6]
    assert reader.clients()["state"].tolist() == [ClientState.STARTING, ClientState.LOST]


def test_what_is_no_regular_file_is_not_opened(tmp_path):
    _, steps = _writer(tmp_path)
    steps.write(_steps(1))
    steps.close()
    os.mkfifo(tmp_path / "facts/steps-all-2-2.bin")
    (tmp_path / "facts/steps-other-1-1.bin").symlink_to("/dev/zero")
    (tmp_path / "facts/steps-0-0-0.bin").write_bytes(b"x" * 400)
    (tmp_path / "facts/steps-all-9-3.bin").write_bytes(b"x" * 400)
    (tmp_path / "facts/clients.bin").unlink()
    os.mkfifo(tmp_path / "facts/clients.bin")
    reader = FactsReader(tmp_path)
    assert len(reader.poll().rows) == 1
    with pytest.raises(UserError, match="not a regular file"):
        reader.clients()


def test_times_that_nobody_can_have_spent_are_none(tmp_path):
    facts, _ = _writer(tmp_path)
    records = no_clients(2)
    records["compute"], records["waiting"] = [np.nan, 2.0], [np.inf, -1.0]
    records["communication"] = [1e300, 0.5]
    facts.clients.write(records)
    found = FactsReader(tmp_path).clients()
    assert [found[name].tolist() for name in ("compute", "waiting", "communication")] == [
        [0.0, 2.0],
        [0.0, 0.0],
        [0.0, 0.5],
    ]


def test_random_bytes_do_no_harm(tmp_path):
    facts, _ = _writer(tmp_path)
    facts.close()
    noise = np.random.default_rng(0).bytes(100_003)
    (tmp_path / "facts/steps-all-1-1.bin").write_bytes(noise)
    (tmp_path / "facts/clients.bin").write_bytes(noise)
    (tmp_path / "facts/edges.bin").write_bytes(noise)
    reader = FactsReader(tmp_path)
    rows = reader.poll().rows
    assert np.all(rows["client"] < 2)
    assert np.all(np.isfinite(duration(rows)))
    assert len(reader.clients()) == len(reader.edges()) == 2
    assert np.all(reader.clients()["state"] <= max(ClientState))


def test_a_made_folder_is_what_it_says(tmp_path):
    make_facts(tmp_path / "run", clients=20, rows=2000, algorithm="d-sgd", lost=(3,))
    reader = FactsReader(tmp_path / "run")
    rows = reader.poll().rows
    assert len(rows) == pytest.approx(1950, abs=5)
    assert reader.clients()["state"][3] == ClientState.LOST
    assert reader.clients()["waiting"] == pytest.approx(
        np.bincount(rows["client"], rows["waiting"].astype(float), 20)
    )
    assert make_rows(20, 2000, waiting=False)["waiting"].max() == 0
