"""`join()`: this process as one of several that train together, by however it was started."""

from __future__ import annotations

import atexit
import math
import os
from pathlib import Path
from types import TracebackType
from typing import Protocol

from swiftfl import recycled
from swiftfl.engines.live.client import LiveClient
from swiftfl.errors import UserError
from swiftfl.loop.driven import DrivenClient
from swiftfl.loop.module_vector import ModuleVector
from swiftfl.loop.wrapped_rule import WrappedRule
from swiftfl.transports.ranks import rank_here
from swiftfl.vector import Vector

LAUNCHED = "SWIFTFL_LAUNCHED"
"""The environment variable in which `swiftfl launch` tells a process who it is."""
TOPOLOGY = "SWIFTFL_TOPOLOGY"
CONSENSUS_SECONDS = 600.0


class PeerLink(Protocol):
    """How a client is connected with the others."""

    @property
    def rank(self) -> int: ...

    @property
    def n(self) -> int: ...

    @property
    def neighbours(self) -> tuple[int, ...]:
        """As the topology has them."""

    def connect(self, module: ModuleVector, rule: WrappedRule) -> LiveClient:
        """The client that trains this module; its state holds the model that it starts from."""

    def consensus(self, client: LiveClient, x: Vector, seconds: float) -> tuple[Vector, int]:
        """The mean of the models of all who ask for it, this client's being x, and how many these are."""

    def close(self) -> None:
        """Nothing more follows; called once, after the client has finished (or never was connected)."""


class Peer:
    """One of the processes that train together; `swiftfl.join()` makes it.

    Close it when training is over (`peer.close()`, or `with swiftfl.join() as peer:`); the end of the program
    does so, too. The others keep this client's last model, and wait for it no more.
    """

    def __init__(self, link: PeerLink | None = None) -> None:
        self._link = link
        self._module: ModuleVector | None = None
        self._rule: WrappedRule | None = None
        self._driven: DrivenClient | None = None
        if link is not None:
            atexit.register(self.close)

    @property
    def rank(self) -> int:
        """The number of this client, from 0 on."""
        return 0 if self._link is None else self._link.rank

    @property
    def n(self) -> int:
        """How many clients were started; 1 if nobody launched us."""
        return 1 if self._link is None else self._link.n

    @property
    def neighbours(self) -> tuple[int, ...]:
        """Whom this client averages with now: its neighbours in the topology, without those who are lost."""
        if self._link is None:
            return ()
        if self._driven is None:
            return self._link.neighbours
        client = self._driven.client
        gone = client.transport.lost()
        return tuple(k for k in client.me.neighbours if k not in gone)

    def attach(self, module: ModuleVector, rule: WrappedRule) -> DrivenClient | None:
        """Begin to train this module with the others; it is given the model that all start from."""
        if self._link is None:
            return None
        if self._driven is not None:
            raise UserError("this peer trains a model already: one swiftfl.Optimizer per process")
        self._module, self._rule = module, rule
        client = self._link.connect(module, rule)
        self._driven = DrivenClient(client)
        self._load()
        return self._driven

    def consensus(self, timeout: float = CONSENSUS_SECONDS) -> int:
        """Replace the model by the average of all who are there; **waits** until they ask for it, too.

        All clients call it at the same place of their programs, and leave with the same model. Whoever is
        lost, or has closed its peer, is not waited for; nor is anybody after `timeout` seconds: the average
        is then of those who are there. Gives the number of models in the average (1 for who is alone).
        """
        if not timeout > 0 or math.isnan(timeout):
            raise UserError(f"consensus(timeout={timeout}): give it seconds above 0")
        if self._link is None or self._driven is None or self._module is None:
            return 1
        x = self._module.read() if self._module.exact else self._driven.x
        mean, count = self._link.consensus(self._driven.client, x, timeout)
        self._driven.start_from(mean)
        self._load()
        return count

    def close(self) -> None:
        """Leave the others: they keep the last model of this client. May be called again."""
        link, self._link = self._link, None
        driven, self._driven = self._driven, None
        if link is None:
            return
        atexit.unregister(self.close)
        if driven is not None:
            driven.finish()
        link.close()
        recycled.let_go()

    def step_over(self) -> None:
        """The client is parked at another model: the module gets it."""
        self._load()

    def _load(self) -> None:
        assert self._module is not None
        assert self._rule is not None
        assert self._driven is not None
        self._module.load(self._driven.x)
        self._rule.at = self._driven.x

    @property
    def training(self) -> DrivenClient | None:
        """The client that is driven, if there is one."""
        return self._driven

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Peer(rank={self.rank}, n={self.n}, neighbours={self.neighbours})"


_joined: Peer | None = None


def join(
    topology: object = None, weights: str | None = None, algorithm: str = "swift", mixing: str = "plain"
) -> Peer:
    """This process as a peer of those that were started with it; alone if nobody launched us.

    `swiftfl.join("node.yaml")` makes it a node of a federation of organisations instead (docs/federation.md).

    Under `swiftfl launch` the launcher has decided everything, and the arguments are not looked at. Under
    `mpiexec` they hold. Called again, it gives the same peer.

    Args:
        topology: A name (`"ring"`, `"random_regular:degree=4"`), a file, a graph or edges; by default what
            the environment variable SWIFTFL_TOPOLOGY says, or else a ring.
        weights: How clients weigh their neighbours (`"ccs"`, `"metropolis"` ...); by default as the algorithm
            is made for.
        algorithm: A name of `swiftfl list algorithms`, with options behind a colon.
        mixing: How models are averaged where a neighbour may be bad, as in `"clipped:tolerate=0.1"`.

    Returns:
        The peer, for `swiftfl.Optimizer` and `peer.consensus()`.
    """
    global _joined
    if _joined is None:
        _joined = Peer(_link(topology, weights, algorithm, mixing))
    return _joined


def _link(topology: object, weights: str | None, algorithm: str, mixing: str) -> PeerLink | None:
    if isinstance(topology, str | os.PathLike) and os.fspath(topology).endswith((".yaml", ".yml")):
        from swiftfl.loop.federated import federated_link

        return federated_link(Path(topology))
    if told := os.environ.get(LAUNCHED):
        from swiftfl.loop.launched import LaunchedLink

        return LaunchedLink.from_environment(told)
    if rank_here() is not None:
        from swiftfl.loop.ranks import rank_link

        return rank_link(topology or os.environ.get(TOPOLOGY, "ring"), weights, algorithm, mixing)
    return None
