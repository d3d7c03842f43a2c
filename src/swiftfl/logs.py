"""What the loggers of swiftfl say, on standard error, for developers who ask for it.

Every module has a logger of its own name. The environment variable SWIFTFL_LOG switches them on: a level
for all of them, or one for a module or package, or several of these, the more exact one counting.

    SWIFTFL_LOG=info
    SWIFTFL_LOG=swiftfl.engines.live=debug,swiftfl.record=info

Client processes inherit it, and so do workers and MPI ranks, which start with the same environment.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from swiftfl.errors import UserError

VARIABLE = "SWIFTFL_LOG"
LEVELS = ("debug", "info", "warning", "error")
_PACKAGE = "swiftfl"
_FORMAT = "%(asctime)s.%(msecs)03d %(process)d %(levelname)s %(name)s: %(message)s"
_handler: logging.Handler | None = None


def switch_on_logs(environment: Mapping[str, str] = os.environ) -> None:
    """Do what SWIFTFL_LOG says; without it, nothing. A value that says nothing is refused."""
    global _handler
    setting = environment.get(VARIABLE, "").strip()
    if not setting:
        return
    levels = dict(_levels(setting))
    top = logging.getLogger(_PACKAGE)
    if _handler is not None:
        top.removeHandler(_handler)
    _handler = logging.StreamHandler()  # to standard error as it is now
    _handler.setFormatter(logging.Formatter(_FORMAT, "%H:%M:%S"))
    top.addHandler(_handler)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level.upper())


def _levels(setting: str) -> Iterator[tuple[str, str]]:
    """
    >>> dict(_levels("info, swiftfl.engines=debug"))
    {'swiftfl': 'info', 'swiftfl.engines': 'debug'}
    """
    for part in setting.split(","):
        name, found, level = (word.strip() for word in part.rpartition("="))
        name, level = name if found else _PACKAGE, level.lower()
        if level not in LEVELS:
            raise UserError(
                f"{VARIABLE}={setting}: {level!r} is no level: give {', '.join(LEVELS)}, for all modules "
                f"or as in {_PACKAGE}.engines=debug"
            )
        if not _exists(name):
            raise UserError(f"{VARIABLE}={setting}: there is no module or package {name!r}")
        yield name, level


def _exists(name: str) -> bool:
    """Whether the package has such a module; nothing is imported to find out."""
    first, *inner = name.split(".")
    place = Path(__file__).parent.joinpath(*inner)
    return first == _PACKAGE and (place.is_dir() or place.with_suffix(".py").is_file())
