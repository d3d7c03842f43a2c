"""Starting a fresh Python that runs a module of ours: the one way to do it."""

from __future__ import annotations

import sys
from pathlib import Path

_OURS = str(Path(__file__).parents[1])


def fresh_python(module: str, *arguments: str) -> list[str]:
    """A command line as of `python -m module arguments`, of a process that imports what this one would.

    `python -m` puts the working folder before the standard library, where a user's queue.py or random.py
    would take the place of Python's own (Python 3.11 has an option against that, 3.10 has not). Here the new
    process gets the places that this one imports from, in their order, before it imports anything.

    >>> fresh_python("this")[1]
    '-c'
    """
    known: list[object] = [*sys.path]
    places = [place for place in known if isinstance(place, str)]  # Python itself passes over others
    if _OURS not in places:
        places.append(_OURS)  # the same swiftfl as this one, even if this process has removed its place
    program = f"import sys; sys.path[:] = {places!a}; import runpy; "
    program += f"runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
    return [sys.executable, "-c", program, *arguments]
