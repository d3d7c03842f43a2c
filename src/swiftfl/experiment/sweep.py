"""A sweep: one configuration with every combination of some values, each with several seeds.

Every run has a folder of its own, OUT/CELL/seed-K, so that tasks of a batch system may share one sweep: each
takes every so many-th run, and whoever comes again goes on with what is unfinished.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from swiftfl.data.registry import dataset
from swiftfl.errors import UserError
from swiftfl.experiment.campaign import PlannedRun, objects_of
from swiftfl.experiment.config import Config
from swiftfl.files import remove_stale, reported

SWEEP = "sweep.json"
_LONGEST_NAME = 120


@dataclass(frozen=True)
class Combination:
    """One combination: the values as they were typed, by key, and the configuration that they give."""

    name: str
    values: Mapping[str, str]
    config: Config

    def folder(self, out: Path, seed: int) -> Path:
        return out / self.name / f"seed-{seed}"


def grid_values(text: str) -> list[str]:
    """The values of a grid's axis: with commas between, or a JSON list where they hold commas themselves.

    >>> grid_values("0.1,0.05"), grid_values('["iid", "dirichlet:0.3,min=10"]'), grid_values("[81,122],[100]")
    (['0.1', '0.05'], ['iid', 'dirichlet:0.3,min=10'], ['[81,122]', '[100]'])
    """
    try:
        listed = json.loads(text)
    except ValueError:
        listed = None
    if isinstance(listed, list):
        return [value if isinstance(value, str) else json.dumps(value) for value in listed]
    return re.split(r",(?![^\[{]*[\]}])", text)


def cells(
    grid: Mapping[str, Sequence[str]], configured: Callable[[Mapping[str, str]], Config]
) -> list[Combination]:
    """Every combination; `configured` makes the configuration of one, and says what is wrong with it."""
    found: dict[str, Combination] = {}
    for values in itertools.product(*grid.values()):
        chosen = dict(zip(grid, values, strict=True))
        name = cell_name(chosen)
        if name in found:
            raise UserError(f"--grid: two runs would be called {name}: give each value once")
        found[name] = Combination(name, chosen, configured(chosen))
    return list(found.values())


def cell_name(values: Mapping[str, str]) -> str:
    """A folder's name.

    >>> cell_name({"algorithm.name": "swift", "step_size": "0.1"}), cell_name({"partition": "dirichlet:0.3"})
    ('algorithm=swift+step_size=0.1', 'partition=dirichlet-0.3')
    """
    text = "+".join(f"{_label(key, values)}={value}" for key, value in values.items()) or "all"
    name = re.sub(r"[^\w.+=-]", "-", text)
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[: _LONGEST_NAME - 9]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _label(key: str, keys: Mapping[str, str]) -> str:
    """The last word of a key, of names the one before; the whole key where that is ambiguous."""

    def word(key: str) -> str:
        return key.removesuffix(".name").rpartition(".")[2]

    return word(key) if [word(other) for other in keys].count(word(key)) == 1 else key


def planned_runs(sweep: Sequence[Combination], seeds: int, out: Path) -> list[PlannedRun]:
    """All runs; the data is read here, once, so that what is missing is said before anything runs."""
    samples: dict[str, int] = {}
    planned = []
    for cell, k in itertools.product(sweep, range(seeds)):
        config = cell.config.with_changes({"seed": cell.config.seed + k})
        planned.append(PlannedRun(cell.folder(out, config.seed), config, _steps(config, samples)))
    return planned


def _steps(config: Config, samples: dict[str, int]) -> int:
    """About how many client steps a run takes: for the time that is left."""
    if config.engine.iterations is not None:
        return config.engine.iterations
    data = config.data
    key = json.dumps([data.dataset, data.folder, data.options])
    if key not in samples:
        given = objects_of(config)
        own = None if given is None else given.data
        samples[key] = (own or dataset(data.dataset, data.folder, **data.options)).size
    batches = -(-samples[key] // (config.topology.clients * data.batch_size))
    return (config.engine.epochs or 0) * config.topology.clients * batches


def share(planned: Sequence[PlannedRun], environment: Mapping[str, str]) -> list[PlannedRun]:
    """The runs of this task of a Slurm job array, or all of them where there is none."""
    if "SLURM_ARRAY_TASK_ID" not in environment:
        return list(planned)
    try:
        task, count, first, step = (
            int(environment.get(f"SLURM_ARRAY_TASK_{name}", default))
            for name, default in (("ID", ""), ("COUNT", ""), ("MIN", "0"), ("STEP", "1"))
        )
        index = (task - first) // step
        if not 0 <= index < count:
            raise ValueError
    except (ValueError, ZeroDivisionError):
        raise UserError("SLURM_ARRAY_TASK_ID and _COUNT do not describe a task of a job array") from None
    return list(planned[index::count])


def make_folder(out: Path) -> None:
    """The sweep's folder; one that holds anything else is refused."""
    with reported(out, "write to"):
        if out.exists() and not (out / SWEEP).is_file() and any(_visible(out)):
            raise UserError(f"{out} is not an empty folder, nor that of a sweep: give another --out")
        out.mkdir(parents=True, exist_ok=True)
    remove_stale(out)


def _visible(folder: Path) -> Iterator[Path]:
    return (entry for entry in folder.iterdir() if not entry.name.startswith("."))
