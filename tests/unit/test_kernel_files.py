"""The compiled kernels' file: made once, never somebody else's, and done without where it cannot be made."""

from __future__ import annotations

import ctypes
import shutil
import sysconfig
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from swiftfl import compiling, kernels, small
from swiftfl.compiling import CSource

needs_compiler = pytest.mark.skipif(
    shutil.which("cc") is None, reason="there is no C compiler here: install gcc"
)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of its own, and nothing loaded yet."""
    for variable in ("CC", "SWIFTFL_KERNELS"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(compiling, "cache_folder", lambda name: tmp_path / "cache" / name)
    monkeypatch.setattr(kernels, "_library", lambda: kernels_library())
    return tmp_path / "cache" / "kernels"


def compiled_file() -> Path:
    return CSource("kernels.c").compiled()


kernels_library = kernels._library.__wrapped__
"""What would be loaded now, whatever was before."""


@needs_compiler
def test_many_that_make_it_at_once_make_one(cache: Path) -> None:
    begin, files = threading.Barrier(4), []

    def make() -> None:
        begin.wait(60)
        files.append(compiled_file())

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(files) == 4
    assert list(cache.iterdir()) == [files[0]] == list(set(files))
    assert cache.stat().st_mode & 0o777 == files[0].stat().st_mode & 0o777 == 0o700
    assert kernels_library() is not None


@needs_compiler
@pytest.mark.parametrize("what", ["folder", "file"])
def test_what_others_may_write_to_is_not_loaded(
    what: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = compiled_file()
    (cache if what == "folder" else file).chmod(0o777)
    monkeypatch.setattr(ctypes, "CDLL", lambda path: pytest.fail("loaded"))
    assert kernels_library() is None
    assert "others may write to" in kernels.why_not_compiled()


@needs_compiler
@pytest.mark.parametrize("content", [b"", b"no library", b"\x7fELF" + bytes(200)])
def test_half_a_file_is_made_anew(content: bytes, cache: Path) -> None:
    file = compiled_file()
    whole = file.read_bytes()
    file.unlink()
    file.write_bytes(content)
    file.chmod(0o700)
    assert kernels_library() is not None
    assert file.read_bytes() == whole
    assert kernels.why_not_compiled() == ""


@needs_compiler
def test_a_compiler_with_options_is_not_taken_for_a_missing_one(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "ccache gcc -march=native")
    assert kernels_library() is not None


@pytest.mark.parametrize("why", ["no compiler", "no folder", "a compiler that fails", "not wanted"])
def test_without_it_numpy_gives_the_same_bits(
    why: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why == "no compiler":
        monkeypatch.setenv("PATH", str(tmp_path))
    elif why == "no folder":
        (tmp_path / "cache").write_text("a file where a folder should be, as on a disk that is read only")
    elif why == "a compiler that fails":
        (tmp_path / "cc").write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / "cc").chmod(0o755)
        monkeypatch.setenv("CC", str(tmp_path / "cc"))
    else:
        monkeypatch.setenv("SWIFTFL_KERNELS", "numpy")
    assert kernels_library() is None
    assert kernels.why_not_compiled()
    x = np.linspace(-1, 1, 200_000, dtype=np.float32)
    out: Any = np.empty_like(x)
    assert kernels.combine(out, [(0.3, x), (0.7, x[::-1].copy())])
    assert bytes(out) == bytes(x * np.float32(0.3) + x[::-1] * np.float32(0.7))


@needs_compiler
@pytest.mark.skipif(
    not Path(sysconfig.get_path("include"), "Python.h").exists(),
    reason="Python's headers are not here: install python3-dev",
)
def test_half_a_file_of_small_vectors_is_made_anew(cache: Path) -> None:
    assert small._module(compile=False) is None
    assert small._module(compile=True) is not None
    (file,) = cache.iterdir()
    file.unlink()
    file.write_bytes(b"no library")
    file.chmod(0o700)
    assert small._module(compile=False) is not None
    file.chmod(0o777)
    with pytest.raises(OSError, match="others may write to"):
        small._module(compile=False)
