"""Settings that users give: checked by type, with errors that name the setting and what it must be."""

from __future__ import annotations

import json
import re
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge, Gt, Le, Lt
from pydantic import Field, TypeAdapter, ValidationError

from swiftfl.errors import UserError
from swiftfl.registry import Option, nearest

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

NotNegative = Annotated[int, Ge(0)]
Count = Annotated[int, Ge(1)]
Share = Annotated[float, Gt(0), Le(1)]
"""Above 0, at most 1."""
NotBelowZero = Annotated[float, Ge(0), Field(allow_inf_nan=False)]
Positive = Annotated[float, Gt(0), Field(allow_inf_nan=False)]
Rate = Annotated[float, Gt(0), Le(1000), Field(allow_inf_nan=False)]
"""Events per step of a client. Each takes time and memory: a slip of the hand must not ask for 1e9."""
Pieces = Annotated[int, Ge(1), Le(10_000)]
"""Into how many a model is cut: with more of them a step is nothing but sending."""
BelowOne = Annotated[float, Ge(0), Lt(1)]
"""From 0 to below 1."""

_MUST_BE = {
    "greater_than_equal": "at least {ge:g}",
    "greater_than": "above {gt:g}",
    "less_than_equal": "at most {le:g}",
    "less_than": "below {lt:g}",
    "finite_number": "a finite number",
    "literal_error": "one of {expected}",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number of a sensible size",
    "int_type": "a whole number",
    "float_parsing": "a number",
    "float_type": "a number",
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "string_type": "text",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "an object of settings",
    "model_type": "an object of settings",
    "model_attributes_type": "an object of settings",
}


class SettingError(UserError):
    """A setting that cannot be. `key` is its dotted name; what the user typed may take its place."""

    def __init__(self, key: str, said: str) -> None:
        super().__init__(f"{key}{'' if said.startswith(':') else ' '}{said}")
        self.key, self.said = key, said

    def renamed(self, name: str) -> SettingError:
        return SettingError(name, self.said)


class AboutSettingError(UserError):
    """An error that says by itself what is wrong; `key` is the setting that it is about."""

    def __init__(self, key: str, said: str) -> None:
        super().__init__(said)
        self.key = key


class UnknownSettingError(SettingError):
    """A key that means nothing: `near` is the known one that was probably meant, `known` lists them all."""

    def __init__(self, key: str, near: str | None, known: str) -> None:
        hint = f": did you mean {near}?" if near else ""
        super().__init__(key, f": there is no such setting{hint}{known}")
        self.near, self.known = near, known

    def renamed(self, name: str) -> SettingError:
        return UnknownSettingError(name, self.near, self.known)


def no_such_setting(key: str, known: Iterable[str], owner: str) -> UnknownSettingError:
    """The error for a key that means nothing; `owner` has the known ones."""
    names = list(known)
    return UnknownSettingError(
        key,
        nearest(key.rpartition(".")[2], names),
        f" ({owner} has {', '.join(names) if names else 'no settings'})",
    )


def requirement(error: ErrorDetails) -> str:
    """What a value must be, from pydantic's description of what is wrong."""
    given, context = error["input"], error.get("ctx", {})
    if error["type"] == "missing":
        return "is missing"
    if error["type"] in _MUST_BE:
        near = _nearest_choice(given, context.get("expected"))
        return f"must be {_MUST_BE[error['type']].format(**context)}, not {shown(given)}{near}"
    message = error["msg"].removeprefix("Value error, ")
    return f": {message} (given: {shown(given)})" if not isinstance(given, dict) else f": {message}"


def _nearest_choice(given: object, expected: object) -> str:
    """A question for a word that is nearly one of the choices, which pydantic lists in quotes."""
    choices = re.findall(r"'([^']+)'", expected) if isinstance(expected, str) else []
    near = nearest(given, choices) if isinstance(given, str) else None
    return f": did you mean {near}?" if near else ""


def shown(value: object) -> str:
    """A value as users write it, shortened."""
    try:
        text = json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        text = type(value).__name__
    return text if len(text) <= 60 else f"{text[:57]}..."


def checked_options(
    owner: str,
    options: Mapping[str, Option],
    given: Mapping[str, object],
    section: str = "",
    elsewhere: Callable[[str], list[str]] = lambda name: [],
) -> dict[str, Any]:
    """Every option's value: what is given, checked by the option's type, or its default.

    `section` comes before names in errors; `elsewhere` tells which others have an option that this owner
    does not have.

    >>> def ring(n: int, *, hops: int = 1) -> None: ...
    >>> from swiftfl.registry import options_of
    >>> checked_options("ring", options_of(ring), {"hops": "2"})
    {'hops': 2}
    >>> checked_options("ring", options_of(ring), {"hop": 2})
    Traceback (most recent call last):
    swiftfl.settings.UnknownSettingError: hop: there is no such setting: did you mean hops? (ring has hops)
    """
    for name in given:
        if name not in options and (others := elsewhere(name)):
            raise SettingError(section + name, f"is for {', '.join(others)}, not {owner}")
        if name not in options:
            raise no_such_setting(section + name, options, owner)
    values = {}
    for name, option in options.items():
        if name in given:
            values[name] = _checked(section + name, option, given[name])
        elif option.required:
            raise SettingError(section + name, f"is missing: {owner} needs it")
        else:
            values[name] = option.default
    return values


def is_truth_for_number(annotation: object, value: object) -> bool:
    """Whether true or false stands where a number is meant; pydantic would take it for 1 or 0.

    >>> is_truth_for_number(Count | None, True), is_truth_for_number(bool, True)
    (True, False)
    """
    if not isinstance(value, bool):
        return False
    parts = [annotation, *typing.get_args(annotation)]
    kinds = [*parts, *(inner for part in parts for inner in typing.get_args(part)[:1])]
    return bool not in kinds and (int in kinds or float in kinds)


def _checked(key: str, option: Option, value: object) -> Any:
    if is_truth_for_number(option.type, value):
        raise SettingError(key, f"must be a number, not {shown(value)}")
    try:
        return TypeAdapter(option.type).validate_python(value)
    except ValidationError as error:
        raise SettingError(key, requirement(error.errors()[0])) from None


def name_and_options(text: str) -> tuple[str, dict[str, str]]:
    """What a command line has as `name` or `name:option=value,option=value`.

    >>> name_and_options("random_regular:degree=4")
    ('random_regular', {'degree': '4'})
    """
    name, _, rest = text.partition(":")
    options = {}
    for item in filter(None, rest.split(",")):
        option, equals, value = item.partition("=")
        if not equals:
            raise UserError(f"{text}: options are written name:option=value,option=value")
        options[option] = value
    return name, options
