"""What the authors ran: gradient, then communicate, then the optimiser's step, for every algorithm.

Each test repeats their calls (`Train.py`: backward, `communicate`, `optimizer.step`) with torch's own
optimiser on models that are plain tensors, and compares with ours to 1e-12 in double precision.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import swiftfl
from swiftfl.algorithms import Swift, Synchronous, dsgd, ldsgd, pasgd
from swiftfl.costs import Costs
from swiftfl.engines import SampledEngine, VirtualEngine
from swiftfl.rules import SgdRule
from swiftfl.sample import Batch
from swiftfl.schedule import Decay, every
from worlds import STEP_SIZE, quadratic_setup, run_to_end, slow

NOTHING = np.empty(0, dtype=np.int64)
RULE = SgdRule(momentum=0.9, weight_decay=0.05)
ROC = swiftfl.ring_of_cliques(10, clusters=3)


class TorchClients:
    """n models as the authors' code holds them: parameters, their gradients, and an optimiser each."""

    def __init__(self, workload: Any, n: int, nesterov: bool = False) -> None:
        self.workload, self.n = workload, n
        self.x = [torch.tensor(workload.initial(0), requires_grad=True) for _ in range(n)]
        self.optimisers = [
            torch.optim.SGD([x], lr=STEP_SIZE, momentum=0.9, weight_decay=0.05, nesterov=nesterov)
            for x in self.x
        ]

    def backward(self, i: int, c: int) -> None:
        g = self.workload.gradient(self.x[i].detach().numpy().copy(), Batch(i, c, NOTHING)).g
        self.x[i].grad = torch.tensor(g)

    def values(self) -> np.ndarray:
        return np.stack([x.detach().numpy().copy() for x in self.x], axis=1)

    def set(self, i: int, value: np.ndarray) -> None:
        with torch.no_grad():
            self.x[i].copy_(torch.tensor(value))


def columns(coefficients: swiftfl.Coefficients) -> np.ndarray:
    W = np.zeros((coefficients.topology.n,) * 2)
    for i in range(len(W)):
        for j, w in coefficients.column(i).items():
            W[j, i] = w
    return W


SYNCHRONOUS: dict[str, tuple[Synchronous, Any]] = {
    "dsgd": (dsgd(RULE, "average_first"), lambda c: True),
    "pasgd": (pasgd(2, RULE, "average_first"), lambda c: c % 3 == 0),
    "ldsgd": (ldsgd(2, 2, RULE, "average_first"), lambda c: c % 4 in (3, 0)),
}


@pytest.mark.parametrize("engine", [VirtualEngine, SampledEngine])
@pytest.mark.parametrize("name", SYNCHRONOUS)
def test_synchronous_methods_as_the_authors_ran_them(name: str, engine: type[VirtualEngine]) -> None:
    """X W - step_size (G + decay X W), with torch's momentum, whatever the speeds."""
    algorithm, averages = SYNCHRONOUS[name]
    setup, coefficients, workload = quadratic_setup(
        algorithm, ROC, method="metropolis", epochs=4, costs=Costs(slowdowns=slow({2: 4.0}))
    )
    W, clients = columns(coefficients), TorchClients(workload, ROC.n)
    for c in range(1, 21):
        for i in range(ROC.n):
            clients.backward(i, c)
        if averages(c):
            averaged = clients.values() @ W
            for i in range(ROC.n):
                clients.set(i, averaged[:, i])
        for optimiser in clients.optimisers:
            optimiser.step()
    world = run_to_end(engine(setup))
    np.testing.assert_allclose(np.stack(world.models, axis=1), clients.values(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("s", [0, 2])
def test_swift_as_the_authors_ran_it(s: int) -> None:
    """Under the draw i_t ~ p: gradient, broadcast, average with what was broadcast, step from the average."""
    algorithm = Swift(every(s), RULE, broadcast="after", decay_at="average")
    T = 200
    setup, coefficients, workload = quadratic_setup(algorithm, ROC, iterations=T)
    draws, clients = SampledEngine(setup), TorchClients(workload, ROC.n)
    published = clients.values()  # every mailbox holds x0 at first
    counters = [1] * ROC.n
    for i in [draws.draw() for _ in range(T)]:
        clients.backward(i, counters[i])
        own = clients.values()[:, i]
        published[:, i] = own
        if counters[i] % (s + 1) == 0:
            column = coefficients.column(i)
            clients.set(i, np.sum([w * published[:, k] for k, w in column.items()], axis=0))
        clients.optimisers[i].step()
        counters[i] += 1
    world = run_to_end(SampledEngine(setup))
    np.testing.assert_allclose(np.stack(world.models, axis=1), clients.values(), rtol=0, atol=1e-12)


def test_dsgd_in_the_authors_order_is_swift_at_equal_speeds() -> None:
    """The same coefficients, everybody equally fast: nothing but the waiting is different."""
    models = []
    for algorithm in (dsgd(SgdRule(0.9), "average_first"), Swift(rule=SgdRule(0.9))):
        setup, _, _ = quadratic_setup(algorithm, swiftfl.ring(10), epochs=6)
        models.append(np.stack(run_to_end(VirtualEngine(setup)).models))
    np.testing.assert_allclose(models[0], models[1], rtol=0, atol=1e-12)


def test_broadcasting_after_the_gradient_sends_models_that_are_one_gradient_older() -> None:
    """With a journey shorter than a gradient, `before` shows neighbours x^t where `after` shows x^{t-1}."""
    seen = {}
    for broadcast in ("before", "after"):
        algorithm = Swift(rule=SgdRule(), broadcast=broadcast)
        setup, coefficients, workload = quadratic_setup(algorithm, swiftfl.ring(6), epochs=2)
        W = columns(coefficients)
        own = np.diag(np.diag(W))
        X = [np.tile(workload.initial(0)[:, None], (1, 6))]
        for c in range(1, 11):
            G = [workload.gradient(X[-1][:, i].copy(), Batch(i, c, NOTHING)).g for i in range(6)]
            theirs = X[-1] if broadcast == "before" else X[max(0, len(X) - 2)]
            X.append(X[-1] @ own + theirs @ (W - own) - STEP_SIZE * np.stack(G, axis=1))
        seen[broadcast] = np.stack(run_to_end(VirtualEngine(setup)).models, axis=1)
        np.testing.assert_allclose(seen[broadcast], X[-1], rtol=0, atol=1e-12)
    assert np.abs(seen["before"] - seen["after"]).max() > 1e-3


def test_epochs_at_which_the_authors_lower_the_step_size() -> None:
    """`Train.py` lowers it at the end of epoch e, counted from 0, by floor((1 + e - start) / period)."""
    printed, authors = (
        Decay(0.8, 0.5, start=200, period=10, epoch_of_decay=e) for e in ("printed", "authors")
    )
    for epoch in range(300):
        before = epoch - 1
        theirs = 0.8 * 0.5 ** np.floor((1 + before - 200) / 10) if before >= 200 else 0.8
        assert authors(epoch) == pytest.approx(theirs), epoch
    assert [printed(199), printed(200), authors(209), authors(210)] == [0.8, 0.4, 0.8, 0.4]
    single = Decay(0.1, 0.1, at=(81, 122), epoch_of_decay="authors")
    assert [round(single(e), 6) for e in (81, 82, 122, 123)] == [0.1, 0.01, 0.01, 0.001]
