"""`swiftfl dashboard`: runs in a browser, live and finished ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from swiftfl.errors import UserError

_RUNS = Path("runs")


def dashboard(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[RUN|FOLDER]...", help="Run folders, or folders with runs (default: runs)."),
    ] = None,
    host: Annotated[
        str,
        typer.Option(help="Address to serve at; on any but this machine's own, with a token in the address."),
    ] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help="Port (default: 8484, or a free one if that is taken).", show_default=False
        ),
    ] = None,
    token: Annotated[
        bool, typer.Option("--token", help="A token also at this machine's own address, for shared machines.")
    ] = False,
    show: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
    beside: Annotated[bool, typer.Option("--beside", hidden=True)] = False,
) -> None:
    """Show runs in a browser, live and finished ones, until Ctrl-C. Folders are only read.

    swiftfl dashboard

    swiftfl dashboard runs/mine --port 9000 --open
    """
    from swiftfl.dashboard import require_server

    require_server()
    from swiftfl.dashboard.beside import give_way
    from swiftfl.dashboard.server import listen, serve

    roots = folders or [_RUNS]
    if not beside:
        if not folders and not _RUNS.is_dir():
            raise UserError("there is no folder runs here: name a run, or a folder with runs")
        for root in roots:
            if not root.is_dir():
                raise UserError(f"{root} is not a folder: name a run folder, or one with runs in it")
    else:
        give_way()
    serve(roots, listen(host, port, token), later=beside, show=show, beside=beside)
