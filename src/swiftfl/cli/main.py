"""`swiftfl`: the commands. Errors are reported on one line of standard error, with exit code 2."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from swiftfl._version import __version__
from swiftfl.cli.compare import compare
from swiftfl.cli.demo import demo
from swiftfl.cli.graph import graph
from swiftfl.cli.names import CommandWithNames, list_names
from swiftfl.cli.replay import replay
from swiftfl.cli.reproduce import reproduce
from swiftfl.cli.run import resume, run
from swiftfl.cli.screen import Interrupted
from swiftfl.cli.transport import check_transport
from swiftfl.errors import UserError
from swiftfl.logs import switch_on_logs
from swiftfl.transports.ranks import rank_here

INTERRUPTED = 130
_FIRST_RANK_TELLS = 5.0

app = typer.Typer(
    name="swiftfl",
    help="Wait-free decentralized federated learning.",
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"swiftfl {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Wait-free decentralized federated learning: no server, no waiting."""


app.command()(demo)
app.command(cls=CommandWithNames)(run)
app.command()(resume)
app.command()(replay)
app.command()(compare)
app.command()(reproduce)
app.command()(graph)
app.command("list")(list_names)
app.command("check-transport")(check_transport)


def main() -> None:
    sys.exit(run_command(sys.argv[1:]))


def run_command(arguments: list[str]) -> int:
    """Run one command; the exit code. Only our own mistakes may end in a traceback."""
    try:
        switch_on_logs()
        code = app(arguments, standalone_mode=False, prog_name="swiftfl")
        if code == INTERRUPTED:
            raise KeyboardInterrupt  # which typer turned into this code
        sys.stdout.flush()  # so that a full disk is noticed here, not when the interpreter ends
        return code if isinstance(code, int) else 0
    except UserError as error:
        return _fail(str(error))
    except (KeyboardInterrupt, Interrupted) as stop:
        _tell(str(stop) or "stopped", first_rank_only=True)
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()  # the reader of a pipe has gone: nothing to say, nobody to say it to
        return 1
    except OSError as error:
        return _fail(f"{error.filename or 'standard output'}: {error.strerror or error}")
    except Exception as error:
        # What typer raises for a wrong command line (its own class of click or the library's).
        describe = getattr(error, "format_message", None)
        if describe is None:
            raise
        return _fail(describe()) if describe() else 2


def _fail(message: str) -> int:
    _tell(" ".join(message.split()))
    return 2


def _tell(message: str, first_rank_only: bool = False) -> None:
    """One line; of many ranks the first one prints it, and then its launcher ends the others."""
    if rank_here():
        time.sleep(_FIRST_RANK_TELLS)
        if first_rank_only:
            return
    print(f"swiftfl: {message}", file=sys.stderr, flush=True)
