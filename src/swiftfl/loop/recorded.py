"""The folder of a launch (`swiftfl launch --out`): what `swiftfl watch` and the dashboard show of it.

It has the files of a run folder that such a look needs: who takes part (`config.json`), facts, events, and
how it ended (`summary.json`). Models and measurements are the program's own affair: it cannot be resumed.
What the disk does not take is missing, the user is told once, and training goes on.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

from swiftfl.engines.live.facts import client_records
from swiftfl.engines.live.supervisor import Supervisor
from swiftfl.errors import UserError
from swiftfl.loop.federation import Federation
from swiftfl.loop.launched import facts_bytes
from swiftfl.record import RunFolder
from swiftfl.record.facts import FACTS, FactsWriter, Layout
from swiftfl.record.folder import versions

_EVERY = 0.5  # seconds between two writes
ENGINE = "launch"
"""What stands for the engine in config.json."""


class LaunchRecord:
    """Writes the folder of one launch while its supervisor goes on; clients write into `facts`."""

    def __init__(
        self,
        path: Path,
        together: Federation,
        command: Sequence[str],
        supervisor: Supervisor,
        neighbours: Sequence[tuple[int, ...]],
        say: Callable[[str], None],
    ) -> None:
        self._supervisor, self._near, self._say = supervisor, neighbours, say
        self._folder = RunFolder.create(path)
        self.facts = path.absolute() / FACTS
        self._open = contextlib.ExitStack()
        self._open.enter_context(self._folder.locked())
        self._writer: FactsWriter | None = None
        self._written = 0.0
        self._failed = False
        config = {
            "launch": {"command": list(command)},
            "engine": {"name": ENGINE},
            "topology": {"clients": together.n, "edges": [list(edge) for edge in together.edges]},
            "algorithm": {
                "name": together.algorithm,
                "weights": together.weights,
                "mixing": together.mixing,
                **together.options,
                **together.mixing_options,
            },
            "influence": "uniform",
        }
        self._folder.write_json("config.json", config)
        self._folder.write_json("versions.json", versions())

    def begin(self) -> None:
        """Everybody has the first model: the clock runs."""
        supervisor, near = self._supervisor, self._near
        layout = Layout(
            clients=supervisor.n,
            engine=ENGINE,
            clock="wall",
            began=time.time() - supervisor.now,
            total=0,  # only the program knows how many steps it will take
            indptr=(0, *accumulate(map(len, near))),
            indices=tuple(chain.from_iterable(near)),
        )

        def write() -> None:
            self._writer = FactsWriter(self._folder.path, layout, facts_bytes(1))

        self._attempt(write)
        supervisor.note("start")
        self.tick(at_once=True)

    def tick(self, at_once: bool = False) -> None:
        """Write how clients stand and what has happened, if it is time for that."""
        if at_once or time.monotonic() - self._written >= _EVERY:
            self._written = time.monotonic()
            self._attempt(self._write)

    def _write(self) -> None:
        supervisor = self._supervisor
        if self._writer is not None:
            returned = {i for i, count in enumerate(supervisor.restarts) if count}
            gone = {*supervisor.lost} - supervisor.joining
            self._writer.clients.write(
                client_records(supervisor.status, supervisor.now, gone, supervisor.absent, returned)
            )
        if events := supervisor.take_log():
            self._folder.append("events.jsonl", *events)

    def close(self, lost: Mapping[int, str]) -> None:
        """The last word, whatever has happened."""
        supervisor = self._supervisor
        supervisor.note("end")
        self.tick(at_once=True)
        summary: dict[str, Any] = {
            "clients": supervisor.n,
            "iterations": supervisor.iteration,
            "wall_seconds": supervisor.now,
            "lost": {str(i): reason for i, reason in sorted(lost.items())},
            "restarts": sum(supervisor.restarts),
        }
        self._attempt(lambda: self._folder.write_json("summary.json", summary))
        if self._writer is not None:
            self._attempt(self._writer.close)
        self._open.close()

    def _attempt(self, write: Callable[[], None]) -> None:
        try:
            write()
        except UserError as error:
            if not self._failed:
                self._say(f"swiftfl: {error}; training goes on, and something will be missing in the record")
            self._failed = True
