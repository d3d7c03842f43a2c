"""Fetch an archive of known content: checked while it comes, unpacked by name, put in place when complete."""

from __future__ import annotations

import contextlib
import hashlib
import tarfile
import tempfile
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from swiftfl.errors import UserError

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
        with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as scratch:
            packed = Path(scratch, "archive")
            _download(name, archive, packed)
            unpacked = Path(scratch, "unpacked")
            _unpack(name, archive, packed, unpacked)
            for member in archive.members:
                (folder / member).parent.mkdir(parents=True, exist_ok=True)
                (unpacked / member).replace(folder / member)
    except (OSError, tarfile.TarError) as error:
        reason = getattr(error, "reason", None) or error
        _remove_empty(missing)
        raise UserError(
            f"{name}: its files are not in {folder}, and {archive.url} could not be fetched ({reason})"
        ) from None


def _remove_empty(folders: list[Path]) -> None:
    """Take back the folders that were made for files that did not come."""
    for path in folders:
        with contextlib.suppress(OSError):
            path.rmdir()


def _download(name: str, archive: Archive, to: Path) -> None:
    digest, received = hashlib.md5(usedforsecurity=False), 0
    with urllib.request.urlopen(archive.url, timeout=_PATIENCE) as source, to.open("wb") as target:
        while piece := source.read(_PIECE):
            received += len(piece)
            if received > archive.most:
                break
            digest.update(piece)
            target.write(piece)
    if digest.hexdigest() != archive.md5:
        raise UserError(f"{name}: what {archive.url} sent is not the official file (checksum differs)")


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
