"""`swiftfl init`: a configuration to start from, with a comment on every setting from the schema itself."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from swiftfl.cli.flags import FLAGS
from swiftfl.errors import UserError

if TYPE_CHECKING:
    from swiftfl.experiment.schema import Setting

DEFAULT_FILE = Path("swiftfl.yaml")
_WIDTH = 76
_WORD = re.compile(r'"(?!true|false|null)[a-z]\w*"')
"""Text that needs no quotes in YAML."""
_SHOWN = (
    "data.dataset", "data.partition", "data.batch_size",
    "model.name", "model.device",
    "topology.name", "topology.clients",
    "algorithm.name", "algorithm.rule", "algorithm.step_size.initial", "algorithm.step_size.schedule",
    "engine.name", "engine.epochs",
    "evaluation.every_epochs", "evaluation.metrics",
    "seed",
)  # fmt: skip
"""Settings of the starter, besides the options of its algorithm and rule."""
_KINDS = {
    "data.dataset": "datasets", "data.partition": "partitions", "model.name": "models",
    "topology.name": "topologies", "algorithm.name": "algorithms", "algorithm.rule": "rules",
    "algorithm.step_size.schedule": "schedules", "evaluation.metrics": "metrics",
}  # fmt: skip
"""Of settings that are names: what `swiftfl list` calls them."""


def init(
    file: Annotated[Path, typer.Argument(help="The file to write: .yaml or .toml.")] = DEFAULT_FILE,
) -> None:
    """Write a commented configuration to start from; it runs as it is.

    swiftfl init

    swiftfl init mine.toml && swiftfl run mine.toml
    """
    from swiftfl.files import checked_target, write_atomically

    styles: dict[str, type[_Yaml | _Toml]] = {".yaml": _Yaml, ".yml": _Yaml, ".toml": _Toml}
    if file.suffix not in styles:
        raise UserError(f"{file} must end in .yaml or .toml: a configuration with comments is written")
    checked_target(file)
    if file.exists():
        raise UserError(f"{file} is there already: give another name, or remove it")
    write_atomically(file, starter(styles[file.suffix](), file))
    print(f"Written: {file}. To run it: swiftfl run {file}")


class _Yaml:
    """How a starter looks in YAML."""

    def section(self, key: str) -> str:
        return f"{self.indent(key)}{key.rpartition('.')[2]}:"

    def setting(self, key: str, value: str) -> str:
        plain = value[1:-1] if _WORD.fullmatch(value) else value
        return f"{self.indent(key)}{key.rpartition('.')[2]}: {plain}"

    def indent(self, key: str) -> str:
        return "  " * key.count(".")


class _Toml:
    """How a starter looks in TOML."""

    def section(self, key: str) -> str:
        return f"[{key}]"

    def setting(self, key: str, value: str) -> str:
        return f"{key.rpartition('.')[2]} = {value}"

    def indent(self, key: str) -> str:
        return ""


def starter(style: _Yaml | _Toml, file: Path) -> str:
    """The text of a starter."""
    from swiftfl.experiment.config import Config
    from swiftfl.experiment.schema import settings

    tree = Config().model_dump(mode="json")
    lines = [
        f"# A configuration of swiftfl. To run it: swiftfl run {file.name}",
        f"# All settings with their values: swiftfl run {file.name} --dry-run",
        "# What can be chosen by name, with options: swiftfl list",
    ]
    described = list(settings())
    # Tables of TOML end only where the next begins: settings outside of all come first.
    described.sort(key=lambda one: isinstance(style, _Toml) and ("." in one.key or one.section is not None))
    for one in described:
        if one.section is not None and any(key.startswith(f"{one.key}.") for key in _SHOWN):
            lines += ["", *_comment(one.description, style.indent(one.key)), style.section(one.key)]
        elif one.key in _SHOWN:
            lines += [] if "." in one.key else [""]
            lines += _comment(_described(one), style.indent(one.key))
            lines.append(style.setting(one.key, _value(tree, one.key)))
        if one.key == "algorithm.rule":
            lines += _options(tree, style)
    return "\n".join(lines) + "\n"


def _options(tree: Mapping[str, Any], style: _Yaml | _Toml) -> Iterator[str]:
    """The options of the starter's algorithm and of its update rule."""
    from swiftfl.algorithms import ALGORITHMS
    from swiftfl.experiment.schema import words_of
    from swiftfl.registry import options_of
    from swiftfl.rules import RULES

    helps = {flag.key: flag.help for flag in FLAGS}
    name, rule = tree["algorithm"]["name"], tree["algorithm"]["rule"]
    makers = ((name, ALGORITHMS[name].make), (f"rule {rule}", RULES[rule]))
    for owner, make in makers:
        for option in options_of(make).values():
            key = f"algorithm.{option.name}"
            words = ", ".join(words_of(option.type))
            told = helps.get(key) or f"Of {owner}{f': {words}' if words else ''}."
            yield from _comment(f"{told} Default: {json.dumps(option.default)}.", style.indent(key))
            yield style.setting(key, _value(tree, key))


def _described(one: Setting) -> str:
    """The description with what can be chosen and the default."""
    from swiftfl.cli.names import kinds

    choices = one.choices or (kinds()[_KINDS[one.key]].forms if one.key in _KINDS else ())
    word = "Any" if one.key == "evaluation.metrics" else "One"
    text = f"{one.description} {word} of {', '.join(choices)}." if choices else one.description
    return text if one.default is None else f"{text} Default: {json.dumps(one.default)}."


def _comment(text: str, indent: str) -> list[str]:
    start = f"{indent}# "
    return textwrap.wrap(text, _WIDTH, initial_indent=start, subsequent_indent=start)


def _value(tree: Mapping[str, Any], key: str) -> str:
    """A value as YAML and TOML both write it: as JSON does."""
    value: Any = tree
    for part in key.split("."):
        value = value[part]
    return json.dumps(value)
