"""The runs that are shown: those of folders that were named, and no others."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from swiftfl.errors import UserError
from swiftfl.views.run import MissingError, RunView
from swiftfl.views.tables import Reply

MOST_RUNS = 2000
_DEEPEST = 4
_LOOK_AGAIN = 2.0  # seconds between two looks for new runs
_MOST_LOADED = 6  # runs whose steps are kept in memory


class Library:
    """Run folders, and folders of runs, that were named when it was made.

    Whoever asks gives the id of a run; ids are looked up, never made into paths. Links within a folder are
    not followed.

    Args:
        roots: the folders.
        later: whether one that is not there yet may appear later.
    """

    def __init__(self, roots: Sequence[Path], later: bool = False) -> None:
        for root in roots:
            if not later and not root.is_dir():
                raise UserError(f"{root} is not a folder: name a run folder, or one with runs in it")
        self.roots = list(roots)
        self._runs: dict[str, RunView] = {}
        self._used: dict[str, float] = {}
        self._looked = -_LOOK_AGAIN
        self._lock = threading.Lock()

    def runs(self) -> list[RunView]:
        """All runs that are there now."""
        with self._lock:
            if time.monotonic() - self._looked >= _LOOK_AGAIN:
                self._look()
                self._looked = time.monotonic()
            return list(self._runs.values())

    def run(self, run_id: str) -> RunView:
        """The run of an id; `MissingError` where there is none."""
        with self._lock:
            found = self._runs.get(run_id)
        if found is None:
            found = next((run for run in self.runs() if run.id == run_id), None)
        if found is None:
            raise MissingError("there is no such run")
        self._note_use(found)
        return found

    def cards(self) -> list[Reply]:
        """One entry per run, the newest first."""
        return sorted((run.card() for run in self.runs()), key=lambda card: -float(card["updated"]))

    def _look(self) -> None:
        before = {run.path: run for run in self._runs.values()}
        found: dict[str, RunView] = {}
        for root in self.roots:
            for folder, name in _runs_below(root):
                run = before.get(folder) or RunView(folder, name)
                found.setdefault(run.id, run)
                if len(found) >= MOST_RUNS:
                    break
        names = Counter(run.name for run in found.values())
        for run in found.values():
            if names[run.name] > 1:  # runs of the same name in different folders
                run.name = str(run.path)
        self._runs = found

    def _note_use(self, run: RunView) -> None:
        """Of many runs only those that were asked for last keep their steps in memory."""
        with self._lock:
            self._used[run.id] = time.monotonic()
            loaded = [known for known in self._runs.values() if known.loaded and known is not run]
        loaded.sort(key=lambda known: self._used.get(known.id, 0.0))
        for known in loaded[: max(len(loaded) + 1 - _MOST_LOADED, 0)]:
            known.forget()


def _runs_below(root: Path) -> Iterator[tuple[Path, str]]:
    """Run folders, each with the name that it is shown by: its path within the root."""
    if is_run(root):
        yield root, root.resolve().name
        return
    stack = [(root, "", 0)]
    while stack:
        folder, name, depth = stack.pop()
        try:
            with os.scandir(folder) as entries:
                inner = sorted(
                    (entry.name for entry in entries if entry.is_dir(follow_symlinks=False)), reverse=True
                )
        except OSError:
            continue
        for child in inner:
            if child.startswith("."):
                continue
            path, called = folder / child, f"{name}{child}"
            if is_run(path):
                yield path, called
            elif depth + 1 < _DEEPEST:
                stack.append((path, f"{called}/", depth + 1))


def is_run(folder: Path) -> bool:
    """Whether a folder looks like that of a run."""
    return (folder / "config.json").is_file() and (
        (folder / "events.jsonl").is_file() or (folder / "metrics.jsonl").is_file()
    )
