"""Each live client's own checkpoint: its state at the start of a step, in one safetensors file.

A save is complete or not there, is on the disk when it has been written, and carries a checksum. The one
before it is kept too, because algorithms that meet in rounds can only go on from a round that every client
has saved. A disk that is full costs a warning, never the training.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from swiftfl.client import State
from swiftfl.engines.live.inbox import REASONS
from swiftfl.engines.live.status import Tally
from swiftfl.engines.traffic import Traffic
from swiftfl.errors import UserError
from swiftfl.files import sync_folder, write_atomically
from swiftfl.vector import Memory, Vector, finite

_log = logging.getLogger(__name__)

FORMAT = "swiftfl-client-4"
_MEMORY, _CODEC = "memory.", "codec."  # arrays of the update rule, and of the codec


@dataclass(frozen=True)
class ClientSave:
    """A client's state at the start of step `state.c` of an incarnation, and what it had counted by then."""

    state: State
    incarnation: int
    tally: Tally = field(default_factory=Tally)
    codec: Memory = field(default_factory=dict)
    """What the codec of the client's models remembered."""


def paths(folder: Path, client: int) -> tuple[Path, Path, Path]:
    """A save that has just been written, the newest one in its place, and the one before it."""
    name = f"client-{client:04d}"
    return tuple(folder / f"{name}{kind}.safetensors" for kind in (".next", "", ".before"))  # type: ignore[return-value]


def write(folder: Path, client: int, saved: ClientSave) -> None:
    """Add a save; the oldest goes when the new one is complete. A full disk is a UserError."""
    arrays = {**_arrays(saved.state), **_named(_CODEC, saved.codec)}
    about = {
        "format": FORMAT,
        "client": str(client),
        "c": str(saved.state.c),
        "incarnation": str(saved.incarnation),
        "tally": json.dumps({**asdict(saved.tally), "loss": None}),
    }
    about["sha256"] = _checksum(arrays, about)
    _move_up(folder, client)
    write_atomically(paths(folder, client)[0], lambda file: save_file(arrays, file, metadata=about))
    _move_up(folder, client)


def _arrays(state: State) -> dict[str, Vector]:
    return {"x": np.ascontiguousarray(state.x), **_named(_MEMORY, state.memory)}


def _named(kind: str, memory: Memory) -> dict[str, Vector]:
    return {f"{kind}{name}": np.ascontiguousarray(array) for name, array in memory.items()}


def _without(kind: str, arrays: Mapping[str, Vector]) -> dict[str, Vector]:
    """The arrays of one kind, under their own names."""
    return {name.removeprefix(kind): array for name, array in arrays.items() if name.startswith(kind)}


def _checksum(arrays: Mapping[str, Vector], about: Mapping[str, str]) -> str:
    digest = hashlib.sha256()
    for key in sorted(set(about) - {"sha256"}):
        digest.update(f"{key}={about[key]};".encode())
    for name in sorted(arrays):
        digest.update(f"{name}{arrays[name].dtype}{arrays[name].shape};".encode())
        digest.update(np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _move_up(folder: Path, client: int) -> None:
    """Put a new save into its place; after a crash in between all of them can be read."""
    written, newest, before = paths(folder, client)
    try:
        if written.exists():
            if newest.exists():
                newest.replace(before)
            written.replace(newest)
            sync_folder(folder)
    except OSError as error:
        raise UserError(f"cannot write {newest}: {error.strerror}") from None


def read(file: Path, client: int, like: State) -> ClientSave:
    """A save of this client whose arrays are like those of a state; anything else is refused by name."""
    try:
        with safe_open(file, framework="numpy") as content:
            about = content.metadata() or {}
            arrays = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118
        if about.get("format") != FORMAT or about.get("client") != str(client):
            raise UserError(f"{file} is not a save of client {client}")
        if about.get("sha256") != _checksum(arrays, about):
            raise UserError(f"{file} is damaged: its checksum does not match")
        c, incarnation, tally = int(about["c"]), int(about["incarnation"]), _tally(json.loads(about["tally"]))
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"cannot read {file}: {error}") from None
    codec = _without(_CODEC, arrays)
    expected = {name: (array.shape, array.dtype) for name, array in _arrays(like).items()}
    of_state = {name: array for name, array in arrays.items() if not name.startswith(_CODEC)}
    if {name: (array.shape, array.dtype) for name, array in of_state.items()} != expected:
        raise UserError(f"{file} does not hold a model of {like.x.size} numbers and the memory of this rule")
    if not all(finite(array.reshape(-1)) for array in arrays.values()):
        raise UserError(f"{file} holds numbers that are not finite")
    return ClientSave(State(arrays["x"], c, _without(_MEMORY, arrays)), incarnation, tally, codec)


def _tally(about: dict[str, Any]) -> Tally:
    """What was counted; losses of batches are counted anew in each session."""
    refused = {reason: int(about["refused"][reason]) for reason in REASONS}
    traffic = Traffic(**{name: int(counted) for name, counted in about["traffic"].items()})
    anew = {"loss_sum": 0.0, "loss_count": 0, "loss": math.nan}
    return Tally(**{**about, **anew, "traffic": traffic, "refused": refused})


def read_all(folder: Path, client: int, like: State) -> tuple[list[ClientSave], list[str]]:
    """The client's saves that can be used, newest first, and what is wrong with the others."""
    found, problems = [], []
    for file in paths(folder, client):
        if file.exists():
            try:
                found.append(read(file, client, like))
            except UserError as error:
                problems.append(str(error))
    return sorted(found, key=lambda one: (one.incarnation, one.state.c), reverse=True), problems


class Saver:
    """Saves one client every so many seconds or steps, or at a round that the engine names."""

    def __init__(
        self,
        folder: Path | None,
        client: int,
        incarnation: int,
        warn: Callable[[str], None],
        seconds: float | None = None,
        steps: int | None = None,
    ) -> None:
        self._folder, self._client, self._incarnation, self._warn = folder, client, incarnation, warn
        self._seconds, self._steps = seconds, steps
        self._saved_at: float | None = None
        self._last: State | None = None
        self.failed = 0

    def due(self, c: int, now: float) -> bool:
        """Whether it is time for a save before step c."""
        if self._saved_at is None:
            self._saved_at = now
        by_clock = self._seconds is not None and now - self._saved_at >= self._seconds
        return by_clock or (self._steps is not None and c % self._steps == 0)

    def save(self, state: State, tally: Tally, now: float, codec: Memory) -> bool:
        """Whether the state is on disk now."""
        self._saved_at = now
        if self._folder is None:
            return False
        if state is self._last:  # saved already: a second copy would push out the save before it
            return True
        try:
            write(self._folder, self._client, ClientSave(state, self._incarnation, tally, codec))
        except (OSError, UserError) as error:
            self.failed += 1
            if self.failed == 1:
                self._warn(f"client {self._client} cannot save its state: {error}; training goes on")
            return False
        self._last = state
        _log.debug("client %d saved its state before step %d", self._client, state.c)
        return True
