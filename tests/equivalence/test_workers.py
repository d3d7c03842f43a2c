"""In how many processes a simulated run computes changes no bit of it."""

from __future__ import annotations

import gc
import io
import logging
import mmap
import os
import random
import signal
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import swiftfl
from forked import forked_call
from swiftfl.algorithms import Swift
from swiftfl.cli.main import main, run_command
from swiftfl.engines import threads
from swiftfl.engines.dynamics import Change
from swiftfl.engines.simulation import checkpoint, helpers
from swiftfl.engines.simulation.engine import Simulation
from swiftfl.engines.simulation.helpers import AUTO
from swiftfl.engines.simulation.slots import TaskSlots, bytes_of_one
from swiftfl.engines.threads import CORES, cores
from swiftfl.errors import UserError
from swiftfl.experiment.build import build
from swiftfl.experiment.config import Config
from swiftfl.experiment.measure import Measurement, measure
from swiftfl.experiment.recipes import digits, synthetic
from swiftfl.experiment.run import RunStopped, run
from swiftfl.record import RunFolder
from swiftfl.sample import Batch
from swiftfl.workload.base import Evaluation
from swiftfl.workload.module import ModuleWorkload
from worlds import quadratic_setup

MLP = {"model.name": "mlp", "data.partition": "bootstrap:24", "data.batch_size": 16, "topology.clients": 80}
BATCH_NORM = {
    "data.options": {"samples": 400, "shape": [1, 10, 10], "classes": 4},
    "model.name": "cnn",
    "model.norm": "batch",
    "topology.clients": 5,
}
CHURN = {"notice": 0.02, "renewal": 0.01, "crash_rate": 2.0, "return_rate": 8.0}


def _config(name: str) -> Config:
    if name == "batch norm, loop":
        return synthetic().with_changes({**BATCH_NORM, "engine.epochs": 2})
    if name == "vmap":
        return synthetic().with_changes({**BATCH_NORM, "topology.clients": 40, "engine.epochs": 2,
                                         "model.norm": "group", "model.batching": "on"})  # fmt: skip
    if name == "norm, many":
        return synthetic().with_changes({**BATCH_NORM, "topology.clients": 18, "model.batching": "off",
                                         "engine.epochs": 1})  # fmt: skip
    changes: dict[str, Any] = {**MLP, "engine.epochs": 3, "engine.costs.spread": 0.3}
    if name == "clients that are lost":
        changes |= {"engine.network": CHURN, "engine.epochs": 6}
    elif name == "sampled":
        changes |= {"engine.name": "sampled"}
    elif name == "few clients":
        changes |= {"topology.clients": 16, "model.name": "logistic", "engine.epochs": 10}
    elif name == "one by one, lost":
        changes |= {"topology.clients": 20, "model.batching": "off", "engine.network": CHURN}
    elif name in ("dsgd", "adpsgd"):
        changes |= {"algorithm.name": name}
    elif name == "adpsgd beside":
        changes |= {"algorithm.name": "adpsgd", "algorithm.averaging": "background"}
    return digits().with_changes(changes)


def _engine(config: Config, workers: int) -> Simulation:
    parts = build(config)
    return replace(parts, setup=replace(parts.setup, workers=workers)).engine(config.engine.name)


def _helping(engine: Simulation) -> list[int]:
    return getattr(engine.world.helpers, "_pids", [])


def _end(engine: Simulation) -> list[np.ndarray]:
    while not engine.over:
        engine.advance(10**6)
    engine.close()
    return engine.models


CASES = [
    "mlp",
    "few clients",
    "batch norm, loop",
    "vmap",
    "clients that are lost",
    "sampled",
    "dsgd",
    "adpsgd",
    "adpsgd beside",
    "one by one, lost",
    "norm, many",
]


@pytest.mark.parametrize("name", CASES)
def test_one_process_or_three_the_same_bits(name: str) -> None:
    config = _config(name)
    found = []
    for workers in (1, 3):
        engine = _engine(config, workers)
        engine.start()
        models = _end(engine)
        found.append((models, engine.now, engine.figures()))
        assert len(_helping(engine)) == workers - 1
    (one, one_now, one_figures), (three, three_now, three_figures) = found
    assert all(a.tobytes() == b.tobytes() for a, b in zip(one, three, strict=True))
    assert one_now == three_now
    assert one_figures == three_figures


def test_helpers_compute_before_the_whole_group_is_parked(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 clients of a dense model would be one piece, which a helper could not share."""
    helped, mine = mmap.mmap(-1, 1), os.getpid()
    real_piece, real_finish, sizes = ModuleWorkload.piece, helpers.Helpers.finish, [0]

    def piece(self: ModuleWorkload, way: str, xs: Any, batches: Any) -> Any:
        if os.getpid() != mine:
            helped[0] = 1
        else:
            sizes.append(len(xs))
        return real_piece(self, way, xs, batches)

    def finish(self: helpers.Helpers, task: Any) -> Any:
        deadline = time.monotonic() + 30
        while (
            not helped[0] and time.monotonic() < deadline
        ):  # else the run may be quicker, and take it itself
            time.sleep(0.001)
        return real_finish(self, task)

    monkeypatch.setattr(ModuleWorkload, "piece", piece)
    monkeypatch.setattr(helpers.Helpers, "finish", finish)
    engine = _engine(_config("few clients"), 2)
    engine.start()
    engine.advance(4 * engine.n)
    engine.close()
    assert helped[0]
    assert sizes.count(16) == 1  # the first group, before there were helpers
    assert max(sizes) == 16


def test_a_client_of_a_planned_piece_that_is_lost_right_after_a_resume() -> None:
    config = _config("clients that are lost")
    found = []
    for workers in (1, 3):
        first = _engine(config, 3)
        first.start()
        first.advance(first.n + first.n // 3)
        saved = checkpoint.save(first)
        first.close()
        engine = _engine(config, workers)
        checkpoint.restore(engine, saved)
        planned = [i for _, clients in saved.tree["gradients"]["planned"] for i in clients]
        assert engine.churn is not None
        for i in planned[:3]:
            assert engine.churn._crash(Change(engine.now, "crash", i))
        found.append(_end(engine))
    assert all(a.tobytes() == b.tobytes() for a, b in zip(*found, strict=True))


def test_a_piece_whose_clients_are_all_lost_is_in_nobodys_way() -> None:
    engine = _engine(_config("one by one, lost"), 2)
    engine.start()
    engine.advance(5)
    gradients, its = engine.world.gradients, engine.world.helpers
    assert its._slots is not None
    assert gradients._planned
    for i in sorted(gradients._planned):
        gradients.forget(i)
    assert not gradients._planned
    assert not gradients._queue
    assert not its._tasks
    engine.close()


@pytest.mark.parametrize(("model", "options", "batching", "clients"), [
    ("logistic", {}, "auto", 40), ("mlp", {"hidden": 6000}, "auto", 1), ("logistic", {}, "off", 1),
])  # fmt: skip
def test_slots_are_as_large_as_pieces(
    model: str, options: dict[str, int], batching: str, clients: int
) -> None:
    """Not as all that are computed ahead: of a large model that would be more than a machine has."""
    changes = {
        "model.name": model,
        "model.options": options,
        "model.batching": batching,
        "topology.clients": 40,
    }
    config = _config("mlp").with_changes(changes)
    engine = _engine(config, 2)
    engine.start()
    engine.advance(1)
    slots = engine.world.helpers._slots
    assert slots is not None
    assert slots._clients == clients
    engine.close()


@pytest.mark.parametrize("partition", ["dirichlet:0.5", "dirichlet:0.3", "iid"])
def test_slots_hold_every_batch_of_the_run(partition: str) -> None:
    """Whoever is the first: the batches of its small part are no measure of the others'."""
    changes = {"topology.clients": 16, "data.partition": partition, "data.batch_size": 32}
    config = _config("norm, many").with_changes(changes)
    engine = _engine(config, 2)
    engine.start()
    engine.advance(1)
    slots = engine.world.helpers._slots
    assert slots is not None
    assert slots._samples == min(32, max(build(config).partition.sizes))
    engine.close()


def test_slots_hold_the_pieces_of_small_batches() -> None:
    """Of which more are computed together: an epoch of 68 samples has batches of 64 and of 4."""
    changes = {
        "model.options": {"hidden": 256},
        "data.partition": "bootstrap:68",
        "data.batch_size": 64,
        "topology.clients": 40,
    }
    engine = _engine(_config("mlp").with_changes(changes), 2)
    engine.start()
    engine.advance(1)
    slots, gradients = engine.world.helpers._slots, engine.world.gradients
    assert slots is not None
    while not engine.over:
        engine.advance(1)
        assert not any(piece.large for piece in gradients._planned.values())
    engine.close()


def test_a_piece_that_is_too_large_does_not_keep_others_from_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = {"data.partition": "dirichlet:0.5", "data.batch_size": 32, "engine.epochs": 4,
               "topology.clients": 40, "engine.costs.spread": 0.3}  # fmt: skip
    config = _config("norm, many").with_changes(changes)
    expected = _end_of(_engine(config, 1))

    def small(workload: Any, x0: Any, clients: int, samples: int, least: int) -> Any:
        return TaskSlots(workload, x0, clients, 12, least)

    monkeypatch.setattr(helpers, "TaskSlots", small)
    engine = _engine(config, 2)
    engine.start()
    behind = 0  # how often a piece was with the helpers that had been planned after one too large for them
    while not engine.over:
        engine.advance(1)
        pieces = list(engine.world.gradients._planned.values())
        fits = [engine.world.gradients._verbs(piece)[0].batch.indices.size <= 12 for piece in pieces]
        first = fits.index(False) if False in fits else len(fits)
        behind += any(piece.task is not None for piece in pieces[first:])
    assert behind
    models = _end(engine)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(models, expected, strict=True))


def test_what_helpers_were_given_is_not_kept() -> None:
    """A circle of a piece and its task kept models, by the hundred, until Python looked for garbage."""
    engine = _engine(_config("few clients"), 2)
    engine.start()
    engine.advance(2 * engine.n)
    gc.collect()
    gc.disable()
    try:
        engine.advance(8 * engine.n)
        assert gc.collect() == 0
    finally:
        gc.enable()
        engine.close()
    assert len(_helping(engine)) == 1


@pytest.mark.parametrize("allowed", [0, 1, 2])
def test_a_machine_without_room_for_more_processes_does_with_those_there_are(
    allowed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, forks, fork = _config("mlp"), [0], os.fork

    def limited() -> int:
        forks[0] += 1
        if forks[0] > allowed:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return fork()

    expected = _end_of(_engine(config, 1))
    monkeypatch.setattr("swiftfl.engines.simulation.helpers._PER_CORE", 3)
    monkeypatch.setattr("swiftfl.engines.simulation.helpers.cores", lambda: 1)
    monkeypatch.setattr(os, "fork", limited)
    engine = _engine(config, 100_000)  # of which 3 would be started
    models = _end_of(engine)
    assert forks[0] == min(allowed + 1, 2)
    assert len(_helping(engine)) == allowed
    instead = ["the run stays in one process", "1 helper instead of 2"]
    reason = ": no room for more processes (BlockingIOError: [Errno 11] Resource temporarily unavailable)"
    assert _told(engine) == [text + reason for text in instead[allowed : allowed + 1]]
    assert all(a.tobytes() == b.tobytes() for a, b in zip(models, expected, strict=True))


@pytest.mark.parametrize("what", ["memory", "the first pipe", "the second pipe"])
def test_a_machine_without_room_for_tasks_does_without_helpers(
    what: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config, pipe = _config("mlp"), os.pipe
    ends: list[int] = []

    def full(*_: Any) -> Any:
        raise OSError(12, "Cannot allocate memory")

    def limited() -> tuple[int, int]:
        if ends or what == "the first pipe":
            raise OSError(24, "Too many open files")
        ends.extend(pipe())
        return ends[0], ends[1]

    expected = _end_of(_engine(config, 1))
    if what == "memory":
        monkeypatch.setattr(mmap, "mmap", full)
    else:
        monkeypatch.setattr(os, "pipe", limited)
    engine = _engine(config, 3)
    models = _end_of(engine)
    monkeypatch.undo()
    assert _helping(engine) == []
    assert _told(engine) == [
        "the run stays in one process: no room to hand out tasks (OSError: "
        + ("[Errno 12] Cannot allocate memory)" if what == "memory" else "[Errno 24] Too many open files)")
    ]
    for end in ends:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(end)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(models, expected, strict=True))


def _told(engine: Simulation) -> list[str]:
    return [row["text"] for row in engine.take_log() if row["event"] == "warning"]


@pytest.mark.parametrize(("room", "helping"), [(0, 0), (1, 1), (2, 2)])
def test_tasks_take_at_most_half_of_the_free_memory(
    room: int, helping: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = _config("mlp")
    expected = _end_of(_engine(config, 1))
    each = 2 * 4_000  # bytes of a helper's tasks
    monkeypatch.setattr(helpers, "bytes_of_one", lambda *_: 4_000)
    monkeypatch.setattr(helpers, "free_memory", lambda: 2 * each * (room + 1) - 2)
    engine = _engine(config, 3)
    models = _end_of(engine)
    assert len(_helping(engine)) == helping
    reason = ": memory for the tasks of more would be over half of what is free"
    instead = ["the run stays in one process", "1 helper instead of 2"]
    assert _told(engine) == [text + reason for text in instead[room : room + 1]]
    assert all(a.tobytes() == b.tobytes() for a, b in zip(models, expected, strict=True))


def test_what_a_helper_adds_to_the_memory_of_tasks() -> None:
    workload = build(_config("mlp")).workload
    x0 = workload.initial(0)
    slots = TaskSlots(workload, x0, 500, 16, 4)  # of more than 4 MB
    assert slots._gradients == 4
    of_model = 8 * slots._words + x0.nbytes
    assert bytes_of_one(workload, x0, 500, 16) == slots._slot_bytes + of_model


@pytest.mark.parametrize("unbuffered", [False, True])
def test_what_is_printed_beside_helpers_stands_there_once_and_in_whole_lines(
    unbuffered: bool, tmp_path: Path
) -> None:
    """In a file, which Python does not write line by line, or, if it is unbuffered, in parts of lines."""
    samples = torch.randn(160, 8), torch.randint(3, (160,))

    def loss(model: nn.Module, batch: Any) -> Tensor:
        x, y = batch
        print("a step", "x" * 60)
        return nn.functional.cross_entropy(model(x), y)

    def work(workers: int) -> int:
        assert isinstance(sys.stdout, io.TextIOWrapper)
        sys.stdout.reconfigure(write_through=unbuffered)
        print("my experiment")
        mine = swiftfl.Virtual(workers=workers)
        swiftfl.train(nn.Linear(8, 3), samples, loss=loss, clients=8, epochs=30, engine=mine, progress=False)
        assert (sys.stdout.line_buffering, sys.stdout.write_through) == (False, unbuffered), "as before"
        return 0

    alone, beside = (
        forked_call(lambda workers=workers: work(workers), ["a run"], tmp_path)  # type: ignore[misc]
        for workers in (1, 3)
    )
    assert (alone.returncode, beside.returncode) == (0, 0), beside.stderr
    lines = alone.stdout.splitlines()
    assert lines[0] == "my experiment"
    assert len(lines) > 240  # more than a buffer holds
    assert beside.stdout.splitlines()[0] == "my experiment"
    assert sorted(beside.stdout.splitlines()) == sorted(lines)


def test_helpers_do_not_wait_for_what_a_thread_held_when_they_were_forked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that prints has the lock of the stream now and then; in a fork nobody would give it back."""
    here = os.getpid()

    class Locked(io.TextIOWrapper):
        def flush(self) -> None:
            while os.getpid() != here:
                time.sleep(1.0)
            super().flush()

    config = _config("few clients")
    expected = _end_of(_engine(config, 1))
    with Locked((tmp_path / "out").open("wb")) as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        engine = _engine(config, 2)
        models = _end_of(engine)
        monkeypatch.undo()
    assert len(_helping(engine)) == 1
    assert all(a.tobytes() == b.tobytes() for a, b in zip(models, expected, strict=True))


@pytest.mark.parametrize("odd", [None, object(), io.StringIO()])
def test_odd_objects_in_the_place_of_stdout_are_left_alone(odd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    config = _config("few clients")
    expected = _end_of(_engine(config, 1))
    monkeypatch.setattr(sys, "stdout", odd)
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    engine = _engine(config, 2)
    models = _end_of(engine)
    monkeypatch.undo()
    assert len(_helping(engine)) == 1
    assert all(a.tobytes() == b.tobytes() for a, b in zip(models, expected, strict=True))


def _end_of(engine: Simulation) -> list[np.ndarray]:
    engine.start()
    return _end(engine)


def _measured(
    config: Config, workers: int, monkeypatch: pytest.MonkeyPatch, patient: bool = False
) -> tuple[dict[str, Any], int]:
    """What a measurement finds after two steps per client, and how many models helpers have looked at.

    With `patient` the run evaluates nothing before a helper has begun to: it could be through by itself.
    """
    helped, mine, real = mmap.mmap(-1, 64), os.getpid(), ModuleWorkload.evaluate

    def evaluate(self: ModuleWorkload, xs: Any) -> Any:
        if os.getpid() != mine:
            helped[os.getpid() % 64] += len(xs)
        elif patient:
            deadline = time.monotonic() + 60
            while not any(helped[:]) and time.monotonic() < deadline:
                time.sleep(0.01)
        return real(self, xs)

    with monkeypatch.context() as patched:
        patched.setattr(ModuleWorkload, "evaluate", evaluate)
        engine = _engine(config, workers)
        engine.start()
        engine.advance(2 * engine.n)
        assert len(_helping(engine)) == workers - 1
        # Where helpers took all gradients, the run has not seen yet that its model draws no numbers.
        workload = engine.setup.workload
        workload.gradient(workload.initial(0), Batch(0, 1, np.arange(4)))
        real(cast(ModuleWorkload, workload), [workload.initial(0)])  # nor that it draws none in evaluations
        found = asdict(measure(engine, 5))
        engine.close()
    del found["evaluation_seconds"]
    return found, sum(helped[:])


def test_models_are_evaluated_by_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    config = _config("batch norm, loop").with_changes({"evaluation.metrics": ["f1_macro"]})
    one, by_nobody = _measured(config, 1, monkeypatch)
    three, by_helpers = _measured(config, 3, monkeypatch, patient=True)
    assert one == three
    assert one["metrics"]["f1_macro"] > 0
    assert by_nobody == 0 < by_helpers


@pytest.mark.parametrize("why", ["all models at once", "data that shift"])
def test_what_helpers_could_find_otherwise_is_evaluated_by_the_run(
    why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = _config("mlp" if why == "all models at once" else "batch norm, loop")
    if why == "data that shift":
        config = config.with_changes({"data.shift": [{"kind": "label_rotation", "at": 1}]})
    one, _ = _measured(config, 1, monkeypatch)
    three, by_helpers = _measured(config, 3, monkeypatch)
    assert one == three
    assert by_helpers == 0


def test_a_model_that_draws_numbers_is_evaluated_by_the_run() -> None:
    class Noisy(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + torch.randn(())

    data = build(_config("mlp")).data
    for factory, apart in ((lambda: nn.Linear(64, 10), True), (lambda: Noisy(64, 10), False)):
        workload = ModuleWorkload(factory, data, batching="off")
        assert not workload.evaluates_apart(3)  # not known before the first gradient
        workload.gradient(workload.initial(0), Batch(0, 1, np.arange(4)))
        assert not workload.evaluates_apart(3)  # nor before the first evaluation
        workload.evaluate([workload.initial(0)])
        assert workload.evaluates_apart(3) == apart


@pytest.mark.parametrize("draw", [torch.randn, np.random.random, lambda _: random.random()])
def test_a_model_that_draws_in_evaluations_only_is_evaluated_by_the_run(draw: Any) -> None:
    class Noisy(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + (0.0 if self.training else float(torch.as_tensor(draw(1)).sum()))

    workload = ModuleWorkload(lambda: Noisy(64, 10), build(_config("mlp")).data, batching="off")
    workload.gradient(workload.initial(0), Batch(0, 1, np.arange(4)))
    workload.evaluate([workload.initial(0)])
    assert not workload.evaluates_apart(3)


def test_an_evaluation_that_fails_in_a_helper_is_done_by_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, real = os.getpid(), ModuleWorkload.evaluate

    def evaluate(self: ModuleWorkload, xs: Any) -> Any:
        if os.getpid() != mine:
            raise ValueError("not here")
        return real(self, xs)

    config = _config("batch norm, loop")
    one, _ = _measured(config, 1, monkeypatch)
    monkeypatch.setattr(ModuleWorkload, "evaluate", evaluate)
    engine = _engine(config, 3)
    engine.start()
    engine.advance(2 * engine.n)
    found = asdict(measure(engine, 5))
    engine.close()
    del found["evaluation_seconds"]
    assert found == one


@pytest.mark.parametrize("name", ["mlp", "batch norm, loop", "clients that are lost"])
@pytest.mark.parametrize(("before", "after"), [(3, 1), (1, 2)])
def test_a_checkpoint_goes_on_with_another_number(name: str, before: int, after: int) -> None:
    config = _config(name)
    whole = _engine(config, 1)
    whole.start()
    expected = _end(whole)
    first = _engine(config, before)
    first.start()
    first.advance(first.n + first.n // 3)  # in the middle of a group
    saved = checkpoint.save(first)
    if name == "mlp":
        assert saved.tree["gradients"]["planned"]
    first.close()
    second = _engine(config, after)
    checkpoint.restore(second, saved)
    models = _end(second)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(expected, models, strict=True))


def test_a_helper_that_dies_costs_nothing_but_time(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helpers, "_LOOK_SECONDS", 0.05)
    config = _config("mlp")
    alone = _engine(config, 1)
    alone.start()
    expected = _end(alone)
    engine = _engine(config, 2)
    engine.start()
    engine.advance(10)
    (pid,) = _helping(engine)
    os.kill(pid, signal.SIGKILL)  # with a task in its hands, or none
    with caplog.at_level(logging.WARNING):
        models = _end(engine)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(expected, models, strict=True))
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("who", ["all", "one"])
def test_helpers_that_die_with_a_task_in_their_hands(
    who: str, workers: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them, or all: nobody is left then who could say so."""
    monkeypatch.setattr(helpers, "_LOOK_SECONDS", 0.05)
    config = _config("batch norm, loop")
    expected = _end_of(_engine(config, 1))
    mine, real, dead = os.getpid(), ModuleWorkload.piece, mmap.mmap(-1, 1)

    def piece(self: ModuleWorkload, way: str, xs: Any, batches: Any) -> Any:
        if os.getpid() != mine and (who == "all" or not dead[0]):
            dead[0] = 1
            os.kill(os.getpid(), signal.SIGKILL)
        if os.getpid() == mine:  # until a helper has taken a task
            deadline = time.monotonic() + 30
            while not dead[0] and _helping(engine) and time.monotonic() < deadline:
                time.sleep(0.01)
        return real(self, way, xs, batches)

    monkeypatch.setattr(ModuleWorkload, "piece", piece)
    engine = _engine(config, workers)
    engine.start()
    with caplog.at_level(logging.WARNING):
        models = _end(engine)
    assert dead[0]
    assert all(a.tobytes() == b.tobytes() for a, b in zip(expected, models, strict=True))
    assert "a helper process died" in caplog.text


@pytest.mark.parametrize("workers", [2, AUTO])
def test_helpers_that_fail_where_the_run_does_not_are_dismissed(
    workers: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As torch's autograd does in forks of a process that sees a GPU and has taken a gradient."""
    config = _config("norm, many").with_changes({"engine.epochs": 4})
    expected = _end_of(_engine(config, 1))
    mine, real, failed = os.getpid(), ModuleWorkload.piece, mmap.mmap(-1, 1)

    def piece(self: ModuleWorkload, way: str, xs: Any, batches: Any) -> Any:
        if os.getpid() != mine:
            failed[0] = 1
            raise RuntimeError("not in a fork")
        deadline = time.monotonic() + 30  # until a helper has had its try
        while not failed[0] and _helping(engine) and time.monotonic() < deadline:
            time.sleep(0.001)
        return real(self, way, xs, batches)

    monkeypatch.setattr(helpers, "cores", lambda: 2)
    monkeypatch.setattr(helpers, "_WORTH_SECONDS", 0.0)
    monkeypatch.setattr(helpers, "_WORTH_PIECE", 0.0)
    monkeypatch.setattr(ModuleWorkload, "piece", piece)
    engine = _engine(config, workers)
    engine.start()
    with caplog.at_level(logging.INFO):
        while not engine.over:
            engine.advance(10**6)
    its = engine.world.helpers
    assert failed[0]
    assert its._slots is None  # and never again
    assert not its.wanted(True, lambda: (1, 1))
    with pytest.raises(ProcessLookupError):
        os.kill(_helping(engine)[0], 0)
    said = "in one process, since helpers fail where it does not: RuntimeError: not in a fork"
    assert caplog.text.count(said) == 1
    told = [row["text"] for row in engine.take_log() if row["event"] == "warning"]
    assert [said in text for text in told] == ([True] if workers == 2 else [])
    assert all(a.tobytes() == b.tobytes() for a, b in zip(engine.models, expected, strict=True))


def test_an_evaluation_without_room_in_its_slot_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = build(_config("batch norm, loop")).workload
    x0, named = workload.initial(0), "m" * 40

    def evaluate(self: ModuleWorkload, xs: Any) -> Any:
        return [Evaluation(1.0, None, {f"{named}{k}": 0.0 for k in range(x0.nbytes // 40)}) for _ in xs]

    monkeypatch.setattr(ModuleWorkload, "evaluate", evaluate)
    slots = TaskSlots(workload, x0, 1, 1, 1)
    slot = slots.put_model(x0)
    slots.compute(slot)
    assert slots.read_evaluation(slot) is None
    assert slots.failure(slot) is None


def test_a_run_alone_says_which_client_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    config = _config("batch norm, loop")
    engine = _engine(config, 2)

    def piece(self: ModuleWorkload, way: str, xs: Any, batches: Any) -> Any:
        raise UserError(f"client {batches[0].client} fails")

    monkeypatch.setattr(ModuleWorkload, "piece", piece)
    engine.start()
    with pytest.raises(UserError, match="client 0 fails"):
        engine.advance(1)
    engine.close()


def test_small_runs_and_undivided_workloads_stay_in_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = _engine(_config("mlp"), AUTO)
    engine.start()
    engine.advance(engine.n)
    assert _helping(engine) == []
    setup, _, _ = quadratic_setup(Swift(), workers=4)
    from swiftfl.engines.simulation.virtual import VirtualEngine

    quadratic = VirtualEngine(setup)
    quadratic.start()
    quadratic.advance(50)
    assert _helping(quadratic) == []


def test_auto_starts_helpers_where_they_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CORES, "2")
    monkeypatch.setattr(helpers, "_WORTH_SECONDS", 0.0)
    monkeypatch.setattr(helpers, "_WORTH_PIECE", 0.0)
    engine = _engine(_config("mlp"), AUTO)
    engine.start()
    engine.advance(2 * engine.n)
    assert len(_helping(engine)) == min(cores(), 2) - 1
    engine.close()
    monkeypatch.setattr(helpers, "free_memory", lambda: 0)  # the models would be there twice
    engine = _engine(_config("mlp"), AUTO)
    engine.start()
    engine.advance(2 * engine.n)
    assert _helping(engine) == []


def test_the_share_of_a_run_among_others(monkeypatch: pytest.MonkeyPatch) -> None:
    there = len(os.sched_getaffinity(0))
    monkeypatch.setenv(CORES, "1")
    assert cores() == 1
    monkeypatch.setenv(CORES, "100000")
    assert cores() == there
    monkeypatch.delenv(CORES)
    assert cores() == there


@pytest.mark.parametrize(
    ("text", "expected"),
    [("100000 100000", 1), ("150000 100000", 2), ("1000 100000", 1), ("max 100000", None), ("", None)],
)
def test_a_container_that_may_use_fewer_processors(
    text: str, expected: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(CORES, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(64))
    monkeypatch.setattr(threads, "_QUOTA", tmp_path / "cpu.max")
    assert cores() == 64
    (tmp_path / "cpu.max").write_text(f"{text}\n")
    assert cores() == (expected or 64)


def test_the_option_of_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["swiftfl", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        return int(end.value.code or 0), capsys.readouterr().err

    few = ["run", "digits", "--clients", "4", "--epochs", "1", "--out", str(tmp_path / "run")]
    for value in ("some", "-1", "1.5", "²"):
        code, error = told(*few, "--workers", value)
        assert code == 2
        assert "--workers" in error
    code, error = told(*few, "--workers", "0")
    assert code == 2
    assert "--workers" in error
    code, error = told(*few, "--workers", "2", "--engine", "local")
    assert code == 2
    assert "--workers is for engine virtual or sampled, not local" in error


def test_a_run_may_be_resumed_with_another_number(tmp_path: Path) -> None:
    config = digits().with_changes({"topology.clients": 4, "engine.epochs": 1, "engine.workers": 2})
    outcome = run(config, tmp_path / "run")
    from swiftfl.experiment.differences import difference

    assert difference(config, config.with_changes({"engine.workers": 1})) is None
    assert outcome.folder is not None


def test_resume_takes_another_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config, given = digits().with_changes({"topology.clients": 4, "engine.workers": 2}), list[int]()
    whole = run(config)
    helpers_of = helpers.Helpers.__init__

    def counted(self: Any, workload: Any, workers: int, x0: Any) -> None:
        given.append(workers)
        helpers_of(self, workload, workers, x0)

    def stops(done: int, total: int, last: Measurement) -> None:
        if done > total / 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(helpers.Helpers, "__init__", counted)
    for name, asked in (("command", "3"), ("refused", "many")):
        with pytest.raises(RunStopped):
            run(config, tmp_path / name, progress=stops)
        code = run_command(["resume", str(tmp_path / name), "--workers", asked])
        told = capsys.readouterr()
        if name == "refused":
            assert code == 2
            assert "--workers many: it must be auto, or a number of processes" in told.err
            continue
        assert code == 0
        assert given[-1] == 3
        found = RunFolder.open(tmp_path / name).read_models()["models"]
        assert found.tobytes() == np.stack(whole.models).tobytes()


def test_workers_in_a_file_must_be_auto_or_a_number() -> None:
    for value in (0, -1, True, 2.5, "many", None):
        with pytest.raises(UserError, match=r"engine\.workers must be auto or a number of processes, not"):
            digits().with_changes({"engine.workers": value})
