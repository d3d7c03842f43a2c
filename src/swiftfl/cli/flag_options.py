"""The options of the table in `cli/flags.py` as those of a command, with completion of names."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Annotated

import typer

from swiftfl.cli.flags import FLAGS, Flag
from swiftfl.cli.names import kinds


def with_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command that takes **flags the options of the table."""
    signature = inspect.signature(command, eval_str=True)
    own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    taken = {p.name for p in own}  # an option of the command's own may have such a name
    added = [_parameter(flag) for flag in FLAGS if flag.parameter not in taken]
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in [*own, *added]]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def _parameter(flag: Flag) -> inspect.Parameter:
    if flag.type is bool:
        option = typer.Option(flag.name, help=flag.help, rich_help_panel=flag.panel)
        annotation, default = Annotated[bool, option], False
    else:
        option = typer.Option(
            help=flag.help, rich_help_panel=flag.panel, show_default=False, autocompletion=_completion(flag)
        )
        annotation, default = Annotated[flag.type | None, option], None  # type: ignore[operator]
    return inspect.Parameter(
        flag.parameter, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def _completion(flag: Flag) -> Callable[[str], list[str]] | None:
    """What the shell offers for an option whose help lists names."""
    kind = re.search(r"\{(\w+)\}", flag.help)
    if kind is None:
        return None

    def names(incomplete: str) -> list[str]:
        return [name for name in kinds()[kind[1]].entries if name.startswith(incomplete)]

    return names
