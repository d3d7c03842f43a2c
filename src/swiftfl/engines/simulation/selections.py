"""CCS as simulated clients run it themselves (`Setup.ccs`), each with its neighbours, by messages.

An *epoch* is one run of CCS: at the start, and for every renewal. Each client is told its part (`Assignment`)
and exchanges the messages of `graph/messages.py` beside its steps, which they do not delay. In virtual time a
message travels as long as the costs have it for its few bytes, and is never lost; where nothing takes time,
messages arrive in a random order. Who is gone answers nobody, so an epoch with a client that is lost does not
end; the next one, which begins when the loss is noticed, replaces it.
"""

from __future__ import annotations

import logging

from swiftfl.engines.assignment import Assignment, check_conditions
from swiftfl.engines.saved import Saved, Tree
from swiftfl.engines.simulation.world import World
from swiftfl.graph.messages import BYTES, KINDS, Message, Outgoing, Selection, pack, unpack
from swiftfl.streams import stream
from swiftfl.vector import Weights

_log = logging.getLogger(__name__)
Journey = tuple[int, int, Message]
"""Sender, receiver and message."""


class Selections:
    """The newest epoch: who runs it, what is on its way, and what all epochs have cost."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.flying: dict[int, Journey] = {}  # by the number of the event of their arrival
        self._told: dict[int, Assignment] = {}
        self._clients: dict[int, Selection] = {}
        self._heard: list[Journey] = []  # what brought the clients where they are
        self._began = 0.0
        self._runs = self._messages = 0
        self._seconds = 0.0  # the longest that a client took from the start of an epoch to its weights

    # --- one epoch -----------------------------------------------------------------------------

    def begin(self, told: dict[int, Assignment]) -> list[int]:
        """Begin an epoch, in virtual time; who has its weights at once, because it has no neighbours."""
        self._told = told
        self._clients = {i: told[i].selection(i) for i in told if self.world.records[i].present}
        self._heard = []
        self._began = self.world.now
        self._runs += 1
        for i, client in self._clients.items():
            self._send(i, client.start())
        return [i for i, client in self._clients.items() if client.done]

    def run_at_once(self, told: dict[int, Assignment]) -> None:
        """A whole epoch where nothing takes time: messages arrive in a random order."""
        self.begin(told)
        draw = stream(self.world.setup.seed, "ccs", counter=self._runs)
        waiting = list(self.flying)
        while waiting:
            k, sent = int(draw.integers(len(waiting))), self._messages
            waiting[k], waiting[-1] = waiting[-1], waiting[k]
            self.deliver(waiting.pop())
            waiting += range(sent + 1, self._messages + 1)

    @property
    def renewal(self) -> bool:
        """Whether the epoch renews weights that clients already have."""
        return self._runs > 1

    @property
    def over(self) -> bool:
        """Whether everybody who was told has its weights."""
        return all(i in self._clients and self._clients[i].done for i in self._told)

    def result(self, i: int) -> tuple[Weights, float]:
        """The weights of a client that has them, and the scale of its step size."""
        weights = self._clients[i].weights
        assert weights is not None
        return weights, self._told[i].scale

    def results(self) -> dict[int, tuple[Weights, float]]:
        """Of an epoch that is over, everybody's; conditions (a)-(d) are asserted."""
        found = {i: self.result(i) for i in self._told}
        check_conditions(self._told, {i: w for i, (w, _) in found.items()})
        _log.debug("run %d of CCS: %d clients have their weights", self._runs, len(found))
        return found

    def deliver(self, number: int) -> list[int]:
        """A message arrives; who has its weights by it."""
        sender, receiver, message = self.flying.pop(number)
        client = self._clients.get(receiver)
        if client is None or message.epoch != client.epoch:
            return []
        if not (self.world.records[receiver].present and self.world.links.passes(sender, receiver)):
            return []
        self._heard.append((sender, receiver, message))
        self._send(receiver, client.receive(sender, message))
        if not client.done:
            return []
        self._seconds = max(self._seconds, self.world.now - self._began)
        return [receiver]

    def _send(self, sender: int, messages: Outgoing) -> None:
        world = self.world
        for receiver, message in messages:
            self._messages += 1
            number = self._messages
            if world.timed_gradients:
                journey = world.costs.transit(sender, receiver, BYTES)
                journey += world.costs.delay(sender, receiver, number, "ccs")
                number = world.events.plan(world.now + journey)
            self.flying[number] = (sender, receiver, message)

    def figures(self) -> dict[str, float]:
        """Runs, messages and bytes in all, and the seconds of the client that took longest for one run."""
        bytes = BYTES * self._messages
        return {"runs": self._runs, "messages": self._messages, "bytes": bytes, "seconds": self._seconds}

    # --- checkpoints ---------------------------------------------------------------------------

    def state(self) -> Tree:
        """A client's run follows from what it was told and what it has heard."""
        return {
            "told": [[i, each.pack()] for i, each in self._told.items()],
            "clients": sorted(self._clients),
            "heard": [_pack(journey) for journey in self._heard],
            "flying": [[number, _pack(journey)] for number, journey in self.flying.items()],
            "began": self._began,
            "runs": self._runs,
            "messages": self._messages,
            "seconds": self._seconds,
        }

    def restore(self, saved: Saved) -> None:
        n = self.world.n
        self._told = {i: _read_assignment(each, n) for i, each in saved["told"].pairs(n)}
        self._clients = {}
        for i in saved["clients"].clients(n):
            if i not in self._told:
                saved["clients"].fail(f"has client {i}, which was told nothing")
            self._clients[i] = self._told[i].selection(i)
        self._heard = []
        for item in saved["heard"].items():
            sender, receiver, message = heard = _read_journey(item, n)
            client = self._clients.get(receiver)
            if client is None or message.epoch != client.epoch or sender not in client.neighbours:
                item.fail(f"was not for client {receiver}")
            client.receive(sender, message)  # what it made possible to send was sent
            self._heard.append(heard)
        self.flying = {}
        for item in saved["flying"].items():
            number, journey = item.items(2)
            self.flying[number.integer(1)] = _read_journey(journey, n)
        self._began = saved["began"].number(0.0)
        self._runs, self._messages = saved["runs"].integer(), saved["messages"].integer()
        self._seconds = saved["seconds"].number(0.0)


def _pack(journey: Journey) -> list[float]:
    sender, receiver, message = journey
    return [sender, receiver, *pack(message)]


def _read_journey(saved: Saved, n: int) -> Journey:
    sender, receiver, kind, epoch, first, second = saved.items(6)
    message = unpack(kind.integer(0, len(KINDS) - 1), epoch.integer(), first.number(), second.number())
    return sender.integer(0, n - 1), receiver.integer(0, n - 1), message


def _read_assignment(saved: Saved, n: int) -> Assignment:
    epoch, members, uniform, p, neighbours, scale = saved.items(6)
    return Assignment(
        epoch.integer(),
        members.integer(1, n),
        uniform.flag(),
        p.number(0.0),
        tuple(neighbours.clients(n)),
        scale.number(0.0),
    )
