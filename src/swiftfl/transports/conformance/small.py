"""Small messages: the newest of each kind and edge, whole, whatever the receiver does."""

from __future__ import annotations

import signal
import time

from swiftfl.transports.base import KINDS, SmallMessage, Transport
from swiftfl.transports.conformance.participants import (
    ENOUGH,
    MORE_SECONDS,
    Failed,
    Participants,
    Report,
    Task,
    ring,
    until,
)

EPOCHS = 50
SECONDS = 0.5


def small_messages_arrive(group: Participants) -> str:
    """To each neighbour its own, of each kind the newest; nothing from one that has told nothing."""
    group.open(ring(3), 8)
    hearers = [group.start(k, _hear_the_last(0)) for k in (1, 2)]
    teller = group.start(0, _tell_epochs((1, 2)))
    for hearer in hearers:
        hearer.answer()
    teller.answer()
    return f"{EPOCHS} epochs of {KINDS} kinds to 2 neighbours"


def _of(kind: int, epoch: int, receiver: int) -> SmallMessage:
    return SmallMessage(kind, epoch, epoch + receiver / 3, -1e300 * kind)


def _tell_epochs(to: tuple[int, ...]) -> Task:
    def task(transport: Transport, report: Report) -> object:
        for epoch in range(EPOCHS):
            for k in to:
                for kind in range(KINDS):
                    transport.tell(k, _of(kind, epoch, k))
        until(lambda: all(transport.heard(k) for k in to), "the answers")
        return None

    return task


def _hear_the_last(teller: int) -> Task:
    def task(transport: Transport, report: Report) -> object:
        receiver = next(k for k in (1, 2) if k not in transport.neighbours)  # on a ring of 3, this client
        last = [_of(kind, EPOCHS - 1, receiver) for kind in range(KINDS)]
        until(lambda: transport.heard(teller) == last, "the last epoch's messages")
        if others := [k for k in transport.neighbours if k != teller and transport.heard(k)]:
            raise Failed(f"heard of client {others[0]}, which has told nothing")
        transport.tell(teller, last[0])
        return None

    return task


def small_messages_whole(group: Participants) -> str:
    """Told at full speed, never torn, and never an older one after a newer."""
    group.open(ring(2), 8)
    group.start(0, _tell_for_ever(1))
    looks, fresh = group.start(1, _check_heard()).answer()
    if fresh < ENOUGH:
        raise Failed(f"only {fresh} messages arrived")
    return f"{looks} looks, {fresh} of them new"


def _tell_for_ever(to: int) -> Task:
    def task(transport: Transport, report: Report) -> int:
        epoch, end = 0, time.monotonic() + 20
        while time.monotonic() < end:
            epoch += 1
            transport.tell(to, SmallMessage(epoch % KINDS, epoch, float(epoch), -float(epoch)))
            if epoch % 1000 == 0:
                report(epoch)
        return epoch

    return task


def _check_heard() -> Task:
    def task(transport: Transport, report: Report) -> tuple[int, int]:
        last, looks, fresh = [0] * KINDS, 0, 0
        until(lambda: bool(transport.heard(0)), "the first message")
        end = time.monotonic() + SECONDS
        while (now := time.monotonic()) < end or (fresh < ENOUGH and now < end + MORE_SECONDS):
            looks += 1
            for kind, epoch, first, second in transport.heard(0):
                if (epoch % KINDS, first, second) != (kind, epoch, -epoch):
                    raise Failed(f"torn: epoch {epoch} with {first:g} and {second:g} as kind {kind}")
                if epoch < last[kind]:
                    raise Failed(f"epoch {epoch} came after {last[kind]}")
                fresh += epoch > last[kind]
                last[kind] = epoch
        return looks, fresh

    return task


def small_messages_never_wait(group: Participants) -> str:
    """A neighbour that is stopped, and one that was killed while it told something, hold up nobody."""
    group.need_processes()
    group.open([(1, 2), (0,), (0,)], 8)
    for attempt in range(6):
        stopped, killed = group.start(1, _tell_for_ever(0)), group.start(2, _tell_for_ever(0))
        stopped.answer(), killed.answer()
        time.sleep(0.002 * attempt)
        stopped.signal(signal.SIGSTOP)
        killed.signal(signal.SIGKILL)
        group.start(0, _tell_and_hear()).answer()
        stopped.signal(signal.SIGKILL)
    for k in (1, 2):
        group.start(k, lambda transport, report: transport.tell(0, _of(0, 7, 0))).answer()
        group.start(0, _hear(k, _of(0, 7, 0))).answer()
    return "6 times 1000 messages each way, and both tell again after a restart"


def _tell_and_hear() -> Task:
    def task(transport: Transport, report: Report) -> object:
        for epoch in range(1000):
            for k in (1, 2):
                transport.tell(k, SmallMessage(0, epoch, 0.0, 0.0))
                transport.heard(k)
        return None

    return task


def _hear(k: int, message: SmallMessage) -> Task:
    def task(transport: Transport, report: Report) -> object:
        until(lambda: message in transport.heard(k), f"what client {k} told after its restart")
        return None

    return task


CHECKS = (small_messages_arrive, small_messages_whole, small_messages_never_wait)
