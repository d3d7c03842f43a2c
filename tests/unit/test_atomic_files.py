"""Files appear complete or not at all, with the permissions of the umask; odd inputs are not opened."""

from __future__ import annotations

import contextlib
import json
import math
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from swiftfl import files
from swiftfl.errors import UserError
from swiftfl.files import finite, json_text, read_text_file, remove_stale, write_atomically, write_json


def save(temporary: Path) -> None:
    save_file({"x": np.arange(1000.0)}, temporary)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(params=[0o022, 0o077, 0o002])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_permissions_follow_the_umask(tmp_path: Path, umask: int) -> None:
    for name, data in (("text", "a"), ("bytes", b"a"), ("saved", save)):
        write_atomically(tmp_path / name, data)
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o666 & ~umask
    assert names(tmp_path) == ["bytes", "saved", "text"]
    assert load_file(tmp_path / "saved")["x"][-1] == 999.0


def test_a_file_is_replaced_and_long_names_are_possible(tmp_path: Path) -> None:
    path = tmp_path / ("é" * 125 + ".json")
    for value in (1, 2):
        write_json(path, value)
        assert json.loads(path.read_text()) == value
    assert names(tmp_path) == [path.name]


def test_the_temporary_file_ends_like_the_target(tmp_path: Path) -> None:
    seen: list[Path] = []

    def write(temporary: Path) -> None:
        seen.append(temporary)
        temporary.write_text("a")

    write_atomically(tmp_path / "a.svg", write)
    assert seen[0].parent == tmp_path
    assert seen[0].name.startswith(".")
    assert seen[0].suffix == ".svg"


@contextlib.contextmanager
def small_files() -> Iterator[None]:
    """No file may grow beyond 1000 bytes; not for longer, since pytest's own output may go to one."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def attempt(path: Path, data: object) -> str:
    with pytest.raises(UserError) as error:
        write_atomically(path, data)  # type: ignore[arg-type]
    return str(error.value)


def test_a_disk_error_is_one_line_and_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    for data in ("x" * 5000, b"x" * 5000, save):
        with small_files():
            told = attempt(path, data)
        assert told == f"cannot write {path}: File too large"
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_nothing_stays_when_the_writer_is_interrupted(tmp_path: Path, error: type[BaseException]) -> None:
    def write(temporary: Path) -> None:
        temporary.write_text("half")
        raise error

    with pytest.raises(error):
        write_atomically(tmp_path / "a", write)
    assert names(tmp_path) == []


def test_impossible_targets(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_text("mine")
    assert attempt(tmp_path / "pipe", "a").endswith("pipe: not a regular file")
    assert attempt(Path("/dev/null"), "a") == "cannot write /dev/null: not a regular file"
    assert attempt(tmp_path, "a").endswith("Is a directory")
    assert attempt(tmp_path / "file" / "a", "a").endswith("file is not a folder")
    assert attempt(tmp_path / "no" / "a", "a").endswith("No such file or directory")
    assert "null character" in attempt(tmp_path / "a\0b", "a")
    assert names(tmp_path) == ["file", "pipe"]


def test_both_the_file_and_its_folder_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(handle: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    for data in ("a", save):
        synced.clear()
        write_atomically(tmp_path / "a", data)
        assert len(synced) == 2
        assert synced[0].startswith(f"{tmp_path}/.swiftfl-")
        assert synced[1] == str(tmp_path)


KILLED = """
import os, signal, sys
from pathlib import Path
from swiftfl.files import write_atomically
def write(temporary):
    temporary.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
write_atomically(Path(sys.argv[1]), write)
"""


def test_temporary_files_of_killed_processes_are_removed(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "a")], check=False, timeout=60)
    (left,) = names(tmp_path)
    alive = tmp_path / files._temporary_name("b")
    elsewhere = tmp_path / (".swiftfl-00000000-" + left.split("-", 2)[2])
    for path in (alive, elsewhere, tmp_path / ".swiftfl-notes"):
        path.touch()
    assert remove_stale(tmp_path) == [tmp_path / left]
    assert names(tmp_path) == sorted([alive.name, elsewhere.name, ".swiftfl-notes"])
    assert remove_stale(tmp_path / "missing") == []


def test_numbers_that_are_not_finite_become_null(tmp_path: Path) -> None:
    tree = {"a": [1.5, math.nan, (math.inf, 2)], "b": {"c": -math.inf, "d": np.float64("nan")}, "e": "NaN"}
    assert finite(tree) == {"a": [1.5, None, [None, 2]], "b": {"c": None, "d": None}, "e": "NaN"}
    write_json(tmp_path / "a.json", tree)
    assert json.loads((tmp_path / "a.json").read_text()) == finite(tree)
    assert json_text([math.nan]) == "[null]"


def test_only_regular_text_files_of_a_sensible_size_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "text").write_text("eight by")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    assert read_text_file(tmp_path / "text", 8) == "eight by"
    assert read_text_file(Path("/proc/self/status")).startswith("Name")  # says that it has 0 bytes
    for path, reason in [
        (tmp_path / "pipe", "not a regular file"),
        (Path("/dev/zero"), "not a regular file"),
        (tmp_path, "Is a directory"),
        (tmp_path / "missing", "No such file or directory"),
        (tmp_path / "binary", "not a text file"),
    ]:
        with pytest.raises(UserError) as error:
            read_text_file(path)
        assert str(error.value) == f"cannot read {path}: {reason}"
    with pytest.raises(UserError, match="8 bytes are more than the 7 that are allowed"):
        read_text_file(tmp_path / "text", 7)
    with pytest.raises(UserError, match="bytes are more than the 5"):
        read_text_file(Path("/proc/self/status"), 5)
