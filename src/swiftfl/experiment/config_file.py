"""Configuration files: YAML, TOML or JSON, by the ending of their name, read into plain values.

Only plain values: no tags, no aliases, no key twice. Whatever is wrong is reported with the file and, if it
can be told, the line. YAML is read as version 1.2 has it: `off` and `3:4` are text, `1e-4` is a number.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from swiftfl.errors import UserError
from swiftfl.files import MOST_BYTES, not_too_deep, read_text_file
from swiftfl.registry import UnknownNameError
from swiftfl.settings import AboutSettingError, SettingError, UnknownSettingError

if sys.version_info >= (3, 11):
    import tomllib
else:  # the same library, for Python 3.10
    import tomli as tomllib

Tree = dict[str, Any]
Lines = Mapping[str, int]
"""From a dotted key to the line of the file that it stands in, counted from 1."""
SUFFIXES = (".yaml", ".yml", ".toml", ".json")
_MOST_BYTES = 1 << 20
"""Of YAML and TOML, whose readers are slow; JSON, which run folders hold, may be as large as any input."""


@dataclass(frozen=True)
class ConfigFile:
    """What a file says, and where in it."""

    path: Path
    tree: Tree
    find_lines: Callable[[], Lines]

    def placed(self, error: UserError) -> UserError:
        """The error with the file, and the line of the key that it is about or of the next one above."""
        text = str(error)
        if isinstance(error, UnknownSettingError):
            text = f"unknown key {error.key}{f'; did you mean {error.near}?' if error.near else error.known}"
        line = self._line(error)
        return UserError(f"{self.path}{f':{line}' if line else ''}: {text}")

    def _line(self, error: UserError) -> int | None:
        key = error.key if isinstance(error, SettingError | AboutSettingError) else None
        if isinstance(error, UnknownNameError):
            key = next((key for key, value in _leaves(self.tree) if value == error.name), None)
        lines = self.find_lines() if key else {}
        while key and key not in lines:
            key = key.rpartition(".")[0]
        return lines[key] if key else None


def read_config_file(path: Path) -> ConfigFile:
    """The settings of a file: YAML or TOML if its name says so, otherwise JSON."""
    name, read, most = _FORMATS.get(path.suffix, _FORMATS[".json"])
    text = read_text_file(path, most)
    with not_too_deep(path, name):
        found = read(path, text)
    if not isinstance(found.tree, dict):
        raise UserError(f"{path} must hold settings, such as `seed: 1`, not only a value or a list")
    return found


def yaml_text(tree: Mapping[str, Any]) -> str:
    """A tree of plain values as YAML, which `read_config_file` reads back to the same values."""
    return yaml.dump(dict(tree), Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=100)


# --- YAML -----------------------------------------------------------------------------------------


class _RefusedError(yaml.MarkedYAMLError):
    """Correct YAML that is not allowed here."""

    def __init__(self, why: str, node: yaml.Node | yaml.Event) -> None:
        super().__init__(problem=why, problem_mark=node.start_mark)  # type: ignore[arg-type]


class _Loader(yaml.SafeLoader):
    """Nodes of the safe loader, with the plain values of YAML 1.2 and without aliases."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 (as the library has it)

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise _RefusedError("aliases are not allowed: write the value itself", self.peek_event())  # type: ignore[no-untyped-call]
        return super().compose_node(parent, index)


class _Dumper(yaml.SafeDumper):
    """Quotes what the loader above would take for another type, and nothing else."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012

    def ignore_aliases(self, data: Any) -> bool:
        return True


_PLAIN: dict[str, tuple[str, str, Callable[[str], Any]]] = {
    "tag:yaml.org,2002:null": (r"|~|null|Null|NULL", "~nN", lambda text: None),
    "tag:yaml.org,2002:bool": (
        r"true|True|TRUE|false|False|FALSE",
        "tTfF",
        lambda text: text.lower() == "true",
    ),
    "tag:yaml.org,2002:int": (r"[-+]?[0-9]+", "-+0123456789", int),
    "tag:yaml.org,2002:float": (
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+0123456789.",
        lambda text: float(text.replace(".inf", "inf").replace(".nan", "nan")),
    ),
}
"""The core schema: which text is which type, its first characters, and what it means."""
for _tag, (_pattern, _first, _) in _PLAIN.items():
    for _one in (_Loader, _Dumper):
        _one.add_implicit_resolver(
            _tag, re.compile(rf"(?:{_pattern})\Z"), [*_first, *([""] * ("null" in _tag))]
        )


def _read_yaml(path: Path, text: str) -> ConfigFile:
    lines: dict[str, int] = {}
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
        finally:
            loader.dispose()
        tree = {} if node is None else _plain_value(node, "", lines)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        said = ", ".join(filter(None, (error.context, error.problem)))
        said = said if isinstance(error, _RefusedError) else f"not YAML that can be read: {said}"
        raise UserError(f"{path}{line}: {said}") from None
    except yaml.YAMLError as error:
        raise UserError(f"{path}: not YAML that can be read: {' '.join(str(error).split())}") from None
    return ConfigFile(path, tree, lambda: lines)


def _plain_value(node: yaml.Node, key: str, lines: dict[str, int]) -> Any:
    """The value of a node; the lines of all keys inside are noted."""
    if isinstance(node, yaml.MappingNode) and node.tag == "tag:yaml.org,2002:map":
        found: Tree = {}
        for name_node, value in node.value:
            name = name_node.value
            if not isinstance(name, str):
                raise _RefusedError("a key must be a word", name_node)
            inner = f"{key}.{name}" if key else name
            if name in found:
                raise _RefusedError(f"{inner} is given twice, first in line {lines[inner]}", name_node)
            lines[inner] = name_node.start_mark.line + 1
            found[name] = _plain_value(value, inner, lines)
        return found
    if isinstance(node, yaml.SequenceNode) and node.tag == "tag:yaml.org,2002:seq":
        for number, value in enumerate(node.value):
            lines[f"{key}.{number}"] = value.start_mark.line + 1
        return [_plain_value(value, f"{key}.{number}", lines) for number, value in enumerate(node.value)]
    if isinstance(node, yaml.ScalarNode):
        if node.tag == "tag:yaml.org,2002:str":
            return node.value
        if node.tag in _PLAIN:
            try:
                return _PLAIN[node.tag][2](node.value.lower())
            except ValueError:
                raise _RefusedError(f"{node.value[:40]!r} is not a number that can be read", node) from None
    raise _RefusedError(f"tags such as {node.tag.replace('tag:yaml.org,2002:', '!!')} are not allowed", node)


# --- TOML -----------------------------------------------------------------------------------------


def _read_toml(path: Path, text: str) -> ConfigFile:
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        said = re.fullmatch(r"(.*) \(at line (\d+), column \d+\)", str(error))
        place, reason = (f":{said[2]}", said[1]) if said else ("", str(error))
        raise UserError(f"{path}{place}: not TOML that can be read: {reason}") from None
    return ConfigFile(path, tree, lambda: _toml_lines(text))


_TOML_TABLE = re.compile(r"\s*(\[\[?)\s*([\w.\"' -]+?)\s*\]")
_TOML_KEY = re.compile(r"\s*([\w.\"'-]+)\s*=")


def _toml_lines(text: str) -> Lines:
    """The lines of tables and keys; of what stands inside a value, the line of its key is near enough."""
    lines: dict[str, int] = {}
    section, arrays = "", dict[str, int]()
    for number, line in enumerate(text.splitlines(), start=1):
        if table := _TOML_TABLE.match(line):
            section = re.sub(r"[\"'\s]", "", table[2])
            if table[1] == "[[":
                arrays[section] = arrays.get(section, -1) + 1
                section = f"{section}.{arrays[section]}"
            lines.setdefault(section, number)
        elif key := _TOML_KEY.match(line):
            name = re.sub(r"[\"']", "", key[1])
            lines.setdefault(f"{section}.{name}" if section else name, number)
    return lines


# --- JSON -----------------------------------------------------------------------------------------


def _read_json(path: Path, text: str) -> ConfigFile:
    try:
        tree = json.loads(text, object_pairs_hook=_each_once)
    except json.JSONDecodeError as error:
        reason = f"{error.msg} (column {error.colno})"
        raise UserError(f"{path}:{error.lineno}: not JSON that can be read: {reason}") from None
    except ValueError as error:
        raise UserError(f"{path}: not JSON that can be read: {error}") from None
    return ConfigFile(path, tree, lambda: _json_lines(path, text))


def _each_once(pairs: list[tuple[str, Any]]) -> Tree:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice} is given twice")
    return found


def _json_lines(path: Path, text: str) -> Lines:
    """JSON is YAML; a file that the reader of YAML finds too large, or refuses, is without lines."""
    if len(text) > _MOST_BYTES:
        return {}
    try:
        return _read_yaml(path, text).find_lines()
    except (UserError, RecursionError):
        return {}


_FORMATS: dict[str, tuple[str, Callable[[Path, str], ConfigFile], int]] = {
    ".yaml": ("YAML", _read_yaml, _MOST_BYTES),
    ".yml": ("YAML", _read_yaml, _MOST_BYTES),
    ".toml": ("TOML", _read_toml, _MOST_BYTES),
    ".json": ("JSON", _read_json, MOST_BYTES),
}


def _leaves(tree: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """All values that hold no others, by dotted key."""
    if isinstance(tree, Mapping):
        items = [(str(name), value) for name, value in tree.items()]
    elif isinstance(tree, list):
        items = [(str(number), value) for number, value in enumerate(tree)]
    else:
        yield key, tree
        return
    for name, value in items:
        yield from _leaves(value, f"{key}.{name}" if key else name)
