"""Live runs for tests: quadratics whose gradients take a given time, on rings, bounded in time."""

from __future__ import annotations

import contextlib
import copy
import mmap
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import swiftfl
from swiftfl.algorithm import Algorithm
from swiftfl.client import State
from swiftfl.engines import Setup
from swiftfl.engines.dynamics import Dynamics
from swiftfl.engines.live.journal import read_incarnations
from swiftfl.engines.live.local.engine import LocalEngine
from swiftfl.engines.live.mpi.engine import MpiEngine
from swiftfl.engines.live.options import LiveOptions
from swiftfl.engines.live.replay import replay as replay_run
from swiftfl.engines.live.resume import ResumePoint, find_resume_point
from swiftfl.engines.live.saves import read_all
from swiftfl.engines.live.supervised import SupervisedRun
from swiftfl.engines.membership import Membership
from swiftfl.engines.setup import Buffers
from swiftfl.sample import Batch, Slope
from swiftfl.vector import Statistics, Vector
from swiftfl.verbs import Verb
from swiftfl.workload.base import Evaluation, Workload
from worlds import quadratic_setup

LIMIT = 120.0
"""Seconds after which a test gives up."""
HELD = 0.25
"""Seconds that a step takes which is held up: a run is not over then before a test has acted."""


class Unhurried:
    """A workload whose gradients take some seconds longer, and from step `hold` on `HELD` until `let_go`."""

    def __init__(self, workload: Workload, seconds: float, hold: int | None = None) -> None:
        self._workload, self._seconds, self._hold = workload, seconds, hold
        self._free = mmap.mmap(-1, 1)  # shared with processes that are forked later
        self.name, self.parameters, self.buffers = workload.name, workload.parameters, workload.buffers

    def initial(self, seed: int) -> Vector:
        return self._workload.initial(seed)

    def gradient(self, x: Vector, batch: Batch) -> Slope:
        end = time.monotonic() + (HELD if self._is_held(batch) else self._seconds)
        while self._is_held(batch) and time.monotonic() < end:
            time.sleep(0.005)
        time.sleep(max(0.0, min(self._seconds, end - time.monotonic())))
        return self._workload.gradient(x, batch)

    def _is_held(self, batch: Batch) -> bool:
        return self._hold is not None and batch.counter >= self._hold and not self._free[0]

    def gradients(self, xs: Sequence[Vector], batches: Sequence[Batch]) -> list[Slope]:
        return [self.gradient(x, batch) for x, batch in zip(xs, batches, strict=True)]

    def evaluate(self, xs: Sequence[Vector]) -> list[Evaluation]:
        return self._workload.evaluate(xs)

    def let_go(self, free: bool = True) -> None:
        self._free[0] = free
        if isinstance(self._workload, Unhurried):
            self._workload.let_go(free)


def let_go(setup: Setup) -> None:
    """The test has acted: the run, if it was held up in its middle, goes on to its end."""
    if isinstance(setup.workload, Unhurried):
        setup.workload.let_go()


def hold_later(setup: Setup, hold: int) -> None:
    """The next session of a run is held up from a later step on."""
    assert isinstance(setup.workload, Unhurried)
    setup.workload._hold = hold
    setup.workload.let_go(False)


def live_setup(
    algorithm: Algorithm[Verb],
    n: int = 4,
    seconds: float = 0.005,
    method: str = "ccs",
    dynamics: Dynamics = Dynamics(),
    graph: swiftfl.Topology | None = None,
    hold: int | None = None,
    **options: Any,
) -> Setup:
    graph = graph or (swiftfl.ring(n) if n > 2 else swiftfl.path(n))
    setup, coefficients, workload = quadratic_setup(algorithm, graph, method=method, **options)
    given = coefficients.influence.tolist()
    return replace(
        setup,
        workload=Unhurried(workload, seconds, hold),
        network=lambda: Membership(graph, given, method, dynamics, 0),
    )


@contextlib.contextmanager
def running(
    setup: Setup, folder: Path | None = None, resume: ResumePoint | None = None, **options: Any
) -> Iterator[LocalEngine]:
    """A started run, ended whatever happens."""
    engine = LocalEngine(setup, folder, LiveOptions(**options), resume)
    try:
        engine.start()
        yield engine
    finally:
        engine.close()


def resumed(
    setup: Setup, folder: Path, elapsed: float = 0.0
) -> contextlib.AbstractContextManager[LocalEngine]:
    """A run that goes on from its clients' saves; nothing holds it up any more."""
    let_go(setup)
    return running(setup, folder, find_resume_point(folder, setup, elapsed))


def replay(setup: Setup, folder: Path) -> list[Vector]:
    """The models of a run that is repeated; its gradients need not take their time again."""
    workload = copy.copy(setup.workload)
    if isinstance(workload, Unhurried):
        workload._seconds = 0.0
    return replay_run(replace(setup, workload=workload), folder)


def check_replay(
    setup: Setup, folder: Path, live: Sequence[Vector], members: Iterable[int] | None = None
) -> None:
    """A replay gives the models of a run, bit for bit; of all clients, or of those who have not been lost."""
    again = replay(setup, folder)
    assert len(again) == len(live)
    for i in range(len(live)) if members is None else members:
        np.testing.assert_array_equal(live[i], again[i], f"client {i}")


def last_states(setup: Setup, folder: Path, members: Iterable[int] | None = None) -> list[State]:
    """What clients have saved last."""
    first = setup.first_state(setup.workload.initial(setup.seed))
    there = range(setup.n) if members is None else members
    return [read_all(folder, i, first)[0][0].state for i in there]


def events(engine: SupervisedRun, kind: str) -> list[dict[str, Any]]:
    """All events of a kind so far."""
    return [row for row in engine.supervisor._log if row["event"] == kind]


def until(happened: Callable[[], bool], what: str = "what is awaited", limit: float = LIMIT) -> None:
    end = time.monotonic() + limit
    while not happened():
        assert time.monotonic() < end, f"{what} has not happened in {limit} s"
        time.sleep(0.01)


def steps(engine: SupervisedRun) -> list[float]:
    return engine.status.column("c")


def under_way(engine: LocalEngine, c: int = 3) -> None:
    """Wait until every client has taken a few steps."""
    until(lambda: min(steps(engine)) >= c, f"step {c} of every client")


def kill(engine: LocalEngine, *clients: int) -> None:
    """Kill clients, and wait until they are known to be lost."""
    for i in clients:
        os.kill(pids(engine)[i], signal.SIGKILL)
    until(lambda: set(clients) <= set(engine.supervisor.lost), "the notice of a loss")


def stop(engine: LocalEngine | MpiEngine) -> None:
    """Stop a run before its end; it can go on later."""
    engine.stop()
    until(lambda: engine.supervisor.common._at is not None, "the order to stop")
    let_go(engine.setup)  # nobody can pass the round of the stop, which may lie many ahead
    until(lambda: engine.wait(0.02), "the stop")
    assert engine.stopped


def stopped_resumed_and_replayed(setup: Setup, folder: Path) -> list[Vector]:
    """The models of a run that is stopped in its middle and goes on to its end; a replay gives the same."""
    with running(setup, folder) as engine:
        under_way(engine, 5)
        stop(engine)
    return resumed_and_replayed(setup, folder)


def resumed_and_replayed(setup: Setup, folder: Path) -> list[Vector]:
    """The models of a run that goes on to its end; a replay gives the same."""
    with resumed(setup, folder) as engine:
        assert engine.wait(LIMIT)
        live = engine.models
    check_replay(setup, folder, live)
    return live


def alive(pid: int) -> bool:
    """Whether a process runs (one that is dead but not yet waited for does not)."""
    try:
        with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
            return file.read().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except OSError:
        return False


def pids(engine: LocalEngine) -> list[int]:
    server = engine.fork_server
    until(lambda: server is not None and len(server.pids) == engine.n, "the start of every client")
    return [engine.pid(i) for i in range(engine.n)]


def shared_memory_files() -> set[str]:
    return {name for name in os.listdir("/dev/shm") if "swiftfl" in name}  # noqa: PTH208


def check_conditions(folder: Path, n: int, edges: set[tuple[int, int]], members: set[int]) -> None:
    """(a)-(d) for uniform influence, by the weights that clients wrote down last.

    Each w_i sums to one and has weight along edges only, nobody's own is less than 1/n, and the expected
    matrix is symmetric.
    """
    weights = np.zeros((n, n))
    for i in members:
        w = read_incarnations(folder, i, n)[-1].terms[-1][1].w
        assert {(min(i, k), max(i, k)) for k in w.of} == {edge for edge in edges if i in edge}
        weights[i, i] = w.own
        for k, value in w.of.items():
            weights[k, i] = value
    there = sorted(members)
    inner = weights[np.ix_(there, there)]
    assert (inner >= 0).all()
    assert np.allclose(inner.sum(axis=0), 1.0)
    assert np.allclose(inner.sum(axis=1), 1.0)
    assert (np.diag(inner) >= 1 / len(there) - 1e-12).all()
    assert np.allclose(inner, inner.T)


class Tagged:
    """A workload with running buffers that every batch moves a hundredth of the way to its client's number.

    Where they stay the client's own, they are i (1 - 0.99^T) after T steps of client i, whatever is averaged.
    """

    name, parameters, buffers = "tagged", 3, 2

    def initial(self, seed: int) -> Vector:
        return np.zeros(5)

    def gradient(self, x: Vector, batch: Batch) -> Slope:
        pull = np.append(x[:3] - batch.client, (0.0, 0.0))
        return Slope(pull, float(pull @ pull), Statistics(np.full(2, float(batch.client)), 0.01))

    def gradients(self, xs: Sequence[Vector], batches: Sequence[Batch]) -> list[Slope]:
        return [self.gradient(x, batch) for x, batch in zip(xs, batches, strict=True)]

    def evaluate(self, xs: Sequence[Vector]) -> list[Evaluation]:
        return [Evaluation(float(x @ x), None) for x in xs]


def tagged_setup(algorithm: Algorithm[Verb], n: int = 4, buffers: Buffers = "own", **options: Any) -> Setup:
    setup = live_setup(algorithm, n, 0.0, "metropolis", **options)
    return replace(setup, workload=Tagged(), buffers=buffers)


def own_buffers(n: int, steps: int) -> np.ndarray:
    """What `Tagged` leaves in each client's buffers."""
    values = np.arange(n) * (1.0 - 0.99**steps)
    return np.stack([values, values], axis=1)
