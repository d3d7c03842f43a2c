"""Nodes that come and go: neighbours agree on weights, and conditions (a)-(d) hold after each change."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from nodes import LIMIT, Federation, setup_of, until

from swiftfl.errors import UserError
from swiftfl.federation import membership
from swiftfl.federation import node as federation_node
from swiftfl.federation.connection import Connection
from swiftfl.federation.consensus import TreeMean
from swiftfl.federation.membership import InfluencePolicy
from swiftfl.federation.node import Node, node_setup
from swiftfl.graph.census import RENEWAL, CensusResult, Share
from swiftfl.transports.messages.message import Message
from swiftfl.transports.wire import Refusal

pytest.importorskip("zenoh")

SQUARE = ((0, 1), (1, 2), (2, 3), (0, 3), (0, 2))


@pytest.fixture
def square(tmp_path: Path) -> Iterator[Federation]:
    made = Federation(tmp_path, 4, SQUARE, [0.1, 0.2, 0.3, 0.4])
    yield made
    made.close()


def test_start_in_any_order_loss_and_return(square: Federation) -> None:
    for i in (2, 0, 3, 1):
        square.start(i)
    square.settle(0, 1, 2, 3)

    until(lambda: square.nodes[1].control.c > 50, "steps of node 1")
    square.stop(1)
    square.settle(0, 2, 3)
    step = square.nodes[0].control.c
    until(lambda: square.nodes[0].control.c > step + 20, "further steps of node 0")

    back = square.start(1)
    assert "checkpoint" in back.how_started or "the model of" in back.how_started
    assert back.control.c > 50 or back.client.state.c > 50
    square.settle(0, 1, 2, 3)
    assert any("again" in line for line in square.said[0])


def test_a_neighbour_that_sends_no_model_is_not_waited_for(
    square: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is there, and silent; whoever waited for its model would hold up all renewals."""
    monkeypatch.setattr(federation_node, "_MODEL_SECONDS", 1000 * LIMIT)
    monkeypatch.setattr(federation_node, "_SILENT_SECONDS", 0.2)
    setup = setup_of(1)
    silent = Connection(square.plan(1), setup.workload.initial(setup.seed), setup.codec, 1)
    try:
        square.meet_seconds = LIMIT
        made: list[Node] = []
        monkeypatch.setattr(square, "near", lambda i: [1])  # of which node 0 sees all
        starting = threading.Thread(target=lambda: made.append(square.start(0)), daemon=True)
        starting.start()
        until(lambda: made, "the start of node 0")
        assert made[0].connection.view(), "node 1 was there"
        assert made[0].how_started == "the first model"
    finally:
        silent.close()


@pytest.mark.slow
def test_a_partition_trains_on_and_heals(tmp_path: Path) -> None:
    line = Federation(tmp_path, 4, ((0, 1), (1, 2), (2, 3)))
    try:
        for i in range(4):
            line.start(i)
        line.settle(0, 1, 2, 3)
        line.stop(1)
        line.settle(2, 3)
        line.settle(0)
        before = {i: line.nodes[i].control.c for i in (0, 2, 3)}
        until(lambda: all(line.nodes[i].control.c > c + 20 for i, c in before.items()), "steps of both parts")
        line.start(1)
        line.settle(0, 1, 2, 3)
    finally:
        line.close()


def test_who_comes_late_takes_a_neighbours_model(tmp_path: Path) -> None:
    pair = Federation(tmp_path, 2, ((0, 1),))
    try:
        pair.start(0)
        until(lambda: pair.nodes[0].control.c > 100, "steps of node 0, alone")
        pair.meet_seconds = LIMIT  # it goes on as soon as it has found its only neighbour
        late = pair.start(1)
        assert "the model of n0" in late.how_started
        pair.settle(0, 1)
    finally:
        pair.close()


@pytest.mark.slow
def test_a_consensus_is_the_mean_of_all_models_everywhere(square: Federation) -> None:
    for i in range(4):
        square.start(i, epochs=1)
    square.settle(0, 1, 2, 3)
    until(lambda: all(not t.is_alive() for t in square.threads.values()), "the last steps")  # models stay now
    square.nodes[2].membership.want_consensus()
    found = {i: node.membership.consensus for i, node in square.nodes.items()}
    until(lambda: all(each.newest is not None for each in found.values()), "the consensus")
    mean = np.mean([node.x for node in square.nodes.values()], axis=0)
    for each in found.values():
        assert each.newest is not None
        assert each.newest.nodes == 4
        np.testing.assert_allclose(each.newest.x, mean, rtol=1e-5, atol=1e-7)


def test_a_consensus_that_another_census_came_in_the_way_of_is_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "_BEGIN_AGAIN", 0.5)
    pair = Federation(tmp_path, 2, ((0, 1),))
    try:
        nodes = [pair.start(0), pair.start(1)]
        pair.settle(0, 1)
        first = nodes[0].membership
        begin = first._begin

        def overtaken(purpose: int) -> None:
            monkeypatch.setattr(first, "_begin", begin)
            begin(purpose)
            begin(RENEWAL)  # under a larger epoch

        monkeypatch.setattr(first, "_begin", overtaken)
        first.want_consensus()
        until(lambda: all(node.membership.consensus.newest for node in nodes), "the consensus")
        until(lambda: first._awaited is None, "the end of waiting for it")
    finally:
        pair.close()


class Posted:
    """The thread that moves messages, in the hands of a test."""

    def __init__(self) -> None:
        self.moving = contextlib.nullcontext()
        self.doorbell = SimpleNamespace(wake=lambda: None)
        self.receives: list[tuple[Any, Any]] = []
        self.published = (np.zeros(3), 1)
        self.progress = self

    def receive(self, data: Any, k: int, tag: int, arrived: Any) -> None:
        self.receives.append((data, arrived))


def test_a_mean_that_arrives_while_another_thread_looks_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    posted = Posted()
    mean: Any = TreeMean(posted)  # type: ignore[arg-type]
    share = Share(0.5, 0.5)
    result = CensusResult(7, 1, 2, True, share, share, (1,), parent=1, children=())
    monkeypatch.setattr(mean, "_send", lambda *arguments: None)
    mean.begin(result)
    (data, arrived) = posted.receives.pop()
    arrived(0)  # what has come is damaged: it is waited for again
    mean.advance()
    (data, arrived) = posted.receives.pop()
    message = Message(3, np.float64)
    message.fill(np.arange(3.0), version=7)
    data[:] = message.data
    vector = Message.vector.fget  # type: ignore[attr-defined]

    def looked_at_meanwhile(self: Message) -> Any:
        mean.advance()
        return vector(self)

    monkeypatch.setattr(Message, "vector", property(looked_at_meanwhile))
    arrived(message.filled.size)
    mean.advance()
    assert mean.newest is not None
    assert mean.newest.x.tolist() == [0.0, 1.0, 2.0]


def test_measured_influence_keeps_the_objective(tmp_path: Path) -> None:
    """A slow node's steps are scaled up, a fast one's down: p times scale is what was given."""
    pair = Federation(tmp_path, 2, ((0, 1),), [0.7, 0.3])
    try:
        for i, slowdown in ((0, {0: 5.0}), (1, None)):
            policy = InfluencePolicy(pair.influence[i], measured=True, keep_objective=True)
            pair.start(i, policy, **({"slowdown": slowdown} if slowdown else {}))
        pair.settle(0, 1)
        products = {}
        for i, node in pair.nodes.items():
            assert node.membership.selected is not None
            told, terms = node.membership.selected
            products[i] = told.p * terms.scale
        assert products[0] / products[1] == pytest.approx(0.7 / 0.3, rel=1e-6)
    finally:
        pair.close()


def test_models_that_are_not_finite_are_refused_with_their_sender(tmp_path: Path) -> None:
    pair = Federation(tmp_path, 2, ((0, 1),))
    try:
        node, broken = pair.start(0), pair.start(1)
        publish = broken.connection.transport.publish
        broken.connection.transport.publish = (  # type: ignore[method-assign]
            lambda x, version: publish(np.full_like(x, np.nan), version)
        )
        refusals = node.connection.wire.refusals
        until(lambda: refusals.of("n1", Refusal.NOT_FINITE) > 5, "refusals")
        step = node.control.c
        until(lambda: node.control.c > step + 20, "further steps")
        assert np.isfinite(node.x).all()
        assert set(refusals.by_sender()["n1"]) == {"NOT_FINITE"}
    finally:
        pair.close()


def test_each_start_has_a_larger_number_also_without_a_save(square: Federation) -> None:
    """Else neighbours would take what it sends for older than what they have."""
    first = square.start(0)
    square.stop(0, save=False)
    assert square.start(0).incarnation > first.incarnation


@pytest.mark.slow
def test_a_damaged_checkpoint_is_left_out(square: Federation) -> None:
    square.start(0)
    until(lambda: square.nodes[0].control.c > 20, "steps")
    square.stop(0)
    for file in (square.root / "n0" / "checkpoints").glob("*.safetensors"):
        data = bytearray(file.read_bytes())
        data[-3] ^= 255
        file.write_bytes(bytes(data))
    node = square.start(0)
    assert node.how_started == "the first model"
    assert any("damaged" in line or "cannot read" in line for line in square.said[0])


def test_only_one_client_that_never_waits_can_be_a_node() -> None:
    with pytest.raises(UserError, match="one client"):
        node_setup(node_setup(setup_of(0), 2), 2)
    with pytest.raises(UserError, match="never wait"):
        node_setup(setup_of(0, algorithm="dsgd"), 2)
