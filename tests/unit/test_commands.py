"""`export`, `partition`, `doctor`, `list`, completion, and help at 60 columns."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import swiftfl
from swiftfl.api.result import load
from swiftfl.cli import doctor as doctor_module
from swiftfl.cli.main import app, run_command

COMMANDS = sorted(command.name or command.callback.__name__ for command in app.registered_commands)  # type: ignore[union-attr]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny finished run."""
    folder = tmp_path_factory.mktemp("runs") / "mine"
    tiny = ["--clients", "3", "--iterations", "9", "--model", "logistic"]
    assert run_command(["run", "digits", *tiny, "--out", str(folder)]) == 0
    return folder


def test_exported_tensors_are_those_of_the_run(recorded: Path, tmp_path: Path) -> None:
    files = {form: tmp_path / f"a.{form}" for form in ("safetensors", "state_dict")}
    for form, file in files.items():
        assert run_command(["export", str(recorded), "--format", form, "--out", str(file)]) == 0
    assert run_command(["export", str(recorded), "--client", "2"]) == 0
    plain = load_file(files["safetensors"])
    state = torch.load(files["state_dict"], weights_only=True)  # nothing that only pickle could load
    client = load_file(recorded / "client-2.safetensors")
    arrays = load(recorded)
    assert set(plain) == set(state) == {"bias", "weight"}
    for name in plain:
        assert torch.equal(plain[name], state[name])
        assert torch.equal(plain[name], arrays.state_dict()[name])
        assert torch.equal(client[name], arrays.state_dict(2)[name])
        assert not torch.equal(client[name], plain[name])
    vector = np.concatenate([client[name].numpy().reshape(-1) for name in ("weight", "bias")])
    models = load_file(recorded / "models.safetensors")["models"].numpy()
    assert np.array_equal(
        vector, models[2]
    )  # the recorded vector: independent of the library's own unpacking


@pytest.mark.slow
def test_exported_onnx_computes_the_same(recorded: Path, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="the extra onnx is not installed")
    pytest.importorskip("onnxscript", reason="the extra onnx is not installed")
    from onnx.reference import ReferenceEvaluator

    file = tmp_path / "a.onnx"
    assert run_command(["export", str(recorded), "--format", "onnx", "--out", str(file)]) == 0
    example = load(recorded).example(5)  # a batch of another size than the exporter saw
    assert example is not None
    inputs = torch.rand_like(example)
    (found,) = ReferenceEvaluator(onnx.load(file)).run(None, {"input": inputs.numpy()})
    assert np.allclose(found, load(recorded).model()(inputs).detach().numpy(), atol=1e-5)


def letters() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Embedding(30, 8), torch.nn.Flatten(), torch.nn.Linear(72, 30))


def test_the_example_of_a_model_of_token_ids_is_whole_numbers(tmp_path: Path) -> None:
    ids = torch.arange(400).reshape(40, 10) % 30
    result = swiftfl.train(letters, (ids[:, :-1], ids[:, -1]), clients=2, epochs=1, out=tmp_path / "mine")
    example = swiftfl.load(tmp_path / "mine", model=letters).example()
    assert example is not None
    assert (example.shape, example.dtype) == ((2, 9), torch.int64)
    assert result.model()(example).shape == (2, 30)


@pytest.mark.slow
def test_a_model_of_token_ids_can_be_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx = pytest.importorskip("onnx", reason="the extra onnx is not installed")
    pytest.importorskip("onnxscript", reason="the extra onnx is not installed")
    from onnx.reference import ReferenceEvaluator

    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "import torch\n"
        "from torch import nn\n\n\n"
        "def experiment():\n"
        "    ids = torch.arange(400).reshape(40, 10) % 30\n"
        "    net = lambda: nn.Sequential(nn.Embedding(30, 8), nn.Flatten(), nn.Linear(72, 30))\n"
        "    data = (ids[:, :-1], ids[:, -1])\n"
        "    return {'model': net, 'train': data, 'clients': 2, 'epochs': 1}\n"
    )
    assert run_command(["run", "mine.py:experiment", "--out", "run"]) == 0
    assert run_command(["export", "run", "--format", "onnx"]) == 0
    ids = torch.arange(27).reshape(3, 9)
    (found,) = ReferenceEvaluator(onnx.load("run/consensus.onnx")).run(None, {"input": ids.numpy()})
    assert np.allclose(found, load(Path("run")).model()(ids).detach().numpy(), atol=1e-5)


def test_onnx_without_its_libraries_is_one_line(
    recorded: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    assert run_command(["export", str(recorded), "--format", "onnx"]) == 2
    assert "pip install 'swiftfl[onnx]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--client", "3"], "--client: there is no client 3; clients are 0 to 2"),
        (["--out", "config.json"], "config.json is there already"),
        (["--out", "nowhere/a.pt"], "nowhere"),
    ],
)
def test_a_wrong_export(
    arguments: list[str], told: str, recorded: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(recorded)
    before = sorted(path.name for path in recorded.iterdir())
    assert run_command(["export", ".", *arguments]) == 2
    assert told in capsys.readouterr().err
    assert sorted(path.name for path in recorded.iterdir()) == before


def test_a_partition_is_shown_and_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    asked = ["partition", "digits", "--partition", "dirichlet:0.3", "--clients", "5", "--seed", "1"]
    assert run_command([*asked, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    histogram = np.array(told["histogram"])
    assert histogram.shape == (5, 10)
    assert histogram.sum(axis=1).tolist() == told["sizes"]
    assert histogram.sum() == 1437
    assert run_command([*asked, "--plot", str(tmp_path / "a.svg")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 60 for line in lines)
    assert [int(line.split()[1].replace(",", "")) for line in lines[2:]] == told["sizes"]
    largest = np.unravel_index(histogram.argmax(), histogram.shape)[0]
    assert "█" in lines[2 + int(largest)]
    assert (tmp_path / "a.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize("state", ["in order", "wrong", "not for this torch", "run fails"])
def test_the_doctor_checks_every_gpu(
    state: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two made-up ones; the first of them is the cpu."""
    from swiftfl.experiment import device_run
    from swiftfl.workload import device_check, placement

    real = device_check.check_device
    runs: list[str] = []

    def check_runs(devices: list[str]) -> dict[str, str]:
        runs.extend(devices)
        return dict.fromkeys(devices, "a run failed" if state == "run fails" else "")

    def check(name: str) -> tuple[list[str], float]:
        if name == "cuda:0" or state in ("in order", "run fails"):
            return real("cpu")
        if state == "wrong":
            return ["an average differs from the cpu's"], 3.0
        raise RuntimeError("CUDA error: no kernel image is available for execution on the device\nmore")

    monkeypatch.setattr(placement, "devices_here", lambda: ["cuda:0", "cuda:1"])
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda name: f"Fast {name[-1]}")
    monkeypatch.setattr(device_check, "check_device", check)
    monkeypatch.setattr(device_run, "check_runs", check_runs)
    assert run_command(["doctor", "--json"]) == 0
    gpu = json.loads(capsys.readouterr().out)["gpu"]
    assert gpu["state"] == ("works" if state == "in order" else "warning")
    assert "Fast 0 (checked; " in gpu["found"]
    said = {
        "in order": "",
        "wrong": "cuda:1: an average differs from the cpu's",
        "not for this torch": "cuda:1: RuntimeError: CUDA error: no kernel image is available for "
        "execution on the device",
        "run fails": "cuda:0: a run failed; cuda:1: a run failed",
    }
    assert gpu["remedy"] == said[state]
    assert runs == (["cuda:0"] if state == "not for this torch" else ["cuda:0", "cuda:1"])


def test_a_short_run_on_a_device_is_compared_with_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cpu itself is in order; what is wrong is said, also of a run that does not end."""
    from swiftfl.experiment import device_run

    assert device_run.check_runs(["cpu"]) == {"cpu": ""}
    assert device_run.check_runs(["cpu"], 0.0) == {"cpu": "no time was left for a run of two clients there"}
    late = device_run.check_runs(["cpu", "cpu:0"], 0.05, at_once=1)  # before it has imported anything
    assert late == dict.fromkeys(late, "a run of two clients there was not over after 0 s")
    monkeypatch.setattr(device_run, "_NEAR", 0.0)
    assert re.fullmatch(
        r"a run of two clients there is \S+ away from the cpu's", device_run.check_runs(["cpu"])["cpu"]
    )
    found = device_run.check_runs(["cpu:banana"])["cpu:banana"]
    assert found.startswith("a run of two clients there failed: device 'cpu:banana' cannot be used here")


@pytest.mark.parametrize(
    ("at_once", "takes", "shares"),
    [
        (1, [30.0, 30.0, 30.0, 30.0], [30.0, 30.0, 30.0, 30.0]),  # each hangs until its share is over
        (1, [6.0, 0.0, 50.0, 7.0], [30.0, 38.0, 57.0, 64.0]),  # what one leaves is for the others
        (2, [0.0] * 4, [60.0, 60.0, 120.0, 120.0]),
        (3, [0.0] * 4, [60.0, 60.0, 60.0, 120.0]),
        (8, [0.0] * 4, [120.0] * 4),
    ],
)
def test_each_gpu_has_its_share_of_the_time(
    at_once: int, takes: list[float], shares: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that hangs leaves the others theirs; on a clock that moves only while one is checked."""
    from swiftfl.experiment import device_run

    gpus, now = [f"cuda:{k}" for k in range(4)], [1000.0]
    given: dict[str, float] = {}

    def check(device: str, seconds: float) -> str:
        given[device] = seconds
        now[0] += takes[gpus.index(device)]
        return device[-1]

    monkeypatch.setattr(device_run, "_check_run", check)
    monkeypatch.setattr(device_run, "time", SimpleNamespace(monotonic=lambda: now[0]))
    assert device_run.check_runs(gpus, 120.0, at_once) == {
        "cuda:0": "0",
        "cuda:1": "1",
        "cuda:2": "2",
        "cuda:3": "3",
    }
    assert [given[device] for device in gpus] == pytest.approx(shares)


def test_a_run_that_cannot_be_started_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from swiftfl.experiment import device_run

    monkeypatch.setattr(device_run, "fresh_python", lambda *words: ["/nowhere/python"])
    found = device_run.check_runs(["cuda:0"])["cuda:0"]
    assert found.startswith("a run of two clients there failed: ")
    assert "/nowhere/python" in found


def test_the_doctor_says_why_kernels_are_not_compiled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SWIFTFL_KERNELS", "numpy")
    assert run_command(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["kernels"]
    assert (found["state"], "SWIFTFL_KERNELS is numpy" in found["found"]) == ("warning", True)


def test_the_doctor_always_answers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(doctor_module.shutil, "which", lambda *arguments, **more: None)
    monkeypatch.setattr(doctor_module.importlib.util, "find_spec", lambda name: None)
    assert run_command(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert all(len(line) <= 60 for line in shown.splitlines())
    assert "for engine mpi: pip install 'swiftfl[mpi]'" in shown
    assert run_command(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["mpi"]["state"] == found["browser"]["state"] == "missing"
    assert found["python"]["state"] == found["torch"]["state"] == "works"


def test_engines_and_optimizers_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    for kind, name in {"engines": "local", "optimizers": "adamw", "codecs": "identity"}.items():
        assert run_command(["list", kind]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert any(line.startswith(name) for line in lines)


def complete(words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What bash would offer for the last word."""
    monkeypatch.setenv("_SWIFTFL_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
    with pytest.raises(SystemExit):
        app([], prog_name="swiftfl")
    return capsys.readouterr().out.split()


def test_the_shell_completes_names(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert complete("swiftfl run digits --algorithm ds", monkeypatch, capsys) == ["dsgd"]
    assert complete("swiftfl run digits --topology ring", monkeypatch, capsys) == ["ring", "ring_of_cliques"]
    assert complete("swiftfl swe", monkeypatch, capsys) == ["sweep"]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_two_examples_and_fits_60_columns(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert run_command([name, "--help"]) == 0
    shown = capsys.readouterr().out
    assert all(len(line) <= 60 for line in shown.splitlines()), shown
    examples = [line for line in shown.splitlines() if f"swiftfl {name}" in line and "Usage" not in line]
    assert len(examples) >= 2, shown


def test_help_of_run_tells_defaults(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    assert run_command(["run", "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()

    def of(flag: str) -> Any:
        return next(line for line in lines if re.search(rf"{flag} +<", line))

    assert "(default: swift)" in of("--algorithm")
    assert "(default: 16)" in of("--clients")
    assert "(default: the recipe's)" in of("--epochs")


def test_the_command_line_starts_without_torch() -> None:
    code = "import sys, swiftfl.cli.main; sys.exit('torch' in sys.modules or 'matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=120).returncode == 0


def test_every_command_has_help() -> None:
    assert {"run", "launch", "sweep", "export", "doctor"} < set(COMMANDS)
