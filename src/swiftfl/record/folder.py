"""One recorded run is one folder of plain files.

    config.json          the resolved configuration, with the seed
    versions.json        of swiftfl, Python and the libraries that compute
    partition.json       who holds how many samples, and of which labels
    metrics.jsonl        one object per evaluation
    events.jsonl         what happened: start, changes of the network, checkpoints, end
    summary.json         the numbers of the table
    models.safetensors   the final models, (clients, d), and their average
    checkpoint/          where a paused run goes on

Nothing is pickled. Whole files appear at once (written beside, then renamed).
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from swiftfl._version import __version__
from swiftfl.errors import UserError
from swiftfl.vector import Vector

_LIBRARIES = ("torch", "numpy", "scipy", "networkx", "safetensors")


def versions() -> dict[str, str]:
    return {
        "swiftfl": __version__,
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in _LIBRARIES},
    }


class RunFolder:
    """The folder of one run, open for writing."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path) -> RunFolder:
        """A new, empty run folder; an existing one with anything in it is never touched."""
        try:
            if path.exists() and (not path.is_dir() or any(path.iterdir())):
                raise UserError(f"{path} is not an empty folder: give another --out")
            path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=path):
                pass
        except OSError as error:
            raise UserError(f"cannot write to {path}: {error.strerror or error}") from None
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        if not (path / "config.json").is_file():
            raise UserError(f"{path} is not a run folder: it has no config.json")
        return cls(path)

    def write_json(self, name: str, value: object) -> None:
        text = json.dumps(value, indent=2, allow_nan=True) + "\n"
        self._atomically(name, lambda temporary: temporary.write_text(text))

    def read_json(self, name: str) -> Any:
        try:
            return json.loads((self.path / name).read_text())
        except (OSError, ValueError) as error:
            raise UserError(f"cannot read {self.path / name}: {error}") from None

    def append(self, name: str, row: Mapping[str, object]) -> None:
        with self._reported(name), (self.path / name).open("a") as file:
            file.write(json.dumps(row) + "\n")

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

    def rewrite_rows(self, name: str, rows: list[dict[str, Any]]) -> None:
        text = "".join(json.dumps(row) + "\n" for row in rows)
        self._atomically(name, lambda temporary: temporary.write_text(text))

    def write_models(self, models: list[Vector], consensus: Vector) -> None:
        arrays = {"models": np.stack(models), "consensus": consensus}
        self._atomically("models.safetensors", lambda temporary: _save_readable(arrays, temporary))

    def read_models(self) -> dict[str, Vector]:
        return _load(self.path / "models.safetensors")

    # A checkpoint is two files in one folder. The new folder is complete before it takes the place
    # of the old one, and an old one that was moved aside is still found if we die in between.

    def write_checkpoint(self, tree: object, arrays: Mapping[str, Vector]) -> None:
        final, fresh, old = (self.path / name for name in ("checkpoint", "checkpoint.new", "checkpoint.old"))
        with self._reported("checkpoint"):
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir()
            (fresh / "tree.json").write_text(json.dumps(tree))
            save_file(
                {name: np.ascontiguousarray(x) for name, x in arrays.items()}, fresh / "arrays.safetensors"
            )
            shutil.rmtree(old, ignore_errors=True)
            if final.exists():
                final.rename(old)
            fresh.rename(final)
            shutil.rmtree(old, ignore_errors=True)

    def read_checkpoint(self) -> tuple[dict[str, Any], dict[str, Vector]] | None:
        for name in ("checkpoint", "checkpoint.old"):
            folder = self.path / name
            if folder.is_dir():
                return self.read_json(f"{name}/tree.json"), _load(folder / "arrays.safetensors")
        return None

    def remove_checkpoint(self) -> None:
        for name in ("checkpoint", "checkpoint.new", "checkpoint.old"):
            shutil.rmtree(self.path / name, ignore_errors=True)

    def _atomically(self, name: str, write: Any) -> None:
        final = self.path / name
        temporary = final.with_name(f".{name}.{os.getpid()}")
        with self._reported(name):
            try:
                write(temporary)
                temporary.replace(final)
            finally:
                temporary.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _reported(self, name: str) -> Any:
        """An error of the disk (full, gone, read-only) is one line that names the file."""
        try:
            yield
        except (OSError, SafetensorError) as error:
            raise UserError(f"cannot write {self.path / name}: {error}") from None


def _load(file: Path) -> dict[str, Vector]:
    try:
        return dict(load_file(file))
    except (OSError, SafetensorError) as error:
        raise UserError(f"cannot read {file}: {error}") from None


def _save_readable(arrays: dict[str, Vector], file: Path) -> None:
    """The library makes files that only their owner may read; the other files of a run are not so."""
    save_file(arrays, file)
    file.chmod(0o644)
