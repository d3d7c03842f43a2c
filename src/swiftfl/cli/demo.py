"""`swiftfl demo`: SWIFT against D-SGD on a ring in which one client is slow."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from swiftfl.cli.flags import as_typed
from swiftfl.cli.screen import COLUMNS, LiveProgress, default_folder, show_table
from swiftfl.settings import SettingError

if TYPE_CHECKING:  # torch takes a second to import: `swiftfl graph` and `--help` do without
    from swiftfl.experiment.config import Config
    from swiftfl.experiment.run import Result

NAMES = {"swift": "SWIFT", "dsgd": "D-SGD"}
SLOW_CLIENT = 5


def demo(
    out: Annotated[Path | None, typer.Option(help="The run folder (default: runs/demo-DATE).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as one JSON object.")] = False,
    slowdown: Annotated[float, typer.Option(help="How many times slower one client is.")] = 4.0,
    epochs: Annotated[int, typer.Option(help="Passes of each client over its own data.")] = 80,
    seed: Annotated[int, typer.Option(help="Of everything that is random.")] = 0,
) -> None:
    """SWIFT against D-SGD: 16 clients in a ring, one of them slow, real digits, under a minute."""
    from swiftfl.experiment.build import build
    from swiftfl.experiment.run import RunStopped, run
    from swiftfl.record import RunFolder

    try:
        configs = {name: _config(name, slowdown, epochs, seed) for name in NAMES}
    except SettingError as error:
        typed = {"engine.costs.slowdowns.0": "--slowdown", "engine.epochs": "--epochs", "seed": "--seed"}
        raise as_typed(error, typed) from None
    build(configs["swift"])  # whatever is wrong is said before anything is written
    folder = RunFolder.create(out or default_folder("demo"))
    with LiveProgress() as screen:
        try:
            results = {
                name: run(config, folder.path / name, screen.of(NAMES[name]))
                for name, config in configs.items()
            }
        except RunStopped:  # half a demo is not worth going on with
            raise KeyboardInterrupt from None
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
    from swiftfl.experiment.recipes import digits

    return digits().with_changes(
        {
            "algorithm.name": name,
            "engine.costs.slowdowns": [{"client": SLOW_CLIENT, "factor": slowdown}],
            "engine.epochs": epochs,
            "seed": seed,
        }
    )


def _draw(results: dict[str, Result], slowdown: float, folder: Path) -> None:
    from swiftfl.report.run_figures import axis_of, draw_curves

    title = f"Consensus model on the digits: 16-client ring, client {SLOW_CLIENT} is {slowdown:g}x slower"
    curves = {NAMES[name]: result.curve for name, result in results.items()}
    draw_curves(curves, title, [folder / "loss.png", folder / "loss.svg"], axis_of("virtual"))


def _show(summary: dict[str, Any], configs: dict[str, Config], slowdown: float) -> None:
    rows = {NAMES[name]: numbers for name, numbers in summary["algorithms"].items()}
    show_table(f"16-client ring, client {SLOW_CLIENT} is {slowdown:g}x slower", rows)
    for name, config in configs.items():
        without = _seconds_without_slow_client(config)
        factor = summary["algorithms"][name]["seconds_per_epoch"] / without
        print(
            f"{NAMES[name]}: with the slow client an epoch takes {factor:.2f}x as long "
            f"({without:.4f} s without)."
        )
    print(f"Picture (loss.png) and records: {summary['run']}")


def _seconds_without_slow_client(config: Config) -> float:
    """The virtual time per epoch with every client at full speed; it does not depend on learning."""
    from swiftfl.experiment.build import build
    from swiftfl.experiment.measure import times_per_epoch
    from swiftfl.workload.quadratic import Free

    parts = build(config.with_changes({"engine.costs.slowdowns": []}))
    size = parts.workload.parameters + parts.workload.buffers
    engine = replace(parts, setup=replace(parts.setup, workload=Free(size))).engine(config.engine.name)
    engine.start()
    engine.advance(sys.maxsize)
    return sum(times_per_epoch(engine).values())
