"""Gradient tracking in SWIFT's manner (after R-FAST, Zhu et al. 2023), against SWIFT: on an MLP and on a CNN.

    python benchmarks/tracked.py            # the table of docs/what-to-use.md
    python benchmarks/tracked.py --quick    # one seed, fewer steps

The task is that of `swiftfl reproduce better` (8 clients in a ring, digits, 20 % spread), with its rule for
step sizes and fresh seeds; the CNN has three convolutions of 8, 16 and 32 planes. The last two columns are
with the step size that is best for the MLP.
The algorithm is not offered by the library: the page says why.
"""

from __future__ import annotations

import argparse
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from torch import nn

from swiftfl.algorithms.registry import Context, algorithm
from swiftfl.client import Client, State
from swiftfl.graph.directed import Directed, directed
from swiftfl.report.numbers import interval
from swiftfl.reproduce.laboratory import digits
from swiftfl.reproduce.laboratory.plan import SCALES, STEPS, at
from swiftfl.reproduce.laboratory.trials import fresh, tune
from swiftfl.rules import Remembering, SgdRule, UpdateRule
from swiftfl.vector import Memory, Vector, narrow, wide
from swiftfl.verbs import Fetch, Gradient, Publish, WaitFree
from swiftfl.workload.basic_models import cnn
from swiftfl.workload.models import MODELS


@dataclass(frozen=True)
class Tracked:
    """Each client tracks the mean gradient z_i of all; sums of all that was sent lose nothing on the way:

    v_i = x_i + move(z_i);  publish (v_i, rho_i);  x_i <- sum_j w_ji v_j;  g_i at x_i
    z' = z_i + sum_j (rho_j - seen_j) + g_i - g_i(before);  z_i, and rho_i's growth, are z' / (1 + degree)
    """

    graph: Directed
    base: UpdateRule = SgdRule()
    name: str = "tracked"
    in_rounds: ClassVar[bool] = False
    fixed_network: ClassVar[bool] = True
    only_simulated: ClassVar[str] = "sends more than its model"

    def first_message(self, x: Vector) -> Vector:
        return np.concatenate((x, narrow(np.zeros(x.size), x.dtype)))

    @cached_property
    def rule(self) -> Remembering:
        return Remembering(self.base, self._first)

    def _first(self, x: Vector) -> Memory:
        nothing = narrow(np.zeros(x.size), x.dtype)
        seen = np.zeros(self.graph.most_into * nothing.size, dtype=x.dtype)
        return {"tracked": nothing, "before": np.zeros_like(x), "sent": nothing, "seen": seen}

    def step(self, me: Client, s: State) -> Generator[WaitFree, object, State]:
        tracked = wide(s.memory["tracked"], s.x)
        move, memory = self.rule.update(tracked.astype(s.x.dtype), s.x, me.step_size(s.c), s.memory)
        v: Vector = s.x + move
        yield from Publish(np.concatenate((v, s.memory["sent"])), me.neighbours, version=s.c)
        inbox = yield from Fetch(me.neighbours)
        x, seen, size = me.w.own * v, s.memory["seen"].copy(), s.memory["sent"].size
        for position, k in enumerate(self.graph.into[me.index]):
            x = x + me.w.of[k] * inbox[k][: v.size]
            old = seen[position * size : (position + 1) * size]
            tracked += wide(inbox[k][v.size :], s.x) - wide(old, s.x)
            old[:] = inbox[k][v.size :]
        x = x.astype(s.x.dtype)
        slope = yield from Gradient(x, me.batch(s.c))
        tracked += slope.g.astype(np.float64) - s.memory["before"]
        share = tracked / (1 + len(me.neighbours))
        sent = narrow(wide(s.memory["sent"], s.x) + share, s.x.dtype)
        own = {"tracked": narrow(share, s.x.dtype), "before": slope.g, "sent": sent, "seen": seen}
        return State(x, s.c + 1, {**memory, **own})


@algorithm("tracked", weights="ccs")
def make_tracked(context: Context) -> Tracked:
    """SWIFT with gradient tracking."""
    return Tracked(directed(context.topology, "both"), context.rule)


@MODELS.add("digits_cnn")
def digits_cnn(shape: Sequence[int], classes: int) -> nn.Module:
    """The library's CNN on the digits, which come as rows of 64 numbers."""
    return nn.Sequential(nn.Unflatten(1, (1, 8, 8)), cnn((1, 8, 8), classes, width=8))


NETWORKS = {"MLP": {"model.name": "mlp"}, "CNN": {"model.name": "digits_cnn"}}
METHODS: dict[str, dict[str, Any]] = {
    "SWIFT": {"algorithm.name": "swift"},
    "SWIFT look-ahead": {"algorithm.name": "swift", "algorithm.look_ahead": True},
    "tracked": {"algorithm.name": "tracked"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Gradient tracking.")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--data", default="skew", help="With commas between: " + ", ".join(digits.DATA))
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    scale = SCALES["smoke" if arguments.quick else "small"]
    seeds = 1 if arguments.quick else arguments.seeds
    print("| data | model | method | γ | accuracy | clients' own | γ of the MLP | accuracy with it |")
    print("|---|---|---|--:|--:|--:|--:|--:|")
    for data in arguments.data.split(","):
        of_mlp: dict[str, float] = {}
        for model, network in NETWORKS.items():
            for method, changes in METHODS.items():
                common = {
                    "learner": digits.LEARNER,
                    "world": {**digits.world(data, "spread", changes), **network},
                    "steps": scale.steps,
                    "seconds": 0.0,
                    "every": scale.steps // scale.points,
                }
                tuned = tune({**common, "step_sizes": list(scale.step_sizes), "seeds": [100]})
                chosen = tuned["chosen"][STEPS]
                of_mlp.setdefault(method, chosen)
                choices = {"own": chosen, "mlp": of_mlp[method]}
                runs = [fresh({**common, "choices": choices, "seed": seed}) for seed in range(seeds)]

                def told(choice: str, what: str, runs: Any = runs, choices: Any = choices) -> str:
                    rows = [run[f"{choices[choice]:g}"]["rows"] for run in runs]
                    return f"{interval([100 * at(r, STEPS, scale.steps, what) for r in rows], 1)}"

                cells = [
                    *(digits.DATA[data].label, model, method, f"{chosen:g}"),
                    *(told("own", "accuracy"), told("own", "client_accuracy")),
                    *(f"{of_mlp[method]:g}", told("mlp", "accuracy")),
                ]
                print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
