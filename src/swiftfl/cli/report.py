"""`swiftfl report`: the dashboard's views of recorded runs as one file, and figures for a paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from swiftfl.errors import UserError


def report(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Run folders: FOLDER or LABEL=FOLDER.")],
    out: Annotated[
        Path | None,
        typer.Option(help="The page (.html); without it RUN/report.html, of several runs ./report.html."),
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(help="A folder for figures (.svg, .pdf) and tables (.tex, .csv, .md)."),
    ] = None,
    style: Annotated[
        Literal["screen", "paper"],
        typer.Option(help="Of the figures: paper has the widths of columns, small serif type, fonts inside."),
    ] = "screen",
) -> None:
    """Write what the dashboard shows of recorded runs into one HTML file that needs no server.

    Several runs are compared. With --style paper and no --figures, figures go to FILE-figures beside it.

    swiftfl report runs/mine

    swiftfl report SWIFT=runs/a D-SGD=runs/b --out both.html --figures figures --style paper
    """
    from swiftfl.files import checked_target
    from swiftfl.report.comparison import labelled
    from swiftfl.report.run_page import write_run_page
    from swiftfl.views.run import RunView

    given = labelled(runs)
    where = out or (next(iter(given.values())) / "report.html" if len(given) == 1 else Path("report.html"))
    if where.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"--out {where}: the file must end in .html")
    checked_target(where)
    if figures is None and style == "paper":
        figures = where.with_name(f"{where.stem}-figures")
    if figures is not None and figures.exists() and not figures.is_dir():
        raise UserError(f"--figures {figures} is a file, not a folder")
    views = [RunView(path, label) for label, path in given.items()]
    if figures is not None:
        from swiftfl.report.paper import write_figures

        written = write_figures(figures, views, paper=style == "paper")
        print(f"Figures and tables: {figures} ({', '.join(written)})")
    print(f"Report: {write_run_page(where, views)}")
