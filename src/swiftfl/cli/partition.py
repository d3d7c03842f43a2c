"""`swiftfl partition`: which client holds how many samples of which class."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from swiftfl.cli.configuration import changed, configuration
from swiftfl.cli.flags import collect_some
from swiftfl.cli.names import Imports
from swiftfl.errors import UserError
from swiftfl.experiment.bars import plain_console

if TYPE_CHECKING:
    import numpy.typing as npt
    from rich.console import Console

    from swiftfl.data.partition import Partition

    Counts = npt.NDArray[np.int64]

_PICTURES = (".svg", ".png", ".pdf")
_SHADES = " ▁▂▃▄▅▆▇█"
_CLIENTS_SHOWN = 32


def partition(
    recipe: Annotated[
        str, typer.Argument(help="As for run: {recipes}, a file, or a run folder.", show_default=False)
    ],
    spec: Annotated[
        str | None,
        typer.Option("--partition", help="{partitions} (default: the recipe's).", show_default=False),
    ] = None,
    clients: Annotated[
        int | None, typer.Option(help="The number of clients (default: the recipe's).")
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="{datasets} (default: the recipe's).")] = None,
    data: Annotated[Path | None, typer.Option(help="The folder with the dataset's files.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of what is random (default: the recipe's).")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw it into this file (.svg, .png, .pdf).")] = None,
    imports: Imports = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Show how a partition deals out the training samples: per client and class.

    swiftfl partition digits --partition dirichlet:0.3 --clients 8

    swiftfl partition my.yaml --plot partition.svg
    """
    from swiftfl.data.registry import dataset as load
    from swiftfl.data.split import split
    from swiftfl.experiment.build import build_topology

    if plot is not None and plot.suffix not in _PICTURES:
        raise UserError(f"--plot {plot}: the file must end in {', '.join(_PICTURES)}")
    given = {"partition": spec, "clients": clients, "dataset": dataset, "data": data, "seed": seed}
    config = changed(configuration(recipe), *collect_some(given), imports)
    n = build_topology(config.topology, config.seed).n
    found = load(config.data.dataset, config.data.folder, **config.data.options)
    parts = split(found, n, config.seed, config.data.partition)
    counts = None if found.classes is None else parts.histogram(found.labels, found.classes)
    if plot is not None:
        _draw(plot, parts, counts)
    if as_json:
        told = {"partition": config.data.partition, "sizes": list(parts.sizes)}
        print(json.dumps(told if counts is None else {**told, "histogram": counts.tolist()}))
    else:
        _show(plain_console(), config.data.partition, parts, counts)


def _draw(file: Path, parts: Partition, counts: Counts | None) -> None:
    from swiftfl.data.picture import draw_histogram

    if counts is None:
        raise UserError(f"--plot {file}: the data have no classes to draw")
    draw_histogram(file, parts.name, counts)


def _show(console: Console, spec: str, parts: Partition, counts: Counts | None) -> None:
    """A line per client: its samples, and a bar per class whose full height is the largest share."""
    sizes = parts.sizes
    console.print(
        f"{spec}: {sum(sizes):,} samples, {len(sizes)} clients, {min(sizes):,} to {max(sizes):,} each"
    )
    if counts is not None:
        console.print(
            f"classes 0 to {counts.shape[1] - 1}, a bar each; a full bar is {counts.max():,} samples"
        )
    for i in range(min(len(sizes), _CLIENTS_SHOWN)):
        print(_line(i, sizes[i], None if counts is None else counts[i], counts, console.width))
    if len(sizes) > _CLIENTS_SHOWN:
        console.print(f"... and {len(sizes) - _CLIENTS_SHOWN} more clients (--json shows all)")


def _line(i: int, size: int, mine: Counts | None, counts: Counts | None, width: int) -> str:
    start = f"{i:>4} {size:>8,}"
    if mine is None or counts is None:
        return start
    room = width - len(start) - 3
    each = max(1, min(3, room // max(1, len(mine)) - 1))
    levels = np.ceil(mine / counts.max() * (len(_SHADES) - 1)).astype(int)
    gap = " " if (each + 1) * len(mine) <= room else ""
    bars = gap.join(_SHADES[level] * each for level in levels)
    return f"{start}  {bars[:room]}"
