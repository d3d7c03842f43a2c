"""Codecs of one's own between model and wire, in every transport, added from outside the package."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from in_process_wire import Hub
from live_worlds import (
    LIMIT,
    check_replay,
    events,
    let_go,
    live_setup,
    replay,
    resumed,
    running,
    stop,
    under_way,
    until,
)

from feedback_codec import HalfWithFeedback
from swiftfl.algorithm import Algorithm
from swiftfl.algorithms import Swift, dsgd
from swiftfl.engines.dynamics import Change, Dynamics
from swiftfl.engines.live.journal import read_incarnations
from swiftfl.engines.live.saves import read_all
from swiftfl.errors import UserError
from swiftfl.rules import SgdRule
from swiftfl.schedule import every
from swiftfl.transports.base import Lost, Transport
from swiftfl.transports.codec import CODECS, IDENTITY, Bytes, Codec, Identity, decode, transmitted
from swiftfl.transports.memory import MemoryPlan
from swiftfl.transports.messages.transport import MessageTransport
from swiftfl.transports.messages.wire import MODEL, OFFER
from swiftfl.transports.shared_memory import SharedMemory
from swiftfl.vector import Vector, finite
from swiftfl.verbs import Verb

SIZE = 1000
PAIR = [(1,), (0,)]


@contextmanager
def in_memory(make: Callable[[], Codec]) -> Iterator[tuple[Transport, Transport]]:
    plan = MemoryPlan(PAIR, np.zeros(SIZE, np.float32), make)
    yield plan.connect(0), plan.connect(1)


@contextmanager
def in_shared_memory(make: Callable[[], Codec]) -> Iterator[tuple[Transport, Transport]]:
    plan = SharedMemory.create(PAIR, np.zeros(SIZE, np.float32), make)
    ends = plan.connect(0), plan.connect(1)
    yield ends
    for end in (*ends, plan):
        end.close()


@contextmanager
def by_messages(make: Callable[[], Codec]) -> Iterator[tuple[Transport, Transport]]:
    hub = Hub(2)
    ends = [MessageTransport(wire, PAIR, np.zeros(SIZE, np.float32), make) for wire in hub.wires]
    yield ends[0], ends[1]
    for end in ends:
        end.close()
    for sizes in (hub.bytes_sent[MODEL], hub.bytes_sent[OFFER]):
        assert max(sizes) <= 64 + 2 * SIZE + 8  # what travels is the code


WAYS = [in_memory, in_shared_memory, by_messages]


def read(end: Transport, k: int, version: int) -> Vector:
    limit = time.monotonic() + 30
    while time.monotonic() < limit:
        found = end.read(k, lambda x, seen: x.copy() if seen == version else None)
        if found is not None:
            return found
        time.sleep(0.001)
    raise AssertionError(f"version {version} of client {k} never came")


def models(count: int) -> list[Vector]:
    draw = np.random.default_rng(7)
    return [draw.normal(size=SIZE).astype(np.float32) for _ in range(count)]


@pytest.mark.parametrize("way", WAYS)
def test_every_transport_gives_neighbours_the_same_bits(way: Callable[..., object]) -> None:
    """Those that a codec alone makes of the same models in the same order."""
    alone = HalfWithFeedback()
    with way(HalfWithFeedback) as (sender, reader):  # type: ignore[attr-defined]
        for version, x in enumerate(models(6), start=1):
            expected = transmitted(alone, x)
            if version % 2:
                sender.publish(x, version)
                got = read(reader, 0, version)
            else:
                sender.offer(x, version, (1,))
                got = reader.collect(0, version, lambda model: model.copy())
            assert got.tobytes() == expected.tobytes()
            assert got.tobytes() != x.tobytes()
        np.testing.assert_array_equal(sender.codec.state()["left"], alone.state()["left"])


@pytest.mark.parametrize("way", WAYS)
def test_a_state_that_is_restored_goes_on_where_it_was(way: Callable[..., object]) -> None:
    first, second = models(2)
    alone = HalfWithFeedback()
    transmitted(alone, first)
    with way(HalfWithFeedback) as (sender, reader):  # type: ignore[attr-defined]
        sender.codec.restore(alone.state())
        sender.offer(second, 1, (1,))
        sender.publish(second, 1)
        expected = transmitted(alone, second)
        assert reader.collect(0, 1, lambda model: model.tobytes()) == expected.tobytes()
        read(reader, 0, 1)


def test_identity_copies_nothing() -> None:
    x = models(1)[0]
    assert transmitted(IDENTITY, x) is x
    code = IDENTITY.encode(x)
    assert np.shares_memory(code, x)
    assert np.shares_memory(decode(IDENTITY, code, x.size, x.dtype), x)
    with pytest.raises(ValueError, match="bytes"):
        decode(IDENTITY, code[:-1], x.size, x.dtype)


class Lying(Identity):
    """Promises less than it needs, as a codec with a mistake may."""

    name = "lying"

    def most_bytes(self, size: int, dtype: npt.DTypeLike) -> int:
        return 1


class Wider(HalfWithFeedback):
    """Decodes to another type."""

    name = "wider"

    def decode(self, data: Bytes, size: int, dtype: npt.DTypeLike) -> Vector:
        return data.view(np.float16).astype(np.float64)


@pytest.mark.parametrize("way", [in_memory, in_shared_memory])
def test_a_codec_that_breaks_its_promise_is_named(way: Callable[..., object]) -> None:
    with way(Wider) as (sender, _), pytest.raises(ValueError, match="codec wider made float64"):  # type: ignore[attr-defined]
        sender.publish(models(1)[0], 1)


def test_more_bytes_than_promised_are_refused() -> None:
    hub = Hub(2)
    ends = [MessageTransport(wire, PAIR, np.zeros(SIZE, np.float32), Lying) for wire in hub.wires]
    with pytest.raises(ValueError, match="codec lying gave 4000 bytes, and had promised at most 1"):
        ends[0].publish(models(1)[0], 1)
    for end in ends:
        end.close()


class Garbling(HalfWithFeedback):
    """Its codes cannot be decoded."""

    def encode(self, x: Vector) -> Bytes:
        return super().encode(x)[:-2]


def test_what_cannot_be_decoded_is_no_model() -> None:
    """A reader goes on without it, as without a neighbour that has not published yet."""
    hub = Hub(2)
    ends = [MessageTransport(wire, PAIR, np.zeros(SIZE, np.float32), Garbling) for wire in hub.wires]
    ends[0].publish(models(1)[0], 1)
    limit = time.monotonic() + 30
    while ends[1].read(0, lambda x, version: version) == 0 and time.monotonic() < limit:
        time.sleep(0.001)
    assert ends[1].read(0, lambda x, version: version) is None
    assert ends[1].refused > 0
    ends[0].offer(models(1)[0], 1, (1,))
    with pytest.raises(Lost):
        ends[1].collect(0, 1, lambda x: x.copy())
    for end in ends:
        end.close()


def test_codecs_are_found_by_name() -> None:
    assert CODECS["half_with_feedback"] is HalfWithFeedback
    assert CODECS["identity"] is Identity
    with pytest.raises(UserError, match="did you mean identity"):
        CODECS["identiy"]


# --- in live runs --------------------------------------------------------------------------------


@pytest.mark.parametrize(("algorithm", "method"), [(Swift(), "ccs"), (dsgd(), "metropolis")])
def test_who_joins_starts_from_a_neighbours_model(algorithm: Any, method: str, tmp_path: Path) -> None:
    """Also in rounds, where neighbours publish nothing: it starts from what they let be seen."""
    dynamics = Dynamics((Change(None, "join", 3, iteration=30),))
    setup = live_setup(algorithm, 4, 0.01, method, dynamics, epochs=12, dimension=50, hold=20)
    setup = replace(setup, codec=HalfWithFeedback)
    with running(setup, tmp_path) as engine:
        until(lambda: bool(events(engine, "join")), "the join")
        let_go(setup)
        until(lambda: engine.wait(0.05), "the end")
        (first,) = read_incarnations(tmp_path, 3, 4)
        assert first.how == "model"
        assert first.source[1] > 0, "x0 has version 0"
        check_replay(setup, tmp_path, engine.models)


@pytest.mark.parametrize(
    ("algorithm", "method"),
    [(Swift(every(1), SgdRule(0.9)), "ccs"), (dsgd(), "metropolis")],
    ids=["swift", "dsgd"],
)
def test_a_run_with_a_codec_stops_goes_on_and_is_replayed(
    algorithm: Algorithm[Verb], method: str, tmp_path: Path
) -> None:
    """Whoever evaluates sees the models themselves; what the codec remembers is in the clients' saves."""
    setup = replace(
        live_setup(algorithm, seconds=0.002, method=method, epochs=12, dimension=50, hold=10),
        codec=HalfWithFeedback,
    )
    folder = tmp_path / "clients"
    with running(setup, folder) as engine:
        under_way(engine, 5)
        stop(engine)
    saved = read_all(folder, 0, setup.first_state(setup.workload.initial(setup.seed)))[0][0]
    assert finite(saved.codec["left"])
    assert saved.codec["left"].any()
    with resumed(setup, folder) as engine:
        assert engine.wait(LIMIT)
        live = engine.models
    check_replay(setup, folder, live)
    exact = replay(replace(setup, codec=Identity), folder)
    assert any((mine != other).any() for mine, other in zip(live, exact, strict=True))
    assert any((mine != mine.astype(np.float16)).any() for mine in live)
