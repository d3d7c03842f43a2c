"""Where a simulated run goes on: the two newest checkpoints, each a folder of files with their checksums.

    checkpoint/          the newest one
      tree.json          plain values
      arrays.safetensors what they refer to
      config.json        the configuration of the run that was saved
      sha256.json        the checksums of these files
    checkpoint.old/      the one before it, in case the newest cannot be read

A new folder is complete, and on the disk, before it takes the place of the newest one.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from swiftfl.errors import UserError
from swiftfl.files import json_text, reported, sync_folder, write_atomically
from swiftfl.record.tensors import read_arrays, write_arrays
from swiftfl.vector import Vector

_FILES = ("tree.json", "arrays.safetensors", "config.json")
_SUMS = "sha256.json"
_FLOAT = "$float"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SavedCheckpoint:
    """What was saved, and why newer checkpoints were passed over."""

    tree: dict[str, Any]
    arrays: dict[str, Vector]
    config: dict[str, Any]
    passed_over: list[str] = field(default_factory=list)


class Checkpoints:
    """The checkpoints of one run folder."""

    def __init__(self, folder: Path) -> None:
        self.newest, self.before = folder / "checkpoint", folder / "checkpoint.old"
        self._fresh = folder / "checkpoint.new"

    def write(self, tree: object, arrays: Mapping[str, Vector], config: object) -> None:
        """Save; the newest checkpoint becomes the one before, which is kept until the next."""
        fresh = self._fresh
        with reported(self.newest):
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir()
            try:
                self._fill(fresh, tree, arrays, config)
            except BaseException:
                shutil.rmtree(fresh, ignore_errors=True)  # a full disk has other uses for the space
                raise
            if self.newest.exists():
                shutil.rmtree(self.before, ignore_errors=True)
                self.newest.rename(self.before)
            fresh.rename(self.newest)
        sync_folder(self.newest.parent)
        _log.debug("checkpoint written to %s", self.newest)

    def _fill(self, folder: Path, tree: object, arrays: Mapping[str, Vector], config: object) -> None:
        write_atomically(folder / "tree.json", _to_json(tree))
        write_atomically(folder / "arrays.safetensors", lambda temporary: write_arrays(temporary, arrays))
        write_atomically(folder / "config.json", json_text(config))
        sums = {name: _checksum(folder / name) for name in _FILES}
        write_atomically(folder / _SUMS, json_text(sums))

    def read(self) -> SavedCheckpoint | None:
        """The newest checkpoint that is as it was written; None if there is none at all.

        If there are some and none of them can be read, that is an error which names the newest.
        """
        problems: list[str] = []
        for folder in (self.newest, self.before):
            if folder.is_dir():
                try:
                    return _read(folder, problems)
                except UserError as error:
                    problems.append(str(error))
        if problems:
            alone = len(problems) == 1
            other = "there is no other checkpoint" if alone else "nor can the one before it be used"
            raise UserError(f"{problems[0]}; {other}: --from-start begins again")
        return None

    def remove(self) -> None:
        for folder in (self.newest, self.before, self._fresh):
            shutil.rmtree(folder, ignore_errors=True)


def _read(folder: Path, passed_over: list[str]) -> SavedCheckpoint:
    try:
        sums = json.loads((folder / _SUMS).read_text())
        for name in _FILES:
            if not isinstance(sums, dict) or name not in sums:
                raise UserError(f"{folder / _SUMS} is damaged: it has no checksum of {name}")
            if _checksum(folder / name) != sums[name]:
                raise UserError(f"{folder / name} is damaged: its checksum is not that in {_SUMS}")
        tree = _from_json((folder / "tree.json").read_text())
        config = json.loads((folder / "config.json").read_text())
        arrays = read_arrays(folder / "arrays.safetensors")
    except UserError:
        raise
    except OSError as error:
        raise UserError(f"cannot read {error.filename or folder}: {error.strerror or error}") from None
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f"cannot read the checkpoint {folder}: {type(error).__name__}: {error}") from None
    return SavedCheckpoint(tree, arrays, config, passed_over)


def _checksum(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


# A checkpoint holds times such as "never", which JSON has no number for.


def _to_json(tree: object) -> str:
    try:
        return json.dumps(tree, allow_nan=False)
    except ValueError:
        return json.dumps(_named(tree), allow_nan=False)


def _named(value: object) -> object:
    """The same tree, with numbers that are not finite by their names."""
    if isinstance(value, float) and not math.isfinite(value):
        return {_FLOAT: str(value)}
    if isinstance(value, Mapping):
        return {key: _named(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_named(item) for item in value]
    return value


def _from_json(text: str) -> dict[str, Any]:
    tree: dict[str, Any] = json.loads(text, object_hook=_number) if _FLOAT in text else json.loads(text)
    return tree


def _number(value: dict[str, Any]) -> object:
    return float(value[_FLOAT]) if value.keys() == {_FLOAT} else value
