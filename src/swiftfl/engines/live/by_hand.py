"""One client of a live run in this process, stepped by whoever calls it: for measurements and tests."""

from __future__ import annotations

from swiftfl.engines.live.client import LiveClient
from swiftfl.engines.live.journal import Journal
from swiftfl.engines.live.saves import Saver
from swiftfl.engines.live.status import Order, Tally
from swiftfl.engines.setup import Setup
from swiftfl.engines.terms import Terms
from swiftfl.transports.shared_memory.transport import SharedMemory
from swiftfl.vector import Vector


class NoEngine:
    """A `Control` that asks for nothing; nobody would read a warning, so it is an error."""

    def report(self, c: int, tally: Tally) -> None: ...

    def new_terms(self) -> list[Terms]:
        return []

    def wants_model(self, published: bool) -> bool:
        return False

    def hand_over(self, x: Vector, version: int) -> None: ...

    def order(self, c: int) -> Order:
        return "go_on"

    def hold(self, c: int) -> Order:
        return "go_on"

    def set_waits(self, waits: bool) -> None: ...

    def warn(self, text: str) -> None:
        raise RuntimeError(text)


def memory_for(setup: Setup) -> SharedMemory:
    """Shared memory for the clients of a setup."""
    return SharedMemory.create([tuple(w.of) for w in setup.weights], setup.workload.initial(0))


def first_client(setup: Setup, plan: SharedMemory | None = None) -> LiveClient:
    """Client 0, over shared memory, without journal and saves; its neighbours have published x^0.

    They rest, unless whoever made the `plan` does their part.
    """
    x0, weights = setup.workload.initial(0), setup.weights
    plan = memory_for(setup) if plan is None else plan
    for k in weights[0].of:
        plan.connect(k).publish(x0, 1)
    return LiveClient(
        setup,
        0,
        setup.first_state(x0),
        0,
        plan.connect(0),
        NoEngine(),
        Journal(None, print),
        Saver(None, 0, 0, print),
        Terms(weights[0]),
    )
