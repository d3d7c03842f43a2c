"""All four measurements into one folder: OUT/convergence/results.json, from OUT/convergence/parts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from swiftfl.errors import UserError
from swiftfl.record.folder import versions
from swiftfl.reproduce.convergence import clients, delay, lemma, rate
from swiftfl.reproduce.convergence.parts import Part, Progress, run_parts, write_json
from swiftfl.reproduce.convergence.settings import Size, size_of

MEASUREMENTS: dict[str, tuple[Callable[[Size, int], list[Part]], Callable[..., object]]] = {
    "rate": (rate.parts, rate.summary),
    "reach": (rate.reach_parts, rate.reach_summary),
    "clients": (clients.parts, clients.summary),
    "delay": (delay.parts, delay.summary),
    "lemma": (lemma.parts, lemma.summary),
}


def reproduce(scale: str, seeds: int, folder: Path, progress: Progress | None = None, jobs: int = 2) -> None:
    """Measure whatever is not in `folder/parts` yet, then write `folder/results.json`.

    `progress(what, done, all)` is told of every part that is done.
    """
    size = size_of(scale)
    if seeds < 1:
        raise UserError(f"seeds must be at least 1, not {seeds}")
    planned = [(name, part) for name, (parts, _) in MEASUREMENTS.items() for part in parts(size, seeds)]
    results = run_parts([part for _, part in planned], folder / "parts", progress or _silent, jobs)
    done = [(name, part.parameters, result) for (name, part), result in zip(planned, results, strict=True)]
    out: dict[str, object] = {"scale": scale, "seeds": seeds, "versions": versions()}
    for name, (_, summary) in MEASUREMENTS.items():
        out[name] = summary([(parameters, result) for key, parameters, result in done if key == name])
    write_json(folder / "results.json", out)


def _silent(what: str, done: int, total: int) -> None:
    pass
