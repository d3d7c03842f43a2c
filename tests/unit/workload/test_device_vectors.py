"""Models as tensors: everything that is done with NumPy vectors, to float tolerance, in every algorithm."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import swiftfl
from fake_cuda import cuda_flags_kept
from makers import MAKERS
from swiftfl.data.dataset import Dataset
from swiftfl.data.digits import digits
from swiftfl.data.source import Source, Stored
from swiftfl.engines.simulation.checkpoint import restore, save
from swiftfl.experiment.build import build
from swiftfl.experiment.config import Config
from swiftfl.experiment.recipes import recipe
from swiftfl.experiment.run import run
from swiftfl.recycled import LARGE
from swiftfl.rules import AdamRule, Clipped, LionRule, RmspropRule, SgdRule, UpdateRule, applied
from swiftfl.sample import Batch, Slope
from swiftfl.vector import Statistics, Vector, Weights, consensus, finite, mix, narrow, wide
from swiftfl.workload import generators
from swiftfl.workload.device_check import check_device
from swiftfl.workload.device_vector import DeviceVector
from swiftfl.workload.module import ModuleWorkload
from swiftfl.workload.placement import device_of
from swiftfl.workload.samples import Samples
from swiftfl.workload.transfer import chunk_of, view_of

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device on this machine")
DEVICES = ["cpu", pytest.param("cuda", marks=GPU)]
RULES = {
    "sgd": SgdRule(),
    "nesterov": SgdRule(0.9, 0.01, nesterov=True),
    "adam": AdamRule(weight_decay=0.02),
    "adamw": AdamRule(weight_decay=0.02, decoupled=True),
    "rmsprop": RmspropRule(momentum=0.5, weight_decay=0.1),
    "lion": LionRule(weight_decay=0.1),
    "clipped": Clipped(SgdRule(0.9), 1.0),
}


def pair(seed: int, device: str, size: int = 300) -> tuple[Vector, Any]:
    x = np.random.default_rng(seed).standard_normal(size).astype(np.float32)
    return x, DeviceVector(torch.from_numpy(x.copy()).to(device))


def near(found: Any, expected: Vector) -> bool:
    return bool(np.allclose(np.asarray(found), expected, rtol=1e-5, atol=1e-6))


# --- the vector ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
def test_arithmetic_is_numpys(device: str) -> None:
    (x, a), (y, b) = pair(0, device), pair(1, device)
    for found, expected in (
        (a + b, x + y),
        (2 * a - b, 2 * x - y),
        (a / 3, x / 3),
        (-a * b, -x * y),
        (np.sqrt(np.abs(a)), np.sqrt(np.abs(x))),
        (np.sign(a), np.sign(x)),
        (np.where(a > 0, a, b), np.where(x > 0, x, y)),
        (a[3:9], x[3:9]),
        (a.copy(), x),
        (np.concatenate((a[:5], b[5:])), np.concatenate((x[:5], y[5:]))),
        (np.append(a, 1.0), np.append(x, 1.0)),
        (np.zeros_like(a), np.zeros_like(x)),
        (a + y, x + y),
        (y + a, x + y),
        (np.maximum(a, y), np.maximum(x, y)),
        (np.exp(a), np.exp(x)),
    ):
        assert near(found, expected)
        assert np.asarray(found).dtype == expected.dtype
    assert math.isclose(a.dot(a), float(x.dot(x)), rel_tol=1e-5)
    assert math.isclose(np.linalg.norm(a), float(np.linalg.norm(x)), rel_tol=1e-5)
    assert (a.size, a.shape, a.nbytes, len(a), a.dtype) == (x.size, x.shape, x.nbytes, len(x), x.dtype)


@pytest.mark.parametrize("device", DEVICES)
def test_in_place_and_into_either_side(device: str) -> None:
    (x, a), (y, b) = pair(0, device), pair(1, device)
    same = a
    a += y
    assert same is a
    assert near(a, x + y)
    spare = np.empty_like(a)
    np.multiply(y, 0.25, out=spare)  # a neighbour's model, straight to the device
    assert isinstance(spare, DeviceVector)
    assert near(spare, y * np.float32(0.25))
    np.multiply(y, b, out=b)  # where an operand is what is written,
    assert near(b, y * y)
    np.add(x[:9], b[:9], out=b[:9])  # also a view of it
    assert near(b[:9], x[:9] + y[:9] * y[:9])
    b[np.arange(300) < 3] = x[:3]  # numbers of the host by a mask of the host
    assert near(b[:3], x[:3])
    host = np.zeros(300, dtype=np.float32)
    np.copyto(host, a)
    assert np.array_equal(host, np.asarray(a))
    total = np.zeros(300)
    total += a  # type: ignore[misc]
    assert near(total, x + y)
    a[-10:] = y[-10:]
    assert np.array_equal(np.asarray(a)[-10:], y[-10:])
    a[:] = 0.5
    assert np.asarray(a).tolist() == [0.5] * 300


def test_what_may_not_be_written_can_be_read() -> None:
    x = np.arange(3.0)
    x.flags.writeable = False
    assert view_of(x).tolist() == [0.0, 1.0, 2.0]
    _, a = pair(0, "cpu", 3)
    assert np.asarray(a + x.astype(np.float32)).shape == (3,)


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_not_finite_is_seen(device: str) -> None:
    _, a = pair(0, device)
    assert finite(a)
    a[7] = float("inf")
    assert not finite(a)
    assert finite(np.full_like(a, 3e30))


@pytest.mark.parametrize("device", DEVICES)
def test_double_precision_in_two_halves(device: str) -> None:
    x, a = pair(0, device)
    numbers = np.linspace(0, 1, 300) / 3
    halves = DeviceVector(torch.from_numpy(narrow(numbers, x.dtype)).to(device))
    assert np.allclose(np.asarray(wide(halves, a)), numbers, atol=1e-14)  # type: ignore[arg-type]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("size", [300, LARGE + 7])
@pytest.mark.parametrize("name", RULES)
def test_rules_and_mixes_are_those_of_numpy(name: str, size: int, device: str) -> None:
    rule: UpdateRule = RULES[name]
    (x, a), (y, b), (g, h) = (pair(k, device, size) for k in range(3))
    w = Weights(0.4, {1: 0.3, 2: 0.3})
    memory, on_device = rule.init(x), rule.init(a)
    for step in range(3):
        half, there = mix(w, x, {1: y}), mix(w, a, {1: y if step else b})
        assert isinstance(there, DeviceVector)
        statistics = Statistics(g[:20], 0.1)
        there_too = Statistics(h[:20], 0.1)
        after = applied(rule, half, Slope(g, 0.0, statistics), x, 0.01, memory)
        found = applied(rule, there, Slope(h, 0.0, there_too), a, 0.01, on_device)
        assert isinstance(found.x, DeviceVector)
        assert near(found.x, after.x)
        for key, array in after.memory.items():
            assert near(found.memory[key], array)
            assert isinstance(found.memory[key], DeviceVector) == (array.size == size)
        x, memory, a, on_device = after.x, after.memory, found.x, found.memory
    assert near(consensus([a, b]), consensus([x, y]))


# --- the workload ----------------------------------------------------------------------------------------


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 10))


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_and_buffers_stay_where_the_model_is(device: str) -> None:
    plain = ModuleWorkload(net, digits(), seed=1)
    there = ModuleWorkload(net, digits(), seed=1, device=device, vectors="torch")
    x, batch = plain.initial(3), Batch(0, 1, np.arange(32))
    expected, found = plain.gradient(x, batch), there.gradient(there.place(x), batch)
    assert isinstance(found.g, DeviceVector)
    assert near(found.g, expected.g)
    assert math.isclose(found.loss, expected.loss, rel_tol=1e-5)
    assert found.statistics is not None
    assert expected.statistics is not None
    assert near(found.statistics.values, expected.statistics.values)
    assert there.place(there.place(x)).size == x.size
    (one,), (other,) = plain.evaluate([x]), there.evaluate([there.place(x)])
    assert math.isclose(one.loss, other.loss, rel_tol=1e-4)


class Noisy(nn.Linear):
    """Draws from its device's generator, as dropout on a GPU does."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + torch.rand(1, device=x.device)


def test_a_draw_from_the_devices_generator_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a made-up device, whose generator alone is moved; what is noticed is keyed from then on."""
    places = iter(range(100))
    moved = [True]

    def states(device: torch.device) -> list[torch.Tensor]:
        return [torch.get_rng_state(), torch.tensor(next(places) if moved[0] else 0)]

    monkeypatch.setattr(generators, "states", states)
    batch = Batch(0, 1, np.arange(8))
    assert ModuleWorkload(lambda: nn.Linear(64, 10), digits(), batching="off").draws(batch)
    moved[0] = False
    assert not ModuleWorkload(lambda: nn.Linear(64, 10), digits(), batching="off").draws(batch)


@GPU
def test_draws_on_a_gpu_are_keyed_by_client_and_step() -> None:
    there = ModuleWorkload(lambda: Noisy(64, 10), digits(), device="cuda")
    x, batch = there.place(there.initial(0)), Batch(0, 1, np.arange(8))
    first = there.gradient(x, batch)
    torch.rand(5, device="cuda")
    assert np.array_equal(np.asarray(first.g), np.asarray(there.gradient(x, batch).g))
    assert there.draws(batch)


@GPU
def test_runs_in_virtual_time_on_a_gpu_go_by_deterministic_and_tf32() -> None:
    """The same bits again, near the cpu's; with products of 19 bits less near."""
    tiny = {"topology.clients": 4, "engine.epochs": 2, "model.deterministic": True}
    config = recipe("digits").with_changes({**tiny, "model.device": "cuda"})
    here = run(config.with_changes({"model.device": "cpu"})).models
    with cuda_flags_kept():
        first, again = run(config).models, run(config).models
        assert torch.backends.cudnn.deterministic
        assert not torch.backends.cuda.matmul.allow_tf32
        coarse = run(config.with_changes({"model.tf32": True})).models
        assert torch.backends.cuda.matmul.allow_tf32
    for mine, same, rough, other in zip(first, again, coarse, here, strict=True):
        assert np.array_equal(np.asarray(mine), np.asarray(same))
        np.testing.assert_allclose(np.asarray(mine), np.asarray(other), rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(np.asarray(rough), np.asarray(other), rtol=0.1, atol=0.02)


@pytest.mark.parametrize("batching", ["off", "auto", "measure"])
@pytest.mark.parametrize("vectors", ["numpy", "torch"])
def test_an_evaluation_loads_a_model_once(
    vectors: Any, batching: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several models, one after the other; the numbers are those of all models, chunk after chunk."""
    workload = ModuleWorkload(net, digits(), batching=batching, vectors=vectors, metrics=("top5",))
    loads: list[Vector] = []
    own = ModuleWorkload._put

    def put(self: ModuleWorkload, x: Vector) -> None:
        if x is not self._loaded:
            loads.append(x)
        own(self, x)

    monkeypatch.setattr(ModuleWorkload, "_put", put)
    monkeypatch.setattr(ModuleWorkload, "evaluation_chunk", 50)
    models = [workload.place(workload.initial(seed)) for seed in range(3)]
    found = workload.evaluate(models)
    assert all(x is model for x, model in zip(loads, models, strict=True))
    workload.gradient(models[2], Batch(0, 1, np.arange(8)))
    assert workload.evaluate(models[2:]) == found[2:]  # the gradient has used the module in between
    assert len(loads) == 4
    workload._module.eval()
    with torch.inference_mode():
        by_chunk = workload._group.evaluate(models)
    assert len(loads) > 20
    assert [(e.loss, e.accuracy) for e in found] == [(e.loss, e.accuracy) for e in by_chunk]


class Counted(Source):
    """Samples from elsewhere, and how often they were asked for."""

    def __init__(self, inner: Source) -> None:
        self.inner, self.cuts = inner, 0

    def __len__(self) -> int:
        return len(self.inner)

    def take(self, positions: Any) -> Any:
        return self.inner.take(positions)

    def cut(self, start: int, stop: int) -> Any:
        self.cuts += 1
        return self.inner.cut(start, stop)

    def all_labels(self) -> Any:
        return self.inner.all_labels()


def test_a_test_set_from_elsewhere_is_read_once_for_all_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading it again for each would take longer than loading models; the numbers are the same."""
    data = digits()
    test = Counted(data.test)
    workload = ModuleWorkload(net, replace(data, test=test), batching="off")
    plain = ModuleWorkload(net, data, batching="off")
    monkeypatch.setattr(ModuleWorkload, "evaluation_chunk", 50)
    models = [plain.initial(seed) for seed in range(3)]
    test.cuts = 0
    assert workload.evaluate(models) == plain.evaluate(models)
    assert test.cuts == -(-len(test) // 50)


def test_images_that_the_processor_scales_are_scaled_once_for_all_models(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    draw = torch.Generator().manual_seed(0)
    images = torch.randint(0, 255, (120, 1, 8, 8), dtype=torch.uint8, generator=draw)
    some = Stored(images, torch.arange(120) % 3)
    workload = ModuleWorkload(
        lambda: nn.Sequential(nn.Flatten(), nn.Tanh(), nn.Linear(64, 3)),
        Dataset("images", some, some, classes=3),
        batching="off",
    )
    scaled: list[int] = []
    own = Samples._ready

    def ready(self: Samples, inputs: torch.Tensor) -> torch.Tensor:
        scaled.append(len(inputs))
        return own(self, inputs)

    monkeypatch.setattr(Samples, "_ready", ready)
    monkeypatch.setattr(ModuleWorkload, "evaluation_chunk", 50)
    workload.evaluate([workload.initial(seed) for seed in range(3)])
    assert scaled == [50, 50, 20]


# --- every algorithm, in every engine ------------------------------------------------------------------


BATCH_NORM = {
    "data.dataset": "synthetic",
    "data.options": {"samples": 120, "shape": [1, 10, 10], "classes": 3},
    "model.name": "cnn",
    "model.norm": "batch",
}


def trained(name: str, engine: str, vectors: str, **changes: Any) -> Vector:
    tree = {
        "model.vectors": vectors, "model.batching": "off", "engine.name": engine,
        "engine.epochs": None, "engine.iterations": 40, "topology.clients": 5, **changes,
    }  # fmt: skip
    parts = build(recipe("digits").with_changes(tree))
    algorithm = MAKERS[name](parts.topology, SgdRule(0.9, 0.001))
    run = replace(parts, setup=replace(parts.setup, algorithm=algorithm)).engine(engine)
    run.start()
    run.advance(10**6)
    kinds = {isinstance(x, DeviceVector) for x in run.models}
    assert kinds == {vectors == "torch"} or name in SHARED
    return np.stack([np.asarray(x) for x in run.models])


SHARED = {"hogwild", "asysg"}
"""One cell is everybody's model."""


@pytest.mark.parametrize("engine", ["virtual", "sampled"])
@pytest.mark.parametrize("name", MAKERS)
def test_every_algorithm_learns_the_same_with_tensors(name: str, engine: str) -> None:
    expected, found = trained(name, engine, "numpy"), trained(name, engine, "torch")
    assert np.isfinite(found).all()
    assert np.allclose(found, expected, rtol=1e-3, atol=1e-4)
    assert not np.allclose(found, found[0] * 0, atol=1e-2)


@pytest.mark.parametrize("buffers", ["averaged", "own"])
@pytest.mark.parametrize("name", ["swift", "sgp", "adpsgd", "allreduce", "a2cid2"])
def test_and_running_statistics_of_normalisations(name: str, buffers: str) -> None:
    changes = {**BATCH_NORM, "model.buffers": buffers, "engine.iterations": 15, "topology.clients": 3}
    expected, found = (
        trained(name, "virtual", "numpy", **changes),
        trained(name, "virtual", "torch", **changes),
    )
    assert np.allclose(found, expected, rtol=1e-3, atol=1e-4)


def test_a_checkpoint_of_tensors_goes_on_as_if_nothing_had_happened() -> None:
    def world() -> Any:
        changes = {
            "model.vectors": "torch",
            "engine.epochs": None,
            "engine.iterations": 60,
            "topology.clients": 4,
        }
        return build(recipe("digits").with_changes(changes)).engine("virtual")

    whole, first, second = world(), world(), world()
    whole.start()
    whole.advance(60)
    first.start()
    first.advance(30)
    restore(second, save(first))
    second.advance(30)
    assert all(isinstance(x, DeviceVector) for x in second.models)
    assert np.array_equal(np.stack(whole.models), np.stack(second.models))


@pytest.mark.parametrize("device", DEVICES)
def test_an_evaluation_loads_each_model_once(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it is, in however many pieces the test set comes, with metrics or without."""
    from swiftfl.workload import module, samples

    monkeypatch.setattr(samples, "_TEST_CHUNK", {"cpu": 50, "cuda": 60})
    there = ModuleWorkload(
        lambda: nn.Linear(64, 10), digits(), device=device, vectors="torch", metrics=("top5",)
    )
    plain = ModuleWorkload(lambda: nn.Linear(64, 10), digits(), metrics=("top5",))
    models = [plain.initial(seed) for seed in range(3)]
    loaded: list[Vector] = []
    upload = module.upload
    monkeypatch.setattr(module, "upload", lambda x, to: (loaded.append(x), upload(x, to)))
    found = there.evaluate(models)
    assert [any(x is one for one in models) for x in loaded] == [True] * 3
    monkeypatch.undo()
    for mine, expected in zip(found, plain.evaluate(models), strict=True):
        assert mine.loss == pytest.approx(expected.loss, rel=1e-5)
        assert mine.accuracy == expected.accuracy
        assert mine.metrics == expected.metrics
    assert samples.test_chunk(torch.device("cuda"), None) > samples.test_chunk(torch.device("cpu"), None)


# --- where clients compute -------------------------------------------------------------------------------


def test_gpus_are_given_out_in_turn() -> None:
    gpus = ["cuda:0", "cuda:1", "cuda:2"]
    assert [device_of("auto", k, gpus) for k in range(5)] == [
        "cuda:0",
        "cuda:1",
        "cuda:2",
        "cuda:0",
        "cuda:1",
    ]
    assert device_of("cuda", 4, gpus) == "cuda:1"
    assert device_of("cuda:2", 0, gpus) == "cuda:2"
    assert device_of("auto", 3, []) == "cpu"
    with pytest.raises(swiftfl.UserError, match="finds no GPU"):
        device_of("cuda", 0, [])


@pytest.mark.parametrize("variable", ["OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID", "MPI_LOCALRANKID"])
def test_a_rank_takes_the_gpu_of_its_number_on_the_machine(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from swiftfl.experiment import starting

    gpus = ["cuda:0", "cuda:1"]
    monkeypatch.setattr(starting, "usable_device", lambda name: name)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(starting, "bound_memory", lambda device, count: None)
    monkeypatch.setenv(variable, "3")
    for engine, device in (("mpi", "cuda:1"), ("virtual", "cuda:0")):
        config = Config().with_changes({"model.device": "auto", "engine.name": engine})
        assert starting.place(config, devices=gpus) == device


@pytest.mark.parametrize("device", DEVICES)
def test_the_self_check_finds_a_device_in_order(device: str) -> None:
    wrong, speed = check_device(device)
    assert wrong == []
    assert speed > 0


def test_the_self_check_finds_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    from swiftfl.workload import device_check

    monkeypatch.setattr(device_check, "download", lambda x, to: to.fill(1.0))
    assert check_device("cpu")[0] == [
        "numbers that go there and back are not the same",
        "a model that came down beside other work is not the same",
    ]
    monkeypatch.undo()
    monkeypatch.setattr(generators, "states", lambda device: [])
    assert check_device("cpu")[0] == ["random numbers that are drawn there are not noticed"]


def test_chunks_by_device() -> None:
    assert chunk_of("cuda", 4) == 1 << 20
    assert chunk_of("cpu", 4) > chunk_of("cuda", 4)
    assert chunk_of("xpu", 8) == chunk_of("cpu", 8)
