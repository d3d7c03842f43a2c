"""The live engines as `Engine`s."""

from __future__ import annotations

import threading
from typing import Any

from swiftfl.engines.influence import rate_report
from swiftfl.engines.live.inbox import REASONS
from swiftfl.engines.live.local.engine import Local
from swiftfl.engines.live.mpi.engine import Mpi
from swiftfl.engines.setup import Setup
from swiftfl.engines.threads import one_thread
from swiftfl.vector import Vector


class _View:
    def __init__(self, engine: Local | Mpi, elapsed: float) -> None:
        self.inner, self._elapsed = engine, elapsed
        self._logged = 0

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def setup(self) -> Setup:
        return self.inner.setup

    @property
    def n(self) -> int:
        return self.inner.n

    @property
    def iteration(self) -> int:
        return self.inner.iteration

    @property
    def now(self) -> float:
        return self._elapsed + (self.inner.now if self.inner.board.started else 0.0)

    def members(self) -> list[int]:
        return self.inner.members()

    @property
    def models(self) -> list[Vector]:
        return self.inner.models()

    def take_train_loss(self) -> float | None:
        return self.inner.train_loss()

    def epochs(self) -> list[float]:
        counters = self.inner.board.column("c")
        batches = self.inner.setup.batches
        return [max(0.0, c - 1) / b.steps_per_epoch for c, b in zip(counters, batches, strict=True)]

    def seconds(self) -> dict[str, list[float]]:
        return {
            name: self.inner.board.column(name) for name in ("compute", "communication", "waiting", "cpu")
        }

    @property
    def models_in_memory(self) -> int:
        return self.inner.models_in_memory

    def take_log(self) -> list[dict[str, Any]]:
        new = self.inner.log[self._logged :]
        self._logged += len(new)
        return [{**row, "time": row["time"] + self._elapsed} for row in new]

    def discarding(self) -> list[int]:
        return []

    def figures(self) -> dict[str, Any]:
        engine, board = self.inner, self.inner.board
        refused = {reason: int(sum(board.column(reason))) for reason in REASONS}
        steps = board.column("steps")
        parts = ("compute", "communication", "waiting")
        seconds = board.rows[:, [*map(board.at, parts)]].sum(axis=1).tolist()
        weights = [terms.w for terms in engine.terms]
        rates = rate_report(engine.members(), engine.given_influence(), weights, steps, seconds)
        return {
            "wall_seconds": self.now,
            "start_seconds": engine.start_seconds,
            "lost": sorted(engine.lost),
            "restarts": {str(i): count for i, count in enumerate(engine.restarts) if count},
            "renewals": 0 if engine.network is None else engine.network.renewals,
            "refused": sum(refused.values()),
            "refused_because": refused,
            "saves_failed": int(sum(board.column("saves_failed"))),
            "cpu_milliseconds_per_step": 1e3 * sum(board.column("cpu")) / sum(steps) if sum(steps) else 0.0,
            **rates.row(),
            "warnings": engine.warnings[:20],
        }


class LocalView(_View):
    """Processes of this machine."""

    inner: Local

    def __init__(self, engine: Local, elapsed: float = 0.0) -> None:
        super().__init__(engine, elapsed)

    @property
    def over(self) -> bool:
        return self.inner.over

    def start(self) -> None:
        self.inner.start()

    def close(self) -> None:
        self.inner.close()

    def wait(self, seconds: float) -> bool:
        return self.inner.wait(seconds)

    def stop(self) -> None:
        self.inner.stop()

    @property
    def stopped(self) -> bool:
        return self.inner.stopped


class MpiView(_View):
    """One rank's part in a job; its client runs in a thread."""

    inner: Mpi

    def __init__(self, engine: Mpi, elapsed: float = 0.0) -> None:
        super().__init__(engine, elapsed)
        self._thread = threading.Thread(target=self._live, name="swiftfl-client", daemon=True)
        self._ended = threading.Event()
        self._error: BaseException | None = None

    def _live(self) -> None:
        try:
            one_thread()
            self.inner.live()
        except BaseException as error:
            self._error = error
        finally:
            self._ended.set()

    @property
    def over(self) -> bool:
        return self._ended.is_set()

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """A rank's thread ends with its client."""

    def wait(self, seconds: float) -> bool:
        ended = self._ended.wait(seconds)
        if self._error is not None:
            raise self._error
        return ended

    def stop(self) -> None:
        self.inner.stop()

    @property
    def stopped(self) -> bool:
        return self.inner.stopped

    @property
    def has_result(self) -> bool:
        """Whether everybody's last model has come to this rank."""
        return self.inner.over

    def figures(self) -> dict[str, Any]:
        return {**super().figures(), "mpi": self.inner.world.library}
