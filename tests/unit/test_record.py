"""Run folders: whole files appear at once, nothing of others is touched, a torn end is survived."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from swiftfl.errors import UserError
from swiftfl.files import _temporary_name
from swiftfl.record import RunFolder, SavedCheckpoint


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run")


def test_a_new_folder_is_made_with_its_parents_and_is_empty(tmp_path: Path) -> None:
    made = RunFolder.create(tmp_path / "a" / "b" / "run")
    assert made.path.is_dir()
    assert list(made.path.iterdir()) == []
    RunFolder.create(made.path)  # an empty one may be used


@pytest.mark.parametrize("kind", ["a file", "a folder with something in it"])
def test_what_is_there_is_never_touched(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "run"
    if kind == "a file":
        path.write_text("mine")
    else:
        path.mkdir()
        (path / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match="not an empty folder"):
        RunFolder.create(path)
    assert (path if path.is_file() else path / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize("where", ["/proc/nope", "/proc/nope/deeper"])
def test_an_unwritable_place_is_one_clear_line(where: str) -> None:
    with pytest.raises(UserError, match=f"cannot write to {where}") as error:
        RunFolder.create(Path(where))
    assert "\n" not in str(error.value)


def test_a_folder_inside_a_file_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match="cannot write to"):
        RunFolder.create(tmp_path / "file" / "run")


def test_only_run_folders_are_opened(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a run folder"):
        RunFolder.open(tmp_path)


def test_a_value_that_cannot_be_written_leaves_the_old_file(folder: RunFolder) -> None:
    folder.write_json("summary.json", {"loss": 1.0})
    with pytest.raises(TypeError):
        folder.write_json("summary.json", {"loss": object()})
    assert folder.read_json("summary.json") == {"loss": 1.0}
    assert [file.name for file in folder.path.iterdir()] == ["summary.json"]


def test_rows_are_appended_and_read(folder: RunFolder) -> None:
    assert folder.read_rows("metrics.jsonl") == []
    rows = [{"iteration": i, "loss": i / 3} for i in range(3)]
    for row in rows:
        folder.append("metrics.jsonl", row)
    assert folder.read_rows("metrics.jsonl") == rows
    folder.append("metrics.jsonl", *rows)
    assert folder.read_rows("metrics.jsonl") == [*rows, *rows]
    folder.rewrite_rows("metrics.jsonl", rows[:1])
    assert folder.read_rows("metrics.jsonl") == rows[:1]


@pytest.mark.parametrize("torn", ["{", '{"iteration": 2, "lo', '{"iteration": 2, "loss": "\u00e9'[:-1]])
def test_a_torn_last_line_does_not_count(folder: RunFolder, torn: str) -> None:
    rows = [{"iteration": 0}, {"iteration": 1}]
    folder.rewrite_rows("metrics.jsonl", rows)
    with (folder.path / "metrics.jsonl").open("a") as file:
        file.write(torn)
    assert folder.read_rows("metrics.jsonl") == rows


def test_a_torn_character_does_not_count_either(folder: RunFolder) -> None:
    (folder.path / "metrics.jsonl").write_bytes(b'{"iteration": 0}\n{"note": "\xc3')
    assert folder.read_rows("metrics.jsonl") == [{"iteration": 0}]


def test_a_broken_line_before_the_last_is_an_error(folder: RunFolder) -> None:
    (folder.path / "metrics.jsonl").write_text('{"iteration": 0}\n{"iter\n{"iteration": 2}\n')
    with pytest.raises(UserError, match="line 2"):
        folder.read_rows("metrics.jsonl")


def test_models_come_back(folder: RunFolder) -> None:
    models = [np.full(3, float(i)) for i in range(2)]
    folder.write_models(models, np.full(3, 0.5))
    assert folder.read_models()["models"].tolist() == [[0, 0, 0], [1, 1, 1]]


def test_models_are_as_private_as_the_umask_says(folder: RunFolder) -> None:
    before = os.umask(0o077)
    try:
        folder.write_models([np.zeros(2)], np.zeros(2))
        folder.checkpoints.write({}, {"0": np.zeros(2)}, {})
        folder.append("metrics.jsonl", {"loss": 1.0})
    finally:
        os.umask(before)
    files = [file for file in folder.path.rglob("*") if file.is_file()]
    assert len(files) >= 6
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}


def test_json_is_strict(folder: RunFolder) -> None:
    numbers = {"loss": float("nan"), "times": [1.0, float("inf")]}
    folder.write_json("summary.json", numbers)
    folder.append("metrics.jsonl", numbers)
    folder.rewrite_rows("events.jsonl", [numbers])
    for name in ("summary.json", "metrics.jsonl", "events.jsonl"):
        text = (folder.path / name).read_text()
        assert json.loads(text, parse_constant=pytest.fail) == {"loss": None, "times": [1.0, None]}


# --- a disk that takes no more -------------------------------------------------------------------


def test_a_row_that_does_not_fit_leaves_no_part_of_itself(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.append("metrics.jsonl", {"iteration": 0})
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, line: write(handle, line[:5]))
    with pytest.raises(UserError, match="No space left") as error:
        folder.append("metrics.jsonl", {"iteration": 1}, {"iteration": 1})
    assert "metrics.jsonl" in str(error.value)
    monkeypatch.undo()
    folder.append("metrics.jsonl", {"iteration": 2})
    assert folder.read_rows("metrics.jsonl") == [{"iteration": 0}, {"iteration": 2}]


def test_a_checkpoint_that_does_not_fit_leaves_the_others(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for value in (1, 2):
        folder.checkpoints.write({"format": value}, {"0": np.zeros(2)}, {})

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("swiftfl.record.checkpoints.write_arrays", full)
    with pytest.raises(UserError, match="No space left"):
        folder.checkpoints.write({"format": 3}, {"0": np.zeros(2)}, {})
    assert saved(folder).tree == {"format": 2}
    assert sorted(p.name for p in folder.path.iterdir()) == ["checkpoint", "checkpoint.old"]


# --- checkpoints: two generations, checked -------------------------------------------------------


def saved(folder: RunFolder) -> SavedCheckpoint:
    found = folder.checkpoints.read()
    assert found is not None
    return found


@pytest.fixture
def twice(folder: RunFolder) -> RunFolder:
    """A folder with checkpoints 1 and 2."""
    for value in (1, 2):
        folder.checkpoints.write({"format": value}, {"0": np.full(3, float(value))}, {"seed": value})
    return folder


def test_the_newest_checkpoint_comes_back(twice: RunFolder) -> None:
    found = saved(twice)
    assert (found.tree, found.config, found.passed_over) == ({"format": 2}, {"seed": 2}, [])
    assert found.arrays["0"].tolist() == [2, 2, 2]
    twice.checkpoints.remove()
    assert twice.checkpoints.read() is None
    assert list(twice.path.iterdir()) == []


def test_times_that_never_come_survive(folder: RunFolder) -> None:
    tree = {"gone": [[1, float("inf")]], "loss": float("nan"), "now": 1.5}
    folder.checkpoints.write(tree, {}, {})
    json.loads((folder.path / "checkpoint" / "tree.json").read_text(), parse_constant=pytest.fail)
    found = saved(folder).tree
    assert found["gone"] == [[1, float("inf")]]
    assert found["loss"] != found["loss"]
    assert found["now"] == 1.5


def test_the_old_checkpoint_is_found_if_we_die_between_two_renames(twice: RunFolder) -> None:
    shutil.rmtree(twice.path / "checkpoint")
    (twice.path / "checkpoint.new").mkdir()
    (twice.path / "checkpoint.new" / "tree.json").write_text("{")
    assert saved(twice).tree == {"format": 1}


def flip_a_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)


CHECKPOINT_FILES = ["tree.json", "arrays.safetensors", "config.json", "sha256.json"]
DAMAGES: dict[str, Callable[[Path], object]] = {
    "torn": lambda file: file.write_bytes(file.read_bytes()[:-4]),
    "empty": lambda file: file.write_bytes(b""),
    "gone": lambda file: file.unlink(),
    "a bit": flip_a_bit,
    "other": lambda file: file.write_text("[" * 100_000),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", CHECKPOINT_FILES)
def test_a_damaged_checkpoint_is_passed_over(twice: RunFolder, name: str, damage: str) -> None:
    DAMAGES[damage](twice.path / "checkpoint" / name)
    found = saved(twice)
    assert found.tree == {"format": 1}
    assert found.arrays["0"].tolist() == [1, 1, 1]
    assert len(found.passed_over) == 1
    assert str(twice.path / "checkpoint") in found.passed_over[0]
    assert "\n" not in found.passed_over[0]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", CHECKPOINT_FILES)
def test_where_no_checkpoint_can_be_read_that_is_said(twice: RunFolder, name: str, damage: str) -> None:
    for generation in ("checkpoint", "checkpoint.old"):
        DAMAGES[damage](twice.path / generation / name)
    with pytest.raises(UserError, match="--from-start") as error:
        twice.checkpoints.read()
    assert str(twice.path / "checkpoint") in str(error.value)
    assert "\n" not in str(error.value)


# --- one process at a time -----------------------------------------------------------------------

HOLD = """
import sys, time
from pathlib import Path
from swiftfl.lock import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(folder: RunFolder) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the folder's lock."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder.path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_second_process_is_refused_by_name(folder: RunFolder, holder: subprocess.Popen[str]) -> None:
    for _ in range(2):  # asking does not spoil the answer
        with pytest.raises(UserError, match=f"in use by process {holder.pid}") as error, folder.locked():
            pass
        assert "\n" not in str(error.value)


def test_a_process_that_was_killed_locks_nothing(folder: RunFolder, holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.wait()
    assert (folder.path / ".lock").exists()
    with folder.locked():
        assert f"process {os.getpid()}" in (folder.path / ".lock").read_text()
    assert list(folder.path.iterdir()) == []
    RunFolder.create(folder.path)


def test_a_lock_that_was_left_does_not_make_a_folder_full(folder: RunFolder) -> None:
    (folder.path / ".lock").write_text("process 1 on nowhere\n")
    RunFolder.create(folder.path)


def test_temporary_files_of_the_dead_are_removed(folder: RunFolder) -> None:
    folder.write_json("config.json", {})
    (folder.path / "clients").mkdir()
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left = [
        folder.path / _temporary_name("models.safetensors").replace(str(os.getpid()), str(dead.pid)),
        folder.path / "clients" / _temporary_name("client").replace(str(os.getpid()), str(dead.pid)),
    ]
    mine = folder.path / _temporary_name("summary.json")
    for file in (*left, mine):
        file.write_text("")
    RunFolder.open(folder.path)
    assert [file.exists() for file in (*left, mine)] == [False, False, True]
