"""Modules of one's own that register algorithms, topologies, metrics and so on."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import sys
from collections.abc import Iterable
from pathlib import Path

from swiftfl.errors import UserError

_log = logging.getLogger(__name__)


def import_modules(names: Iterable[str]) -> None:
    """Import each, once: a module's dotted name, or the path of a .py file.

    Dotted names are looked for in the working directory too, after everything else.
    """
    for name in names:
        try:
            _import_file(Path(name)) if name.endswith(".py") else _import_module(name)
            _log.debug("imported %s", name)
        except UserError:
            raise
        except (Exception, SystemExit) as error:  # whatever the code of a user may raise
            reason = " ".join(str(error).split()) or "no reason given"
            raise UserError(f"cannot import {name}: {type(error).__name__}: {reason}") from error


def recorded_names(names: Iterable[str]) -> list[str]:
    """As a configuration records them: paths in full, so that a run can be resumed from elsewhere."""
    return [str(Path(name).absolute()) if name.endswith(".py") else name for name in names]


def _import_module(name: str) -> None:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    importlib.import_module(name)


def _import_file(path: Path) -> None:
    path = path.absolute()
    before = sys.modules.get(path.stem)
    if before is not None and getattr(before, "__file__", None) == str(path):
        return
    if before is not None:
        raise UserError(
            f"cannot import {path}: there is a module called {path.stem} already; rename the file"
        )
    if not path.is_file():
        raise UserError(f"cannot import {path}: there is no such file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[path.stem]
        raise
