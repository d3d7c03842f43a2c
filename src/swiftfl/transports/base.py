"""What a transport is: everything that live engines call, and nothing else.

A *transport plan* is what the clients of one run share: the supervisor makes it before they start, connects
each client with its own end, and tells it who is gone. A *transport* is one client's end of the links to its
neighbours.

Wait-free calls (`publish`, `read`, `show`, `tell`, `heard`) return in the client's own time, whatever its
neighbours do: slow, stopped or dead. Waiting calls (`offer`, `collect`, `barrier` for synchronous rounds, the
cell calls for AD-PSGD) block until others have done their part, until a neighbour is known to be lost, or
until the run is stopped. Memory is bounded: a neighbour that does not read costs its publisher nothing.

A transport of your own is a registered function that makes a plan (`transports/memory.py` is one to read):

    @transport("mine")
    def mine(neighbours, x0, codec, in_rounds): return MyPlan(...)

`--set engine.live.transport=mine` then runs over it, and `swiftfl check-transport mine` examines it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

from swiftfl.registry import Registry
from swiftfl.transports.codec import Codec, MakeCodec
from swiftfl.vector import Statistics, Vector

T = TypeVar("T")


class Lost(Exception):  # noqa: N818 - it is news, not an error
    """The neighbour that was waited for is gone."""


class Finished(Lost):
    """The neighbour has done all its rounds; its last model is what `read` gives."""


class Stopped(Exception):  # noqa: N818
    """The run was asked to stop while this client waited."""


KINDS = 9
"""How many kinds of small messages there are: those of CCS, and those of a census (`graph/`)."""


class SmallMessage(NamedTuple):
    """What neighbours tell each other besides models: a kind, an epoch and two numbers.

    Of each kind a receiver keeps the newest per sender, so memory is bounded. CCS needs no more: it sends at
    most one message of each kind along an edge in an epoch, and ignores what belongs to another epoch.
    """

    kind: int
    epoch: int
    first: float
    second: float


class Mean(NamedTuple):
    """What a reduction gives: the mean, and of how many clients it is."""

    value: Vector
    clients: int


class Transport(Protocol):
    """One client's end of a transport."""

    @property
    def neighbours(self) -> Sequence[int]:
        """Whom this client may ever read, exchange with or average with."""

    @property
    def codec(self) -> Codec:
        """What this client's models pass through on their way; its state belongs to the client's save."""

    # --- wait-free ---

    def publish(self, x: Vector, version: int) -> None:
        """Make x the newest model of this client; whatever it published before is superseded.

        Versions never decrease. Neighbours read x as the codec transmits it.
        """

    def show(self, x: Vector, version: int) -> None:
        """Let whoever evaluates see x, exactly; neighbours are not concerned.

        A client that publishes need not do this where observers can read what was published.
        """

    def read(self, neighbour: int, use: Callable[[Vector, int], T]) -> T | None:
        """Call `use(model, version)` on the neighbour's newest model, in place where possible.

        The view is valid only during the call, and never torn. None if there is no model (yet).
        """

    def since_published(self, neighbour: int) -> float | None:
        """How many seconds ago the neighbour published the model that was read from it last.

        None if the transport cannot tell; between hosts it is as exact as their clocks.
        """

    def tell(self, neighbour: int, message: SmallMessage) -> None:
        """Send it to one neighbour, in place of the last one of its kind."""

    def heard(self, neighbour: int) -> list[SmallMessage]:
        """The newest message of each kind that this neighbour has sent to this client, each whole.

        They stay until newer ones come. One that is being written just now may be left out.
        """

    def lost(self) -> frozenset[int]:
        """The neighbours that are known to be gone."""

    @property
    def waited(self) -> float:
        """Seconds that this end has been blocked on others, in all."""

    def finish(self) -> None:
        """Nobody is to wait for this client any more; its last published model stays readable."""

    # --- waiting: synchronous rounds ---

    def offer(self, x: Vector, round: int, to: Sequence[int]) -> None:
        """Give x of this round to these neighbours, as the codec transmits it; waits only for those
        who have not taken the offer that this one replaces."""

    def collect(self, neighbour: int, round: int, use: Callable[[Vector], T]) -> T:
        """Wait for the neighbour's model of this round and use it in place; raises Lost,
        Finished (it will make none of this round, but has a last one) or Stopped."""

    def all_reduce(self, value: Vector, weight: float, round: int) -> Mean:
        """The weighted mean over the living clients; waits for all of them."""

    def barrier(self, round: int) -> None:
        """Wait until every living client has come to this round (or has finished)."""

    # --- waiting: model cells ---

    def set_cell(self, x: Vector) -> None:
        """Start this client's cell from x instead of x0."""

    def load(self) -> Vector:
        """A copy of this client's cell."""

    def average_with(self, neighbour: int) -> Vector:
        """Replace both cells by their mean, atomically; a copy of it. Raises Lost."""

    def add(self, move: Vector, statistics: Statistics | None) -> Vector:
        """Advance the cell by a move, atomically; a copy of it."""

    @property
    def answers(self) -> int:
        """How often a neighbour has averaged its cell with this client's since this end was connected."""

    def close(self) -> None:
        """Release everything; nothing stays behind. May be called again."""


class Observer(Protocol):
    """An end for whoever evaluates: it sees models exactly, never what a codec made of them."""

    def read(self, client: int, use: Callable[[Vector, int], T]) -> T | None:
        """Call `use(model, version)` on a client's newest model, as `Transport.read` does."""

    def close(self) -> None:
        """Release everything. May be called again."""


class TransportPlan(Protocol):
    """What the clients of a run share of a transport, made before they start; the supervisor's view."""

    def connect(self, i: int) -> Transport:
        """Client i's end; called in its own process (or thread), and again if it is restarted."""

    def observe(self) -> Observer:
        """An end for the one process that evaluates."""

    def mark_gone(self, i: int) -> None:
        """Client i is dead and has not finished: whoever waits for it is told."""

    def rejoin(self, i: int, from_round: int = 0) -> None:
        """Client i is back; it takes part in rounds from this one on, which nobody has reached."""

    def stop(self) -> None:
        """Every call that has to wait raises Stopped from now on."""

    @property
    def models_in_memory(self) -> int:
        """How many models the transport keeps for all clients together, at most."""

    def close(self) -> None:
        """Release everything; nothing stays behind. May be called again."""


class MakePlan(Protocol):
    """How a plan is made. `neighbours[i]` are all that client i may ever have; every mailbox and cell
    initially holds x0; `codec` makes a codec for each client; where clients meet `in_rounds` they seldom
    publish."""

    def __call__(
        self, neighbours: Sequence[Sequence[int]], x0: Vector, codec: MakeCodec, in_rounds: bool
    ) -> TransportPlan: ...


@dataclass(frozen=True)
class TransportEntry:
    """A transport by name, and where its clients live."""

    name: str
    make: MakePlan
    processes: bool = True
    """Whether clients are processes; threads of one process otherwise."""
    program: str | None = None
    """A module that runs the checks by itself, under mpiexec, where clients cannot be forked."""
    starts_clients: bool = False
    """Whether that program needs no mpiexec: it starts its clients itself."""


TRANSPORTS: Registry[TransportEntry] = Registry("transport")
"""Transports by name; those that come with swiftfl are there once `swiftfl.transports` is imported."""

Make = TypeVar("Make", bound=MakePlan)


def transport(
    name: str, processes: bool = True, program: str | None = None, starts_clients: bool = False
) -> Callable[[Make], Make]:
    """Register a function that makes a plan."""

    def register(make: Make) -> Make:
        TRANSPORTS.register(name, TransportEntry(name, make, processes, program, starts_clients))
        return make

    return register
