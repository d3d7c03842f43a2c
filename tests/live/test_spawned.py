"""Clients that are spawned, and not forked: the same runs, from names and references only."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from live_worlds import LIMIT, alive, check_replay, pids, stop, until

from fake_cuda import cuda_flags_kept
from swiftfl.engines.live.local.engine import LocalEngine
from swiftfl.engines.live.local.spawned import Remade
from swiftfl.engines.live.options import LiveOptions
from swiftfl.engines.live.resume import find_resume_point
from swiftfl.errors import UserError
from swiftfl.experiment.build import Parts, build
from swiftfl.experiment.config import Config
from swiftfl.experiment.recipes import recipe
from swiftfl.experiment.run import run
from swiftfl.experiment.starting import cannot_be_sent, how_to_start, how_to_start_here, place, remaking
from swiftfl.workload.placement import fair_share

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device on this machine")
SPAWN = {"engine.name": "local", "engine.live.start": "spawn", "topology.clients": 3}


def configuration(**changes: object) -> Config:
    base = {**SPAWN, "engine.epochs": 3, "engine.live.evaluate_seconds": 60.0, "data.batch_size": 64}
    return recipe("digits").with_changes({**base, **{k.replace("__", "."): v for k, v in changes.items()}})


def engine_of(config: Config, folder: Path, **options: object) -> tuple[LocalEngine, Parts]:
    parts = build(config)
    live = replace(LiveOptions(), **options)
    return LocalEngine(parts.setup, folder, live, None, remade=Remade(*remaking(config))), parts


@pytest.mark.parametrize("vectors", ["numpy", pytest.param("torch", marks=pytest.mark.slow)])
def test_rounds_give_the_same_bits_spawned_and_forked(vectors: str) -> None:
    config = configuration(algorithm__name="dsgd", model__vectors=vectors)
    spawned = run(config)
    forked = run(config.with_changes({"engine.live.start": "fork"}))
    for mine, theirs in zip(spawned.models, forked.models, strict=True):
        assert np.array_equal(np.asarray(mine), np.asarray(theirs))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=GPU)])
def test_two_clients_on_a_device_end_where_those_on_the_cpu_do(device: str) -> None:
    config = configuration(algorithm__name="dsgd", topology__clients=2, model__device=device)
    there = run(config)
    here = run(config.with_changes({"model.device": "cpu", "engine.live.start": "fork"}))
    assert there.summary["lost"] == []
    for mine, other in zip(there.models, here.models, strict=True):
        np.testing.assert_allclose(np.asarray(mine), np.asarray(other), rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_a_lost_client_is_spawned_again_and_the_run_is_replayed_bit_for_bit(tmp_path: Path) -> None:
    """With a codec, whose models are shown in a second memory; and nothing stays behind."""
    config = configuration(engine__codec="bf16", engine__epochs=30, engine__live__gradient_seconds=0.005)
    engine, parts = engine_of(config, tmp_path / "clients", restart_lost=True, save_steps=5)
    try:
        engine.start()
        until(lambda: min(engine.status.column("steps")) > 10, "all clients at work")
        mine = pids(engine)
        os.kill(engine.pid(1), signal.SIGKILL)
        assert engine.wait(LIMIT)
        assert engine.supervisor.restarts == [0, 1, 0]
        assert not engine.supervisor.warnings
        live = engine.models
    finally:
        engine.close()
    assert not any(map(alive, mine))
    check_replay(parts.setup, tmp_path / "clients", live)


@pytest.mark.slow
def test_a_stopped_run_goes_on(tmp_path: Path) -> None:
    config = configuration(engine__epochs=30, engine__live__gradient_seconds=0.005)
    engine, parts = engine_of(config, tmp_path)
    try:
        engine.start()
        until(lambda: min(engine.status.column("steps")) > 10, "all clients at work")
        stop(engine)
    finally:
        engine.close()
    point = find_resume_point(tmp_path, parts.setup, 0.0)
    second = LocalEngine(parts.setup, tmp_path, LiveOptions(), point, remade=Remade(*remaking(config)))
    try:
        second.start()
        assert second.wait(LIMIT)
        assert second.iteration == sum(parts.setup.steps_of(i) for i in range(3))
    finally:
        second.close()


@pytest.mark.slow
def test_code_of_ones_own_comes_by_reference(tmp_path: Path) -> None:
    """An experiment of a file, with a model and data that exist nowhere else."""
    file = tmp_path / "mine.py"
    file.write_text(
        "import torch\n"
        "class Net(torch.nn.Linear):\n"
        "    def __init__(self): super().__init__(4, 2)\n"
        "def experiment():\n"
        "    x = torch.randn(300, 4, generator=torch.Generator().manual_seed(0))\n"
        "    return dict(model=Net, train=(x, (x.sum(1) > 0).long()), clients=3, epochs=5, engine='local')\n"
    )
    from swiftfl.api.own_experiment import configuration_of, objects_of
    from swiftfl.experiment.source import reference

    said = reference(f"{file}:experiment")
    assert said is not None
    config = configuration_of(said).with_changes({"engine.live.start": "spawn"})
    found = run(config, given=objects_of(config))
    assert found.summary["accuracy"] > 0.8


@pytest.mark.slow
def test_what_a_fresh_process_cannot_do_is_its_clients_error(tmp_path: Path) -> None:
    config = configuration()
    program, told = remaking(config)
    told["config"]["model"]["name"] = "no_such_model"
    engine = LocalEngine(build(config).setup, tmp_path, remade=Remade(program, told))
    try:
        engine.start()
        assert engine.wait(LIMIT)
        reasons = [row["reason"] for row in engine.supervisor.take_log() if "reason" in row]
        assert len(reasons) == 3
        assert all("no_such_model" in reason for reason in reasons)
    finally:
        engine.close()


def test_a_file_of_the_working_folder_does_not_take_the_place_of_pythons_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch imports queue, and this process does not import from the working folder."""
    (tmp_path / "queue.py").write_text("raise RuntimeError('not the one of the library')")
    monkeypatch.chdir(tmp_path)
    found = run(configuration(topology__clients=2, engine__epochs=1))
    assert found.summary["lost"] == []


def test_who_ends_before_it_can_speak_leaves_its_last_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = configuration(topology__clients=2)
    _, told = remaking(config)
    engine = LocalEngine(build(config).setup, tmp_path, remade=Remade("no_such_module", told))
    try:
        engine.start()
        assert engine.wait(LIMIT)
        reasons = [row["reason"] for row in engine.supervisor.take_log() if "reason" in row]
    finally:
        engine.close()
    assert reasons == ["ended with code 1: ImportError: No module named no_such_module"] * 2
    assert "Traceback" not in capfd.readouterr().err  # one line of it is the reason


def test_what_is_said_before_there_is_a_channel_is_shown_then(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")  # a line on standard error for every import
    found = run(configuration(topology__clients=1, engine__epochs=1))
    assert found.summary["lost"] == []
    assert "swiftfl.engines.live.local.spawned" in capfd.readouterr().err


# --- who starts how, with a made-up list of GPUs ------------------------------------------------------------

GPUS = ["cuda:0", "cuda:1"]
PLAIN = recipe("digits").with_changes({"engine.name": "local"})


def test_clients_are_spawned_where_there_are_gpus_to_use() -> None:
    auto = PLAIN.with_changes({"model.device": "auto"})
    assert how_to_start(PLAIN, GPUS) == how_to_start(auto, []) == ("fork", "")
    assert how_to_start(auto, GPUS) == ("spawn", "")
    for device in ("cuda", "cuda:1"):
        assert how_to_start(PLAIN.with_changes({"model.device": device}), GPUS) == ("spawn", "")
    assert how_to_start(auto.with_changes({"engine.live.start": "fork"}), GPUS) == ("fork", "")


def test_objects_that_cannot_be_sent_are_refused_or_stay_on_the_cpu() -> None:
    own = PLAIN.model_copy(update={"model": PLAIN.model.model_copy(update={"name": "given:Net"})})
    assert "given in Python cannot be sent" in cannot_be_sent(own)
    auto = own.model_copy(update={"model": own.model.model_copy(update={"device": "auto"})})
    start, told = how_to_start(auto, GPUS)
    assert start == "fork"
    assert "on the cpu" in told
    cuda = own.model_copy(update={"model": own.model.model_copy(update={"device": "cuda"})})
    with pytest.raises(UserError, match=r"needs clients that are spawned, but objects .* by reference"):
        how_to_start(cuda, GPUS)
    with pytest.raises(UserError, match="cannot be used by clients that are forked"):
        how_to_start(PLAIN.with_changes({"model.device": "cuda", "engine.live.start": "fork"}), GPUS)
    other = PLAIN.with_changes({"engine.live.start": "spawn"})
    live = other.engine.live.model_copy(update={"transport": "announced"})
    other = other.model_copy(update={"engine": other.engine.model_copy(update={"live": live})})
    with pytest.raises(UserError, match="clients cannot be spawned: transport announced"):
        how_to_start(other, GPUS)


def test_clients_are_spawned_where_forks_of_this_process_could_not_compute(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a GPU in sight, torch takes no gradient in forks of a process that has taken one."""
    assert how_to_start_here(PLAIN) == ("fork", "")
    mine, backward = os.getpid(), torch.Tensor.backward

    def refusing(self: torch.Tensor) -> None:
        if os.getpid() != mine:
            raise RuntimeError("Unable to handle autograd's threading in combination with fork")
        backward(self)  # type: ignore[no-untyped-call]

    monkeypatch.setattr(torch.Tensor, "backward", refusing)
    start, told = how_to_start_here(PLAIN)
    assert start == "spawn"
    assert "has taken a gradient and sees a GPU" in told
    assert how_to_start_here(PLAIN.with_changes({"engine.live.start": "spawn"})) == ("spawn", "")
    with pytest.raises(
        UserError, match=r"cannot be forked: this process .* leave out engine.live.start=fork"
    ):
        how_to_start_here(PLAIN.with_changes({"engine.live.start": "fork"}))
    own = PLAIN.model_copy(update={"model": PLAIN.model.model_copy(update={"name": "given:Net"})})
    with pytest.raises(UserError, match=r"CUDA_VISIBLE_DEVICES= .* cannot be spawned: objects"):
        how_to_start_here(own)
    capsys.readouterr()
    config = configuration(engine__live__start="auto", topology__clients=2, engine__epochs=1)
    assert run(config).summary["lost"] == []
    assert "clients are spawned, and not forked" in capsys.readouterr().err


def test_clients_share_gpus_and_their_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five clients on two GPUs, and the process that evaluates on the first: four there, two on the other."""
    from swiftfl.experiment import starting

    asked: list[tuple[float, str]] = []
    current: list[str] = []
    total = 40 << 30
    quarter, half = fair_share(4, total), fair_share(2, total)
    assert quarter < 0.95 / 4  # what processes take besides their tensors is left out
    monkeypatch.setattr(starting, "usable_device", lambda name: name)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.cuda, "set_device", current.append)
    bound = lambda share, device: asked.append((share, str(device)))  # noqa: E731
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", bound)
    about = SimpleNamespace(total_memory=total)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: about)
    config = PLAIN.with_changes({"model.device": "auto", "topology.clients": 5})
    assert [place(config, i, GPUS) for i in (None, *range(5))] == ["cuda:0", *(GPUS[i % 2] for i in range(5))]
    assert current == ["cuda:0", *(GPUS[i % 2] for i in range(5))]  # where .cuda() goes
    assert asked[0] == asked[1] == (quarter, "cuda:0")
    assert asked[2] == (half, "cuda:1")
    asked.clear()
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_RANK", "1")
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "4")
    assert place(config.with_changes({"engine.name": "mpi"}), devices=GPUS) == "cuda:1"
    assert asked == [(half, "cuda:1")]
    asked.clear()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")  # a rank with a GPU of its own, as it seems
    assert place(config.with_changes({"engine.name": "mpi"}), devices=GPUS[:1]) == "cuda:0"
    assert asked == [(1.0, "cuda:0")]
    asked.clear()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2")
    place(config.with_changes({"engine.name": "mpi"}), devices=GPUS)
    place(config.with_changes({"engine.name": "virtual"}), devices=GPUS)
    assert asked == [(1.0, "cuda:1"), (1.0, "cuda:0")]  # who is alone there may take all of it


@pytest.mark.parametrize("told", ["by MPI", "by nobody"])
def test_ranks_whose_launcher_says_nothing_take_the_gpus_in_turn(
    told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By their places among those that share memory, or else by their numbers in the whole job."""
    from swiftfl.experiment import starting
    from swiftfl.transports import mpi, ranks

    class Machine:
        """The ranks 2 to 4 of five, seen by rank 3."""

        Get_rank, Get_size = staticmethod(lambda: 1), staticmethod(lambda: 3)
        Free = staticmethod(lambda: None)

    class World(SimpleNamespace):
        Get_rank, Get_size = staticmethod(lambda: 3), staticmethod(lambda: 5)
        Set_errhandler = staticmethod(lambda handler: None)

        def Split_type(self, kind: str, key: int) -> Machine:  # noqa: N802
            assert (kind, key) == ("shared", 3)
            if told == "by MPI":
                return Machine()
            raise NotImplementedError

    names = SimpleNamespace(COMM_TYPE_SHARED="shared", ERRORS_RETURN=None, Exception=OSError)
    names.COMM_WORLD = SimpleNamespace(Dup=World)
    counts: list[int] = []
    monkeypatch.setattr(mpi, "_mpi", lambda: names)
    monkeypatch.setattr(ranks, "_by_mpi", {})
    monkeypatch.setattr(starting, "usable_device", lambda name: name)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(starting, "bound_memory", lambda device, count: counts.append(count))
    for name in ("CUDA_VISIBLE_DEVICES", *ranks._LOCAL_RANKS, *ranks._LOCAL_SIZES):
        monkeypatch.delenv(name, raising=False)
    config = PLAIN.with_changes({"model.device": "auto", "engine.name": "mpi"})
    assert place(config, devices=GPUS) == "cuda:0"  # MPI is not started, as in a replay
    mpi.MpiJob()
    assert place(config, devices=GPUS) == "cuda:1"
    assert place(config, devices=["cuda:0", "cuda:1", "cuda:2"]) == (
        "cuda:1" if told == "by MPI" else "cuda:0"
    )
    assert counts[1] == (1 if told == "by MPI" else 0)  # of three on two GPUs, the one on the second
    monkeypatch.setenv("SLURM_LOCALID", "4")
    assert place(config, devices=GPUS) == "cuda:0"  # a launcher that tells is believed


@pytest.mark.parametrize("engine", ["virtual", "sampled", "local"])
@pytest.mark.parametrize("device", ["autox", "cpux", "cpu:banana", "cuda:", "cudacpu", ""])
def test_a_name_that_no_device_has_is_refused_by_every_engine(engine: str, device: str) -> None:
    config = PLAIN.with_changes({"engine.name": engine, "model.device": device})
    with pytest.raises(UserError, match=r"device '.*' cannot be used here: no device has that name") as error:
        run(config)
    assert "\n" not in str(error.value)


def test_runs_at_once_take_the_gpus_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep's third run of four is on the first of two GPUs, with one other; its clients begin there."""
    from swiftfl.experiment import starting

    counts: list[tuple[str, int]] = []
    monkeypatch.setattr(starting, "usable_device", lambda name: name)
    monkeypatch.setattr(starting, "bound_memory", lambda device, count: counts.append((device, count)))
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setenv("SWIFTFL_PLACE", "2/4")
    virtual = PLAIN.with_changes({"model.device": "auto", "engine.name": "virtual"})
    assert place(virtual, devices=GPUS) == "cuda:0"
    local = PLAIN.with_changes({"model.device": "auto", "topology.clients": 3})
    assert [place(local, i, GPUS) for i in (None, 0, 1, 2)] == ["cuda:0", "cuda:0", "cuda:1", "cuda:0"]
    # Twelve clients in turn, and four processes that evaluate on the first GPUs of theirs.
    assert counts == [("cuda:0", 2), ("cuda:0", 8), ("cuda:0", 8), ("cuda:1", 8), ("cuda:0", 8)]
    for wrong in ("", "4/4", "a/b", "1"):
        monkeypatch.setenv("SWIFTFL_PLACE", wrong)
        assert place(virtual, devices=GPUS) == "cuda:0"
        assert counts[-1] == ("cuda:0", 1)


@pytest.mark.parametrize("wanted", [True, False])
def test_what_cuda_may_do_is_set_where_it_is_used(wanted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from swiftfl.experiment import starting

    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    monkeypatch.setattr(starting, "usable_device", lambda name: name)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(starting, "bound_memory", lambda device, count: None)
    changes = {"model.device": "cuda", "model.deterministic": wanted, "model.tf32": wanted}
    with cuda_flags_kept():
        cudnn.deterministic = cudnn.allow_tf32 = matmul.allow_tf32 = not wanted
        assert place(PLAIN.with_changes({**changes, "engine.name": "virtual"}), devices=GPUS) == "cuda:0"
        assert (cudnn.deterministic, cudnn.allow_tf32, matmul.allow_tf32) == (wanted, wanted, wanted)


def test_a_run_on_the_cpu_does_not_look_for_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """That would begin CUDA in a process whose helpers are forked, and takes seconds on some machines."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: pytest.fail("looked"))
    for engine in ("virtual", "sampled", "local"):
        assert place(PLAIN.with_changes({"engine.name": engine}), 0) == "cpu"
