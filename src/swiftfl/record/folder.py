"""One recorded run is one folder of plain files.

    config.json          the resolved configuration, with the seed
    versions.json        of swiftfl, Python and the libraries that compute
    partition.json       who holds how many samples, and of which labels
    model.json           which tensors a model's vector holds, and where
    metrics.jsonl        one object per evaluation
    metrics.csv          the same as a table
    events.jsonl         what happened: start, changes of the network, checkpoints, end
    summary.json         the numbers of the table
    models.safetensors   the final models, (clients, d), and their average
    checkpoint/          where a paused run goes on (record/checkpoints.py)
    .lock                while a process writes the folder (lock.py)

Nothing is pickled. Whole files appear at once (swiftfl/files.py). JSON is strict: a number that is not
finite is null.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import platform
import tempfile
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.numpy import load_file

from swiftfl._version import __version__
from swiftfl.errors import UserError
from swiftfl.files import json_text, read_text_file, remove_stale, reported, write_atomically, write_json
from swiftfl.lock import LOCK, locked
from swiftfl.record.checkpoints import Checkpoints
from swiftfl.record.tensors import write_tensors
from swiftfl.vector import Vector

CLIENTS = "clients"
"""The part of a run folder that belongs to the clients of a live run: their saves and what they saw."""
_LIBRARIES = ("torch", "numpy", "scipy", "networkx", "safetensors")
_log = logging.getLogger(__name__)


def versions() -> dict[str, str]:
    return {
        "swiftfl": __version__,
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in _LIBRARIES},
    }


class RunFolder:
    """The folder of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = Checkpoints(path)

    @classmethod
    def create(cls, path: Path) -> RunFolder:
        """A new, empty run folder; an existing one with anything in it is never touched."""
        try:
            if path.exists():
                if path.is_dir():
                    _remove_stale(path)
                if not path.is_dir() or any(entry.name != LOCK for entry in path.iterdir()):
                    raise UserError(f"{path} is not an empty folder: give another one (--out, out=)")
            path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=path):
                pass
        except OSError as error:
            raise UserError(f"cannot write to {path}: {error.strerror or error}") from None
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """An existing run folder; temporary files that killed processes left in it are removed."""
        if not (path / "config.json").is_file():
            raise UserError(f"{path} is not a run folder: it has no config.json")
        _remove_stale(path)
        return cls(path)

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Whoever writes holds the lock; a second process is refused."""
        return locked(self.path)

    def has_saves(self) -> bool:
        """Whether a run has saved something that it can go on from."""
        checkpoints = (self.checkpoints.newest, self.checkpoints.before)
        return any(map(Path.is_dir, checkpoints)) or any((self.path / CLIENTS).glob("*.safetensors"))

    def write_json(self, name: str, value: object) -> None:
        write_json(self.path / name, value)

    def read_json(self, name: str) -> Any:
        text = read_text_file(self.path / name)
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UserError(f"cannot read {self.path / name}: {error}") from None

    def read_object(self, name: str) -> dict[str, Any]:
        """A file that holds one JSON object, as a configuration does."""
        found = self.read_json(name)
        if not isinstance(found, dict):
            raise UserError(
                f"{self.path / name} must hold an object of settings, not a {type(found).__name__}"
            )
        return found

    def append(self, name: str, *rows: Mapping[str, object]) -> None:
        """Add rows at the end, at once; where the disk takes only a part of them, nothing of it stays."""
        self.append_text(name, "".join(json_text(row) + "\n" for row in rows))

    def append_text(self, name: str, text: str) -> None:
        """Add whole lines at the end, all of them or none."""
        lines = text.encode()
        with reported(self.path / name):
            handle = os.open(self.path / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            try:
                before = os.fstat(handle).st_size
                if os.write(handle, lines) < len(lines):
                    os.ftruncate(handle, before)
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            finally:
                os.close(handle)

    def read_rows(self, name: str) -> list[dict[str, Any]]:
        """The rows of a file that is appended to; a last line that was torn does not count."""
        file = self.path / name
        if not file.is_file():
            return []
        rows: list[dict[str, Any]] = []
        lines = file.read_text(errors="replace").splitlines()
        for number, line in enumerate(lines, start=1):
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                if number == len(lines):
                    break  # the last line was torn when the run died
                raise UserError(f"cannot read {file}, line {number}: {error}") from None
            if not isinstance(row, dict):
                raise UserError(f"cannot read {file}, line {number}: it is not an object")
            rows.append(row)
        return rows

    def rewrite_rows(self, name: str, rows: Sequence[Mapping[str, object]]) -> None:
        write_atomically(self.path / name, "".join(json_text(row) + "\n" for row in rows))

    def rewrite_text(self, name: str, text: str) -> None:
        write_atomically(self.path / name, text)

    def write_models(self, models: list[Vector], consensus: Vector) -> None:
        arrays: dict[str, Vector | list[Vector]] = {"models": models, "consensus": consensus}
        write_atomically(self.path / "models.safetensors", lambda file: write_tensors(file, arrays))

    def read_models(self) -> dict[str, Vector]:
        file = self.path / "models.safetensors"
        try:
            return dict(load_file(file))
        except (OSError, SafetensorError) as error:
            raise UserError(f"cannot read {file}: {error}") from None


def _remove_stale(path: Path) -> None:
    for folder in (path, path / CLIENTS):
        for file in remove_stale(folder):
            _log.info("removed %s, which a process that was killed left behind", file)
