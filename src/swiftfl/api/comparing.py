"""`swiftfl.compare`: the same training with several algorithms, or other arguments, and several seeds."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swiftfl.api.arguments import read_arguments
from swiftfl.api.chosen import Arguments
from swiftfl.api.result import Result, axis, frame_of, plot_curves
from swiftfl.api.training import as_path, progress_shown, run_arguments
from swiftfl.api.words import whole
from swiftfl.engines.threads import threads_kept
from swiftfl.errors import UserError
from swiftfl.experiment.callbacks import checked_callbacks
from swiftfl.files import plain_name
from swiftfl.record.table import flat
from swiftfl.registry import suggestion
from swiftfl.workload.cuda_settings import cuda_kept

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from swiftfl.report.table import Table

_OF_DATA = ("model", "train", "test", "groups", "label")
"""What all runs of a comparison share."""


@dataclass(frozen=True)
class ShownTable:
    """A table that terminals and notebooks show."""

    table: Table

    def __repr__(self) -> str:
        from swiftfl.report.screen import text

        return text(self.table)

    def _repr_html_(self) -> str:
        from swiftfl.report.page import table

        return str(table(self.table))

    def csv(self) -> str:
        """The same with every digit, as comma-separated values."""
        return self.table.csv()


@dataclass(frozen=True, repr=False)
class Comparison(Mapping[str, Result]):
    """Runs by name; `comparison["SWIFT"]` is the one of the first seed, `runs["SWIFT"]` has all seeds."""

    runs: Mapping[str, Sequence[Result]]

    def __getitem__(self, name: str) -> Result:
        if name not in self.runs:
            raise UserError(f"there is no run {name!r}: {suggestion(name, self.runs)}")
        return self.runs[name][0]

    def __iter__(self) -> Iterator[str]:
        return iter(self.runs)

    def __len__(self) -> int:
        return len(self.runs)

    def table(self, loss: float | None = None) -> ShownTable:
        """Means over the seeds, with their standard deviation.

        Args:
            loss: The test loss to which the time is told; unless given, the lowest that all have reached.
        """
        from swiftfl.report.comparison import loss_of_all, seeds_table

        if loss is not None and (isinstance(loss, bool) or not isinstance(loss, int | float)):
            raise UserError(f"loss must be a number, not {loss!r}")
        target = (
            loss_of_all(run.curve for runs in self.runs.values() for run in runs) if loss is None else loss
        )
        groups = {name: [(run.summary, run.curve) for run in runs] for name, runs in self.runs.items()}
        return ShownTable(seeds_table(groups, target))

    def plot(self, path: str | os.PathLike[str] | None = None, over: str | None = None) -> Figure:
        """Test loss and accuracy of all runs, drawn into a file (.svg, .png, .pdf) if one is given."""
        curves = {name: [run.curve for run in runs] for name, runs in self.runs.items()}
        engines = {run.config.engine.name for runs in self.runs.values() for run in runs}
        title = "The consensus model on the test set"
        return plot_curves(curves, title, path, axis(over, engines.pop() if len(engines) == 1 else "local"))

    def frame(self) -> pd.DataFrame:
        """Every evaluation of every run as a row of a pandas table, with columns `run` and `seed`."""
        return frame_of(
            [
                {"run": name, "seed": run.config.seed, **flat(row)}
                for name, runs in self.runs.items()
                for run in runs
                for row in run.curve
            ]
        )

    def __repr__(self) -> str:
        return repr(self.table())

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def compare(
    runs: Mapping[str, object] | Sequence[str],
    model: object,
    train: object,
    test: object = None,
    *,
    seeds: int | Sequence[int] = 1,
    out: str | os.PathLike[str] | None = None,
    progress: bool = True,
    callbacks: object = (),
    **arguments: Any,
) -> Comparison:
    """Train with several algorithms, otherwise alike, and lay what they found beside each other.

    Args:
        runs: A name for each run, and its algorithm as `train` takes it; or a dict of arguments of `train`
            that are other than below, such as {"topology": "complete"}. Or only names of algorithms.
        model: As in `train`; so are `train` and `test`.
        train: Training data.
        test: Test data.
        seeds: How many seeds, from `seed` on, or which.
        out: A folder; each run is recorded in it as NAME, or NAME/seed-S where there are several seeds.
        progress: As in `train`.
        callbacks: As in `train`; they are told of each run.
        arguments: All other arguments of `train`, the same for every run.

    Returns:
        All runs, with `table()`, `plot()` and `frame()`.
    """
    wanted = _named_runs(runs)
    numbers = _seeds(seeds, arguments.pop("seed", 0))
    folder, observers = as_path("out", out), checked_callbacks(callbacks)
    _check_names(arguments, "compare")
    read: dict[tuple[str, int], Arguments] = {}
    for name, own in wanted.items():
        for seed in numbers:
            first = next(iter(read.values())).given.data if read else None
            shared = None if first is None else replace(first, notes=())  # what is to be said is said once
            data = (train, test) if shared is None else (shared, None)
            kept = {k: v for k, v in arguments.items() if shared is None or k not in _OF_DATA}
            read[name, seed] = read_arguments(model, *data, **{**kept, **own, "seed": seed})
            read[name, seed].given.described(read[name, seed].config())  # says what is wrong before any run
    found: dict[str, list[Result]] = {name: [] for name in wanted}
    with threads_kept(), cuda_kept(), progress_shown(progress) as bars:
        for (name, seed), each in read.items():
            label = name if len(numbers) == 1 else f"{name} {seed}"
            where = None if folder is None else _place(folder, name, seed, len(numbers))
            found[name].append(run_arguments(each, where, None, bars(label), observers))
    return Comparison(found)


def _named_runs(runs: object) -> dict[str, dict[str, Any]]:
    if isinstance(runs, Sequence) and not isinstance(runs, str) and all(isinstance(r, str) for r in runs):
        runs = {name: name for name in runs}
    if not isinstance(runs, Mapping) or not runs:
        raise UserError(
            f"runs must be a dict from a name to an algorithm, such as {{'SWIFT': 'swift'}}, not {runs!r}"
        )
    found = {}
    for name, value in runs.items():
        own = dict(value) if isinstance(value, Mapping) else {"algorithm": value}
        _check_names(own, f"runs[{name!r}]", *_OF_DATA, "seed")
        found[str(name)] = own
    return found


def _check_names(arguments: Mapping[str, Any], where: str, *shared: str) -> None:
    known = [n for n in inspect.signature(read_arguments).parameters if n not in ("model", "train", "test")]
    for name in arguments:
        if name in shared:
            raise UserError(f"{where}: {name} is the same for all runs: give it to compare itself")
        if name not in known:
            raise UserError(f"{where} has no argument {name!r}: {suggestion(name, known)}")


def _seeds(seeds: object, first: object) -> list[int]:
    if isinstance(seeds, int) and not isinstance(seeds, bool) and seeds >= 1:
        return list(range(whole("seed", first), whole("seed", first) + seeds))
    if isinstance(seeds, Sequence) and seeds and all(type(seed) is int for seed in seeds):
        return list(seeds)
    raise UserError(f"seeds must be a number of seeds, at least 1, or a list of them, not {seeds!r}")


def _place(folder: Path, name: str, seed: int, seeds: int) -> Path:
    return folder / plain_name(name) if seeds == 1 else folder / plain_name(name) / f"seed-{seed}"
