"""Things that users choose by name: algorithms, topologies, partitions, update rules, codecs and so on.

A registry entry stands in the file of the thing itself; lists in help texts and messages follow from it.
Whoever adds one from outside the package registers it the same way, and the name works everywhere:

>>> SHAPES: Registry[str] = Registry("shape")
>>> _ = SHAPES.register("circle", "round")
>>> SHAPES["circle"]
'round'
>>> SHAPES["cirle"]
Traceback (most recent call last):
swiftfl.registry.UnknownNameError: there is no shape 'cirle': did you mean circle? (circle)
"""

from __future__ import annotations

import difflib
import inspect
import typing
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NoReturn, TypeVar

from swiftfl.errors import UserError

T = TypeVar("T")
E = TypeVar("E", bound=Callable[..., object])


class UnknownNameError(UserError):
    """A name that nothing has; `name` is as it was given."""

    def __init__(self, kind: str, name: object, names: typing.Iterable[str]) -> None:
        super().__init__(f"there is no {kind} {name!r}: {suggestion(name, names)}")
        self.name = name


GIVEN = "given:"
"""Before the name of an object that a user gave in Python, where a configuration has a registered name."""


def was_given(name: object) -> bool:
    """Whether this name of a configuration stands for an object that was given in Python."""
    return isinstance(name, str) and name.startswith(GIVEN)


class Registry(Mapping[str, T], Generic[T]):
    """Names and what they stand for, in the order in which they were registered.

    With `stand_in`, names of objects that were given in Python are known as well: it makes what stands for
    them in a configuration, which has no options. Lists of names do not show them, nor what `look_up_with`
    finds: references to the user's own code.
    """

    def __init__(self, kind: str, stand_in: Callable[[str], T] | None = None) -> None:
        self.kind = kind
        self._entries: dict[str, T] = {}
        self._stand_in = stand_in
        self._look_up: Callable[[str], T | None] | None = None

    def register(self, name: str, entry: T) -> T:
        """Add an entry; a name that is taken is refused, unless the same code is loaded again."""
        before = self._entries.get(name)
        if before is not None and _origin(before) != _origin(entry):
            raise UserError(f"there is a {self.kind} called {name!r} already")
        self._entries[name] = entry
        return entry

    def add(self, name: str) -> Callable[[E], E]:
        """Register what is defined below this line.

        >>> DISTANCES: Registry[Callable[[float], float]] = Registry("distance")
        >>> @DISTANCES.add("square")
        ... def square(x: float) -> float:
        ...     return x * x
        >>> DISTANCES["square"](3.0)
        9.0
        """

        def register(entry: E) -> E:
            self.register(name, typing.cast(T, entry))  # keeps the signature for its other callers
            return entry

        return register

    def look_up_with(self, look_up: Callable[[str], T | None]) -> None:
        """Ask this for names that are not registered; it returns None for what it does not know either."""
        self._look_up = look_up

    def __getitem__(self, name: str) -> T:
        found = self._found(name)
        if found is None:
            raise UnknownNameError(self.kind, name, self._entries)
        return found

    def __contains__(self, name: object) -> bool:
        return self._found(name) is not None

    def _found(self, name: object) -> T | None:
        if not isinstance(name, str):
            return None
        if self._stand_in is not None and was_given(name):
            return self._stand_in(name)
        if name in self._entries or self._look_up is None:
            return self._entries.get(name)
        return self._look_up(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def absent(name: str) -> Callable[..., NoReturn]:
    """Stands for an object that was given in Python, where only its name is known; it cannot be used."""

    def refuse(*arguments: object) -> NoReturn:
        raise UserError(
            f"{name.removeprefix(GIVEN)} was given in Python, and is not here: go on there, with "
            "swiftfl.train(..., resume=FOLDER)"
        )

    return refuse


def nearest(name: object, names: typing.Iterable[str]) -> str | None:
    """The one of these names that was probably meant, if one is near."""
    return next(iter(difflib.get_close_matches(str(name), list(names), n=1)), None)


def suggestion(name: object, names: typing.Iterable[str]) -> str:
    """The nearest of these names, if one is near, and all of them."""
    names = list(names)
    near, listed = nearest(name, names), ", ".join(names)
    return f"did you mean {near}? ({listed})" if near else f"choose from {listed}"


def _origin(entry: object) -> tuple[str, str]:
    """Where an entry was defined; a module that is imported again makes the same entries."""
    made = getattr(entry, "make", entry)
    return getattr(made, "__module__", ""), getattr(made, "__qualname__", repr(made))


@dataclass(frozen=True)
class Option:
    """A parameter of a registered function that a configuration may set."""

    name: str
    type: Any
    default: Any = inspect.Parameter.empty

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty


def options_of(
    make: Callable[..., object], after: int | None = None, supplied: Container[str] = ()
) -> dict[str, Option]:
    """The options of a registered function, by name.

    They are its keyword-only parameters, or with `after` all parameters but the first so many; whatever
    the run supplies itself is none.

    >>> def ring(n: int, hops: int = 1, *, seed: int = 0) -> None: ...
    >>> list(options_of(ring)), list(options_of(ring, after=1, supplied={"seed"}))
    (['seed'], ['hops'])
    """
    described = vars(make).get("__init__", make) if isinstance(make, type) else make
    hints = typing.get_type_hints(described, include_extras=True)
    parameters = list(inspect.signature(make).parameters.values())
    if after is None:
        chosen = [p for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]
    else:
        chosen = [p for p in parameters[after:] if p.kind is not inspect.Parameter.VAR_POSITIONAL]
    return {
        p.name: Option(p.name, hints.get(p.name, Any), p.default) for p in chosen if p.name not in supplied
    }


def made_by(make: Callable[..., object]) -> tuple[object, ...]:
    """What a registered function says that it returns: one type, or several."""
    made = typing.get_type_hints(make).get("return")
    return typing.get_args(made) or (made,)
