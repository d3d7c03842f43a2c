"""The compiled kernels' file: made once, never somebody else's, and done without where it cannot be made."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import subprocess
import sys
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


DAMAGES = ("empty", "no library", "cut to 3000 bytes", "a byte is missing", "a byte is another")


def damaged(file: Path, damage: str) -> None:
    """Put something else into a library: as a new file, since this process may have loaded the old one."""
    whole = bytearray(file.read_bytes())
    other = whole.copy()
    other[len(whole) // 2] ^= 0xFF
    contents = (b"", b"no library", whole[:3000], whole[:-1], other)
    file.unlink()
    file.write_bytes(dict(zip(DAMAGES, contents, strict=True))[damage])
    file.chmod(0o700)


def run_apart(cache: Path, code: str) -> None:
    """Run Python in a process of its own that has this cache folder."""
    place = "from pathlib import Path; from swiftfl import compiling; "
    place += f"compiling.cache_folder = lambda name: Path({str(cache)!r}) / name; "
    done = subprocess.run([sys.executable, "-c", place + code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, (done.returncode, done.stderr)


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
@pytest.mark.parametrize("damage", DAMAGES)
def test_half_a_file_is_made_anew(damage: str, cache: Path) -> None:
    file = compiled_file()
    whole = file.read_bytes()
    damaged(file, damage)
    assert CSource("kernels.c").found() is None
    # In a process of its own: a library that is cut off ends it with a signal when it is loaded.
    run_apart(cache.parent, "from swiftfl import kernels; assert kernels.compiled()")
    assert file.read_bytes() == whole
    assert kernels.why_not_compiled() == ""


@needs_compiler
def test_a_damaged_file_of_another_compiler_does_not_stay(cache: Path) -> None:
    """The new one has another content, and so another name: it does not come in the old one's place."""
    file = compiled_file()
    old = file.with_name(f"{file.stem.rsplit('-')[0]}-{'0' * 16}.so")
    file.rename(old)
    assert CSource("kernels.c").found() is None
    assert old.exists()  # whoever only looks changes nothing
    assert compiled_file() == file
    assert list(cache.iterdir()) == [file]


@needs_compiler
def test_a_file_that_cannot_be_read_is_made_anew(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, read = compiled_file(), Path.read_bytes
    broken = file.stat().st_ino

    def fails(self: Path) -> bytes:
        if self.exists() and self.stat().st_ino == broken:
            raise OSError(errno.EIO, "Input/output error", str(self))
        return read(self)

    monkeypatch.setattr(Path, "read_bytes", fails)
    assert CSource("kernels.c").found() is None
    assert compiled_file() == file
    assert file.stat().st_ino != broken
    assert kernels_library() is not None


@needs_compiler
def test_a_whole_file_that_cannot_be_loaded_is_made_anew(cache: Path) -> None:
    """As one that was made where the C library is a newer one."""
    file, content = compiled_file(), b"no library"
    whole = file.read_bytes()
    file.unlink()
    start = file.stem.rsplit("-")[0]
    other = cache / f"{start}-{compiling._digest(content)}.so"
    other.write_bytes(content)
    other.chmod(0o700)
    assert CSource("kernels.c").found() == other
    assert kernels_library() is not None
    assert [each.read_bytes() for each in cache.iterdir()] == [whole]


@needs_compiler
def test_a_compiled_file_is_on_the_disk_before_it_has_its_name(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    sync, replace = os.fsync, Path.replace

    def noted_sync(handle: int) -> None:
        done.append("folder" if Path(f"/proc/self/fd/{handle}").resolve().is_dir() else "file")
        sync(handle)

    def noted_replace(self: Path, target: Path) -> Path:
        done.append("name")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(Path, "replace", noted_replace)
    compiled_file()
    assert done == ["file", "name", "folder"]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (
            "kernels.c:3:10: fatal error: nothing.h: No such file\ncompilation terminated.",
            "fatal error: nothing",
        ),
        ("a licence is needed\nand has expired\n\n", "and has expired"),
        ("", "it does not say why"),
    ],
)
def test_why_a_compiler_failed_is_told(
    said: str, why: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "said").write_text(said)
    (tmp_path / "cc").write_text(f"#!/bin/sh\ncat {tmp_path}/said >&2\nexit 3\n")
    (tmp_path / "cc").chmod(0o755)
    monkeypatch.setenv("CC", str(tmp_path / "cc"))
    told = kernels.why_not_compiled()
    assert told.startswith(f"{tmp_path}/cc ended with code 3: ")
    assert why in told
    assert "terminated" not in told
    assert "\n" not in told


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
    for damage in DAMAGES:
        damaged(file, damage)
        assert small._module(compile=False) is None  # as if it were not there
        run_apart(cache.parent, "from swiftfl import small; small.load(); assert not small.loaded()")
        run_apart(cache.parent, "from swiftfl import small; small.load(compile=True); assert small.loaded()")
    assert small._module(compile=False) is not None
    file.chmod(0o777)
    with pytest.raises(OSError, match="others may write to"):
        small._module(compile=False)
