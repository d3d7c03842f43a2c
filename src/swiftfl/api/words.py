"""Values that users gave, checked and in few words."""

from __future__ import annotations

import numpy as np

from swiftfl.errors import UserError


def whole(argument: str, value: object) -> int:
    """A whole number, or an error that names the argument."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise UserError(f"{argument} must be a whole number, not {shown(value)}")
    return int(value)


def name_of(value: object) -> str:
    """The name of a function or class, or of an object's class; text is its own name."""
    if isinstance(value, str):
        return value
    return str(getattr(value, "__name__", None) or type(value).__name__)


def shown(value: object) -> str:
    """A value that is wrong, in few words."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if value is None or (isinstance(value, str | int | float | tuple | list) and len(repr(value)) < 40):
        return repr(value)
    return f"a {type(value).__name__}"
