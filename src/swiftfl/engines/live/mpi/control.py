"""What a client asks of its engine, where that is a rank: orders, terms and its own CCS over the channel."""

from __future__ import annotations

import time
from collections.abc import Callable

from swiftfl.engines.assignment import Assignment
from swiftfl.engines.live.mpi.channel import RankChannel
from swiftfl.engines.live.selecting import News, OwnSelection
from swiftfl.engines.live.status import HOLDING, HOLDS, RUNNING, Order, Tally
from swiftfl.engines.terms import ALONE, Terms
from swiftfl.vector import Vector

_CPU_EVERY = 0.2


class RankControl:
    """A client's control (`engines.live.control.Control`) over its rank's channel.

    `most_steps` is where a client finishes by itself if nobody counts the steps of all any more.
    """

    def __init__(
        self,
        channel: RankChannel,
        in_rounds: bool,
        incarnation: int,
        most_steps: float,
        hand_over: Callable[[Vector, int], None],
    ) -> None:
        self.channel, self.status, self.me = channel, channel.status, channel.me
        self.hand_over = hand_over
        self.selecting = OwnSelection(self.me, channel.transport, channel.status, in_rounds)
        self._early: list[Terms] = []  # that came while this client waited
        self.in_rounds, self.incarnation, self.most_steps = in_rounds, incarnation, most_steps
        self.warnings: list[str] = []
        self._shown = 0
        self._cpu_at, self._cpu_before = 0.0, time.process_time()  # of imports, and of making the run

    def report(self, c: int, tally: Tally, settle: bool = False) -> None:
        now = time.perf_counter()
        if settle or now - self._cpu_at >= _CPU_EVERY:
            spent = time.process_time()
            tally.cpu += spent - self._cpu_before
            self._cpu_at, self._cpu_before = now, spent
        self.status.write(self.me, c, self.incarnation, tally)
        self.channel.reported()

    def new_terms(self) -> list[Terms]:
        early, self._early = self._early, []
        if self.selecting.under_way and not self.in_rounds and self.channel.leaderless:
            self.channel.lead_oneself()
        return early + self.selecting.take(self._news())

    def _news(self) -> list[News]:
        found = []
        while self.channel.news:  # the channel's thread may add to the same list meanwhile
            found.append(self.channel.news.pop(0))
        return found

    def select(self, assignment: Assignment) -> Terms:
        """Run CCS with the neighbours to its end, and wait for them, unless the run is stopped.

        If the first rank is lost meanwhile, the others run CCS without it. Those who never wait in their
        steps do not wait for that.
        """
        self.set_waits(True)
        self.selecting.take([assignment])
        while (terms := self.selecting.result) is None:
            if self.channel.leaderless:
                self.channel.lead_oneself()
            if self.channel.asked and (not self.in_rounds or self.channel.leaderless):
                return ALONE
            if self.channel.leaderless and not self.in_rounds:
                self._early = self.new_terms()
                return ALONE
            self.channel.pause()
            self.selecting.take(self._news())
        self.set_waits(False)
        return terms

    def first_terms(self, ended: Callable[[], bool]) -> Terms:
        """The terms of a client that has joined, once it has them; ALONE if the run ends before."""
        while not (found := self.new_terms()):
            if ended():
                return ALONE
            self.channel.pause()
        return found[-1]

    def answer(self) -> None:
        """Take part in what neighbours select, while this client takes no steps."""
        self._early = self.new_terms()

    def wants_model(self, published: bool) -> bool:
        """Once for each time that the first rank has asked."""
        wanted, before = self.channel.orders["show"], self._shown
        self._shown = wanted
        return wanted > before

    def order(self, c: int) -> Order:
        channel = self.channel
        if self.status.leaves(self.me, c):
            return "leave"
        if channel.asked and (not self.in_rounds or channel.leaderless):
            return "stop"
        if c > self.most_steps and channel.leaderless:
            return "finish"
        return self.status.order(c)

    def hold(self, c: int) -> Order:
        """Where clients meet in rounds, all stop before the same one, which the first rank names."""
        self.status.enter(self.me, HOLDING)
        while (order := self.order(c)) in HOLDS:
            if order == "pause" and self.channel.leaderless:
                return "go_on"
            if order != "pause" and (self.status.final or not self.in_rounds or self.channel.leaderless):
                return order
            self.answer()
            self.channel.pause()
        self.status.enter(self.me, RUNNING)
        return order

    def set_waits(self, waits: bool) -> None:
        self.status.set_waits(self.me, waits)

    def warn(self, text: str) -> None:
        self.warnings.append(text)
