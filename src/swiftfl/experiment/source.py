"""Code of the user's own by reference: "mine.py:experiment" (a file) or "package.module:name" (a module).

A file is loaded once, with its own folder at the front of the search path, as `python mine.py` has it, under
a module name that clashes with no other. Its digest, and those of the files beside it that it imports, tell
later whether it is still the same code.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import logging
import os
import re
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from swiftfl.errors import UserError, in_one_line
from swiftfl.registry import GIVEN, suggestion, was_given

_DOTTED = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"
_REFERENCE = re.compile(rf"(?P<where>.+\.py|{_DOTTED}):(?P<name>{_DOTTED})")
_SHOWN_DIGITS = 8
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Reference:
    """`name`, which may have dots, in `where`: a file's absolute path or a module's dotted name.

    `said` is what the user wrote for `where`.
    """

    where: str
    name: str
    said: str = field(default="", compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.where}:{self.name}"

    @property
    def short(self) -> str:
        """For tables and titles: a file without its folder."""
        return f"{Path(self.where).name if _is_file(self.where) else self.where}:{self.name}"


@dataclass(frozen=True)
class Loaded:
    """A module of the user's own, as it was `said` first.

    `digests` are those of its file and of the files beside it that it uses.
    """

    where: str
    said: str
    module: ModuleType
    digests: dict[str, str]

    @property
    def unchanged(self) -> bool:
        return all(digest_of(Path(file)) == digest for file, digest in self.digests.items())


_LOADED: dict[str, Loaded] = {}


def reference(text: str, folder: Path | None = None) -> Reference | None:
    """What a text refers to, or None if it is no reference.

    A file's path is relative to `folder`, the folder of whoever says it (by default the working directory).

    >>> reference("mine.py:Net", Path("/home/me"))
    Reference(where='/home/me/mine.py', name='Net')
    >>> reference("swiftfl.vector:mix")
    Reference(where='swiftfl.vector', name='mix')
    >>> reference("dirichlet:0.3") is reference("digits") is None
    True
    """
    found = _REFERENCE.fullmatch(text)
    if was_given(text):
        return None
    if found is None:
        if text.endswith(".py"):
            raise UserError(f"{text} is a file: say what of it is meant, as in {text}:NAME")
        return None
    where = found["where"]
    return Reference(full_path(where, folder), found["name"], where)


def full_name(text: str, folder: Path | None = None) -> str:
    """A reference with the path of its file in full, so that it means the same everywhere; others stay."""
    found = reference(text, folder)
    return text if found is None else str(found)


def full_path(where: str, folder: Path | None = None) -> str:
    """A file's path in full; the name of a module stays."""
    return str(_absolute(where, folder)) if _is_file(where) else where


def short_name(text: str) -> str:
    """A name of a configuration as tables and titles show it, without where the user's own code stands.

    >>> short_name("/home/me/mine.py:Net"), short_name("given:Net"), short_name("swift")
    ('Net', 'Net', 'swift')
    """
    found = reference(text) if ":" in text else None
    return text.removeprefix(GIVEN) if found is None else found.name


def load(said: Reference) -> object:
    """The object that is referred to."""
    module = load_module(said.where, said.said).module
    found: object = module
    for depth, part in enumerate(said.name.split(".")):
        if not hasattr(found, part):
            inside = ".".join(said.name.split(".")[:depth])
            names = _public(found, module.__name__)
            near = suggestion(part, names) if names else "it defines nothing"
            raise UserError(f"{said.where}{f':{inside}' if inside else ''} has no {part!r}: {near}")
        found = getattr(found, part)
    return found


def load_module(where: str, said: str = "") -> Loaded:
    """The module of a file or a dotted name; one that is loaded already is not loaded again."""
    said = said or where
    where = full_path(where)
    if where not in _LOADED:
        module = _load_file(Path(where)) if _is_file(where) else _load_dotted(where)
        _LOADED[where] = Loaded(where, said, module, {f: digest_of(Path(f)) for f in _files(module)})
        _log.debug("loaded %s", where)
    return _LOADED[where]


def refresh(where: str, said: str = "") -> Loaded:
    """The module as its files are now: it is loaded again if one has changed since."""
    before = load_module(where, said)
    if before.unchanged:
        return before
    _log.info("%s has changed and is loaded again", where)
    for name, module in list(sys.modules.items()):
        if getattr(module, "__file__", None) in before.digests:
            del sys.modules[name]
    del _LOADED[before.where]
    return load_module(before.where, before.said)


def digest_of(file: Path) -> str:
    """The SHA-256 of a file's bytes, or "missing"."""
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return "missing"


def short_digest(digest: str) -> str:
    return digest[:_SHOWN_DIGITS]


# --- loading ---------------------------------------------------------------------------------------


def _is_file(where: str) -> bool:
    return where.endswith(".py")


def _absolute(where: str, folder: Path | None = None) -> Path:
    path = (folder or Path.cwd()) / Path(where).expanduser()
    return path.absolute() if ".." not in path.parts else path.resolve()


def _load_dotted(name: str) -> ModuleType:
    """Looked for in the working directory too, after everything else."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    with one_line(f"cannot import {name}"):
        return importlib.import_module(name)


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UserError(f"there is no file {path}")
    name = f"{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:_SHOWN_DIGITS]}"
    module = ModuleType(name)
    module.__file__ = str(path)
    with one_line(f"cannot import {path}", path):
        code = compile(_bytes(path), str(path), "exec")
        sys.modules[name] = module  # where dataclasses and their like look it up
        try:
            with folder_first(path.parent):
                exec(code, module.__dict__)
        except BaseException:
            del sys.modules[name]
            raise
    return module


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None


@contextlib.contextmanager
def folder_first(folder: Path) -> Iterator[None]:
    """The folder is searched first for modules, as Python does for a program's own folder.

    Modules of the same names that were found beside another file are not taken for those of this folder.
    """
    others = {str(Path(where).parent) for where in _LOADED if _is_file(where)} - {str(folder)}
    for name, module in list(sys.modules.items()) if others else ():
        if _found_in(module, name) in others and _has_module(folder, name):
            del sys.modules[name]
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(str(folder))


def _has_module(folder: Path, name: str) -> bool:
    base = folder.joinpath(*name.split("."))
    return base.with_suffix(".py").is_file() or (base / "__init__.py").is_file()


def _found_in(module: object, name: str) -> str | None:
    """The folder in which a module was found by its name; none if it was found under another name."""
    file, base = getattr(module, "__file__", None), name.replace(".", os.sep)
    for end in (f"{os.sep}{base}.py", f"{os.sep}{base}{os.sep}__init__.py"):
        if isinstance(file, str) and file.endswith(end):
            return file.removesuffix(end) or os.sep
    return None


def _files(module: ModuleType) -> list[str]:
    """Its own file, and of those beside it the ones whose modules, functions or classes it uses."""
    file = module.__file__
    if file is None:  # a package without a file
        return []
    folder, seen, left = str(Path(file).parent), {module.__name__: file}, [module]
    while left:
        for value in list(vars(left.pop()).values()):
            name = str(value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", ""))
            other = sys.modules.get(name)
            if other is not None and name not in seen and _found_in(other, name) == folder:
                seen[name] = str(other.__file__)
                left.append(other)
    return list(seen.values())


def _public(owner: object, module: str) -> list[str]:
    """The names that are defined in a module, or in a class of it."""
    return [
        name
        for name, value in vars(owner).items()
        if not name.startswith("_") and getattr(value, "__module__", module) == module
        if not isinstance(value, ModuleType)
    ]


# --- what the user's code raises -------------------------------------------------------------------


def place_in_users_code(error: BaseException) -> str | None:
    """What code of the user's own raised, with its file and line; None if none of it was under way."""
    for loaded in _LOADED.values():
        file = None if loaded.module.__file__ is None else Path(loaded.module.__file__)
        if file is not None and (where := _place(error, file)) is not None:
            return f"{file.name}, {where}: {in_one_line(error)}"
    return None


@contextlib.contextmanager
def one_line(what: str, file: Path | None = None) -> Iterator[None]:
    """Report what code of the user's own raises on one line, with the line number in its own file."""
    try:
        yield
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        raise UserError(f"{what}: {_explained(error, file)}") from error


def _explained(error: BaseException, file: Path | None) -> str:
    reason = " ".join(str(error.msg if isinstance(error, SyntaxError) else error).split())
    text = f"{type(error).__name__}: {reason}" if reason else type(error).__name__
    where = _place(error, file)
    return text if where is None else f"{where}: {text}"


def _place(error: BaseException, file: Path | None) -> str | None:
    """The line of the user's own code that raised it, or that called what did."""
    lines = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename:
        lines.append((error.filename, error.lineno))
    own = [(name, line) for name, line in lines if _is_users(name, file)]
    if not own:
        return None
    name, line = own[-1]
    return f"line {line}" if file is not None and name == str(file) else f"{Path(name).name}, line {line}"


def _is_users(name: str, file: Path | None) -> bool:
    if file is None:
        return not name.startswith("<") and name not in (__file__, importlib.__file__)
    installed = "site-packages" in name or "dist-packages" in name
    ours = Path(name).is_relative_to(Path(__file__).parents[1])
    return Path(name).is_relative_to(file.parent) and not installed and not ours
