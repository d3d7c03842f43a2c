"""Each live client's own checkpoint: its state at the start of a step, in one safetensors file.

A save is written beside and renamed, so that it is whole or not there; the one before it is kept too,
because algorithms that meet in rounds can only go on from a round that every client has saved. A disk
that is full costs a warning, never the training.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from swiftfl.client import State
from swiftfl.errors import UserError
from swiftfl.vector import Vector

FORMAT = "swiftfl-client-2"
_MEMORY = "memory."  # arrays of the update rule


@dataclass(frozen=True)
class Saved:
    """A client's state at the start of step `state.c` of a life."""

    state: State
    life: int


def paths(folder: Path, client: int) -> tuple[Path, Path]:
    """The newest save of a client, and the one before it."""
    return folder / f"client-{client:04d}.safetensors", folder / f"client-{client:04d}.before.safetensors"


def write(folder: Path, client: int, saved: Saved) -> None:
    """Replace the client's save; raises OSError or SafetensorError where the disk does not take it."""
    newest, before = paths(folder, client)
    fresh = folder / f".client-{client:04d}.{os.getpid()}"
    arrays: dict[str, Vector] = {"x": np.ascontiguousarray(saved.state.x)}
    arrays.update({f"{_MEMORY}{k}": np.ascontiguousarray(a) for k, a in saved.state.memory.items()})
    about = {"format": FORMAT, "client": str(client), "c": str(saved.state.c), "life": str(saved.life)}
    try:
        save_file(arrays, fresh, metadata=about)
        if newest.exists():
            newest.replace(before)
        fresh.replace(newest)
    finally:
        fresh.unlink(missing_ok=True)


def read(file: Path, client: int, size: int) -> Saved:
    """A save of this client with vectors of this size; anything else is refused by name."""
    try:
        with safe_open(file, framework="numpy") as content:
            about = content.metadata() or {}
            arrays = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118
        if about.get("format") != FORMAT or about.get("client") != str(client):
            raise UserError(f"{file} is not a save of client {client}")
        c, life = int(about["c"]), int(about["life"])
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise UserError(f"cannot read {file}: {error}") from None
    if c < 1 or life < 0 or "x" not in arrays or any(a.shape != (size,) for a in arrays.values()):
        raise UserError(f"{file} does not hold a model of {size} numbers")
    memory = {k.removeprefix(_MEMORY): a for k, a in arrays.items() if k.startswith(_MEMORY)}
    return Saved(State(arrays["x"], c, memory), life)


def read_all(folder: Path, client: int, size: int) -> list[Saved]:
    """The client's saves, newest first; one that cannot be read does not count."""
    found = []
    for file in paths(folder, client):
        if file.is_file():
            try:
                found.append(read(file, client, size))
            except UserError:
                continue
    return found


def common(saves: list[list[Saved]], in_rounds: bool) -> list[Saved | None]:
    """From where each client goes on: its newest save, or, in rounds, the newest round that all have."""
    if not in_rounds:
        return [mine[0] if mine else None for mine in saves]
    rounds = [{saved.state.c: saved for saved in reversed(mine)} for mine in saves]
    shared = set.intersection(*(set(mine) for mine in rounds)) if rounds else set()
    best = max(shared, default=None)
    return [None if best is None else mine[best] for mine in rounds]


class Saver:
    """Saves one client every so many seconds or steps, or at a round that the engine names."""

    def __init__(
        self,
        folder: Path | None,
        client: int,
        life: int,
        warn: Callable[[str], None],
        seconds: float | None = None,
        steps: int | None = None,
    ) -> None:
        self._folder, self._client, self._life, self._warn = folder, client, life, warn
        self._seconds, self._steps = seconds, steps
        self._saved_at: float | None = None
        self.failed = 0

    def due(self, c: int, now: float) -> bool:
        """Whether it is time for a save before step c."""
        if self._saved_at is None:
            self._saved_at = now
        by_clock = self._seconds is not None and now - self._saved_at >= self._seconds
        return by_clock or (self._steps is not None and c % self._steps == 0)

    def save(self, state: State, now: float) -> bool:
        """Whether the state is on disk now."""
        self._saved_at = now
        if self._folder is None:
            return False
        try:
            write(self._folder, self._client, Saved(state, self._life))
        except (OSError, SafetensorError) as error:
            self.failed += 1
            if self.failed == 1:
                self._warn(f"client {self._client} cannot save its state in {self._folder}: {error}; "
                           "training goes on")  # fmt: skip
            return False
        return True
