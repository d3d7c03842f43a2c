"""A rank of an MPI job as an `Engine`."""

from __future__ import annotations

import threading
from typing import Any

from swiftfl.engines.live.mpi.engine import Mpi
from swiftfl.engines.setup import Setup
from swiftfl.engines.threads import one_thread
from swiftfl.vector import Vector


class MpiView:
    """One rank's part in a job; its client runs in a thread."""

    def __init__(self, engine: Mpi) -> None:
        self.inner = engine
        self._thread = threading.Thread(target=self._live, name="swiftfl-client", daemon=True)
        self._ended = threading.Event()
        self._error: BaseException | None = None

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
        return self.inner.now

    def members(self) -> list[int]:
        return self.inner.members()

    @property
    def models(self) -> list[Vector]:
        return self.inner.models

    def take_train_loss(self) -> float | None:
        return self.inner.take_train_loss()

    def epochs(self) -> list[float]:
        return self.inner.epochs()

    def seconds(self) -> dict[str, list[float]]:
        return self.inner.seconds()

    @property
    def models_in_memory(self) -> int:
        return self.inner.models_in_memory

    def take_log(self) -> list[dict[str, Any]]:
        return self.inner.take_log()

    def discarding(self) -> list[int]:
        return self.inner.discarding()

    def figures(self) -> dict[str, Any]:
        return self.inner.figures()

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
