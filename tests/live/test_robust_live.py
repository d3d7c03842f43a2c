"""A mixing rule and a poisoned client with real processes: refused models, replay bit for bit, own loops."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from live_worlds import live_setup, replay, stopped_resumed_and_replayed

import swiftfl
from swiftfl.algorithm import Algorithm
from swiftfl.algorithms import Swift, dsgd
from swiftfl.engines.live.inbox import Gate, NewestInbox
from swiftfl.errors import UserError
from swiftfl.loop.federation import Federation, federation
from swiftfl.mixing import ClippedMixing, mix_by
from swiftfl.robust import RobustMixing
from swiftfl.transports.codec import Identity
from swiftfl.transports.memory import MemoryPlan
from swiftfl.transports.poison import POISONS, PoisonedCodec
from swiftfl.vector import Weights
from swiftfl.verbs import Verb

GRAPH = swiftfl.complete(5)


def poisoned() -> PoisonedCodec:
    return PoisonedCodec(Identity(), {2: POISONS["noise"](scale=3.0)}, 0)


@pytest.mark.parametrize(
    ("algorithm", "method"), [(Swift(), "ccs"), (dsgd(), "metropolis")], ids=["swift", "dsgd"]
)
def test_a_run_stops_goes_on_and_is_replayed(algorithm: Algorithm[Verb], method: str, tmp_path: Path) -> None:
    setup = live_setup(
        RobustMixing(algorithm, ClippedMixing()),
        5,
        0.002,
        method,
        graph=GRAPH,
        epochs=10,
        dimension=50,
        hold=10,
    )
    setup = replace(setup, codec=poisoned)
    folder = tmp_path / "clients"
    live = stopped_resumed_and_replayed(setup, folder)
    plain = replay(replace(setup, algorithm=algorithm), folder)
    assert any((mine != other).any() for mine, other in zip(live, plain, strict=True))


def test_a_rule_mixes_the_models_that_it_has_looked_at() -> None:
    """A neighbour that publishes meanwhile is not seen: the inbox is a snapshot, and used up."""
    plan = MemoryPlan([(1, 2), (0, 2), (0, 1)], np.zeros(4))
    ends = [plan.connect(i) for i in range(3)]
    first = [np.arange(4.0) + k for k in range(3)]
    for end, x in zip(ends, first, strict=True):
        end.publish(x, 1)
    inbox = NewestInbox(ends[0], (1, 2), Gate(np.zeros(4)))
    models = inbox.pinned((1, 2))
    ends[1].publish(np.full(4, 1e9), 2)
    w = Weights(0.4, {1: 0.3, 2: 0.3})
    got = mix_by(ClippedMixing(0.1), w, first[0], models, 0)
    np.testing.assert_array_equal(got, mix_by(ClippedMixing(0.1), w, first[0], dict(enumerate(first)), 0))
    assert inbox.fetched == {1: 1, 2: 1}
    with pytest.raises(UserError, match="mixed already"):
        inbox[1]


def test_what_is_not_finite_is_refused_before_a_rule_sees_it() -> None:
    plan = MemoryPlan([(1, 2), (0, 2), (0, 1)], np.zeros(4))
    ends = [plan.connect(i) for i in range(3)]
    for k, end in enumerate(ends):
        end.publish(np.full(4, np.nan if k == 1 else 1.0), 1)
    gate = Gate(np.zeros(4))
    assert list(NewestInbox(ends[0], (1, 2), gate).pinned((1, 2))) == [2]
    assert gate.refused["not_finite"] == 1


# --- training loops of one's own -----------------------------------------------------------------


def test_a_federation_of_own_loops_has_a_rule() -> None:
    together = federation(5, "complete", mixing="clipped:tolerate=0.1")
    again = Federation.unpack(together.pack())
    assert again.setup().algorithm == together.setup().algorithm
    assert again.setup().algorithm == RobustMixing(
        again.make_algorithm(Swift().rule).algorithm, ClippedMixing(0.1)
    )  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"mixing": "cliped"}, "did you mean clipped"),
        ({"mixing": "clipped:tolerate=2"}, "below 0.5"),
        ({"mixing": "clipped", "topology": "ring"}, "on a ring nobody"),
        ({"mixing": "clipped", "algorithm": "adpsgd"}, "no effect"),
    ],
)
def test_what_cannot_be_meant_is_refused(arguments: dict[str, str], told: str) -> None:
    with pytest.raises(UserError, match=told):
        federation(5, **{"topology": "complete", **arguments})
