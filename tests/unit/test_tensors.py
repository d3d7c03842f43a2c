"""Files of many arrays: ordinary safetensors, whatever their number, and what is none of them is refused."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import numpy as np
import pytest
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from swiftfl.errors import UserError
from swiftfl.files import write_atomically
from swiftfl.record.tensors import read_arrays, write_arrays, write_tensors


def some(count: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    return {str(k): random.normal(size=5).astype(np.float32) for k in range(count)}


def test_arrays_come_back_bit_for_bit_by_their_names(tmp_path: Path) -> None:
    arrays = {
        **some(50),
        "70": np.array([np.nan, np.inf, -0.0]),
        "71": np.empty(0, np.float32),
        "72": np.arange(3, dtype=np.int64),
        "73": np.array([True, False]),
        "of a codec": np.arange(6, dtype=np.float32).reshape(2, 3)[:, ::2],  # not in one piece
        "74": np.arange(10, dtype=np.float32)[::2],
    }
    write_arrays(tmp_path / "x", arrays)
    found = read_arrays(tmp_path / "x")
    assert found.keys() == arrays.keys()
    for name, x in arrays.items():
        assert found[name].dtype == x.dtype
        assert found[name].shape == x.shape
        assert found[name].tobytes() == x.tobytes()
        assert found[name].base is None or found[name].base.nbytes == x.nbytes, "no part of a large array"


def test_a_million_arrays_have_a_small_header(tmp_path: Path) -> None:
    """The format allows headers of 100 MB; an entry for each array made 100 bytes of every one."""
    x = np.ones(1, np.float32)
    write_arrays(tmp_path / "x", {str(k): x for k in range(1_500_000)})
    with (tmp_path / "x").open("rb") as file:
        assert struct.unpack("<Q", file.read(8))[0] < 1000
    assert load_file(tmp_path / "x")["rows 0"].shape == (1_500_000, 1)


def test_files_are_those_of_the_library(tmp_path: Path) -> None:
    rows = [np.arange(3, dtype=np.float32) + k for k in range(4)]
    mean = np.mean(rows, axis=0)
    write_tensors(tmp_path / "mine", {"consensus": mean, "models": rows, "count": np.array([4])})
    save_file({"consensus": mean, "models": np.stack(rows), "count": np.array([4])}, tmp_path / "theirs")
    mine, theirs = load_file(tmp_path / "mine"), load_file(tmp_path / "theirs")
    assert mine.keys() == theirs.keys()
    assert all(mine[name].dtype == x.dtype and (mine[name] == x).all() for name, x in theirs.items())


def test_rows_of_several_types_are_written_in_their_common_one(tmp_path: Path) -> None:
    """As `numpy.stack` would; a file whose header says something else than its bytes would be lost."""
    rows = [np.array([1.5, 2], np.float32), np.array([0.1, 3]), np.array([7, 8], np.int32)]
    write_tensors(tmp_path / "x", {"models": rows, "big": np.array([1, 2], ">f4")})
    found = load_file(tmp_path / "x")
    assert found["models"].dtype == np.float64
    assert (found["models"] == np.stack(rows)).all()
    assert found["big"].tolist() == [1, 2]


@pytest.mark.parametrize("x", [np.zeros(3, np.complex128), np.array(["a"]), np.zeros(2, "datetime64[s]")])
def test_what_the_format_does_not_know_is_an_error_of_one_line(tmp_path: Path, x: np.ndarray) -> None:
    with pytest.raises(UserError, match=f"arrays of {re.escape(x.dtype.name)} "):
        write_atomically(tmp_path / "x", lambda file: write_arrays(file, {"3": x}))
    with pytest.raises(SafetensorError, match="one shape"):
        write_tensors(tmp_path / "y", {"models": [np.zeros(3), np.zeros(4)]})


def test_a_file_with_an_entry_for_each_array_can_be_read(tmp_path: Path) -> None:
    """As checkpoints were written before."""
    save_file(some(7), tmp_path / "x")
    found = read_arrays(tmp_path / "x")
    assert {name: x.tobytes() for name, x in found.items()} == {n: x.tobytes() for n, x in some(7).items()}


@pytest.mark.parametrize("tensors", [
    {"numbers 0": np.arange(3), "rows 0": np.zeros((2, 5), np.float32)},
    {"numbers 0": np.arange(3.0), "rows 0": np.zeros((3, 5), np.float32)},
    {"numbers 0": np.zeros((2, 2), np.int64), "rows 0": np.zeros((2, 5), np.float32)},
    {"numbers 0": np.arange(3)},
    {"numbers 0": np.array([4, 5, 4]), "rows 0": np.zeros((3, 5), np.float32)},
])  # fmt: skip
def test_rows_that_do_not_fit_their_names_are_refused(tmp_path: Path, tensors: dict[str, np.ndarray]) -> None:
    save_file(tensors, tmp_path / "x")
    with pytest.raises((SafetensorError, ValueError), match=r"numbers|rows"):
        read_arrays(tmp_path / "x")
