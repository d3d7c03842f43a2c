"""The one exception that a user may see as a message: something in the request is wrong."""

from __future__ import annotations


class UserError(ValueError):
    """A request that cannot be met; its text is one line that names the offender and the remedy."""


def kind_of(made: object) -> str:
    """What somebody else's code made in place of what it should.

    >>> kind_of(None), kind_of([1])
    ('None', 'a list')
    """
    return "None" if made is None else f"a {type(made).__name__}"


def in_one_line(error: BaseException) -> str:
    """What somebody else's code raised: the kind, and the first line of what it said.

    >>> in_one_line(KeyError("a")), in_one_line(ValueError("of two\\nlines")), in_one_line(ValueError())
    ("KeyError: 'a'", 'ValueError: of two', 'ValueError')
    """
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
