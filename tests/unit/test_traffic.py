"""Rounds, messages and bytes, counted by the verbs, against what each algorithm must send."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import swiftfl
from swiftfl.algorithms.adpsgd import AdPsgd
from swiftfl.algorithms.centralised import AllReduceSgd, FedAvg
from swiftfl.algorithms.gossip import Gossip
from swiftfl.algorithms.swift import Swift
from swiftfl.algorithms.synchronous import dsgd, ldsgd
from swiftfl.costs import Costs
from swiftfl.engines import SampledEngine, VirtualEngine
from swiftfl.engines.dynamics import Change, Dynamics
from swiftfl.engines.membership import Membership
from swiftfl.engines.simulation import checkpoint
from swiftfl.engines.traffic import Traffic
from swiftfl.errors import UserError
from swiftfl.schedule import every
from swiftfl.transports.codec import Bytes
from swiftfl.vector import Vector, Weights
from swiftfl.verbs import AllReduce, Mix
from worlds import quadratic_setup, resumed, run_to_end, slow

GRAPH = swiftfl.star(5)
N, T, DIMENSION = 5, 12, 7
BYTES = 8 * DIMENSION  # of a model in double precision
DEGREES = GRAPH.degrees.tolist()
ENGINES = {"virtual": VirtualEngine, "sampled": SampledEngine}


def counted(algorithm: Any, engine: str = "virtual", **options: Any) -> dict[str, list[int]]:
    costs = Costs(slowdowns=slow({2: 3.0}), **options.pop("costs", {}))
    setup, _, _ = quadratic_setup(
        algorithm, GRAPH, dimension=DIMENSION, steps_per_epoch=T, epochs=1, costs=costs, **options
    )
    return dict(run_to_end(ENGINES[engine](setup)).figures()["communication"])


def of(rounds: list[int], messages: list[int], size: int = BYTES) -> dict[str, list[int]]:
    return {"rounds": rounds, "messages": messages, "bytes": [size * number for number in messages]}


@pytest.mark.parametrize("engine", ENGINES)
def test_swift_sends_at_every_step_and_averages_in_its_communication_set(engine: str) -> None:
    assert counted(Swift(every(2)), engine) == of([T // 3] * N, [T * degree for degree in DEGREES])


@pytest.mark.parametrize("engine", ENGINES)
def test_synchronous_methods_send_when_they_average(engine: str) -> None:
    assert counted(dsgd(), engine) == of([T] * N, [T * degree for degree in DEGREES])
    assert counted(ldsgd(1, 2), engine) == of([8] * N, [8 * degree for degree in DEGREES])


def test_a_pair_sends_a_request_and_an_answer() -> None:
    algorithm = AdPsgd(seed=4)
    setup, _, _ = quadratic_setup(algorithm, GRAPH)
    partners = [algorithm.partner(setup.client(i), c) for i in range(N) for c in range(1, T + 1)]
    answers = np.bincount(partners, minlength=N)
    assert counted(algorithm) == of([T] * N, [T + int(count) for count in answers])


def test_random_pairs_exchange_two_models() -> None:
    algorithm = Gossip(GRAPH, seed=2)
    met = [int(sum(algorithm.matching(c)[i] >= 0 for c in range(1, T + 1))) for i in range(N)]
    assert counted(algorithm) == of(met, met)


def test_a_ring_of_all_and_a_server() -> None:
    each = 2 * (N - 1) * BYTES // N
    assert counted(AllReduceSgd()) == {
        "rounds": [T] * N,
        "messages": [T * 2 * (N - 1)] * N,
        "bytes": [T * each] * N,
    }
    assert counted(FedAvg(every(3))) == of([T // 4] * N, [T // 4] * N)


class Short:
    """Models without their last number, which is zero where they arrive."""

    name = "short"

    def most_bytes(self, size: int, dtype: Any) -> int:
        return int(size * np.dtype(dtype).itemsize)

    def state(self) -> dict[str, Vector]:
        return {}

    def restore(self, memory: dict[str, Vector]) -> None:
        """It remembers nothing."""

    def encode(self, x: Vector) -> Bytes:
        return x[:-1].copy().view(np.uint8)

    def decode(self, data: Bytes, size: int, dtype: Any) -> Vector:
        return np.append(data.view(dtype), 0.0)


@pytest.mark.parametrize("algorithm", [Swift(every(0)), dsgd()], ids=lambda a: a.name)
def test_bytes_are_those_after_the_codec_or_those_that_messages_are_given(algorithm: Any) -> None:
    messages = counted(algorithm)["messages"]
    assert counted(algorithm, codec=Short) == of([T] * N, messages, BYTES - 8)
    assert counted(algorithm, costs={"message_bytes": 1000}) == of([T] * N, messages, 1000)


def test_alone_nothing_is_sent() -> None:
    x = np.zeros(3)
    traffic = Traffic()
    traffic.mix(Mix(Weights(1.0, {}), x, {}))
    traffic.all_reduce(AllReduce(x, 1.0, 1), clients=1, size=24)
    assert traffic == Traffic()


def test_a_request_that_nobody_answers_is_sent_and_averages_nothing() -> None:
    setup, coefficients, _ = quadratic_setup(
        AdPsgd(),
        swiftfl.ring(3),
        dimension=DIMENSION,
        steps_per_epoch=T,
        epochs=1,
        network=lambda: Membership(
            coefficients.topology,
            coefficients.influence.tolist(),
            "ccs",
            Dynamics([Change(0.0, "crash", 1)], notice=1e9),
            seed=0,
        ),
    )
    found = run_to_end(VirtualEngine(setup)).figures()["communication"]
    assert max(found["rounds"]) < T
    assert sum(found["messages"]) == 2 * T + sum(found["rounds"])  # T requests of each, and the answers


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "algorithm", [Swift(every(1)), dsgd(), AdPsgd(), AllReduceSgd()], ids=lambda a: a.name
)
def test_counters_go_on_after_a_pause(engine: str, algorithm: Any) -> None:
    def world() -> Any:
        setup, _, _ = quadratic_setup(algorithm, GRAPH, epochs=4)
        return ENGINES[engine](setup)

    paused = world()
    paused.start()
    paused.advance(41)
    going_on = resumed(paused, world())
    assert going_on.figures() == paused.figures()
    assert sum(paused.figures()["communication"]["messages"]) > 0
    going_on.advance(10**9)
    assert going_on.figures() == run_to_end(world()).figures()


def test_a_checkpoint_without_counters_is_refused() -> None:
    setup, _, _ = quadratic_setup(dsgd(), GRAPH, epochs=4)
    engine = VirtualEngine(setup)
    engine.start()
    saved = checkpoint.save(engine)
    saved.tree["format"] = 4
    with pytest.raises(UserError, match="this checkpoint has format 4, this version reads 5"):
        checkpoint.restore(VirtualEngine(setup), saved)
