"""Ranks of engine mpi as threads of one process: its logic without a launcher, in a second."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from in_process_wire import Hub
from live_worlds import until

from swiftfl.engines import Setup
from swiftfl.engines.live.mpi.engine import MpiEngine
from swiftfl.engines.live.options import LiveOptions
from swiftfl.engines.live.resume import ResumePoint
from swiftfl.transports.codec import Identity, MakeCodec
from swiftfl.transports.messages.transport import MessageTransport
from swiftfl.vector import Vector


class InProcessJob:
    """One rank's view (`swiftfl.transports.mpi.MpiJob`, as far as the engine uses it)."""

    library = "threads"

    def __init__(self, hub: Hub, rank: int) -> None:
        self.hub, self.rank, self.size = hub, rank, len(hub.wires)

    def connect(
        self,
        neighbours: Sequence[Sequence[int]],
        x0: Vector,
        codec: MakeCodec = Identity,
        shown: Vector | None = None,
    ) -> MessageTransport:
        return MessageTransport(self.hub.wires[self.rank], neighbours, x0, codec, shown=shown)

    def failed(self) -> set[int]:
        return set()


class Ranks:
    """All ranks of a run."""

    def __init__(
        self, setup: Setup, folder: Path | None = None, resume: ResumePoint | None = None, **options: Any
    ) -> None:
        hub, given = Hub(setup.n), LiveOptions(**options)
        jobs: list[Any] = [InProcessJob(hub, rank) for rank in range(setup.n)]
        self.engines = [MpiEngine(setup, job, folder, given, resume) for job in jobs]
        for engine in self.engines:
            engine.start()

    @property
    def first(self) -> MpiEngine:
        return self.engines[0]

    def to_the_end(self) -> None:
        until(lambda: all(engine.wait(0.01) for engine in self.engines), "the end of every rank")

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [row for row in self.first.supervisor._log if row["event"] == kind]
