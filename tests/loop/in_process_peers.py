"""Peers of one process, over the transport in memory: what they do to each other happens in a known order."""

from __future__ import annotations

from collections.abc import Sequence

from swiftfl.client import State
from swiftfl.engines.live.by_hand import NoEngine
from swiftfl.engines.live.client import LiveClient
from swiftfl.engines.live.journal import Journal
from swiftfl.engines.live.saves import Saver
from swiftfl.engines.terms import Terms
from swiftfl.loop.federation import Federation
from swiftfl.loop.module_vector import ModuleVector
from swiftfl.loop.peer import Peer
from swiftfl.loop.wrapped_rule import WrappedRule
from swiftfl.transports.memory import MemoryPlan
from swiftfl.vector import Vector, consensus


class QuietControl(NoEngine):
    """Takes terms that a test gives, and notes warnings."""

    def __init__(self) -> None:
        self.terms: list[Terms] = []
        self.warnings: list[str] = []

    def new_terms(self) -> list[Terms]:
        new, self.terms = self.terms, []
        return new

    def warn(self, text: str) -> None:
        self.warnings.append(text)


class Shared:
    """What the peers of one test have in common; the first one that connects gives the first model."""

    def __init__(self, federation: Federation) -> None:
        self.federation = federation
        self.plan: MemoryPlan | None = None
        self.x0: Vector | None = None
        self.links = [MemoryLink(self, i) for i in range(federation.n)]

    def peers(self) -> list[Peer]:
        return [Peer(link) for link in self.links]


class MemoryLink:
    """`swiftfl.loop.peer.PeerLink` without processes."""

    def __init__(self, shared: Shared, rank: int) -> None:
        self.shared, self.rank, self.n = shared, rank, shared.federation.n
        self.control = QuietControl()
        self.client: LiveClient | None = None
        self.closed = False

    @property
    def neighbours(self) -> tuple[int, ...]:
        return tuple(self.shared.federation.setup().weights[self.rank].of)

    def connect(self, module: ModuleVector, rule: WrappedRule) -> LiveClient:
        shared, i, control = self.shared, self.rank, self.control
        setup = shared.federation.setup(rule, module.trainable, module.size - module.trainable)
        if shared.plan is None or shared.x0 is None:
            shared.x0 = module.read()
            shared.plan = MemoryPlan([tuple(w.of) for w in setup.weights], shared.x0)
        journal, saver = Journal(None, control.warn), Saver(None, i, 0, control.warn, None, None)
        self.client = LiveClient(
            setup,
            i,
            State(shared.x0),
            0,
            shared.plan.connect(i),
            control,
            journal,
            saver,
            Terms(setup.weights[i]),
        )
        return self.client

    def consensus(self, client: LiveClient, x: Vector, seconds: float) -> tuple[Vector, int]:
        """In one process nobody can wait: the mean is of this model and what the others have published."""
        assert self.shared.plan is not None
        models: Sequence[Vector] = [
            x if k == self.rank else self.shared.plan.newest[k][0] for k in range(self.n)
        ]
        return consensus(models), self.n

    def close(self) -> None:
        self.closed = True
