"""Fetches, averages and steps of SGD of small vectors in one call each, where Python would take a dozen.

`small.c` is a module of Python that uses the arithmetic of `kernels.c`; it needs a C compiler and Python's
headers, which not every machine has. Simulations load it if it was compiled before, and compile it once
they have made many steps (`SMALL_STEPS`); it is then there for the runs to come. When it is loaded it must
give the bits that Python and NumPy give, or it is not used: results are the same with it and without.
"""

from __future__ import annotations

import importlib.util
import logging
import sysconfig
from array import array
from collections.abc import Callable, Mapping
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from swiftfl.compiling import FAILURES, CSource, allowed
from swiftfl.recycled import Vector

_log = logging.getLogger(__name__)
_NAME = "swiftfl_small"

MOST_MODELS = 256
"""Of `small.c`: averages of more are left to NumPy."""
SMALL_STEPS = 20_000
"""Steps of a simulation from which on it is worth a second of compiling."""
MANY_CLIENTS = 32_768
"""From which on large pages are worth their price: of fewer clients the tables of small pages are in a cache,
and memory that a process has never used comes sooner in small ones."""


def _not_here(*arguments: object) -> None:
    """In place of a function that was not loaded."""


class Calls:
    """The functions that are in use; each gives None where Python or NumPy has to do the work."""

    __slots__ = ("Events", "fetch", "forget", "large_pages", "mix", "sgd")

    def __init__(self) -> None:
        self.mix: Callable[[float, Mapping[int, float], Vector, Mapping[int, Vector]], Vector | None] = (
            _not_here
        )
        """mix(own, of, x, inbox): what `vector.mix` gives where nobody is missing."""
        self.fetch: Callable[..., bool | None] = _not_here
        """fetch(inbox, ages, senders, newest, versions, steps, sent_by, until): `Mailboxes.fetch` where all
        journeys are equally long; fills the two dicts."""
        self.Events: type[Any] | None = None
        """A heap of events: `engines/simulation/event_queue.py` has the one of Python."""
        self.forget: Callable[..., bool | None] = _not_here
        """forget(places, times, versions, to, usual, none): `Mailboxes.forget_before`, of many senders."""
        self.large_pages: Callable[[bool], None] = _not_here
        """large_pages(wanted): vectors made here and Python's objects go to large pages from now on."""
        self.sgd: Callable[..., tuple[Vector, Vector, bool] | None] = _not_here
        """sgd(half, g, x, m, momentum, weight_decay, minus_step_size, nesterov): model, momentum, and whether
        they are finite; m may be None."""


calls = Calls()
_settled = False  # nothing is left to try
_many = False  # whether the run that was built last has many clients


def loaded() -> bool:
    """Whether the compiled functions are in use."""
    return calls.mix is not _not_here


def expect(clients: int) -> None:
    """Before a run of so many clients is built: where its vectors and objects should be."""
    global _many
    _many = clients >= MANY_CLIENTS
    if _many:
        load()
    calls.large_pages(_many)


def load(compile: bool = False) -> None:
    """Use the compiled functions from here on, if they are there, or with `compile` can be made."""
    global _settled
    if _settled:
        return
    try:
        found = _module(compile) if allowed() else None
    except FAILURES as error:
        _log.debug("no compiled arithmetic of small vectors, NumPy instead: %s", error)
        found = None
    _settled = compile or found is not None
    if found is None:
        return
    if not _agrees(found):
        _log.warning("the compiled arithmetic of small vectors does not give NumPy's bits, and is not used")
        return
    calls.Events, calls.large_pages = found.Events, found.large_pages
    calls.fetch, calls.forget, calls.mix, calls.sgd = found.fetch, found.forget, found.mix, found.sgd
    calls.large_pages(_many)


def _module(compile: bool) -> ModuleType | None:
    folders = (sysconfig.get_path("include"), np.get_include())
    depends = f"{sysconfig.get_config_var('SOABI')} {np.__version__}"
    source = CSource("small.c", "kernels.c", "pages.c", "events.c", folders=folders, depends=depends)
    if compile:
        return source.loaded(_extension)
    file = source.found()
    return None if file is None else _extension(file)


def _extension(file: Path) -> ModuleType:
    loader = ExtensionFileLoader(_NAME, str(file))
    spec = importlib.util.spec_from_loader(_NAME, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def _agrees(found: ModuleType) -> bool:
    """Whether an average and a step have NumPy's bits: they would not where products and sums are joined."""
    x, g, m, other = (np.linspace(0.1, k + 1.7, 1_111, dtype=np.float32) for k in range(4))
    half = found.mix(0.3, {1: 0.7}, x, {1: other})
    after, memory, fine = found.sgd(half, g, x, m, 0.9, 0.01, -0.1, False)
    expected = x * 0.3
    expected += other * 0.7
    momentum = m * 0.9
    momentum += x * 0.01 + g
    same = bytes(half) == bytes(expected) and bytes(memory) == bytes(momentum)
    inbox: dict[int, Vector] = {}
    ages: dict[int, float] = {}
    version = (0.0, 1, x, 0.3)
    found.fetch(inbox, ages, (0,), [version], [[version]], array("d", [0.7]), 0.0, 1.1)
    same = same and inbox.get(0) is x and ages == {0: (1.1 - 0.3) / 0.7}
    _, _, infinite = found.sgd(x * np.float32(np.inf), g, x, None, 0.0, 0.0, -0.1, False)
    return same and bytes(after) == bytes(expected + momentum * -0.1) and fine and not infinite
