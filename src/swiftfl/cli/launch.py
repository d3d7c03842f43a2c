"""`swiftfl launch`: several processes of a user's own training program, which average without waiting."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from swiftfl.errors import UserError

if TYPE_CHECKING:
    from swiftfl.loop.federation import Federation


def launch(
    program: Annotated[str, typer.Argument(help="Your training program, a Python file.", show_default=False)],
    arguments: Annotated[
        list[str] | None, typer.Argument(help="Its own arguments.", show_default=False)
    ] = None,
    clients: Annotated[int, typer.Option("-n", "--clients", help="How many processes to start.")] = 2,
    topology: Annotated[
        str, typer.Option(help="Who averages with whom: a name with options, or a file of edges.")
    ] = "ring",
    weights: Annotated[
        str | None,
        typer.Option(help="Communication weights (default: the algorithm's own).", show_default=False),
    ] = None,
    algorithm: Annotated[
        str, typer.Option(help="A name with options, such as swift:communication_set=1.")
    ] = "swift",
    mixing: Annotated[
        str, typer.Option(help="How models are averaged: plain, or as in clipped:tolerate=0.1.")
    ] = "plain",
    restarts: Annotated[int, typer.Option(help="How often a lost client is started again.")] = 3,
    module: Annotated[bool, typer.Option("-m", help="PROGRAM is a module, as after `python -m`.")] = False,
    journal: Annotated[
        Path | None,
        typer.Option(help="A new folder for the record of which models each step used.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="A new folder for `swiftfl watch` and `swiftfl dashboard` to look at.", show_default=False
        ),
    ] = None,
) -> None:
    """Start your own training program several times; its `swiftfl.Optimizer`s average with each other.

    Examples: swiftfl launch -n 4 train.py --lr 0.1

    swiftfl launch -n 8 --topology hypercube --algorithm dsgd train.py
    """
    if clients < 1:
        raise UserError(f"-n must be at least 1, not {clients}")
    if restarts < 0:
        raise UserError(f"--restarts must be at least 0, not {restarts}")
    if not module and not Path(program).is_file():
        raise UserError(f"there is no program {program}: give a Python file (or -m and the name of a module)")
    if journal is not None and journal.exists():
        raise UserError(f"--journal {journal}: it exists already, give a new folder")
    together = _federation(clients, topology, weights, algorithm, mixing)
    command = [sys.executable, *(["-m"] if module else []), program, *(arguments or [])]
    raise typer.Exit(_launch(together, command, restarts, journal, out))


def _federation(clients: int, topology: str, weights: str | None, algorithm: str, mixing: str) -> Federation:
    from swiftfl.loop.federation import federation

    return federation(clients, topology, weights, algorithm, mixing)


def _launch(
    together: Federation, command: list[str], restarts: int, journal: Path | None, out: Path | None
) -> int:
    from swiftfl.loop.launcher import Launcher, LaunchOptions

    options = LaunchOptions(restarts, None if journal is None else journal.absolute(), out)
    launcher = Launcher(together, command, _out, _err, options)
    if journal is not None:
        journal.mkdir(parents=True)
    return launcher.run()


def _out(line: str) -> None:
    print(line, flush=True)


def _err(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
