"""What a transport offers to one client: its end of the wires to its neighbours.

Wait-free calls (`publish`, `read`) return in the client's own time, whatever its neighbours do: slow,
stopped or dead. Waiting calls (`offer` and `collect` for synchronous rounds, the cell calls for
AD-PSGD) block until others have done their part, until a neighbour is known to be lost, or until
`stop` is set. Memory is bounded: a neighbour that does not read costs its publisher nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from swiftfl.vector import Statistics, Vector

T = TypeVar("T")


class Lost(Exception):  # noqa: N818 - it is news, not an error
    """The neighbour that was waited for is gone."""


class Finished(Lost):
    """The neighbour has done all its rounds; its last model is what `read` gives."""


class Stopped(Exception):  # noqa: N818
    """The run was asked to stop while this client waited."""


class Transport(Protocol):
    """One client's end of a transport."""

    # --- wait-free ---

    def publish(self, x: Vector, version: int) -> None:
        """Make x the newest model of this client; whatever it published before is superseded."""

    def read(self, neighbour: int, use: Callable[[Vector, int], T]) -> T | None:
        """Call `use(model, version)` on the neighbour's newest model, in place where possible.

        The view is valid only during the call, and never torn. None if there is no model (yet).
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
        """Give x of this round to these neighbours; waits only for those who have not taken the
        offer that this one replaces."""

    def collect(self, neighbour: int, round: int, use: Callable[[Vector], T]) -> T:
        """Wait for the neighbour's model of this round and use it in place; raises Lost,
        Finished (it will make none of this round, but has a last one) or Stopped."""

    def all_reduce(self, value: Vector, weight: float, round: int) -> Vector:
        """The weighted mean over the living clients; waits for all of them."""

    # --- waiting: model cells ---

    def load(self) -> Vector:
        """A copy of this client's cell."""

    def average_with(self, neighbour: int) -> Vector:
        """Replace both cells by their mean, atomically; a copy of it. Raises Lost."""

    def add(self, move: Vector, statistics: Statistics | None) -> Vector:
        """Advance the cell by a move, atomically; a copy of it."""

    def close(self) -> None:
        """Release everything; nothing stays behind."""


class Plan(Protocol):
    """What the clients of a run share of a transport, made before they start; the supervisor's view."""

    def connect(self, i: int) -> Transport:
        """Client i's end; called in its own process (or thread), and again if it is restarted."""

    def mark_gone(self, i: int) -> None:
        """Client i is dead and has not finished: whoever waits for it is told."""

    def stop(self) -> None:
        """Every call that has to wait raises Stopped from now on."""

    def close(self) -> None:
        """Release everything; nothing stays behind."""
