"""DivShare: models in fragments, each to random clients (Biswas et al., The Web Conference 2025).

After `local_steps` gradients each client cuts its model into `fragments`, sends each of them to `recipients`
random others, and averages its model, number by number, with the fragments that have arrived since:

    x[k] <- (x[k] + sum of the x_j[k] received) / (1 + how many were received of number k)

Of one sender and fragment only the newest counts. Nobody waits. A slow link delivers some fragments in the
time of a model, and every client gets something from many others.

From the authors' code: this order, the averaging, one uniform draw of recipients per fragment. Their
example has 6 recipients for 60 clients, about log2 n, which is the default here; that the paper's fragments
are a tenth of the model (the default here, too) was recalled and not looked up.

Deviations: recipients are drawn among the client's neighbours; on a complete graph these are all others, as
in the paper. Fragment f of F is every F-th number from f on, where the authors permute numbers at random
within each layer. Fragments that wait to be sent are not replaced by newer ones: links here have no queue.
Live engines do not serve `Scatter` and `Gather` yet.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar

from swiftfl.algorithms.registry import Context, algorithm
from swiftfl.client import Client, State
from swiftfl.rules import SgdRule, UpdateRule, applied
from swiftfl.settings import Count, NotNegative, Pieces
from swiftfl.streams import stream
from swiftfl.vector import finite
from swiftfl.verbs import Gather, Gradient, Scatter, WaitFree


@dataclass(frozen=True)
class DivShare:
    """Local steps, then fragments to random neighbours, which `seed` draws. 0 recipients: about log2 n."""

    fragments: int = 10
    recipients: int = 0
    local_steps: int = 1
    rule: UpdateRule = SgdRule()
    seed: int = 0
    name: str = "divshare"
    in_rounds: ClassVar[bool] = False
    only_simulated: ClassVar[str] = "sends fragments of models"

    def step(self, me: Client, s: State) -> Generator[WaitFree, object, State]:
        slope = yield from Gradient(s.x, me.batch(s.c))
        x, memory, _ = applied(self.rule, s.x, slope, s.x, me.step_size(s.c), s.memory)
        if s.c % self.local_steps == 0 and me.neighbours and finite(x):  # otherwise the step will be left out
            for fragment, to in enumerate(self.drawn(me, s.c)):
                yield from Scatter(x, fragment, self.fragments, to, version=s.c)
            total, count = yield from Gather()
            x = (x + total) / (1 + count)
        return State(x, s.c + 1, memory)

    def drawn(self, me: Client, c: int) -> list[tuple[int, ...]]:
        """Who gets each fragment of step c."""
        near = len(me.neighbours)
        count = min(near, self.recipients or math.ceil(math.log2(near + 1)))
        draw = stream(self.seed, "recipients", me.index, c)
        return [
            tuple(sorted(me.neighbours[k] for k in draw.choice(near, size=count, replace=False)))
            for _ in range(self.fragments)
        ]


@algorithm("divshare", weighted=False, influenced=False)
def divshare(
    context: Context, *, fragments: Pieces = 10, recipients: NotNegative = 0, local_steps: Count = 1
) -> DivShare:
    """Fragments of the model to random neighbours; averages what has arrived and never waits."""
    return DivShare(fragments, recipients, local_steps, context.rule, context.seed)
