"""What has changed, told to all who watch: files are looked at once, however many there are."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from swiftfl.views import Library, RunView

BETWEEN_LOOKS = 0.5
MOST_WATCHERS = 100
_KEEP_ALIVE = 15.0
_LATELY = 60.0  # seconds
_ENDED = ("finished", "diverged")
_LOOKS_AT_ENDED = 10  # only every so often at runs that have ended
_LOOKS_AT_STILL = 3  # and at those that have stopped, which may be resumed

Marks = dict[str, object]


class Changes:
    """Compares runs with what they were at the last look."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._marks: dict[str, Marks] = {}
        self._states: dict[str, str] = {}
        self._looks = 0

    def look(self) -> dict[str | None, set[str]]:
        """By run, the parts that have changed; under None, whether the list of runs has."""
        runs = {run.id: run for run in self._library.runs()}
        changed: dict[str | None, set[str]] = {}
        listed = set(runs) != set(self._marks) and self._looks > 0
        for gone in set(self._marks) - set(runs):
            del self._marks[gone], self._states[gone]
        for run in runs.values():
            if self._is_due(run):
                parts = self._compared(run)
                listed = listed or "state" in parts
                if parts - {"state"}:
                    changed[run.id] = parts - {"state"}
        if listed:
            changed[None] = {"runs"}
        self._looks += 1
        return changed

    def lately(self) -> dict[str | None, set[str]]:
        """For whoever begins to watch: all of the runs that go on, or have changed in the last minute.

        What changed after its page was read, and before the first look, would never be told otherwise.
        """
        since = time.time() - _LATELY
        recent = [
            run.id
            for run in self._library.runs()
            if self._states.get(run.id) == "running" or run.updated() > since
        ]
        return {None: {"runs"}, **{run_id: set(self._marks.get(run_id, ())) for run_id in recent}}

    def _is_due(self, run: RunView) -> bool:
        state = self._states.get(run.id)
        if state in _ENDED:
            return self._looks % _LOOKS_AT_ENDED == 0
        return state in (None, "running") or self._looks % _LOOKS_AT_STILL == 0

    def _compared(self, run: RunView) -> set[str]:
        marks, state = run.marks(), run.state()
        before = self._marks.get(run.id)
        was = self._states.get(run.id)
        self._marks[run.id], self._states[run.id] = marks, state
        if before is None:
            return set()
        found = {part for part, mark in marks.items() if before[part] != mark}
        return found | ({"state"} if was != state else set())


class Live:
    """Server-sent events for any number of watchers; nobody is looked at while nobody watches."""

    def __init__(self, library: Library, stopping: Callable[[], bool] = lambda: False) -> None:
        self._library, self._stopping = library, stopping
        self._watchers: set[_Watcher] = set()
        self._task: asyncio.Task[None] | None = None

    @property
    def full(self) -> bool:
        return len(self._watchers) >= MOST_WATCHERS

    async def events(self) -> AsyncIterator[bytes]:
        """What one watcher is sent, until it goes or the server ends."""
        watcher = _Watcher()
        self._watchers.add(watcher)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look())
        try:
            yield b"retry: 1000\n\n"
            told = time.monotonic()
            while not self._stopping():
                news = await watcher.take(BETWEEN_LOOKS)
                for run, parts in news.items():
                    yield _message({"run": run, "changed": sorted(parts)})
                if not news and time.monotonic() - told > _KEEP_ALIVE:
                    yield b": still here\n\n"  # so that a watcher who has gone is noticed
                if news or time.monotonic() - told > _KEEP_ALIVE:
                    told = time.monotonic()
        finally:
            self._watchers.discard(watcher)

    async def _look(self) -> None:
        changes = Changes(self._library)
        while self._watchers and not self._stopping():
            began = time.monotonic()
            news = await asyncio.to_thread(changes.look)
            for watcher in self._watchers:
                watcher.tell(news)
            fresh = [watcher for watcher in self._watchers if not watcher.greeted]
            if fresh:
                lately = await asyncio.to_thread(changes.lately)
                for watcher in fresh:
                    watcher.tell(lately)
                    watcher.greeted = True
            # A look at many runs takes a moment: at most a fifth of the time is spent on looking.
            took = time.monotonic() - began
            await asyncio.sleep(max(BETWEEN_LOOKS - took, 4 * took))


class _Watcher:
    """What one watcher has not been sent yet: at most one entry per run, however slow it reads."""

    def __init__(self) -> None:
        self.greeted = False
        self._news: dict[str | None, set[str]] = {}
        self._some = asyncio.Event()

    def tell(self, news: dict[str | None, set[str]]) -> None:
        for run, parts in news.items():
            self._news.setdefault(run, set()).update(parts)
        if self._news:
            self._some.set()

    async def take(self, patience: float) -> dict[str | None, set[str]]:
        """What is new, as soon as there is something; nothing after a while."""
        try:
            await asyncio.wait_for(self._some.wait(), patience)
        except (TimeoutError, asyncio.TimeoutError):
            return {}
        news, self._news = self._news, {}
        self._some.clear()
        return news


def _message(value: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(value)}\n\n".encode()
