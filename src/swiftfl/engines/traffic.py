"""What clients send to average with each other, counted by one definition per verb, in every engine.

A *round* is an averaging with at least one other client; *messages* and *bytes* are those that a client
sent, whether or not they arrive. An engine calls the method of a verb when it serves the verb, and says
how large a message is: as the codec leaves the model.

| verb | rounds | messages of the client |
|---|---|---|
| Publish | | one per receiver |
| Mix | one, if there is a weight for a neighbour | |
| Exchange | (by its Mix) | one per receiver |
| Scatter | | one per receiver, of the size of the fragment |
| Gather | one, if anything has arrived | |
| AverageWith | one, of the client that begins | one request with its model; the partner sends one answer |
| Overlapped | as its averaging | as its averaging |
| AllReduce | one | 2 (n - 1) of size / n each, as a ring of n clients does it |
| AllReduce by a server | one | one, to the server, which is no client: its answers are not counted |
| ... with weight 0 | | none: the client only listens |

| Load of another's cell | | the owner sends one |
| Add to another's cell | one | one |

Gradient, Fetch, and Load and Add of one's own cell send nothing. What an engine sends on its own account is
not counted either: first models, the last model of a client that has finished, news of the network.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from swiftfl.verbs import AllReduce, Exchange, Mix, Publish, Scatter

Communication = dict[str, list[int]]


@dataclass(slots=True)
class Traffic:
    """The counters of one client."""

    rounds: int = 0
    messages: int = 0
    bytes: int = 0

    def publish(self, verb: Publish, size: int) -> None:
        receivers = len(verb.to)
        self.messages += receivers
        self.bytes += receivers * size

    def scatter(self, verb: Scatter, size: int) -> None:
        self.messages += len(verb.to)
        self.bytes += len(verb.to) * size

    def gather(self, arrived: bool) -> None:
        self.rounds += arrived

    def mix(self, verb: Mix) -> None:
        if verb.w.of:
            self.rounds += 1

    def exchange(self, verb: Exchange, size: int) -> None:
        receivers = len(verb.receivers)
        self.messages += receivers
        self.bytes += receivers * size

    def average_with(self, size: int, answered: bool = True) -> None:
        """Of the client that begins; without an answer there is no average."""
        self.rounds += answered
        self.messages += 1
        self.bytes += size

    def answer_average(self, size: int) -> None:
        """Of the client that another one averages with."""
        self.messages += 1
        self.bytes += size

    def give(self, size: int) -> None:
        """Of the client whose cell another one loads."""
        self.messages += 1
        self.bytes += size

    def add(self, size: int) -> None:
        """Of the client that changes another one's cell."""
        self.rounds += 1
        self.messages += 1
        self.bytes += size

    def all_reduce(self, verb: AllReduce, clients: int, size: int) -> None:
        """`clients` take part; one by itself sends nothing, nor does one that only listens to a server."""
        if clients == 1 or (verb.by_server and verb.weight == 0):
            return
        self.rounds += 1
        if verb.by_server:
            self.messages += 1
            self.bytes += size
        else:
            self.messages += 2 * (clients - 1)
            self.bytes += 2 * (clients - 1) * size // clients


def communication(clients: Iterable[Traffic]) -> Communication:
    """The counters of all clients, as they stand in a summary."""
    counted = list(clients)
    return {
        "rounds": [traffic.rounds for traffic in counted],
        "messages": [traffic.messages for traffic in counted],
        "bytes": [traffic.bytes for traffic in counted],
    }
