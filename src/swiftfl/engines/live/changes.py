"""Planned changes of the network in a live run (lines 4 and 5 of Algorithm 1): edges, joins and leaves.

They happen at their time (seconds of the run) or when the clients have taken so many steps in all. Where
clients never wait for each other, new weights hold from each client's next step. Where they meet in rounds,
all hold before the same round until everybody has its new weights, so that both ends of an edge agree on it.
A client that joins is made ready first, and nobody waits for that.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from typing import Protocol

from swiftfl.engines.dynamics import Change, in_order
from swiftfl.engines.live.common_round import CommonRound
from swiftfl.engines.live.status import FINISHED
from swiftfl.engines.live.supervisor import Supervisor
from swiftfl.engines.membership import Membership

LIVE_CHANGES = ("edge_down", "edge_up", "join", "leave")
_log = logging.getLogger(__name__)


class Newcomers(Protocol):
    """How an engine lets clients into a run that has begun."""

    def prepare(self, i: int) -> None:
        """Client i is going to join: start it, if that takes time."""

    def is_ready(self, i: int) -> bool:
        """Whether client i can join now."""

    def admit(self, i: int, from_round: int) -> None:
        """Client i takes part from this round on; the renewal that follows includes it."""

    def turn_away(self, i: int, reason: str) -> None:
        """Client i was prepared, and cannot join any more."""

    def all_have_heard(self) -> bool:
        """Whether everybody who is there knows of the last renewal."""


class PlannedChanges:
    """What is still to come; those of `done` (by their place in the list) happened in earlier sessions."""

    def __init__(self, supervisor: Supervisor, newcomers: Newcomers, done: Collection[int]) -> None:
        self._supervisor, self._newcomers, self._status = supervisor, newcomers, supervisor.status
        self._common = CommonRound(supervisor.status, supervisor.in_rounds)
        network = supervisor.network
        changes = [] if network is None else list(network.dynamics.changes)
        if network is not None:
            apply(network, [changes[number] for number in done])
            supervisor.absent |= set(range(network.n)) - network.present
        open_ = [change for number, change in enumerate(changes) if number not in done]
        self._open = in_order(open_)

    def tick(self, living: Collection[int]) -> None:
        """Carry out what is due and possible now; call it before the supervisor decides."""
        supervisor, status = self._supervisor, self._status
        if status.released:
            self._tell_what_did_not_happen()
        if supervisor.paused_at is not None and (supervisor.ending or self._all_have_weights()):
            self._go_on()
        if supervisor.ending or status.released:
            self._go_on()
        elif self._open and status.started and supervisor.paused_at is None:
            self._change(living)

    def _all_have_weights(self) -> bool:
        """Whether everybody has its new weights, or will have them before its next step."""
        return self._supervisor.selected and self._newcomers.all_have_heard()

    def _go_on(self) -> None:
        self._supervisor.paused_at = None
        self._common.go_on()

    def _change(self, living: Collection[int]) -> None:
        supervisor, status = self._supervisor, self._status
        due = [change for change in self._open if is_due(change, supervisor.now, supervisor.iteration)]
        ready = [change for change in due if self._is_ready(change, living)]
        from_round: int | None = 0
        if ready and supervisor.in_rounds:
            phases = {i: status.phase(i) for i in living}
            from_round = self._common.pause(phases, supervisor.renewed_from)
        if not ready or from_round is None:
            return
        for change in ready:
            self._open.remove(change)
            self._carry_out(change, from_round)
        if supervisor.in_rounds:
            supervisor.paused_at = from_round
        supervisor.renew(from_round)

    def _is_ready(self, change: Change, living: Collection[int]) -> bool:
        """Whether it can be carried out now; one that has become impossible is dropped."""
        supervisor, i = self._supervisor, change.client
        if change.edge is not None:
            return True
        if i in supervisor.lost or (change.kind == "leave" and self._status.phase(i) == FINISHED):
            self._open.remove(change)
            return False
        if change.kind == "leave":
            return i not in supervisor.absent
        if i not in supervisor.absent:
            return False
        if i not in supervisor.joining:
            if i not in living:  # one that has just left ends first
                supervisor.joining.add(i)
                self._newcomers.prepare(i)
            return False
        return self._newcomers.is_ready(i)

    def _carry_out(self, change: Change, from_round: int) -> None:
        supervisor, network, i = self._supervisor, self._supervisor.network, change.client
        assert network is not None
        if change.kind == "join" and from_round > supervisor.setup.steps_of(i):
            supervisor.joining.discard(i)
            self._newcomers.turn_away(i, f"it would join in round {from_round}, after its last step")
            return
        apply(network, [change])
        if change.edge is not None:
            supervisor.note(change.kind, edge=list(change.edge))
        elif change.kind == "leave":
            supervisor.leave(i, from_round)
        else:
            self._newcomers.admit(i, from_round)
            supervisor.join(i, from_round)

    def _tell_what_did_not_happen(self) -> None:
        for change in self._open:
            when = f"{change.time:g} s" if change.iteration is None else f"iteration {change.iteration}"
            self._supervisor.warn(f"the run ended before the {change.kind} of {change.concerns} at {when}")
        self._open = []


def is_due(change: Change, now: float, iteration: int) -> bool:
    """Whether the run has come to it."""
    if change.iteration is not None:
        return iteration >= change.iteration
    return change.time is not None and now >= change.time


def apply(network: Membership, changes: Iterable[Change]) -> None:
    """What these changes make of the network."""
    for change in changes:
        if change.edge is not None:
            network.change_edge(change.edge, change.kind == "edge_up")
        elif change.kind == "join":
            network.take_in(change.client)
        else:
            network.strike_off(change.client)
        _log.debug("%s", change)


def done_before(network: Membership, now: float, iteration: int) -> tuple[int, ...]:
    """The places of those changes that a run has behind it, in the order in which they happen."""
    changes = network.dynamics.changes
    due = [change for change in in_order(changes) if is_due(change, now, iteration)]
    return tuple(changes.index(change) for change in due)
