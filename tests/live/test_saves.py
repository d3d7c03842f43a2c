"""Saves of live clients: damaged ones are refused, and nothing starts silently from step 1."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import numpy as np
import pytest
from live_worlds import LIMIT, live_setup, running, steps

from swiftfl.algorithms import Swift, dsgd
from swiftfl.client import State
from swiftfl.engines import Setup
from swiftfl.engines.live.resume import find_resume_point
from swiftfl.engines.live.saves import ClientSave, paths, read, read_all, write
from swiftfl.errors import UserError
from swiftfl.rules import SgdRule

METHOD = {"swift": "ccs", "dsgd": "metropolis"}


def setup_of(name: str) -> Setup:
    rule = SgdRule(0.9)
    return live_setup(Swift(rule=rule) if name == "swift" else dsgd(rule), method=METHOD[name], epochs=4)


def state(c: int, fill: float = 1.0) -> State:
    return State(np.full(7, fill), c, {"momentum": np.full(7, 2.0)})


def save(folder: Path, client: int, c: int, fill: float = 1.0) -> None:
    write(folder, client, ClientSave(state(c, fill), 0))


def flip(file: Path, at: int = -3) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 0x10
    file.write_bytes(data)


def test_the_newest_save_and_the_one_before_it_are_kept(tmp_path: Path) -> None:
    for c in (3, 6, 9):
        save(tmp_path, 1, c, fill=float(c))
    found, problems = read_all(tmp_path, 1, state(1))
    assert [(one.state.c, one.state.x[0]) for one in found] == [(9, 9.0), (6, 6.0)]
    assert problems == []
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "client-0001.before.safetensors",
        "client-0001.safetensors",
    ]


def test_a_save_that_was_not_put_in_place_is_found(tmp_path: Path) -> None:
    save(tmp_path, 1, 3)
    save(tmp_path, 1, 6)
    written, newest, _ = paths(tmp_path, 1)
    newest.rename(written)  # as after a crash between writing and renaming
    assert [one.state.c for one in read_all(tmp_path, 1, state(1))[0]] == [6, 3]
    save(tmp_path, 1, 9)
    assert [one.state.c for one in read_all(tmp_path, 1, state(1))[0]] == [9, 6]


def test_a_flipped_bit_is_found(tmp_path: Path) -> None:
    save(tmp_path, 0, 5)
    file = paths(tmp_path, 0)[1]
    flip(file)
    with pytest.raises(UserError, match="is damaged: its checksum does not match"):
        read(file, 0, state(1))


def test_every_flipped_bit_of_the_header_is_refused_in_one_line(tmp_path: Path) -> None:
    save(tmp_path, 0, 5)
    file = paths(tmp_path, 0)[1]
    whole = file.read_bytes()
    for at in range(0, len(whole), 7):
        file.write_bytes(whole)
        flip(file, at)
        with pytest.raises(UserError) as refused:
            read(file, 0, state(1))
        assert "\n" not in str(refused.value)


def test_numbers_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    save(tmp_path, 0, 5, fill=np.nan)
    with pytest.raises(UserError, match="not finite"):
        read(paths(tmp_path, 0)[1], 0, state(1))


def test_saves_of_another_rule_are_refused(tmp_path: Path) -> None:
    save(tmp_path, 0, 5)
    with pytest.raises(UserError, match="memory of this rule"):
        read(paths(tmp_path, 0)[1], 0, State(np.zeros(7)))


def test_saves_have_the_permissions_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        save(tmp_path, 0, 5)
    finally:
        os.umask(before)
    assert stat.S_IMODE(paths(tmp_path, 0)[1].stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["swift", "dsgd"])
def test_an_older_save_is_used_and_that_is_said(name: str, tmp_path: Path) -> None:
    for i in range(4):
        save(tmp_path, i, 5)
        save(tmp_path, i, 10)
    flip(paths(tmp_path, 2)[1])
    point = find_resume_point(tmp_path, setup_of(name))
    counters = [start.c for start in point.starts if start is not None]
    assert counters == ([10, 10, 5, 10] if name == "swift" else [5, 5, 5, 5])
    (note,) = point.notes
    assert "client-0002.safetensors is damaged" in note


@pytest.mark.parametrize("name", ["swift", "dsgd"])
def test_two_bad_saves_are_refused_unless_a_start_from_step_1_is_allowed(name: str, tmp_path: Path) -> None:
    for i in range(4):
        save(tmp_path, i, 5)
        save(tmp_path, i, 10)
    for file in paths(tmp_path, 2)[1:]:
        flip(file)
    setup = setup_of(name)
    with pytest.raises(UserError, match=r"is damaged.*resume with --from-start"):
        find_resume_point(tmp_path, setup)
    point = find_resume_point(tmp_path, setup, from_start=True)
    started = [None if start is None else start.c for start in point.starts]
    assert started == ([10, 10, None, 10] if name == "swift" else [None] * 4)
    assert any("starts again from step 1" in note for note in point.notes)
    with running(setup, tmp_path, point) as engine:
        assert engine.wait(LIMIT)
        assert steps(engine) == [21.0] * 4
        assert engine.supervisor.warnings == list(point.notes)


@pytest.mark.parametrize("name", ["swift", "dsgd"])
def test_a_run_without_any_save_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="resume with --from-start"):
        find_resume_point(tmp_path, setup_of(name))


def test_no_common_round_is_refused(tmp_path: Path) -> None:
    for i, c in enumerate((5, 6, 7, 8)):
        save(tmp_path, i, c)
    with pytest.raises(UserError, match="no common round to go on from"):
        find_resume_point(tmp_path, setup_of("dsgd"))


def test_a_client_that_has_finished_is_in_every_later_round(tmp_path: Path) -> None:
    setup = setup_of("dsgd")
    for i in range(4):
        save(tmp_path, i, 21 if i == 1 else 30)
    starts = find_resume_point(tmp_path, setup).starts
    assert [start.c for start in starts if start is not None] == [30, 21, 30, 30]
