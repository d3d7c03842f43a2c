"""Files that appear complete or not at all, and inputs that are refused before they can do harm.

Everything that swiftfl writes as a whole file goes through `write_atomically`: written under a hidden
name in the same folder, flushed to the disk, then renamed. Its permissions follow the umask.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import platform
import re
import secrets
import stat
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

from safetensors import SafetensorError

from swiftfl.errors import UserError

MOST_BYTES = 2**31
"""Larger input files are taken for a mistake."""
_PLAIN_NAME = re.compile(r"[^\W][\w.+=-]{0,199}")
_TEMPORARY = re.compile(r"\.swiftfl-(?P<place>[0-9a-f]{8})-(?P<pid>\d+)-[0-9a-f]{8}-")


def write_atomically(path: Path, data: str | bytes | Callable[[Path], None], private: bool = False) -> None:
    """Write text (UTF-8), bytes, or what `data(temporary_path)` writes; links are followed.

    A `private` file is from its first byte on for its owner's eyes only.

    The file is on the disk when this returns. A reader, and whoever comes after a crash, sees the old
    content or the new one, never a part of it. An error of the disk is a `UserError` of one line.
    """
    target = checked_target(path)
    temporary = target.with_name(_temporary_name(target.name))
    with reported(path):
        try:
            mode = _create(temporary, data, 0o600 if private else 0o666)
            temporary.chmod(mode)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
        sync_folder(target.parent)


def write_json(path: Path, value: object) -> None:
    """Write `value` as indented JSON; numbers that are not finite become null."""
    write_atomically(path, json_text(value, indent=2) + "\n")


def json_text(value: object, indent: int | None = None) -> str:
    """Strict JSON (RFC 8259), which knows no NaN and no infinity: these become null.

    >>> json_text({"loss": float("nan"), "step": 3})
    '{"loss": null, "step": 3}'
    """
    return json.dumps(finite(value), indent=indent, allow_nan=False)


def finite(value: object) -> object:
    """The same tree of dicts and lists, with None in place of every NaN and infinity."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def checked_target(path: Path) -> Path:
    """The real file that writing to `path` would make or replace, links followed.

    Refused: a folder that does not exist or cannot be written to, and a target that exists and is not
    a regular file (a device, a pipe), because renaming over it would destroy it.
    """
    with reported(path):
        target = Path(os.path.realpath(path))
        mode = target.stat().st_mode if os.path.lexists(target) else None
        folder = target.parent.stat().st_mode
    if mode is not None and not stat.S_ISREG(mode):
        raise UserError(f"cannot write {path}: {_irregular(mode)}")
    if not stat.S_ISDIR(folder):
        raise UserError(f"cannot write {path}: {target.parent} is not a folder")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise UserError(f"cannot write {path}: the folder {target.parent} cannot be written to")
    return target


@contextlib.contextmanager
def reported(path: Path, verb: str = "write") -> Iterator[None]:
    """An error of the disk becomes a `UserError`: "cannot write PATH: No space left on device"."""
    if "\0" in str(path):
        raise UserError(f"cannot {verb} {path}: a name cannot hold a null character")
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise UserError(f"cannot {verb} {path}: {_reason(error)}") from None


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable, where its file system can do that."""
    with contextlib.suppress(OSError):
        sync(folder)


def remove_stale(folder: Path) -> list[Path]:
    """Remove the temporary files that processes of this machine left when they were killed.

    Files of processes that live, and of other machines (a shared folder), are left alone.
    """
    removed = []
    with contextlib.suppress(OSError):
        for path in sorted(folder.iterdir()):
            found = _TEMPORARY.match(path.name)
            if found and found["place"] == _place() and not _alive(int(found["pid"])):
                with contextlib.suppress(OSError):
                    path.unlink()
                    removed.append(path)
    return removed


def plain_name(name: str, source: str = "") -> str:
    """The name itself, if it is safe as part of a file name; `source` is where it comes from.

    >>> plain_name("baseline-ring16")
    'baseline-ring16'
    """
    if not _PLAIN_NAME.fullmatch(name):
        where = f"{source}: " if source else ""
        raise UserError(f"{where}{name!r} is not a name: use letters, digits and the characters - _ . + =")
    return name


def read_text_file(path: Path, most_bytes: int = MOST_BYTES, follow_links: bool = True) -> str:
    """The text of a regular file of a sensible size; a pipe or device, which may never end, is not opened."""
    with reported(path, "read"):
        mode = path.stat(follow_symlinks=follow_links).st_mode
        if not stat.S_ISREG(mode):
            raise UserError(f"cannot read {path}: {_irregular(mode)}")
        with path.open("rb") if follow_links else os.fdopen(open_regular(path), "rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            data = b"" if size > most_bytes else stream.read(most_bytes + 1)
    size = max(size, len(data))
    if size > most_bytes:
        raise UserError(f"cannot read {path}: {size} bytes are more than the {most_bytes} that are allowed")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError(f"cannot read {path}: not a text file") from None


@contextlib.contextmanager
def not_too_deep(path: Path, kind: str) -> Iterator[None]:
    """Report a file of this kind (JSON, YAML) that is nested more deeply than Python can follow."""
    try:
        yield
    except RecursionError:
        raise UserError(f"{path}: not {kind} that can be read: it is nested too deeply") from None


def open_regular(path: Path) -> int:
    """A handle to read a regular file with, which never waits; an `OSError` for a link, a pipe, a folder."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a regular file")
    return handle


def _create(temporary: Path, data: str | bytes | Callable[[Path], None], allowed: int) -> int:
    """Make the file, on the disk; returns the permissions that the umask gives a new file."""
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, allowed)
    with os.fdopen(handle, "wb") as stream:
        mode = stat.S_IMODE(os.fstat(handle).st_mode)
        if isinstance(data, str | bytes):
            stream.write(data.encode() if isinstance(data, str) else data)
            stream.flush()
            os.fsync(handle)
            return mode
    data(temporary)  # may have put another file there, with permissions of its own
    sync(temporary)
    return mode


def sync(path: Path) -> None:
    """Have the content of a file on the disk, or the names in a folder."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _temporary_name(name: str) -> str:
    """Hidden, unique, says whose it is; ends like `name`, for writers that go by the suffix."""
    tail = os.fsdecode(os.fsencode(name)[-120:])
    return f".swiftfl-{_place()}-{os.getpid()}-{secrets.token_hex(4)}-{tail}"


@cache
def _place() -> str:
    """Where a process id has its meaning: this machine and, in a container, its own space of ids."""
    space = 0
    with contextlib.suppress(OSError):
        space = Path("/proc/self/ns/pid").stat().st_ino
    return f"{zlib.crc32(f'{platform.node()}/{space}'.encode()):08x}"


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def cache_folder(name: str) -> Path:
    """Where files live that can be made or downloaded again, ~/.cache/swiftfl/NAME on Linux."""
    import platformdirs

    return platformdirs.user_cache_path("swiftfl") / name


def _irregular(mode: int) -> str:
    return "Is a directory" if stat.S_ISDIR(mode) else "not a regular file"


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    text = (str(error).splitlines() or [type(error).__name__])[0]
    return re.sub(r"^.*I/O error: | \(os error \d+\)$", "", text)  # as the library for safetensors words it
