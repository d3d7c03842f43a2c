"""What both simulated engines are: a world, who runs its clients' steps, and the order in which they go on.

`Simulation` tells everything that the loop around an engine asks (`swiftfl.engines.engine`);
`VirtualEngine` and `SampledEngine` say who goes on next.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from swiftfl import recycled, small
from swiftfl.costs import Costs
from swiftfl.engines.engine import WARNING
from swiftfl.engines.membership import possible_neighbours
from swiftfl.engines.saved import Pool, Saved, Tree
from swiftfl.engines.setup import Setup
from swiftfl.engines.simulation.churn import Churn
from swiftfl.engines.simulation.clocks import Timeline, WatchedClock
from swiftfl.engines.simulation.facts import StepBuffer, client_records, edge_records
from swiftfl.engines.simulation.parked import check_parked
from swiftfl.engines.simulation.running import StepRunner
from swiftfl.engines.simulation.world import World
from swiftfl.engines.threads import one_thread
from swiftfl.engines.traffic import communication
from swiftfl.errors import UserError
from swiftfl.memory import collecting_seldom
from swiftfl.record.facts import Table
from swiftfl.vector import Vector
from swiftfl.workload.base import Evaluation

_EVENTS_PER_STEP = 64  # a client step takes two or three, unless the network changes all the time
_EVENTS_AT_LEAST = 1024
_EVENTS_BETWEEN_LOOKS = 64


class Simulation(ABC):
    """An engine in one process that moves only when it is told to."""

    name: ClassVar[str]

    def __init__(self, setup: Setup, costs: Costs, timed: bool) -> None:
        if setup.ccs == "distributed" and setup.network is None:
            raise UserError("clients that select their weights themselves need a network in their setup")
        membership = None if setup.network is None else setup.network()
        self.setup = setup
        self.n = setup.n
        with collecting_seldom(self.n):
            self.world = World(setup, costs, timed_gradients=timed, changing=membership is not None)
        self.runner = StepRunner(self.world)
        self.churn = None if membership is None else Churn(self.world, self.runner, membership)
        self._started = False
        self._steps: StepBuffer | None = None

    # --- running -------------------------------------------------------------------------------

    def start(self) -> None:
        """Let every client that is there run to its first gradient."""
        self._begin()
        with np.errstate(all="ignore"), collecting_seldom(self.n):
            if self.churn is not None:
                self.churn.start()
            self.runner.start()

    def _begin(self) -> None:
        if self._started:
            raise UserError(f"the {self.name} engine has been started already; make a new one")
        one_thread()
        small.load()
        self._started = True

    def advance(self, iterations: int, seconds: float = math.inf) -> None:
        """Go on by so many client steps, or until the run is over.

        It returns earlier after so many seconds, and where clients crash and return so often that hardly
        any finishes a step: the caller asks `over`, looks at its signals and calls again.
        """
        if not self._started:
            raise UserError(f"the {self.name} engine has not been started: call start() before advance()")
        world, deadline = self.world, time.monotonic() + seconds
        if world.iteration >= small.SMALL_STEPS:
            small.load(compile=True)
        world.events.use_compiled()
        target = world.iteration + iterations
        if self.setup.iterations is not None:
            target = min(target, self.setup.iterations)
        events = _EVENTS_AT_LEAST + _EVENTS_PER_STEP * iterations
        # Numbers that are not finite are discarded, counted and reported.
        with np.errstate(all="ignore"), collecting_seldom(self.n):
            while world.iteration < target and events > 0 and not self.over:
                self._advance(target, min(events, _EVENTS_BETWEEN_LOOKS))
                events -= _EVENTS_BETWEEN_LOOKS
                if time.monotonic() >= deadline:
                    return

    @abstractmethod
    def _advance(self, target: int, events: int) -> None:
        """Go on to `target` client steps or the end of the run, by at most so many events."""

    @property
    def over(self) -> bool:
        limit = self.setup.iterations
        return (limit is not None and self.world.iteration >= limit) or self.world.active == 0

    def close(self) -> None:
        """Let go of the processes that helped, and of the memory that waits for further steps."""
        self.world.helpers.close()
        recycled.let_go()

    # --- reading -------------------------------------------------------------------------------

    @property
    def iteration(self) -> int:
        return self.world.iteration

    @property
    def now(self) -> float:
        return self.world.now

    @property
    def models(self) -> list[Vector]:
        return [record.model for record in self.world.records]

    def members(self) -> list[int]:
        """The clients whose models count: those who are there, and those who have finished."""
        return [record.index for record in self.world.records if record.present]

    def discarding(self) -> list[int]:
        return [r.index for r in self.world.records if r.present and r.discarding]

    def evaluate(self, xs: Sequence[Vector]) -> list[Evaluation]:
        """How good each of these models is, by all processes of the run."""
        return self.world.helpers.evaluate(xs)

    def take_train_loss(self) -> float | None:
        return self.world.gradients.take_loss()

    def epochs(self) -> list[float]:
        batches = self.setup.batches
        return [r.steps / b.steps_per_epoch for r, b in zip(self.world.records, batches, strict=True)]

    def seconds(self) -> dict[str, list[float]]:
        clocks = [record.clock for record in self.world.records]
        return {
            "compute": [clock.compute for clock in clocks],
            "communication": [clock.communication for clock in clocks],
            "waiting": [clock.waiting for clock in clocks],
        }

    @property
    def models_in_memory(self) -> int:
        """Distinct models held: one per client, and older versions that a mailbox may still need."""
        held = {id(x) for x in self.models}
        return len(held.union(map(id, self.world.mailboxes.models())))

    def take_log(self) -> list[dict[str, Any]]:
        for text in self.world.helpers.take_warnings():
            self.world.note(WARNING, text=text)
        return self.world.log.take()

    @property
    def logged(self) -> int:
        """How many rows of the log were taken, also before a resume."""
        return self.world.log.taken

    def figures(self) -> dict[str, Any]:
        """Of a network that changes also who is not there, and how often weights were renewed."""
        records, churn = self.world.records, self.churn
        changed: dict[str, Any] = {}
        if churn is not None:
            changed["lost"] = [record.index for record in records if not record.present]
            changed["renewals"] = churn.membership.renewals
            if churn.renewals.selections is not None:
                changed["ccs"] = churn.renewals.selections.figures()
        return {
            "virtual_seconds": max(record.clock.now for record in records),
            "largest_delay": self.world.cells.largest_delay,
            "discarded": sum(record.discarded for record in records),
            "communication": communication(record.traffic for record in records),
            **changed,
        }

    # --- facts -----------------------------------------------------------------------------------

    def neighbourhoods(self) -> list[tuple[int, ...]]:
        return possible_neighbours(self.setup.weights, None if self.churn is None else self.churn.membership)

    def record_steps(self, taken: NDArray[np.float64] | None = None) -> None:
        """Keep every step from here on; `taken` is the time of those that were kept before (`StepBuffer`)."""
        self._steps = StepBuffer(self.world, taken)

    def take_steps(self) -> Table:
        assert self._steps is not None, "nobody has asked for steps"
        return self._steps.take()

    def forget_steps(self) -> None:
        """Keep no more steps."""
        self.world.step_ends = self._steps = None

    def client_records(self) -> Table:
        return client_records(self.world, self._started)

    def edge_records(self, indptr: Sequence[int], indices: Sequence[int]) -> Table:
        return edge_records(self.world, indptr, indices)

    def watch(self, clients: Collection[int], seconds: float) -> Timeline:
        """Remember what some clients do in the first seconds; before `start`."""
        clocks = {i: WatchedClock(i, seconds) for i in clients}
        for i, clock in clocks.items():
            self.world.records[i].clock = clock
        return Timeline(seconds, clocks)

    # --- checkpoints ---------------------------------------------------------------------------

    def state(self, pool: Pool) -> Tree:
        return {**self.world.state(pool), "churn": None if self.churn is None else self.churn.state()}

    def restore(self, saved: Saved) -> None:
        """Take the state of an engine of the same setup, instead of `start`."""
        self._begin()
        self.world.restore(saved)
        check_parked(self.world, saved)
        if (self.churn is None) != saved["churn"].missing:
            saved["churn"].fail("does not fit the run, whose network changes (or not) otherwise")
        if self.churn is not None:
            self.churn.restore(saved["churn"])
