"""Who takes part with which weights, found out by the nodes themselves.

Whenever a neighbour comes or goes, a census (`graph/census.py`) tells all who can reach each other how many
they are, and then they run CCS (`graph/messages.py`) under the number of that census, the *epoch*: what
belongs to another one is ignored. Until its own run is over, a node trains on with its old weights; those of
whoever is gone count as its own, at once. All of this is done by a thread beside the training.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from swiftfl.engines.assignment import Assignment
from swiftfl.engines.live.selecting import OwnSelection
from swiftfl.engines.live.status import StatusTable
from swiftfl.engines.terms import Terms
from swiftfl.federation.connection import Connection
from swiftfl.federation.consensus import ConsensusModel, TreeMean
from swiftfl.graph.census import (
    CONSENSUS,
    FIRST_KIND,
    RENEWAL,
    Census,
    CensusOutgoing,
    CensusResult,
    Share,
    begun,
    pack,
    sound,
    unpack,
)
from swiftfl.transports.base import SmallMessage

_LOOK_EVERY = 0.02  # seconds
_RATE_CHANGED = 1.25  # by this factor since the last epoch, and at least so many seconds ago:
_MEASURE_EVERY = 5.0
_BEGIN_AGAIN, _TRIES = 10.0, 6
"""Seconds after which a consensus whose census is not over is begun again, and how often that is tried."""
# What neighbours say of epochs is believed up to about as many as there can have been, so that nobody can
# use them up; a node whose clock is wrong believes a few more than it knows of.
_YEAR_2026, _EPOCHS_PER_SECOND, _EPOCHS_AHEAD = 1767225600, 10, 1000


@dataclass(frozen=True)
class InfluencePolicy:
    """What a node brings to a census: the influence it was given; or, measured, its steps per second, with
    steps scaled so that data count as given (`objective: as_given`), or not."""

    given: float
    measured: bool = False
    keep_objective: bool = False


class AwaitedConsensus(NamedTuple):
    """One that this node has begun: the newest before, until when its census should be over, tries left."""

    before: ConsensusModel | None
    until: float
    tries: int


class NodeMembership:
    """One node's part. `rate` tells its steps per second; `say` is told what happens, for people to read."""

    def __init__(
        self,
        connection: Connection,
        index: int,
        policy: InfluencePolicy,
        rate: Callable[[], float],
        say: Callable[[str], None],
    ) -> None:
        self.connection, self.policy, self._rate, self._say = connection, policy, rate, say
        transport = connection.transport
        self.consensus = TreeMean(transport)
        self._census = Census(index)
        self._status = StatusTable(len(connection.names) + 1)
        self._selection = OwnSelection(0, transport, self._status, in_rounds=False)
        self._seen: dict[int, int] | None = None
        self._counted = 0  # the epoch whose census was used
        self._began = 0.0
        self._terms: list[Terms] = []
        self._lock = threading.Lock()
        self._wanted = False  # a consensus
        self._awaited: AwaitedConsensus | None = None
        self._refused: dict[tuple[int, int], str] = {}  # the last one, by sender and kind
        self._closing = threading.Event()
        self.assignment: Assignment | None = None
        self.selected: tuple[Assignment, Terms] | None = None
        """The newest epoch whose weights are known: what this node was told, and what it selected."""
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="swiftfl-membership", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def take_terms(self) -> list[Terms]:
        """What holds from the next step on; called by the thread that trains."""
        if self.failure is not None:
            raise self.failure
        with self._lock:
            found, self._terms = self._terms, []
        return found

    def want_consensus(self) -> None:
        """Begin to average the models of all who can be reached."""
        self._awaited = None
        self._wanted = True
        self.connection.changed.set()

    def close(self) -> None:
        self._closing.set()
        self.connection.changed.set()
        if self._thread.is_alive():
            self._thread.join(2.0)

    # --- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                self.turn()
                self.connection.changed.wait(_LOOK_EVERY)
                self.connection.changed.clear()
        except BaseException as error:  # told to the node at its next step
            self.failure = error

    def turn(self) -> None:
        """Look at everything once."""
        view, awaited = self.connection.view(), self._awaited  # which another thread may take away
        if view != self._seen:
            self._tell_changes(view)
            self._seen = view
            self._begin(RENEWAL)
            if awaited is not None and awaited.tries > 1:
                self._wanted = True  # whoever was to take part is not there any more, or anew
        elif self._wanted and not self._settling:
            self._wanted = False
            tries = _TRIES if awaited is None else awaited.tries - 1
            until = time.monotonic() + _BEGIN_AGAIN
            self._awaited = AwaitedConsensus(self.consensus.newest, until, tries)
            self._begin(CONSENSUS)
        elif self._rate_has_changed():
            self._begin(RENEWAL)
        share = self._share()
        for k in view:
            for message in self.connection.transport.heard(k):
                if message.kind >= FIRST_KIND and self._is_sound(k, message):
                    self._send(self._census.receive(k, unpack(*message), view, share))
        result = self._census.result
        news = []
        if result is not None and result.epoch != self._counted:
            self._counted = result.epoch
            if result.purpose == CONSENSUS:
                self.consensus.begin(result)
            else:
                news = [self._assign(result)]
        for terms in self._selection.take(news):
            self._adopt(terms)
        self.consensus.advance()
        self._look_after_consensus()

    def _look_after_consensus(self) -> None:
        """Begin the one that this node was asked for again, if another census came in its way."""
        awaited = self._awaited
        if awaited is None or self._wanted:
            return
        if self.consensus.newest is not awaited.before:
            self._awaited = None
        elif self.consensus.under_way is None and time.monotonic() > awaited.until:
            if awaited.tries > 1:
                self._wanted = True
            else:
                self._awaited = None

    def _is_sound(self, k: int, message: SmallMessage) -> bool:
        """Whether a message of a census is taken in; one that is not is counted, once."""
        most = max(begun(self._census.epoch) + _EPOCHS_AHEAD, (time.time() - _YEAR_2026) * _EPOCHS_PER_SECOND)
        if sound(unpack(*message)) and begun(message.epoch) <= most:
            return True
        said = str(tuple(message))  # in which NaN is like NaN
        if self._refused.get((k, message.kind)) != said:
            self._refused[k, message.kind] = said
            self.connection.refuse(k, f"a message of a census that cannot be: {said}")
        return False

    @property
    def _settling(self) -> bool:
        """Whether a renewal is under way, which a consensus is not to disturb."""
        return self._census.result is None or self._selection.under_way

    def _share(self) -> Share:
        given = self.policy.given
        return Share(self._rate() if self.policy.measured else given, given)

    def _begin(self, purpose: int) -> None:
        self._began = time.monotonic()
        self._send(self._census.begin(list(self._seen or ()), self._share(), purpose))

    def _rate_has_changed(self) -> bool:
        if not self.policy.measured or self.assignment is None:
            return False
        if self._settling or time.monotonic() - self._began < _MEASURE_EVERY:
            return False
        now, then = self._rate(), self.assignment.p
        return not then / _RATE_CHANGED <= now <= then * _RATE_CHANGED

    def _assign(self, result: CensusResult) -> Assignment:
        scale = result.scale if self.policy.measured and self.policy.keep_objective else 1.0
        self.assignment = Assignment(
            result.epoch, result.n, result.uniform, result.share.p, result.neighbours, scale
        )
        return self.assignment

    def _adopt(self, terms: Terms) -> None:
        assert self.assignment is not None
        if not all(0.0 <= c <= 1.0 for c in (terms.w.own, *terms.w.of.values())):
            self._say("keeps its weights: those that its neighbours lead to cannot be")
            return
        self.selected = self.assignment, terms
        with self._lock:
            self._terms.append(terms)
        who = ", ".join(self.connection.names[k] for k in terms.w.of)
        n = self.assignment.n
        self._say(f"averages with {who}; {n} nodes can reach each other" if who else "trains alone")

    def _tell_changes(self, view: dict[int, int]) -> None:
        before = self._seen or {}
        names = self.connection.names
        for k in sorted(view.keys() | before.keys()):
            if k not in view:
                self._say(f"{names[k]} is gone; its weight is this node's own")
            elif k not in before:
                self._say(f"{names[k]} is here" + (" again" if view[k] > 1 else ""))
            elif view[k] != before[k]:
                self._say(f"{names[k]} was started again")

    def _send(self, messages: CensusOutgoing) -> None:
        for k, message in messages:
            self.connection.transport.tell(k, SmallMessage(*pack(message)))
