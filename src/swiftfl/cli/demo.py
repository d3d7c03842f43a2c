"""`swiftfl demo`: SWIFT against D-SGD on a ring in which one client is slow."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from swiftfl.cli.screen import LiveProgress
from swiftfl.errors import UserError
from swiftfl.experiment.build import build
from swiftfl.experiment.config import Config
from swiftfl.experiment.measure import times_per_epoch
from swiftfl.experiment.run import Result, run
from swiftfl.recipes import digits
from swiftfl.record import RunFolder
from swiftfl.workload.quadratic import Free

NAMES = {"swift": "SWIFT", "dsgd": "D-SGD"}
COLUMNS = {
    "accuracy": ("accuracy", "{:.1%}"),
    "loss": ("loss", "{:.3f}"),
    "seconds_per_epoch": ("epoch (s)", "{:.4f}"),
    "compute_seconds_per_epoch": ("compute (s)", "{:.4f}"),
    "communication_seconds_per_epoch": ("communication (s)", "{:.4f}"),
    "waiting_seconds_per_epoch": ("waiting (s)", "{:.4f}"),
    "consensus_distance": ("consensus distance", "{:.3f}"),
}
SLOW_CLIENT = 5


def demo(
    out: Annotated[Path | None, typer.Option(help="The run folder (default: runs/demo-DATE).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as one JSON object.")] = False,
    slowdown: Annotated[float, typer.Option(help="How many times slower one client is.")] = 4.0,
    epochs: Annotated[int, typer.Option(help="Passes of each client over its own data.")] = 40,
    seed: Annotated[int, typer.Option(help="Of everything that is random.")] = 0,
) -> None:
    """SWIFT against D-SGD: 16 clients in a ring, one of them slow, real digits, under a minute."""
    configs = {name: _config(name, slowdown, epochs, seed) for name in NAMES}
    folder = RunFolder.create(out or Path("runs", f"demo-{datetime.now():%Y%m%d-%H%M%S}"))
    with LiveProgress() as screen:
        results = {
            name: run(config, folder.path / name, screen.of(NAMES[name])) for name, config in configs.items()
        }
    summary: dict[str, Any] = {
        "algorithms": {name: {key: r.summary[key] for key in COLUMNS} for name, r in results.items()},
        "run": str(folder.path),
    }
    folder.write_json("summary.json", summary)
    _draw(results, slowdown, folder.path)
    if as_json:
        print(json.dumps(summary))
    else:
        _show(summary, configs, slowdown)


def _config(name: str, slowdown: float, epochs: int, seed: int) -> Config:
    return digits().with_changes(
        {
            "algorithm.name": name,
            "engine.costs.slowdown": {SLOW_CLIENT: slowdown},
            "engine.epochs": epochs,
            "seed": seed,
        }
    )


def _draw(results: dict[str, Result], slowdown: float, folder: Path) -> None:
    from swiftfl.report.curves import draw_curves

    title = f"Consensus model on the digits: 16-client ring, client {SLOW_CLIENT} {slowdown:g}x slower"
    curves = {NAMES[name]: result.curve for name, result in results.items()}
    try:
        draw_curves(curves, title, [folder / "loss.png", folder / "loss.svg"])
    except OSError as error:
        raise UserError(f"cannot write {folder / 'loss.png'}: {error.strerror}") from None


def _show(summary: dict[str, Any], configs: dict[str, Config], slowdown: float) -> None:
    console = Console()
    table = Table(title=f"One of 16 clients is {slowdown:g}x slower (virtual time, means over clients)")
    table.add_column("")
    for title, _ in COLUMNS.values():
        table.add_column(title, justify="right")
    for name, numbers in summary["algorithms"].items():
        cells = [form.format(numbers[key]) for key, (_, form) in COLUMNS.items()]
        table.add_row(NAMES[name], *cells)
    console.print(table)
    for name, config in configs.items():
        without = _seconds_without_slow_client(config)
        factor = summary["algorithms"][name]["seconds_per_epoch"] / without
        console.print(
            f"{NAMES[name]}: the slow client makes an epoch {factor:.2f} times as long "
            f"({without:.4f} s without it).",
            highlight=False,
        )
    console.print(f"Picture and records: {summary['run']}", highlight=False, soft_wrap=True)
    sys.stdout.flush()


def _seconds_without_slow_client(config: Config) -> float:
    """The virtual time per epoch with every client at full speed; it does not depend on learning."""
    parts = build(config.with_changes({"engine.costs.slowdown": {}}))
    size = parts.workload.parameters + parts.workload.buffers
    engine = replace(parts, setup=replace(parts.setup, workload=Free(size))).engine(config.engine.name)
    engine.start()
    engine.advance(sys.maxsize)
    return sum(times_per_epoch(engine).values())
