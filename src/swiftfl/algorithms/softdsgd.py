"""Soft-DSGD: decentralized SGD over links that lose packets (Ye, Liang, Li, IEEE JSTSP 2022).

After its gradient step each client sends its model to its neighbours in packets, over links that do not send
again what was lost. Whatever is missing of a neighbour's model is replaced by one's own:

    x_i[k] <- x_i[k] + sum_{j: packet k of j has arrived} w_{j,i} (x_j - x_i)[k]

per packet the same as D-SGD with the graph of the packets that have arrived. Each packet is lost with the
probability `engine.costs.loss`, independently per link, packet and round; without losses this is D-SGD.

Deviations: the paper chooses W for the links' known probabilities (it minimises the largest eigenvalue of
E[W'W] - J); here weights are those of D-SGD, Metropolis unless others are asked for. Probabilities are the
same for all links. Processes on one host, and MPI, lose nothing: there it is D-SGD.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar

from swiftfl.algorithms.registry import Context, algorithm
from swiftfl.client import Client, State
from swiftfl.rules import SgdRule, UpdateRule, applied
from swiftfl.settings import Count
from swiftfl.verbs import Exchange, Gradient, Mix, Verb


@dataclass(frozen=True)
class SoftDsgd:
    """D-SGD in packets of `packet` numbers each, any of which may be missing."""

    packet: int = 350
    rule: UpdateRule = SgdRule()
    name: str = "softdsgd"
    in_rounds: ClassVar[bool] = True

    def step(self, me: Client, s: State) -> Generator[Verb, object, State]:
        slope = yield from Gradient(s.x, me.batch(s.c))
        x, memory, _ = applied(self.rule, s.x, slope, s.x, me.step_size(s.c), s.memory)
        inbox = yield from Exchange(x, me.neighbours, round=s.c, packet=self.packet)
        x = yield from Mix(me.w, x, inbox)
        return State(x, s.c + 1, memory)


@algorithm("softdsgd")
def softdsgd(context: Context, *, packet: Count = 350) -> SoftDsgd:
    """D-SGD over links that lose packets of `packet` numbers (`engine.costs.loss`); waits for neighbours."""
    return SoftDsgd(packet, context.rule)
