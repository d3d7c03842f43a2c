"""`swiftfl.train`: a model and data of one's own, trained by many clients in one call."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from swiftfl.api.arguments import read_arguments
from swiftfl.api.chosen import Arguments
from swiftfl.api.result import Result, result_of
from swiftfl.engines.threads import threads_kept
from swiftfl.errors import UserError
from swiftfl.experiment import run as running
from swiftfl.experiment.bars import ProgressBars
from swiftfl.experiment.callbacks import Callback, checked_callbacks
from swiftfl.experiment.config import Config, parse
from swiftfl.experiment.differences import difference
from swiftfl.record import RunFolder
from swiftfl.transports.ranks import rank_here
from swiftfl.workload.cuda_settings import cuda_kept

CHECKPOINT_SECONDS = 30.0
_QUIET = 2.0
"""Seconds of a run before its progress is shown."""


def train(
    model: object,
    train: object,
    test: object = None,
    *,
    loss: object = None,
    metrics: object = (),
    optimizer: object = None,
    clients: int | None = None,
    topology: object = "ring",
    partition: str | None = None,
    groups: object = None,
    label: str | None = None,
    batch_size: int | None = None,
    algorithm: object = "swift",
    engine: object = "virtual",
    slowdown: Mapping[int, float] | None = None,
    epochs: int | None = None,
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    device: str = "auto",
    progress: bool = True,
    callbacks: object = (),
    resume: str | os.PathLike[str] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Result:
    """Train a model on the data of many clients that never wait for each other.

    Args:
        model: A `torch.nn.Module` (every run starts from its values), a function or class that makes one (its
            random values depend on `seed` only), or a name of `swiftfl list models`.
        train: Training data of any kind that `swiftfl.data.as_dataset` takes: (inputs, labels), a torch
            dataset, a pandas table, a list of datasets, one per client, a function from client to
            dataset, or the name of a dataset.
        test: Test data of the same kind; without it, models are evaluated on the training data.
        loss: `criterion(outputs, labels)`, or `loss(model, batch)` for whoever calls the model itself; it is
            taken for the latter if its first parameter is called `model`, `module` or `net`, or its second
            `batch`. Or a name. Without one: cross-entropy for classes, mean squared error for numbers.
        metrics: Names (accuracy, top5, f1_macro, perplexity, mse) and functions of (outputs, labels) in a
            list, or a dict from name to function.
        optimizer: `swiftfl.SGD(lr=0.1, momentum=0.9)`, which is the default, `swiftfl.AdamW(...)` and so on.
        clients: How many; 16 unless the topology or the data say so.
        topology: A name ("ring", "random_regular:degree=4"), a `Topology`, a networkx graph, a list of edges,
            or the path of a file. Nodes of a networkx graph that are not 0 to n-1 are numbered in its order.
        partition: Who holds which samples: "iid", "dirichlet:0.3", "dirichlet:0.3,min=10", "by_group" ...
            Without one: as the data came, else by groups, else at random.
        groups: The group (user, hospital) of each training sample, for "by_group".
        label: The column of the labels in a table or dict.
        batch_size: Samples per step; 16.
        algorithm: A name ("swift", "dsgd", "swift:communication_set=1"), an algorithm, or a function of a
            `Context` that makes one. An object keeps its own update rule unless an `optimizer` is given.
        engine: "virtual", "sampled", "local" (a process per client) or "mpi", or a description such as
            `swiftfl.Local(restart_lost=True)`.
        slowdown: How many times as slowly clients compute, such as {5: 4}.
        epochs: How often each client passes over its own data; 10, unless `settings` ends the run by
            `engine.iterations`.
        seed: Of everything that is random.
        out: A folder in which the run is recorded.
        device: "auto", "cpu", "cuda:0" ...
        progress: Whether a bar shows runs that take longer than two seconds.
        callbacks: Objects that are told of the run's start, evaluations, events and end.
        resume: The folder of a run that was stopped: it goes on. Give the same objects again; arguments that
            are left out stay as they were.
        settings: Any other setting by its dotted name, such as {"engine.iterations": 100}.

    Returns:
        The models and what was measured.

    Raises:
        UserError: An argument is wrong; the sentence names it.
    """
    arguments = read_arguments(
        model, train, test, loss=loss, metrics=metrics, optimizer=optimizer, clients=clients,
        topology=topology, partition=partition, groups=groups, label=label, batch_size=batch_size,
        algorithm=algorithm, engine=engine, slowdown=slowdown, epochs=epochs, seed=seed, device=device,
        settings=settings,
    )  # fmt: skip
    observers = checked_callbacks(callbacks)
    folder, saved = as_path("out", out), as_path("resume", resume)
    if folder is not None and saved is not None:
        raise UserError(f"out has no effect with resume: the run goes on in {saved}")
    with threads_kept(), cuda_kept(), progress_shown(progress) as bars:
        return run_arguments(arguments, folder, saved, bars("train"), observers)


def run_arguments(
    arguments: Arguments,
    out: Path | None,
    resume: Path | None,
    show: running.Progress,
    callbacks: Sequence[Callback],
) -> Result:
    """A new run, or one that goes on."""
    given = arguments.given
    if resume is None:
        config = arguments.config()
        found = running.run(config, out, show, CHECKPOINT_SECONDS, given=given, callbacks=callbacks)
    else:
        workers = _unchanged(arguments, resume).engine.workers
        found = running.resume(
            resume, show, CHECKPOINT_SECONDS, given=given, callbacks=callbacks, workers=workers
        )
    return result_of(found, given.model)


def as_path(argument: str, value: object) -> Path | None:
    """A folder that was given as text or as a path."""
    if value is None:
        return None
    if not isinstance(value, str | os.PathLike) or not str(value) or "\0" in str(value):
        raise UserError(f"{argument} must be the path of a folder, not {value!r}")
    return Path(value)


def _unchanged(arguments: Arguments, folder: Path) -> Config:
    """The configuration that was recorded, with what of the arguments may differ from it."""
    recorded = parse(RunFolder.open(folder).read_object("config.json"))
    arguments.given.check(recorded)
    config = arguments.changed(recorded)
    changed = difference(recorded, config)
    if changed is not None:
        raise UserError(
            f"resume: {changed} of the run in {folder}: leave the argument out, or start a new run with it"
        )
    return config


@contextlib.contextmanager
def progress_shown(progress: object) -> Iterator[Callable[[str], running.Progress]]:
    """Who shows the progress of a run, by its name; nobody under MPI but the first rank."""
    if not isinstance(progress, bool):
        raise UserError(f"progress must be True or False, not {progress!r}")
    if not progress or rank_here():
        yield lambda name: running.silent
        return
    with ProgressBars(_QUIET) as bars:
        yield bars.of
