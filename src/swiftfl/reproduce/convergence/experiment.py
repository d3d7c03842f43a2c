"""The convergence experiment: its measurements in one folder.

experiment.json   scale, seeds and versions, written before anything is measured
parts/            one file per part that has been measured
results.json      what the report reads, written when all parts are there
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from swiftfl.errors import UserError
from swiftfl.files import write_json
from swiftfl.record.folder import versions
from swiftfl.reproduce.convergence import clients, delay, lemma, rate
from swiftfl.reproduce.convergence.settings import Size, size_of
from swiftfl.reproduce.parts import Part, Progress, check_scale_of, run_parts

MEASUREMENTS: dict[str, tuple[Callable[[Size, int], list[Part]], Callable[..., object]]] = {
    "rate": (rate.parts, rate.summary),
    "reach": (rate.reach_parts, rate.reach_summary),
    "clients": (clients.parts, clients.summary),
    "delay": (delay.parts, delay.summary),
    "lemma": (lemma.parts, lemma.summary),
}


def measure(scale: str, seeds: int, folder: Path, progress: Progress | None = None, workers: int = 1) -> None:
    """Measure whatever is not in `folder/parts` yet, then write `folder/results.json`.

    `progress(part, done, total)` is called for every part that is done.
    """
    size = size_of(scale)
    if seeds < 1:
        raise UserError(f"seeds must be at least 1, not {seeds}")
    check_scale_of(folder, scale)
    folder.mkdir(parents=True, exist_ok=True)
    about = {"name": "convergence", "scale": scale, "seeds": seeds, "versions": versions()}
    write_json(folder / "experiment.json", about)
    planned = [(name, part) for name, (parts, _) in MEASUREMENTS.items() for part in parts(size, seeds)]
    results = run_parts([part for _, part in planned], folder / "parts", progress or _silent, workers)
    done = [(name, part.parameters, result) for (name, part), result in zip(planned, results, strict=True)]
    out: dict[str, object] = {"scale": scale, "seeds": seeds, "versions": versions()}
    for name, (_, summary) in MEASUREMENTS.items():
        out[name] = summary([(parameters, result) for key, parameters, result in done if key == name])
    write_json(folder / "results.json", out)


def _silent(part: str, done: int, total: int) -> None:
    pass
