"""What every engine reports of its run, so that one loop can run, measure and record them all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from swiftfl.engines.setup import Setup
from swiftfl.record.facts import Table
from swiftfl.vector import Vector

WARNING = "warning"
"""The event, in every engine's log, that a user should see; it has a `text`."""


class Engine(Protocol):
    """A run that can be started, looked at and closed."""

    @property
    def name(self) -> str: ...

    @property
    def setup(self) -> Setup: ...

    @property
    def n(self) -> int: ...

    @property
    def iteration(self) -> int:
        """Client steps so far, of all clients together."""

    @property
    def now(self) -> float:
        """Seconds of this run so far, virtual or real; a resumed run goes on where it was stopped."""

    @property
    def over(self) -> bool: ...

    def start(self) -> None:
        """Begin; once."""

    def close(self) -> None:
        """Give everything back, whatever happened; may be called again."""

    def members(self) -> list[int]:
        """The clients whose models count."""

    @property
    def models(self) -> list[Vector]:
        """The newest model of each client, x0 of one that has none; live engines give copies."""

    def take_train_loss(self) -> float | None:
        """The mean loss of the batches since the last call; None if there were none."""

    def epochs(self) -> list[float]:
        """Per client: its steps over its steps per epoch."""

    def seconds(self) -> dict[str, list[float]]:
        """Per client, its time: "compute", "communication", "waiting"; live ones also "cpu"."""

    @property
    def models_in_memory(self) -> int:
        """Distinct models that are held."""

    def take_log(self) -> list[dict[str, Any]]:
        """What happened since the last call: rows of events.jsonl (losses, returns, renewals, warnings)."""

    def discarding(self) -> list[int]:
        """The members whose last step gave numbers that are not finite, and was left out."""

    def figures(self) -> dict[str, Any]:
        """The numbers of the summary that only this engine has."""

    def neighbourhoods(self) -> list[tuple[int, ...]]:
        """Whom each client may ever have as a neighbour."""

    def client_records(self) -> Table:
        """How each client stands (`record.facts.CLIENT`, without rates)."""


class SimulatedEngine(Engine, Protocol):
    """An engine that moves only when it is told to."""

    def advance(self, iterations: int, seconds: float = math.inf) -> None:
        """Go on by so many client steps, or until the run is over; an error before `start`.

        It returns earlier after so many seconds of the wall clock, or where the network changes so often
        that hardly a step is finished.
        """

    def record_steps(self, taken: NDArray[np.float64] | None = None) -> None:
        """Keep every step from here on, for `take_steps`.

        Of steps before a resume, `taken` is how much compute, waiting and communication rows hold of each
        client, (clients, 3); without it they count as recorded.
        """

    def take_steps(self) -> Table:
        """The steps that have ended since the last call (`record.facts.ROW`)."""

    def forget_steps(self) -> None:
        """Keep no more steps."""

    def edge_records(self, indptr: Sequence[int], indices: Sequence[int]) -> Table:
        """The newest models that clients have of their neighbours (`record.facts.EDGE`)."""


class LiveEngine(Engine, Protocol):
    """An engine whose clients run by themselves.

    It is made with the seconds that the run took before it was resumed, and `now` begins there.
    """

    def wait(self, seconds: float) -> bool:
        """Wait some time; whether the run is over."""

    def stop(self) -> None:
        """Ask every client to stop where the run can go on later; may be called in a signal handler."""

    @property
    def stopped(self) -> bool:
        """Whether it ended because it was asked to, before its end."""
