"""What a run sets for CUDA is put back for the program that started it; with a made-up list of GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import swiftfl
from fake_cuda import cuda_flags_kept
from swiftfl.errors import UserError
from swiftfl.experiment import build, starting
from swiftfl.experiment.config import Config
from swiftfl.workload.cuda_settings import cuda_kept
from swiftfl.workload.placement import fair_share

GPUS = ["cuda:0", "cuda:1"]
TOTAL = 40 << 30
ON_THE_GPU = {"model.device": "cuda:1", "model.deterministic": True, "model.tf32": True}
LEGACY, NEWER = ("allow_tf32", "fp32_precision")


class Process:
    """What torch.cuda would remember: the current device, and the share of each GPU's memory."""

    def __init__(self) -> None:
        self.current = 0
        self.shares = {"cuda:0": 0.5, "cuda:1": 0.75}
        self.fails = False

    def set_device(self, device: str | int) -> None:
        if self.fails:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        self.current = torch.device(device).index if isinstance(device, str) else device

    def bound(self, share: float, device: torch.device) -> None:
        self.shares[str(device)] = share

    def state(self) -> tuple[object, ...]:
        cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
        flags = (cudnn.deterministic, cudnn.allow_tf32, matmul.allow_tf32)
        return (*flags, self.current, dict(self.shares))


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[Process]:
    made = Process()
    monkeypatch.setattr(starting, "usable_device", lambda name: name)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: made.current)
    monkeypatch.setattr(torch.cuda, "set_device", made.set_device)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", made.bound)
    look = lambda device: made.shares[str(device)]  # noqa: E731
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", look, raising=False)
    about = SimpleNamespace(total_memory=TOTAL)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: about)
    for name in ("CUDA_VISIBLE_DEVICES", "SWIFTFL_PLACE"):
        monkeypatch.delenv(name, raising=False)
    with cuda_flags_kept():
        torch.backends.cudnn.deterministic = False
        torch.backends.cudnn.allow_tf32 = True
        torch.backends.cuda.matmul.allow_tf32 = False
        yield made


def placed(**changes: Any) -> str:
    config = Config().with_changes({**ON_THE_GPU, "engine.name": "virtual", **changes})
    return starting.place(config, devices=GPUS)


def test_what_the_program_had_comes_back(process: Process) -> None:
    before = process.state()
    with cuda_kept():
        assert placed() == "cuda:1"
        assert process.state() == (
            True,
            True,
            True,
            1,
            {"cuda:0": 0.5, "cuda:1": 0.75},
        )  # its own limits hold
        with cuda_kept():  # and to each what it had itself
            placed(**{"model.device": "cuda:0", "model.deterministic": False})
            assert process.state() == (False, True, True, 0, {"cuda:0": 0.5, "cuda:1": 0.75})
        assert process.state() == (True, True, True, 1, {"cuda:0": 0.5, "cuda:1": 0.75})
        placed(**{"model.device": "cuda:0"})
    assert process.state() == before


def test_a_program_that_does_not_ask_keeps_what_the_run_has_set(process: Process) -> None:
    """The command line's process is the run's own."""
    placed()
    assert process.state() == (True, True, True, 1, {"cuda:0": 0.5, "cuda:1": 1.0})


def test_a_run_alone_is_not_bounded_by_the_one_before(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWIFTFL_PLACE", "1/4")
    placed(**{"model.device": "auto"})
    assert process.shares["cuda:1"] == fair_share(2, TOTAL) < 0.5
    monkeypatch.delenv("SWIFTFL_PLACE")
    placed()
    assert process.shares["cuda:1"] == 1.0


def test_a_run_alone_may_take_what_the_program_may(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of `compare`, whose runs have a GPU side by side and alone."""
    with cuda_kept():
        monkeypatch.setenv("SWIFTFL_PLACE", "1/4")
        placed(**{"model.device": "auto"})
        assert process.shares["cuda:1"] < 0.5
        monkeypatch.delenv("SWIFTFL_PLACE")
        placed()
        assert process.shares["cuda:1"] == 0.75


@pytest.mark.parametrize("precision", ["medium", "high", "highest"])
def test_the_precision_of_products_comes_back(process: Process, precision: str) -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        with cuda_kept():
            placed()
        assert torch.get_float32_matmul_precision() == precision
    finally:
        torch.set_float32_matmul_precision(before)


def test_an_older_torch_does_not_tell_the_share(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.cuda, "get_per_process_memory_fraction")
    monkeypatch.setenv("SWIFTFL_PLACE", "1/4")
    with cuda_kept():
        placed(**{"model.device": "auto"})
        assert process.shares["cuda:1"] < 0.5
    assert process.shares["cuda:1"] == 1.0


def test_a_gpu_that_has_failed_does_not_hide_why(process: Process) -> None:
    before = process.state()[:3]

    def fail() -> None:
        with cuda_kept():
            placed()
            process.fails = True
            raise UserError("the run's own error")

    with pytest.raises(UserError, match="the run's own error"):
        fail()
    assert process.state()[:3] == before  # what can be put back is


@pytest.mark.skipif(not hasattr(torch.backends.cuda.matmul, NEWER), reason="this torch has one way only")
@pytest.mark.parametrize("value", ["tf32", "ieee"])
def test_products_may_have_been_allowed_in_the_newer_way(process: Process, value: str) -> None:
    """torch then refuses to say whether they are in the older one."""
    matmul = torch.backends.cuda.matmul
    was = getattr(matmul, NEWER)
    try:
        setattr(matmul, NEWER, value)
        with cuda_kept():
            placed(**{"model.tf32": value != "tf32"})
        assert getattr(matmul, NEWER) == value
    finally:
        setattr(matmul, LEGACY, False)
        setattr(matmul, NEWER, was)


def trained() -> None:
    swiftfl.train("logistic", "digits", clients=2, settings={"engine.iterations": 2}, progress=False)


def compared() -> None:
    swiftfl.compare(
        {"a": "swift", "b": "dsgd"},
        model="logistic",
        train="digits",
        clients=2,
        settings={"engine.iterations": 2},
        progress=False,
    )


@pytest.mark.parametrize("call", [trained, compared])
def test_a_call_leaves_the_process_as_it_was(
    call: Callable[[], None], process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, during = process.state(), []

    def place(config: Config, client: int | None = None) -> str:
        """As on a GPU, but for the numbers, which stay here."""
        starting.place(config.with_changes(ON_THE_GPU), client, GPUS)
        during.append(process.state())
        return "cpu"

    monkeypatch.setattr(build, "place", place)
    call()
    assert set(map(str, during)) == {str((True, True, True, 1, {"cuda:0": 0.5, "cuda:1": 0.75}))}
    assert process.state() == before
