"""`swiftfl demo`: SWIFT against D-SGD on a ring in which one client is slow."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from swiftfl.cli.flags import as_typed
from swiftfl.cli.screen import COLUMNS, LiveProgress, default_folder, show_table
from swiftfl.experiment.bars import plain_console
from swiftfl.settings import SettingError

if TYPE_CHECKING:  # torch takes a second to import: `swiftfl graph` and `--help` do without
    from swiftfl.experiment.config import Config
    from swiftfl.experiment.run import RunResult
    from swiftfl.report.stream_text import Span, Window

NAMES = {"swift": "SWIFT", "dsgd": "D-SGD"}
SLOW_CLIENT = 5
_STEPS_BEFORE, _STEPS_SHOWN = 12, 8
"""Steps of the slow client: before the part of the run that is shown as a stream, in which those far from it
have not noticed it yet, and in that part."""


def demo(
    out: Annotated[Path | None, typer.Option(help="The run folder (default: runs/demo-DATE).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as one JSON object.")] = False,
    slowdown: Annotated[float, typer.Option(help="How many times slower one client is.")] = 4.0,
    epochs: Annotated[int, typer.Option(help="Passes of each client over its own data.")] = 80,
    seed: Annotated[int, typer.Option(help="Of everything that is random.")] = 0,
) -> None:
    """SWIFT against D-SGD: 16 clients in a ring, one of them slow, real digits, under a minute.

    swiftfl demo

    swiftfl demo --slowdown 8 --out runs/slower
    """
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
    slow_step = configs["swift"].engine.costs.compute * max(1.0, slowdown)
    times = {
        name: _times_of(one, (_STEPS_BEFORE + _STEPS_SHOWN) * slow_step) for name, one in configs.items()
    }
    window = _window(times, _STEPS_SHOWN * slow_step)
    _draw(results, times, window, slowdown, folder.path)
    if as_json:
        print(json.dumps(summary))
    else:
        _show(summary, configs, times, window, slowdown)


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


@dataclass(frozen=True)
class RunTimes:
    """The times of a run, found without training: they do not depend on what is learnt."""

    spans: list[Span]
    """What every client does when, as far as it was watched."""
    ends: list[float]
    """When each client has finished."""
    seconds_per_epoch: float

    @property
    def alone_from(self) -> float | None:
        """When all but the slow client have finished, if that goes on for a good while."""
        others = max(end for client, end in enumerate(self.ends) if client != SLOW_CLIENT)
        return others if self.ends[SLOW_CLIENT] > 1.1 * others else None


def _times_of(config: Config, watched_seconds: float = 0.0) -> RunTimes:
    """Run with gradients that cost nothing."""
    from swiftfl.engines import VirtualEngine
    from swiftfl.experiment.build import build
    from swiftfl.experiment.measure import times_per_epoch
    from swiftfl.workload.quadratic import Free

    parts = build(config)
    size = parts.workload.parameters + parts.workload.buffers
    engine = VirtualEngine(replace(parts.setup, workload=Free(size)))
    watched = engine.watch(range(config.topology.clients), watched_seconds)
    engine.start()
    engine.advance(sys.maxsize)
    ends = [sum(spent) for spent in zip(*engine.seconds().values(), strict=True)]
    return RunTimes([*watched.intervals], ends, sum(times_per_epoch(engine).values()))


def _window(times: Mapping[str, RunTimes], shown: float) -> Window:
    """The last seconds that were watched and in which nobody had finished yet."""
    until = min(*(max(span[3] for span in one.spans) for one in times.values()),
                *(min(one.ends) for one in times.values()))  # fmt: skip
    return max(0.0, until - shown), until


def _draw(
    results: Mapping[str, RunResult],
    times: Mapping[str, RunTimes],
    window: Window,
    slowdown: float,
    folder: Path,
) -> None:
    from swiftfl.report.run_figures import axis_of, draw_curves, write_figure
    from swiftfl.report.stream_figure import stream_figure

    ring = f"16-client ring, client {SLOW_CLIENT} is {slowdown:g}x slower"
    curves = {NAMES[name]: result.curve for name, result in results.items()}
    marks = {
        f"{NAMES[name]}: only client {SLOW_CLIENT} goes on": one.alone_from
        for name, one in times.items()
        if one.alone_from is not None
    }
    title = f"Consensus model on the digits: {ring}"
    draw_curves(curves, title, [folder / "loss.png", folder / "loss.svg"], axis_of("virtual"), marks)
    streams = {NAMES[name]: one.spans for name, one in times.items()}
    figure = stream_figure(
        streams, window, clients={SLOW_CLIENT: f"slow {SLOW_CLIENT}"}, columns=2, width=10.0,
        title=f"What each client does: {ring}",
    )  # fmt: skip
    for suffix in ("png", "svg"):
        write_figure(figure, folder / f"stream.{suffix}")


def _show(
    summary: dict[str, Any],
    configs: Mapping[str, Config],
    times: Mapping[str, RunTimes],
    window: Window,
    slowdown: float,
) -> None:
    from swiftfl.report.stream_text import print_streams

    console = plain_console()
    rows = {NAMES[name]: numbers for name, numbers in summary["algorithms"].items()}
    show_table(f"16-client ring, client {SLOW_CLIENT} is {slowdown:g}x slower", rows)
    for name, config in configs.items():
        without = _times_of(config.with_changes({"engine.costs.slowdowns": []})).seconds_per_epoch
        factor = summary["algorithms"][name]["seconds_per_epoch"] / without
        console.print(
            f"{NAMES[name]}: with the slow client an epoch takes {factor:.2f}x as long "
            f"({without:.4f} s without)."
        )
    print()
    streams = {NAMES[name]: one.spans for name, one in times.items()}
    print_streams(console, streams, window, {SLOW_CLIENT: "slow"}, configs["swift"].engine.costs.compute)
    print()
    for name, one in times.items():
        if one.alone_from is not None:
            console.print(
                f"{NAMES[name]}'s curves are flat from {one.alone_from:.1f} s on: only client {SLOW_CLIENT} "
                f"still trains, until {one.ends[SLOW_CLIENT]:.1f} s."
            )
    print(f"Pictures (loss.png, stream.png) and records: {summary['run']}")
