"""`swiftfl compare`: recorded runs beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from swiftfl.cli.screen import print_table
from swiftfl.errors import UserError

_PICTURES = (".svg", ".png", ".pdf")


def compare(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Run folders: FOLDER or LABEL=FOLDER.")],
    plot: Annotated[
        Path | None, typer.Option(help="Draw losses and accuracies into this file (.svg, .png, .pdf).")
    ] = None,
    over: Annotated[
        Literal["epoch", "time", "iteration"], typer.Option(help="What the curves are drawn over.")
    ] = "epoch",
    csv: Annotated[Path | None, typer.Option(help="Write every evaluation of all runs to this file.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the last evaluations as JSON.")] = False,
) -> None:
    """Compare recorded runs, finished or not: the last evaluation of each, and their curves.

    swiftfl compare runs/swift runs/dsgd --plot loss.svg

    swiftfl compare SWIFT=runs/a D-SGD=runs/b --csv curves.csv
    """
    from swiftfl.files import write_atomically
    from swiftfl.report.comparison import as_json, comparison_table, curves_csv, read_runs

    if plot is not None and plot.suffix not in _PICTURES:
        raise UserError(f"--plot {plot}: the file must end in {', '.join(_PICTURES)}")
    found = read_runs(runs)
    if csv is not None:
        write_atomically(csv, curves_csv(found))
    if plot is not None:
        from swiftfl.report.run_figures import AXES, draw_curves

        draw_curves({run.label: run.rows for run in found}, "Recorded runs", [plot], (over, AXES[over]))
    if json:
        print(as_json(found))
    else:
        print_table(comparison_table(found))
