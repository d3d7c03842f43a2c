"""`swiftfl reproduce`: the experiments of the paper, in one folder and one report."""

from __future__ import annotations

import shlex
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from swiftfl.errors import UserError

FAILED = 1


class Name(str, Enum):
    baseline = "baseline"
    noniid = "noniid"
    slowdown = "slowdown"
    clients = "clients"
    topologies = "topologies"
    convergence = "convergence"
    rivals = "rivals"
    better = "better"
    influence = "influence"
    shift = "shift"
    all = "all"


class Scale(str, Enum):
    smoke = "smoke"
    small = "small"
    paper = "paper"


class EngineName(str, Enum):
    virtual = "virtual"
    local = "local"
    mpi = "mpi"


class Hardware(str, Enum):
    paper = "paper"
    measured = "measured"


class BaselineWeights(str, Enum):
    metropolis = "metropolis"
    uniform = "uniform"


class FidelityName(str, Enum):
    paper = "paper"
    authors = "authors"


class Model(str, Enum):
    resnet18 = "resnet18"
    resnet50 = "resnet50"


def reproduce(
    experiment: Annotated[Name, typer.Argument(help="Which experiment, or all of them.")],
    scale: Annotated[Scale, typer.Option(help="smoke: minutes. small: hours. paper: GPUs.")] = Scale.smoke,
    engine: Annotated[EngineName, typer.Option(help="Where the runs happen.")] = EngineName.virtual,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Runs per case (default: 1 for smoke, else 3).")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="The folder with the CIFAR-10 files.")] = None,
    out: Annotated[Path | None, typer.Option(help="Default: reproductions/SCALE, or SCALE-authors.")] = None,
    hardware: Annotated[Hardware, typer.Option(help="Whose costs virtual time has.")] = Hardware.paper,
    model: Annotated[
        Model | None, typer.Option(help="Of scale paper: the textbook network, not the authors' thin one.")
    ] = None,
    baseline_weights: Annotated[
        BaselineWeights, typer.Option(help="uniform: the authors', over the neighbourhood.")
    ] = BaselineWeights.metropolis,
    fidelity: Annotated[
        FidelityName, typer.Option(help="authors: algorithms as the authors' code runs them, not as printed.")
    ] = FidelityName.paper,
    epochs: Annotated[int | None, typer.Option(min=1, help="Instead of the recipe's.")] = None,
    device: Annotated[str, typer.Option(help="Where gradients are computed.")] = "cpu",
    jobs: Annotated[int | None, typer.Option(min=1, help="Runs at once (default: one per core).")] = None,
) -> None:
    """Reproduce the paper's tables and figures, and go beyond them: rivals, better, influence, shift.

    The same command again goes on where it stopped.

    swiftfl reproduce baseline

    swiftfl reproduce rivals --scale small

    swiftfl reproduce all --scale small --data cifar-10
    """
    if engine is EngineName.local and (jobs or 1) > 1:
        raise UserError("--jobs needs --engine virtual: a local run has a process per client and runs alone")
    from swiftfl.cli.reproduction import Task  # loads torch, which `--help` does without
    from swiftfl.engines.threads import cores
    from swiftfl.reproduce.plan import ReproductionOptions

    options = ReproductionOptions(
        engine=engine.value,
        device=device,
        baseline_weights=baseline_weights.value,
        fidelity=fidelity.value,
        data=None if data is None else str(data),
        model=None if model is None else model.value,
        epochs=epochs,
    )
    task = Task(
        scale=scale.value,
        seeds=seeds or (1 if scale is Scale.smoke else 3),
        out=out or default_folder(scale.value, fidelity.value),
        hardware=hardware.value,
        options=options,
        workers=1 if engine is EngineName.local else jobs or cores(),
        command=shlex.join(["swiftfl", *sys.argv[1:]]),
    )
    names = task.all_names() if experiment is Name.all else [experiment.value]
    if not task.run(names):
        raise typer.Exit(FAILED)


def default_folder(scale: str, fidelity: str) -> Path:
    """Each fidelity has a folder of its own.

    >>> default_folder("small", "authors").as_posix()
    'reproductions/small-authors'
    """
    return Path("reproductions", scale if fidelity == "paper" else f"{scale}-{fidelity}")
