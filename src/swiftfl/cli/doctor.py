"""`swiftfl doctor`: what works on this machine, and what to install for the rest."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated, Literal

import typer

from swiftfl._version import __version__
from swiftfl.errors import in_one_line

State = Literal["works", "missing", "warning"]
_MARKS = {"works": "ok  ", "warning": "look", "missing": "none"}
_INDENT = " " * 6
_LITTLE_SHARED_MEMORY = 1 << 30
_LITTLE_DISK = 1 << 30
_EXTRAS = {
    "mpi": ("mpi4py",),
    "federation": ("zenoh", "cryptography"),
    "privacy": ("opacus",),
    "dashboard": ("starlette", "uvicorn"),
    "onnx": ("onnx", "onnxscript"),
    "tensorboard": ("tensorboard",),
    "mlflow": ("mlflow",),
    "wandb": ("wandb",),
    "lightning": ("lightning",),
    "transformers": ("transformers",),
}
"""Libraries of the extras that a user may install, by the extra's name."""


@dataclass(frozen=True)
class Finding:
    """What was found of one thing; `remedy` says what to do where it does not work."""

    name: str
    state: State
    found: str
    remedy: str = ""


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Look at this machine: what works, and what to install for the rest. Always ends with code 0.

    swiftfl doctor

    swiftfl doctor --json
    """
    findings = [look() for look in _LOOKS]
    if as_json:
        print(json.dumps({one.name: asdict(one) for one in findings}))
        return
    width = shutil.get_terminal_size().columns
    for one in findings:
        print(
            textwrap.fill(f"{_MARKS[one.state]}  {one.name}: {one.found}", width, subsequent_indent=_INDENT)
        )
        if one.remedy:
            print(textwrap.fill(one.remedy, width, initial_indent=_INDENT, subsequent_indent=_INDENT))


def _python() -> Finding:
    found = f"{platform.python_version()} at {sys.executable}; swiftfl {__version__}"
    return Finding("python", "works", found)


def _torch() -> Finding:
    try:
        import torch
    except (ImportError, OSError) as error:
        return Finding("torch", "missing", str(error).splitlines()[0], "pip install torch")
    import numpy as np

    return Finding("torch", "works", f"{torch.__version__}, numpy {np.__version__}")


def _threads() -> Finding:
    from swiftfl.engines.threads import cores

    count = cores()
    found = f"{count} core{'s' if count > 1 else ''} for this process; engines use one thread each"
    asked = os.environ.get("OMP_NUM_THREADS")
    if asked not in (None, "1"):
        return Finding("cores", "warning", found, f"OMP_NUM_THREADS is {asked}: own training loops go by it")
    return Finding("cores", "works", found)


def _gpu() -> Finding:
    try:
        import torch
    except (ImportError, OSError):
        return Finding("gpu", "missing", "torch is missing")
    from swiftfl.experiment.device_run import check_runs
    from swiftfl.workload.device_check import check_device
    from swiftfl.workload.placement import devices_here

    devices = devices_here()
    if not devices:
        return Finding("gpu", "missing", "none that torch can use; gradients are computed on the cpu")
    told, wrong, sound = [], [], []
    for device in devices:
        try:
            problems, speed = check_device(device)
            told.append(f"{torch.cuda.get_device_name(device)} (checked; {speed:.0f} GB/s down)")
            sound.append(device)
        except RuntimeError as error:  # such as a GPU that this torch was not built for, or one that is full
            problems = [in_one_line(error)]
            told.append(f"{device} (could not be checked)")
        wrong += [f"{device}: {problem}" for problem in problems]
    wrong += [f"{device}: {problem}" for device, problem in check_runs(sound).items() if problem]
    found = f"{', '.join(told)}: --device auto"
    return Finding("gpu", "warning", found, "; ".join(wrong)) if wrong else Finding("gpu", "works", found)


def _kernels() -> Finding:
    from swiftfl.kernels import why_not_compiled

    why = why_not_compiled()
    if not why:
        return Finding("kernels", "works", "compiled; steps of large models take one pass over memory")
    return Finding("kernels", "warning", f"NumPy's, the same numbers at less speed: {why}")


def _shared_memory() -> Finding:
    """Models of engine local travel through it: two per client and one per neighbour."""
    place = Path("/dev/shm")
    try:
        free = shutil.disk_usage(place).free
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        remedy = "engine local needs it: mount it, or in a container start that with --shm-size=2g"
        return Finding("shared memory", "missing", f"{place}: {error.strerror}", remedy)
    remedy = "little for engine local: in a container, --shm-size=2g" if free < _LITTLE_SHARED_MEMORY else ""
    return Finding(
        "shared memory", "warning" if remedy else "works", f"{_size(free)} free in {place}", remedy
    )


def _mpi() -> Finding:
    """Without importing it: that would start MPI."""
    launcher = shutil.which("mpiexec") or shutil.which("mpiexec", path=str(Path(sys.executable).parent))
    version = _version("mpi4py")
    if version and launcher:
        return Finding("mpi", "works", f"mpi4py {version}, {launcher}")
    found = f"mpi4py {version}, but no mpiexec" if version else "mpi4py is not installed"
    return Finding("mpi", "missing", found, "for engine mpi: pip install 'swiftfl[mpi]'")


def _browser() -> Finding:
    names = ("chromium", "chromium-browser", "google-chrome", "firefox")
    here = next(filter(None, map(shutil.which, names)), None)
    if here:
        return Finding("browser", "works", here)
    return Finding("browser", "missing", "none", "only for looking at reports here: copy them elsewhere")


def _disk() -> Finding:
    here = Path.cwd()
    free = shutil.disk_usage(here).free
    if not os.access(here, os.W_OK):
        return Finding("disk", "warning", f"{here} cannot be written to", "give --out with another folder")
    remedy = "little for the records of runs" if free < _LITTLE_DISK else ""
    return Finding("disk", "warning" if remedy else "works", f"{_size(free)} free in {here}", remedy)


def _extras() -> Finding:
    there = {extra: all(map(_installed, names)) for extra, names in _EXTRAS.items()}
    have = ", ".join(extra for extra, installed in there.items() if installed) or "none"
    lack = ",".join(extra for extra, installed in there.items() if not installed)
    return Finding("extras", "works", have, f"for more: pip install 'swiftfl[{lack}]'" if lack else "")


_LOOKS: tuple[Callable[[], Finding], ...] = (
    _python, _torch, _threads, _gpu, _kernels, _shared_memory, _mpi, _browser, _disk, _extras,
)  # fmt: skip


def _installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"
