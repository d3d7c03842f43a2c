"""What things cost: distributions, traces, periods, links, jitter and loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import swiftfl
from swiftfl.algorithms import Swift, dsgd, pasgd
from swiftfl.costs import Costs, Link, Slowdown
from swiftfl.engines import VirtualEngine
from swiftfl.engines.simulation.mailboxes import Links, Mailboxes, Version
from swiftfl.errors import UserError
from worlds import finished, quadratic_setup, run_to_end


def test_log_normal_times_have_the_given_mean_and_spread() -> None:
    costs = Costs(compute=0.02, spread=0.5, seed=3)
    times = np.array([costs.gradient(i, c, 0.0) for i in range(20) for c in range(1, 1001)])
    assert times.mean() == pytest.approx(0.02, rel=0.02)
    assert np.log(times).std() == pytest.approx(0.5, rel=0.02)
    assert (times > 0).all()


@settings(max_examples=20, deadline=None)
@given(order=st.permutations([(i, c) for i in range(3) for c in (1, 2, 255, 256, 257, 1000)]))
def test_draws_do_not_depend_on_the_order_of_events(order: list[tuple[int, int]]) -> None:
    def draw(costs: Costs, i: int, c: int) -> tuple[float, float, bool]:
        return costs.gradient(i, c, 0.0), costs.delay(i, 5, c), costs.lost(i, 5, c)

    options: dict[str, Any] = {"spread": 0.3, "jitter": 0.1, "loss": 0.5, "seed": 8}
    costs = Costs(**options)
    for i, c in order:
        assert draw(costs, i, c) == draw(Costs(**options), i, c)


def test_other_seeds_clients_and_links_draw_otherwise() -> None:
    a, b = Costs(jitter=1.0, seed=0), Costs(jitter=1.0, seed=1)
    assert (
        len({a.delay(0, 1, 7), b.delay(0, 1, 7), a.delay(1, 0, 7), a.delay(0, 2, 7), a.delay(0, 1, 8)}) == 5
    )


def test_a_trace_is_gone_through_again_and_again() -> None:
    costs = Costs(compute=0.01, trace={2: [1.0, 3.0, 0.5]})
    times = [costs.gradient(2, c, 0.0) for c in range(1, 8)]
    np.testing.assert_allclose(times, [0.01, 0.03, 0.005, 0.01, 0.03, 0.005, 0.01])
    assert costs.gradient(1, 2, 0.0) == 0.01


def test_slowdowns_hold_in_their_period_and_multiply() -> None:
    costs = Costs(
        compute=1.0, slowdowns=(Slowdown(0, 4.0, 1.0, 2.0), Slowdown(0, 3.0, 1.5), Slowdown(1, 9.0))
    )
    assert [costs.gradient(0, 1, at) for at in (0.0, 0.999, 1.0, 1.5, 2.0, 99.0)] == [1, 1, 4, 12, 3, 3]


def test_a_slow_period_shows_in_the_run() -> None:
    """10 steps of 10 ms, then 0.1 s at a fourth of the speed (3 steps begin in it), then 7 more."""
    costs = Costs(compute=0.01, send=0.0, mix=0.0, slowdowns=(Slowdown(0, 4.0, 0.1, 0.2),))
    setup, _, _ = quadratic_setup(Swift(), epochs=4, costs=costs)
    compute = run_to_end(VirtualEngine(setup)).seconds()["compute"]
    assert compute[0] == pytest.approx(0.10 + 3 * 0.04 + 7 * 0.01)
    assert compute[1] == pytest.approx(0.20)


def test_each_link_has_its_own_journey() -> None:
    costs = Costs(latency=0.1, bandwidth=1000.0, links={(1, 2): Link(0.5, 100.0)})
    assert costs.transit(0, 1, 50) == pytest.approx(0.15)
    assert costs.transit(1, 2, 50) == costs.transit(2, 1, 50) == pytest.approx(1.0)


def test_a_slow_link_holds_up_only_those_who_wait_on_it() -> None:
    """D-SGD on a path 0-1-2: the journey over 1-2 costs 1 and 2 in every round; SWIFT pays nothing."""
    costs = Costs(
        compute=0.01, send=0.0, mix=0.0, latency=0.001, bandwidth=1e12, links={(1, 2): Link(0.05, 1e12)}
    )
    path = swiftfl.path(3)
    for algorithm, expected in ((dsgd(), 20 * 0.05), (Swift(), 0.0)):
        setup, _, _ = quadratic_setup(algorithm, path, epochs=4, costs=costs)
        seconds = run_to_end(VirtualEngine(setup)).seconds()
        assert seconds["communication"][2] == pytest.approx(expected, abs=1e-7)
        assert sum(seconds["waiting"][1:]) == pytest.approx(0.0, abs=1e-7)


def test_jitter_is_exponential_with_the_given_mean() -> None:
    costs = Costs(jitter=0.02)
    delays = np.array([costs.delay(0, 1, c) for c in range(20_000)])
    assert delays.mean() == pytest.approx(0.02, rel=0.03)
    assert delays.std() == pytest.approx(0.02, rel=0.05)


@pytest.mark.parametrize("loss", [0.0, 0.1, 0.6])
def test_the_given_share_of_messages_is_lost(loss: float) -> None:
    costs = Costs(loss=loss)
    lost = np.mean([costs.lost(i, 9, c) for i in range(4) for c in range(5000)])
    assert lost == pytest.approx(loss, abs=0.01)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    jitter=st.sampled_from([0.0, 0.01, 0.3]),
    loss=st.sampled_from([0.0, 0.3, 0.9]),
    readers=st.sampled_from([(1,), (1, 2, 3)]),
)
def test_the_newest_version_wins_and_never_goes_back(
    seed: int, jitter: float, loss: float, readers: tuple[int, ...]
) -> None:
    """Against all versions ever sent: dropping old ones changes no answer."""
    costs = Costs(jitter=jitter, loss=loss, latency=0.005, seed=seed)
    boxes = Mailboxes(4, np.zeros(1), costs, Links(), costs.message(8))
    everything = [Version(-np.inf, 0, np.zeros(1))]
    seen = dict.fromkeys(readers, 0.0)
    for version in range(1, 120):
        now = 0.01 * version
        published = Version(now, version, np.array([float(version)]))
        boxes.publish(0, published, now, readers)
        everything.append(published)
        for k in readers:
            got = float(boxes.fetch(k, [0], now)[0][0])
            arrived = [
                a.number
                for a in everything
                if a.number == 0
                or (
                    not costs.lost(0, k, a.number)
                    and a.sent <= now - (costs.transit(0, k, 8) + costs.delay(0, k, a.number))
                )
            ]
            assert got == max(arrived)
            assert got >= seen[k]
            seen[k] = got


def held(boxes: Mailboxes) -> int:
    return len(list(boxes.models()))


def test_memory_is_bounded_with_jitter_and_loss_and_with_nobody_to_send_to() -> None:
    costs = Costs(jitter=0.02, loss=0.5)
    setup, _, _ = quadratic_setup(Swift(), iterations=6000, costs=costs)
    engine = VirtualEngine(setup)
    engine.start()
    most = 0
    while not engine.over:
        engine.advance(10)
        most = max(most, held(engine.world.mailboxes))
    assert most <= 12 * engine.n
    boxes = Mailboxes(2, np.zeros(1), costs, Links(), costs.message(8))
    for version in range(1, 1000):
        boxes.publish(0, Version(float(version), version, np.zeros(1)), float(version), ())
    assert held(boxes) <= 6


@pytest.mark.parametrize("algorithm", [dsgd(), pasgd(2)])
@pytest.mark.parametrize("barrier", ["neighbours", "global"])
def test_loss_and_jitter_do_not_stop_those_who_wait(algorithm: Any, barrier: str) -> None:
    setup, _, _ = quadratic_setup(algorithm, epochs=4, costs=Costs(loss=0.9, jitter=0.01), barrier=barrier)
    assert all(finished(run_to_end(VirtualEngine(setup))))


def test_a_lossy_swift_still_finds_the_optimum() -> None:
    from swiftfl.schedule import decay_every

    setup, _, workload = quadratic_setup(Swift(), noise=0.0, epochs=400, costs=Costs(loss=0.5, jitter=0.005))
    object.__setattr__(setup, "step_size", decay_every(0.2, 0.8, 10, 10))
    centre = np.mean(run_to_end(VirtualEngine(setup)).models, axis=0)
    assert np.linalg.norm(centre - workload.minimiser) < 0.02


@pytest.mark.parametrize(
    "wrong",
    [
        {"compute": -1.0},
        {"latency": float("nan")},
        {"bandwidth": 0.0},
        {"loss": 1.0},
        {"jitter": float("inf")},
        {"message_bytes": 0},
        {"trace": {0: []}},
        {"trace": {0: [1.0, -1.0]}},
    ],
)
def test_impossible_costs_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        Costs(**wrong)


def test_costs_of_clients_that_do_not_exist_are_refused() -> None:
    for options in (
        {"slowdowns": (Slowdown(6, 2.0),)},
        {"trace": {9: [1.0]}},
        {"links": {(0, 6): Link(0.1, 1.0)}},
    ):
        with pytest.raises(UserError, match="clients are 0 to 5"):
            quadratic_setup(Swift(), costs=Costs(**options))  # type: ignore[arg-type]
