"""Engine mpi before its first step: a rank that gives no sign of life is not waited for for ever."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from in_process_job import InProcessJob
from in_process_wire import Hub
from live_worlds import live_setup, steps, until

import swiftfl.transports.mpi as mpi
from swiftfl.algorithms import Swift, dsgd
from swiftfl.engines.live.mpi import channel
from swiftfl.engines.live.mpi.engine import MpiEngine
from swiftfl.engines.live.options import LiveOptions

PATIENCE = 2.0
"""Long enough that three ranks in one process do not take each other for silent."""
ALGORITHMS: dict[str, Any] = {"swift": Swift(), "dsgd": dsgd()}


@pytest.mark.parametrize(
    ("silent", "name", "ccs"),
    [
        (0, "swift", "central"),
        (2, "swift", "distributed"),
        *(
            pytest.param(silent, name, ccs, marks=pytest.mark.slow)
            for silent, name, ccs in (
                (0, "swift", "distributed"),
                (0, "dsgd", "central"),
                (0, "dsgd", "distributed"),
                (2, "swift", "central"),
                (2, "dsgd", "central"),
                (2, "dsgd", "distributed"),
            )
        ),
    ],
)
def test_the_others_begin_without_a_rank_that_says_nothing(
    silent: int, name: str, ccs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process exists, so that MPI has connected all; but it is stopped before it says anything."""
    monkeypatch.setattr(channel, "_HEARTBEAT", 0.05)  # so that a short patience is enough
    setup = live_setup(ALGORITHMS[name], 4, 0.0, "ccs", epochs=3, ccs=ccs)
    hub = Hub(4)
    jobs: list[Any] = [InProcessJob(hub, rank) for rank in range(4) if rank != silent]
    engines = [MpiEngine(setup, job, options=LiveOptions(patience=PATIENCE)) for job in jobs]
    for engine in engines:
        engine.start()
    until(lambda: all(engine.wait(0.01) for engine in engines), "the end of every rank that is there")
    hub.wires[silent].doorbell.close()
    (recorder,) = [engine for engine in engines if engine.has_result]
    assert recorder.me == (1 if silent == 0 else 0)
    assert recorder.supervisor.lost == [silent]
    assert [steps(recorder)[engine.me] for engine in engines] == [16.0] * 3
    assert all(np.isfinite(recorder.models[engine.me]).all() for engine in engines)
    (warning,) = [text for text in recorder.supervisor.warnings if "silent" in text]
    seconds = PATIENCE if silent == 0 else 3 * PATIENCE
    assert warning.startswith(
        f"client {silent} was silent for {seconds:g} s before the start: the others begin"
    )


class _Late:
    """A broadcast that is there after some looks, as mpi4py has them."""

    def __init__(self, looks: int) -> None:
        self._looks = looks

    def Test(self) -> bool:  # noqa: N802
        self._looks -= 1
        return self._looks < 0


@pytest.mark.parametrize(("looks", "said"), [(20, 1), (0, 0)])
def test_who_waits_for_a_rank_that_prepares_something_says_so_once(
    looks: int, said: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the first rank prepares may take as long as it needs: nobody is given up for that."""
    monkeypatch.setattr(mpi, "SAY_AFTER", 0.05)
    job = object.__new__(mpi.MpiJob)
    job.rank = 3
    job._await(_Late(looks), 0)  # type: ignore[arg-type]
    told = capsys.readouterr().err
    assert told.count("rank 3 has waited for rank 0") == said
    assert told.count("\n") == said
