"""Fetch an archive of known content: checked while it comes, unpacked by name, put in place when complete."""

from __future__ import annotations

import contextlib
import logging
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from swiftfl.errors import UserError
from swiftfl.lock import locked

_log = logging.getLogger(__name__)

_PIECE = 1 << 20
_PATIENCE = 30.0  # seconds without a byte


@dataclass(frozen=True)
class Archive:
    """A compressed tar file: where it is, its checksum, a ceiling, and the files to take from it."""

    url: str
    md5: str
    most: int
    members: Mapping[str, int]


def fetch(name: str, archive: Archive, folder: Path) -> None:
    """Put the archive's members under `folder`, each by one rename when all are complete and checked."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder, patience=-1):  # one process downloads, the others wait and find the files
            if not _complete(archive, folder):
                _fetch(name, archive, folder)
    except (OSError, tarfile.TarError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"{name}: its files are not in {folder}, and {archive.url} could not be fetched ({reason})"
        ) from None
    finally:
        _remove_empty(missing)


def _fetch(name: str, archive: Archive, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as scratch:
        unpacked = Path(scratch, "unpacked")
        _unpack(name, archive, _download(name, archive, Path(scratch)), unpacked)
        for member in archive.members:
            (folder / member).parent.mkdir(parents=True, exist_ok=True)
            (unpacked / member).replace(folder / member)


def _complete(archive: Archive, folder: Path) -> bool:
    sizes = {folder / member: size for member, size in archive.members.items()}
    return bool(sizes) and all(path.is_file() and path.stat().st_size == size for path, size in sizes.items())


def _remove_empty(folders: list[Path]) -> None:
    """Take back the folders that were made for files that did not come."""
    for path in folders:
        with contextlib.suppress(OSError):
            path.rmdir()


def _download(name: str, archive: Archive, folder: Path) -> Path:
    """The archive, complete and with the right checksum, in `folder`."""
    import pooch  # takes a while to import, and few runs download

    _log.info("downloading %s", archive.url)
    pooch.get_logger().setLevel("WARNING")
    try:
        file = pooch.retrieve(
            archive.url,
            known_hash=f"md5:{archive.md5}",
            fname="archive",
            path=folder,
            downloader=pooch.HTTPDownloader(timeout=_PATIENCE, progressbar=_Ceiling(archive.most)),
        )
    except (ValueError, _TooLargeError):  # ValueError: a wrong checksum
        raise UserError(
            f"{name}: what {archive.url} sent is not the official file (checksum differs)"
        ) from None
    return Path(file)


class _TooLargeError(Exception):
    pass


class _Ceiling:
    """Stops a download that goes on and on; in place of a progress bar, which is called for every piece."""

    total = 0

    def __init__(self, most: int) -> None:
        self._most, self._received = most, 0

    def update(self, size: int) -> None:
        self._received += size
        if self._received > self._most:
            raise _TooLargeError

    def reset(self) -> None:
        self._received = 0

    def close(self) -> None:
        pass


def _unpack(name: str, archive: Archive, packed: Path, to: Path) -> None:
    """Take the expected regular files only, by name: nothing in the archive chooses a path."""
    with tarfile.open(packed, "r:*") as tar:
        for member, size in archive.members.items():
            info = tar.getmember(member) if member in tar.getnames() else None
            source = (
                tar.extractfile(info) if info is not None and info.isreg() and info.size == size else None
            )
            if source is None:
                raise UserError(f"{name}: the archive has no file {member} of {size} bytes")
            path = to / member
            path.parent.mkdir(parents=True, exist_ok=True)
            with source, path.open("wb") as target:
                while piece := source.read(_PIECE):
                    target.write(piece)
