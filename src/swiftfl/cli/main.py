"""`swiftfl`: the commands. Errors are reported on one line of standard error, with exit code 2."""

from __future__ import annotations

import re
import sys
import time
from typing import Annotated

import typer

from swiftfl._version import __version__
from swiftfl.algorithms import ALGORITHMS
from swiftfl.cli.author_flags import translate
from swiftfl.cli.compare import compare
from swiftfl.cli.dashboard import dashboard
from swiftfl.cli.demo import demo
from swiftfl.cli.doctor import doctor
from swiftfl.cli.export import export
from swiftfl.cli.federation import app as federation
from swiftfl.cli.federation_nodes import consensus, status
from swiftfl.cli.graph import graph
from swiftfl.cli.init import init
from swiftfl.cli.launch import launch
from swiftfl.cli.names import CommandWithNames, list_names
from swiftfl.cli.node import node
from swiftfl.cli.partition import partition
from swiftfl.cli.replay import replay
from swiftfl.cli.report import report
from swiftfl.cli.reproduce import reproduce
from swiftfl.cli.run import resume, run
from swiftfl.cli.screen import Interrupted
from swiftfl.cli.sweep import sweep
from swiftfl.cli.transport import check_transport
from swiftfl.cli.watch import watch
from swiftfl.errors import UserError
from swiftfl.experiment.source import place_in_users_code
from swiftfl.logs import switch_on_logs
from swiftfl.registry import nearest, options_of
from swiftfl.transports.ranks import rank_here

INTERRUPTED = 130
_FIRST_RANK_TELLS = 5.0

app = typer.Typer(
    name="swiftfl",
    help="Wait-free decentralized federated learning.",
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
app.command()(init)
app.command(cls=CommandWithNames)(run)
app.command(cls=CommandWithNames)(sweep)
app.command()(resume)
app.command()(watch)
app.command()(replay)
app.command()(compare)
app.command()(dashboard)
app.command()(report)
app.command()(reproduce)
app.command(context_settings={"allow_interspersed_args": False})(launch)
app.command()(export)
app.command()(node)
app.add_typer(federation)
federation.command()(status)
federation.command()(consensus)
app.command(cls=CommandWithNames)(partition)
app.command()(graph)
app.command()(doctor)
app.command("list")(list_names)
app.command("check-transport")(check_transport)


def main() -> None:
    sys.exit(run_command(sys.argv[1:]))


def run_command(arguments: list[str]) -> int:
    """Run one command; the exit code. Only our own mistakes may end in a traceback."""
    try:
        switch_on_logs()
        if arguments[:1] == ["run"]:
            arguments = translate(arguments)
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
        if _is_interrupt(error):
            _tell("stopped", first_rank_only=True)
            return INTERRUPTED
        # What typer raises for a wrong command line (its own class of click or the library's).
        describe = getattr(error, "format_message", None)
        if describe is None:
            theirs = place_in_users_code(error)
            if theirs is None:
                raise
            return _fail(theirs)
        if not describe():
            return 2
        return _fail(_by_name(error, arguments) or _with_value(describe(), error, arguments))


def _is_interrupt(error: BaseException) -> bool:
    """Whether a signal is behind it: while classes are made, as in an import, Python wraps what it raises."""
    cause = error.__cause__
    return cause is not None and (isinstance(cause, KeyboardInterrupt) or _is_interrupt(cause))


def _by_name(error: Exception, arguments: list[str]) -> str | None:
    """Of an option that there is not: that an algorithm has a setting of this name, if one has."""
    option = str(getattr(error, "option_name", ""))
    key = option.removeprefix("--").replace("-", "_")
    having = [name for name, entry in ALGORITHMS.items() if key in options_of(entry.make)]
    if not having or arguments[:1] not in (["run"], ["sweep"]):
        return None
    return f"No such option: {option}; a setting of {', '.join(having)}: --set algorithm.{key}=..."


_KINDS = {"valid integer": "a whole number", "valid number": "a number"}
"""What typer says of a value that cannot be read, and how we say it."""
_BOUND = re.compile(r"(greater|less) than or equal to (\S+)")
_CHOICES = re.compile(r"is not one of (.+?)\.?$")


def _with_value(message: str, error: Exception, arguments: list[str]) -> str:
    """A message about an option's value names the value, which typer's own does not."""
    kind, names = _must_be(message), getattr(getattr(error, "param", None), "opts", ())
    for word, following in zip(arguments, [*arguments[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        if kind is not None and name in names:
            given = value if equals else following
            near = nearest(given, re.findall(r"'([^']+)'", kind))
            return f"{name} must be {kind}, not {given!r}{f': did you mean {near}?' if near else ''}"
    return message


def _must_be(message: str) -> str | None:
    """What a value must be, from what typer says of it."""
    if bound := _BOUND.search(message):
        return f"{'at least' if bound[1] == 'greater' else 'at most'} {bound[2]}"
    if choices := _CHOICES.search(message):
        return f"one of {choices[1]}"
    return next((ours for theirs, ours in _KINDS.items() if theirs in message), None)


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
