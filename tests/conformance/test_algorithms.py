"""One battery for every algorithm: what must hold whatever the method."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import swiftfl
from makers import MAKERS
from swiftfl.algorithms import ALGORITHMS
from swiftfl.costs import Costs
from swiftfl.engines import SampledEngine, VirtualEngine
from swiftfl.rules import SgdRule
from swiftfl.sample import Batch, Slope
from swiftfl.schedule import decay_every
from worlds import STEP_SIZE, clocks, quadratic_setup, resumed, run_to_end, slow, steps

SWIFTS = {"swift", "swift C_2", "swift, corrected", "swift, look-ahead"}
WAIT_FREE = {"quasi_global, swift", "sgp, overlapped", "divshare"} | SWIFTS
CENTRAL = {"hogwild", "asysg"}
"""One model for all: nobody waits for a lock that is never held for long."""
OWN_MOMENTUM = {"quasi_global", "quasi_global, swift"}
OWN_MEAN = {"fedavg, half", "divshare"} | SWIFTS | OWN_MOMENTUM | CENTRAL
"""Of these the mean of all models is kept in expectation only, or momentum carries it on."""
ENGINES: dict[str, Any] = {"virtual": VirtualEngine, "sampled": SampledEngine}
GRAPH = swiftfl.ring_of_cliques(8, clusters=2)
COSTS = Costs(compute=0.01, latency=0.003, slowdowns=slow({1: 3.0, 4: 0.6}))
MOMENTUM = SgdRule(momentum=0.8, weight_decay=0.01)

every_algorithm = pytest.mark.parametrize("name", MAKERS)
every_engine = pytest.mark.parametrize("engine", ENGINES)


def world(name: str, engine: str, **options: Any) -> Any:
    setup, _, _ = quadratic_setup(
        MAKERS[name](GRAPH, MOMENTUM), GRAPH, method="metropolis", costs=COSTS, **options
    )
    return ENGINES[engine](setup)


def assert_same(a: Any, b: Any) -> None:
    assert a.iteration == b.iteration
    assert clocks(a) == clocks(b)
    assert all((x == y).all() for x, y in zip(a.models, b.models, strict=True))


def test_no_algorithm_of_the_package_is_left_out() -> None:
    """Of this battery, or of the table of the docs."""
    own = {name for name, entry in ALGORITHMS.items() if entry.make.__module__.startswith("swiftfl.")}
    made = {MAKERS[name](GRAPH, MOMENTUM).name for name in MAKERS}
    assert own - made == set()
    table = (Path(__file__).parents[2] / "docs" / "algorithms.md").read_text().split("## Counted")[0]
    assert {name for name in own if f"`{name}`" not in table} == set()


@every_engine
@every_algorithm
def test_same_seed_same_run_and_it_ends(name: str, engine: str) -> None:
    first = run_to_end(world(name, engine, epochs=6))
    assert steps(first) == [30] * 8
    assert_same(first, run_to_end(world(name, engine, epochs=6)))


@every_engine
@every_algorithm
@pytest.mark.parametrize("pause", [1, 37, 101, 238])
def test_checkpoint_and_resume(name: str, engine: str, pause: int) -> None:
    paused = world(name, engine, epochs=6)
    paused.start()
    paused.advance(pause)
    going_on = resumed(paused, world(name, engine, epochs=6))
    going_on.advance(10**9)
    assert_same(run_to_end(world(name, engine, epochs=6)), going_on)


class Standstill:
    """A workload without gradients: what is left is the communication."""

    name = "standstill"
    parameters = 5
    buffers = 0

    def initial(self, seed: int) -> np.ndarray:
        return np.zeros(5)

    def gradients(self, xs: Any, batches: list[Batch]) -> list[Slope]:
        """The first step moves each client to its own place; after that nothing pulls."""
        place = [np.full(5, float(b.client)) if b.counter == 1 else np.zeros(5) for b in batches]
        return [Slope(-x / STEP_SIZE, 0.0) for x in place]


@every_engine
@every_algorithm
def test_zero_gradients_reach_consensus(name: str, engine: str) -> None:
    setup, _, _ = quadratic_setup(MAKERS[name](GRAPH, SgdRule()), GRAPH, method="metropolis", epochs=100)
    object.__setattr__(setup, "workload", Standstill())
    models = np.stack(run_to_end(ENGINES[engine](setup)).models)
    spread = models.max(axis=0) - models.min(axis=0)
    assert (spread < 1e-3).all()
    assert 0 <= models.mean() <= (28 if name in CENTRAL else 7)  # where all moves add up
    if name not in OWN_MEAN:
        np.testing.assert_allclose(models.mean(axis=0), 3.5, rtol=1e-6)


@every_engine
@pytest.mark.parametrize("name", [name for name in MAKERS if name not in OWN_MOMENTUM])
def test_one_client_is_plain_sgd(name: str, engine: str) -> None:
    """Against torch.optim.SGD on the same gradients."""
    alone = swiftfl.from_edges([], 1)
    setup, _, workload = quadratic_setup(MAKERS[name](alone, MOMENTUM), alone, iterations=50)
    ours = run_to_end(ENGINES[engine](setup)).models[0]
    x = torch.tensor(workload.initial(setup.seed), requires_grad=True)
    optimiser = torch.optim.SGD([x], lr=STEP_SIZE, momentum=0.8, weight_decay=0.01)
    for c in range(1, 51):
        batch = Batch(0, c, np.empty(0, dtype=np.int64))
        x.grad = torch.from_numpy(workload.gradient(x.detach().numpy(), batch).g)
        optimiser.step()
    np.testing.assert_allclose(ours, x.detach().numpy(), rtol=0, atol=1e-12)


@every_algorithm
def test_every_algorithm_approaches_the_optimum(name: str) -> None:
    setup, _, workload = quadratic_setup(
        MAKERS[name](GRAPH, SgdRule()), GRAPH, method="metropolis", epochs=300, noise=0.0
    )
    # A constant step size leaves a bias where clients differ; a decaying one takes it away.
    object.__setattr__(setup, "step_size", decay_every(0.1, 0.8, 10, 10))
    engine = VirtualEngine(setup)
    engine.start()
    before = np.linalg.norm(np.mean(engine.models, axis=0) - workload.minimiser)
    engine.advance(10**9)
    after = np.linalg.norm(np.mean(engine.models, axis=0) - workload.minimiser)
    # Client 0, which holds the model of all, needs no link: it ends earlier, and the others pull alone then.
    assert after < (0.2 if name in CENTRAL else 0.1) * before


@every_algorithm
def test_waiting_is_what_the_slow_client_costs(name: str) -> None:
    """Only algorithms whose verbs wait may spend time waiting."""
    engine = run_to_end(world(name, "virtual", epochs=6))
    waited = sum(engine.seconds()["waiting"])
    assert (waited == 0.0) == (name in WAIT_FREE | CENTRAL)
