"""One organisation's client: it trains on its own data, with whoever of its neighbours is there.

The step is SWIFT's of `algorithms/`, or another that never waits (`wait_free`), served by the `VerbServer` of
live runs over the transport of zenoh. Nobody coordinates: nodes start in any order, one that is alone trains
alone, one that is back is a neighbour.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from swiftfl.client import State
from swiftfl.engines.live.client import LiveClient, Outcome
from swiftfl.engines.live.facts import StepFacts
from swiftfl.engines.live.journal import Journal, split, version
from swiftfl.engines.live.saves import Saver, read_all
from swiftfl.engines.setup import Setup
from swiftfl.engines.terms import ALONE, Terms
from swiftfl.errors import UserError
from swiftfl.federation.connection import Connection
from swiftfl.federation.control import NodeControl
from swiftfl.federation.membership import InfluencePolicy, NodeMembership
from swiftfl.federation.plan import NodePlan
from swiftfl.federation.wait_free import wait_free
from swiftfl.files import write_atomically
from swiftfl.sample import Batch
from swiftfl.vector import Vector, finite

_NO_END = 1 << 60
_MEET_SECONDS = 3.0  # to find neighbours that are there already,
_MODEL_SECONDS = 30.0  # and then for their models to arrive, as long as parts of them come:
_SILENT_SECONDS = 5.0  # whoever sends no part for so long is not waited for, and no renewal with it
_FIRST_YEAR = (
    1767225600  # 2026: incarnations are minutes since then, so that they grow even if a disk is lost
)
_SAVE_SECONDS = 30.0
_INCARNATION = "incarnation.txt"


@dataclass(frozen=True)
class NoBatches:
    """Of neighbours nobody here knows the data."""

    steps_per_epoch: int = 1

    def __call__(self, c: int) -> Batch:
        raise AssertionError("a node takes its own batches only")


def node_setup(setup: Setup, neighbours: int) -> Setup:
    """From the run of one client to that of a node: it is client 0, its neighbours are the next ones."""
    if setup.n != 1:
        raise UserError(
            f"a node is one client: its experiment has {setup.n} (leave out clients and topology)"
        )
    return replace(
        setup,
        algorithm=wait_free(setup.algorithm),
        weights=[ALONE.w] * (neighbours + 1),
        batches=[*setup.batches, *[NoBatches() for _ in range(neighbours)]],
        influence=[1.0] * (neighbours + 1),
        network=None,
        ccs="distributed",
        epochs=None,
        iterations=_NO_END,
    )


class Node:
    """From its plan to the end of its training, and beyond: `serve` keeps its last model there for others."""

    def __init__(
        self,
        plan: NodePlan,
        setup: Setup,
        say: Callable[[str], None],
        policy: InfluencePolicy | None = None,
        save_seconds: float = _SAVE_SECONDS,
        facts: StepFacts | None = None,
        x0: Vector | None = None,
        rate: float | None = None,
        meet_seconds: float = _MEET_SECONDS,
    ) -> None:
        """A training loop of one's own gives the first model, and a guess of its steps per second."""
        self.plan, self.say = plan, say
        self.setup = node_setup(setup, len(plan.neighbours))
        self._policy = policy or InfluencePolicy(plan.influence)
        self._save_seconds, self._facts, self._meet_seconds = save_seconds, facts, meet_seconds
        self.last = setup.steps_of(0)
        self.stop_asked = False
        self.started = time.time()
        self.how_started = ""
        x0 = setup.workload.initial(setup.seed) if x0 is None else x0
        plan.saves.mkdir(parents=True, exist_ok=True)
        saved, problems = read_all(plan.saves, 0, setup.first_state(x0))
        for problem in problems:
            say(f"{problem}: it is left out")
        self._saved = saved[0] if saved else None
        self.incarnation = self._next_incarnation()
        rate = self._first_rate(x0) if rate is None else rate
        self.connection = Connection(plan, x0, setup.codec, self.incarnation)
        self.control = NodeControl(self._take_terms, lambda: self.stop_asked, say, self.last, rate)
        self.membership = NodeMembership(self.connection, plan.index, self._policy, self.control.rate, say)
        self.client = self._start(x0)

    def _next_incarnation(self) -> int:
        """Larger than any before, also if the node ended before its first save, or if its disk was lost."""
        file = self.plan.saves / _INCARNATION
        try:
            last = int(file.read_text(encoding="ascii"))
        except (OSError, ValueError):
            last = -1
        saved = -1 if self._saved is None else self._saved.incarnation
        minutes = int((time.time() - _FIRST_YEAR) / 60)
        found = max(minutes, saved + 1, last + 1)
        write_atomically(file, str(found))
        return found

    def _first_rate(self, x0: Vector) -> float:
        """Steps per second, from one gradient: the first guess of what is measured later."""
        setup = self.setup
        began = time.perf_counter()
        setup.workload.gradient(x0, setup.batches[0](1))
        seconds = time.perf_counter() - began
        factor = setup.costs.gradient(0, 1, 0.0) / (setup.costs.compute or 1.0)
        return 1.0 / max(1e-6, seconds * max(1.0, factor))

    def _take_terms(self) -> list[Terms]:
        return self.membership.take_terms()

    # --- the start -------------------------------------------------------------------------------

    def _start(self, x0: Vector) -> LiveClient:
        saved = self._saved
        state = self.setup.first_state(x0) if saved is None else saved.state
        self.how_started = "the first model" if saved is None else f"its checkpoint of step {state.c}"
        transport = self.connection.transport
        transport.publish(state.x, version(self.incarnation, state.c))
        found = self._newest_of_neighbours(state.c)
        if found is not None:
            k, x, c = found
            state = State(x, state.c, self.setup.algorithm.rule.init(x))
            self.how_started = f"the model of {self.connection.names[k]}, which is at step {c}"
        if saved is not None:
            transport.codec.restore(saved.codec)
        self.say(f"starts from {self.how_started}")
        journal = Journal(None, self.say)
        saver = Saver(self.plan.saves, 0, self.incarnation, self.say, self._save_seconds)
        tally = None if saved is None else saved.tally
        client = LiveClient(
            self.setup,
            0,
            state,
            self.incarnation,
            transport,
            self.control,
            journal,
            saver,
            ALONE,
            tally,
            self._facts,
        )
        client.server.gate.told = self.connection.refused
        client.announce()
        self.membership.start()
        return client

    def _newest_of_neighbours(self, c: int) -> tuple[int, Vector, int] | None:
        """The neighbours' model with most steps behind it, if these are more than ours.

        Whoever is there sends its newest model as soon as it sees us. Neighbours renew their weights when
        this is over, so nobody who sends nothing holds it up for long.
        """
        end = time.monotonic() + self._meet_seconds
        missing = set(self.connection.names)
        while missing and time.monotonic() < end:
            missing -= self.connection.view().keys()
            time.sleep(0.02)
        end = time.monotonic() + _MODEL_SECONDS
        best: tuple[int, Vector, int] | None = None
        waiting = set(self.connection.view())
        heard = {k: (0, time.monotonic()) for k in waiting}  # parts of its model, and when the last one came
        while waiting and (now := time.monotonic()) < end and not self.stop_asked:
            for k in sorted(waiting):
                parts = self.connection.wire.parts_of_models(k)
                if parts != heard[k][0]:
                    heard[k] = parts, now
                found = self.connection.transport.read(k, lambda x, version: (x.copy(), version))
                if found is not None:
                    waiting.discard(k)
                    steps = split(found[1])[1]
                    if steps > (c if best is None else best[2]) and finite(found[0]):
                        best = k, found[0], steps
            silent = {k for k in waiting if now - heard[k][1] > _SILENT_SECONDS}
            waiting &= self.connection.view().keys() - silent
            time.sleep(0.02)
        return best

    # --- the run ---------------------------------------------------------------------------------

    def stop(self) -> None:
        """Save, and end before the next step; may be called by any thread."""
        self.stop_asked = True

    def train(self) -> Outcome:
        """Step after step, to the end or until `stop`."""
        return self.client.run()

    @property
    def x(self) -> Vector:
        """The newest model."""
        return self.client.state.x

    def close(self) -> None:
        """Leave the others."""
        self.membership.close()
        self.connection.close()
