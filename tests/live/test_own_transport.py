"""A transport of one's own runs under engine local and is examined by name, without an edit of swiftfl."""

from __future__ import annotations

from pathlib import Path

import pytest
from live_worlds import LIMIT, live_setup
from own_transport import CountedPlan

from swiftfl.algorithms import Swift, dsgd
from swiftfl.engines.live.local.engine import LocalEngine
from swiftfl.engines.live.options import LiveOptions
from swiftfl.errors import UserError
from swiftfl.schedule import every
from swiftfl.transports.conformance.battery import CHECKS, battery
from swiftfl.transports.registry import TRANSPORTS, transport_between_processes

QUICK = {
    "newest_wins",
    "never_backwards",
    "observers_see_models",
    "codec_is_used",
    "rejoining",
    "loss_is_noticed",
}


@pytest.mark.parametrize(("algorithm", "method"), [(Swift(every(0)), "ccs"), (dsgd(), "metropolis")])
def test_it_carries_a_run(
    algorithm: object, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COUNTED_FOLDER", str(tmp_path))
    setup = live_setup(algorithm, seconds=0.0, method=method, epochs=4)  # type: ignore[arg-type]
    engine = LocalEngine(setup, None, LiveOptions(), transport=transport_between_processes("counted"))
    try:
        engine.start()
        assert engine.wait(LIMIT)
        steps = setup.steps_of(0)
        published = [int((tmp_path / f"{i}").read_text()) for i in range(setup.n)]
        assert published == [steps + 1 if method == "ccs" else 1] * setup.n  # in rounds: the last one
    finally:
        engine.close()


def test_it_passes_the_battery() -> None:
    assert TRANSPORTS["counted"].make is CountedPlan
    checks = tuple(check for check in CHECKS if check.__name__ in QUICK)
    assert len(checks) == len(QUICK)
    failed = {r.name: r.detail for r in battery(TRANSPORTS["counted"], checks) if r.passed is not True}
    assert not failed


@pytest.mark.parametrize("name", ["memory", "mpi"])
def test_what_cannot_connect_processes_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=f"transport {name} cannot connect .* choose from shared_memory"):
        transport_between_processes(name)
