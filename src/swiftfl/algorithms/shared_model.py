"""Two yardsticks with one model that all clients change: HOGWILD! and AsySG-Con.

HOGWILD! (Recht et al., NIPS 2011): each client, at its own speed and without locks,

    x^ <- the shared x;    g <- gradient at x^;    x <- x - step_size g

AsySG-Con (Lian et al., NIPS 2015): the model is held by a server, which applies the gradients of its
clients, taken at models of the past, as soon as it has M of them:

    x_{k+1} = x_k - step_size sum_{m = 1..M} g_m(x_{k - tau_m})

What they have in common with SWIFT is that nobody waits for a slow client, and that gradients are old; the
theory wants step sizes about as small as 1 / staleness. What they have not: there is a centre, through
which all pass.

The model is the cell of client 0, which trains as well. A client's own model is what it saw of the cell
when it wrote last. With M = 1 the two are the same recursion here: they differ in what can be seen of a
write that is under way.

Deviations: each write and each read is whole (HOGWILD!'s are atomic per number only, and its gradients are
sparse, so that few writes meet; here a message has the size of the model). A write takes effect when it is
sent, not when it arrives. Gradients that the server has collected and not applied when the run ends are
lost, fewer than M. Moments belong to the clients, as everywhere. That AsySG-Con adds gradients up and does
not average them was recalled, not looked up. Live engines do not serve cells of others yet.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar

from swiftfl.algorithms.registry import Context, algorithm
from swiftfl.client import Client, State
from swiftfl.rules import SgdRule, UpdateRule, updated
from swiftfl.settings import Count
from swiftfl.verbs import Add, Gradient, Load, Verb

CENTRE = 0
"""The client whose cell is the shared model."""


@dataclass(frozen=True)
class SharedModel:
    """SGD on one model; `together` moves are collected before they are applied."""

    together: int = 1
    rule: UpdateRule = SgdRule()
    name: str = "hogwild"
    in_rounds: ClassVar[bool] = False
    fixed_network: ClassVar[bool] = True
    only_simulated: ClassVar[str] = "has all clients change one cell"

    def step(self, me: Client, s: State) -> Generator[Verb, object, State]:
        x = yield from Load(owner=CENTRE)
        slope = yield from Gradient(x, me.batch(s.c))
        move, memory = updated(self.rule, slope.g, x, me.step_size(s.c), s.memory)
        x = yield from Add(move, slope.statistics, owner=CENTRE, together=self.together)
        return State(x, s.c + 1, memory)


@algorithm("hogwild", weighted=False, edges="none", influenced=False)
def hogwild(context: Context) -> SharedModel:
    """One model that all clients read and change, whenever they like; nobody waits. A yardstick."""
    return SharedModel(1, context.rule)


@algorithm("asysg", weighted=False, edges="none", influenced=False)
def asysg(context: Context, *, together: Count = 1) -> SharedModel:
    """A server applies old gradients, `together` at a time; nobody waits for the slow. A yardstick."""
    return SharedModel(together, context.rule, "asysg")
