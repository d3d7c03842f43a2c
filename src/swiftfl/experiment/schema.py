"""What a configuration may hold, for those who write or describe one: every setting with its description.

The description of a setting is the text below it in its section's class.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from swiftfl.experiment.config import Config


@dataclass(frozen=True)
class Setting:
    """One setting, or a section of them (`section` then has its class)."""

    key: str
    description: str
    default: Any
    choices: tuple[str, ...]
    section: type[BaseModel] | None = None


def settings(section: type[BaseModel] = Config, prefix: str = "") -> Iterator[Setting]:
    """All settings and sections, in the order of the classes; a section comes before what it holds."""
    told = descriptions(section)
    for name, field in section.model_fields.items():
        kind = field.annotation
        inner = kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None
        default = None if field.default is PydanticUndefined else field.default
        yield Setting(prefix + name, told[name], default, tuple(words_of(kind)), inner)
        if inner is not None:
            yield from settings(inner, f"{prefix}{name}.")


def descriptions(section: type[BaseModel]) -> dict[str, str]:
    """The texts below the settings of a section, from its source."""
    (described,) = ast.parse(textwrap.dedent(inspect.getsource(section))).body
    assert isinstance(described, ast.ClassDef)
    found = {}
    for statement, following in zip(described.body, described.body[1:], strict=False):
        if not (isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)):
            continue
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            found[statement.target.id] = str(following.value.value)
    return found


def words_of(kind: object) -> Iterator[str]:
    """The words that a setting may be, of whatever its type allows."""
    if get_origin(kind) is Literal:
        yield from get_args(kind)
    elif get_origin(kind) is not dict:
        for part in get_args(kind):
            yield from words_of(part)
