"""What the channels need of a network: transfers that advance while somebody polls them.

`swiftfl.transports.mpi` offers it over MPI, `swiftfl.transports.zenoh` over zenoh; tests offer it within one
process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from swiftfl.transports.codec import Bytes

LOST = -1
"""Instead of a count of bytes: the other end is gone."""
GARBLED = -2
"""Instead of a count of bytes: what came did not fit."""

(
    MODEL, NOTE, OFFER, GIVE, MEAN, ASK, ANSWER, STATUS, ORDER, FINAL, SHOWN, PING, TOLD, START, REACHED,
    TREE_SUM, TREE_MEAN,
) = range(1, 18)  # fmt: skip
"""Tags: which channel a message belongs to."""
CONTROL_TAGS = frozenset((STATUS, ORDER, TOLD))
"""Channels whose messages need not be there as soon as the doorbell rings."""


class Bell(Protocol):
    """By which whoever brings a message wakes the threads that move it (`messages.doorbell`)."""

    @property
    def complete(self) -> bool:
        """Whether everybody can be rung, and rings us."""

    def reaches(self, k: int) -> bool: ...

    def ring(self, k: int, what: int = ...) -> None:
        """That a message has come, unless it says something else."""

    def rings(self) -> list[tuple[int, int]]: ...

    def wake(self) -> None: ...

    def sleep(self, seconds: float) -> bool: ...

    def thread_sleep(self, seconds: float) -> bool: ...

    def mute_thread(self) -> None: ...

    def unmute_thread(self) -> None: ...

    def close(self) -> None: ...


class Transfer(Protocol):
    """One message on its way, sent or received."""

    def Cancel(self) -> None: ...  # noqa: N802 - as MPI calls it


class Wire(Protocol):
    """A client's plug."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def doorbell(self) -> Bell: ...

    def send(self, data: Bytes, to: int, tag: int) -> Transfer:
        """Start to send; it completes when the receiver has taken it, so that nothing ever piles up."""

    def receive(self, data: Bytes, source: int, tag: int) -> Transfer:
        """Start to receive the next message of this source and tag."""

    def completed(self, transfers: Sequence[Transfer]) -> list[tuple[int, int]]:
        """Move all transfers on; of those that are over, the position and the bytes (or LOST)."""
