"""The files of `facts/`, byte for byte. Nobody outside of this package knows them.

    layout.json                  who is there (`Layout`)
    clients.bin                  one `CLIENT` record per client, overwritten in place
    edges.bin                    one `EDGE` record per directed edge, overwritten in place
    steps-WRITER-FIRST-LAST.bin  `ROW` records, one per client step

Each writer of steps numbers its files 1, 2, 3 ...: `steps-all-3-3.bin`. A file is only ever appended to.
Where two of them are joined to save space, a new one with the numbers of both, `steps-all-3-4.bin`, appears
complete, and then the two go. So a name says what it replaces: whoever finds a file whose numbers are within
another's (because the writer was killed between, or is about to remove it) ignores it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import IntEnum
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from swiftfl.errors import UserError

FACTS = "facts"
"""The folder, within a run folder."""
LAYOUT, CLIENTS, EDGES = "layout.json", "clients.bin", "edges.bin"
FORMAT = 1
CLOCKS = ("virtual", "wall", "iterations")
MOST_CLIENTS = 1_000_000
MOST_EDGES = 50_000_000
_MOST_NAME = 100  # letters
_STEPS = re.compile(r"steps-(?P<writer>[a-z0-9]{1,20})-(?P<first>\d{1,12})-(?P<last>\d{1,12})\.bin")

Numbers: TypeAlias = tuple[int, int]
"""The first and the last number of a file of steps."""
Table: TypeAlias = NDArray[np.void]
"""Records of one of the types below."""

ROW = np.dtype(
    [
        ("client", "<u4"),
        ("steps", "<u4"),
        ("c", "<u4"),
        ("loss", "<f4"),
        ("start", "<f8"),
        ("compute", "<f4"),
        ("waiting", "<f4"),
        ("communication", "<f4"),
        ("age", "<f4"),
    ]
)
"""One step of a client, or several that were joined.

`c` is the counter of the (first) step and `steps` how many there are. From `start` on the client computes,
then waits, then communicates. `loss` is the mean loss of the batches, `age` the mean age of the neighbours'
models, in steps, when they were averaged; NaN where there is none.
"""

CLIENT = np.dtype(
    [
        ("state", "<u4"),
        ("c", "<u4"),
        ("steps", "<u8"),
        ("compute", "<f8"),
        ("communication", "<f8"),
        ("waiting", "<f8"),
        ("loss", "<f4"),
        ("age", "<f4"),
        ("rate", "<f4"),
        ("refused", "<u4"),
        ("discarded", "<u4"),
        ("renewals", "<u4"),
        ("time", "<f8"),
    ]
)
"""How a client stands: totals since the run began, at `time`.

`loss` is that of its newest step; `age` is the mean over all models that it averaged (NaN: none); `rate` is
steps per second lately; `renewals` is how many times its weights were made anew.
"""

EDGE = np.dtype([("version", "<i8"), ("since", "<f8")])
"""The newest model of a neighbour that a client has: the neighbour's counter, and since when it is there."""
NO_VERSION = -1


class ClientState(IntEnum):
    """What a client is doing."""

    STARTING = 0
    RUNNING = 1
    STOPPED = 2
    LOST = 3
    BACK = 4
    """Running again after a loss."""
    FINISHED = 5


@dataclass(frozen=True)
class Layout:
    """Who takes part, and what the numbers of the other files mean.

    `began` is the Unix time at which the run's clock showed zero; `total` the client steps of the whole run.
    `indices[indptr[i]:indptr[i + 1]]` are the neighbours of client i. `session` counts the starts: with each,
    steps that the run does not go on from are taken out, and whoever reads begins again. `names` are the
    clients' names where they have any (the nodes of a federation), else empty.
    """

    clients: int
    engine: str
    clock: str
    """`virtual` or `wall` seconds, or `iterations`: client steps of all, where nothing takes time."""
    began: float
    total: int
    indptr: tuple[int, ...]
    indices: tuple[int, ...]
    session: int = 1
    names: tuple[str, ...] = ()

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, **asdict(self)}) + "\n"

    @classmethod
    def from_json(cls, text: str, where: str) -> Layout:
        """Whatever could not have been written by `to_json` is an error that names the file."""
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UserError(f"cannot read {where}: {error}") from None
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            raise UserError(f"cannot read {where}: its format is not {FORMAT}, the one of this version")
        problem = _problem(value)
        if problem is not None:
            raise UserError(f"cannot read {where}: {problem}")
        return cls(
            clients=value["clients"],
            engine=value["engine"],
            clock=value["clock"],
            began=float(value["began"]),
            total=value["total"],
            indptr=tuple(value["indptr"]),
            indices=tuple(value["indices"]),
            session=value["session"],
            names=tuple(value.get("names", ())),
        )

    @property
    def edges(self) -> int:
        return len(self.indices)

    def neighbours(self, client: int) -> tuple[int, ...]:
        return self.indices[self.indptr[client] : self.indptr[client + 1]]


def steps_file(writer: str, first: int, last: int) -> str:
    """The name of a file of steps.

    >>> steps_file("all", 3, 4)
    'steps-all-3-4.bin'
    """
    return f"steps-{writer}-{first}-{last}.bin"


def parse_steps_file(name: str) -> tuple[str, int, int] | None:
    """Writer, first and last number of a file of steps; None if the name is none.

    >>> parse_steps_file("steps-all-3-4.bin")
    ('all', 3, 4)
    """
    found = _STEPS.fullmatch(name)
    if found is None or not 1 <= int(found["first"]) <= int(found["last"]):
        return None
    return found["writer"], int(found["first"]), int(found["last"])


def not_replaced(files: Iterable[Numbers]) -> list[Numbers]:
    """The files of a writer by their numbers, in order, without those that another one has replaced.

    >>> not_replaced([(3, 3), (1, 1), (1, 2)])
    [(1, 2), (3, 3)]
    """
    kept: list[Numbers] = []
    for first, last in sorted(files, key=lambda numbers: (numbers[0], -numbers[1])):
        if not kept or last > kept[-1][1]:
            kept.append((first, last))
    return kept


def no_clients(n: int) -> Table:
    """The records of clients of whom nothing is known yet."""
    records = np.zeros(n, CLIENT)
    records["loss"] = records["age"] = np.nan
    return records


def no_edges(n: int) -> Table:
    """The records of edges over which nothing has come yet."""
    records = np.zeros(n, EDGE)
    records["version"] = NO_VERSION
    records["since"] = np.nan
    return records


def _problem(value: dict[str, Any]) -> str | None:
    """What is wrong with the tree of a layout."""
    for key in ("clients", "total", "session"):
        if not _is_count(value.get(key)):
            return f"{key} is not a number of things"
    if not 1 <= value["clients"] <= MOST_CLIENTS:
        return f"{value['clients']} clients are not between 1 and {MOST_CLIENTS}"
    if not isinstance(value.get("engine"), str) or value.get("clock") not in CLOCKS:
        return "engine or clock is not known"
    began = value.get("began")
    if isinstance(began, bool) or not isinstance(began, int | float) or not abs(began) < 1e12:
        return "began is not a time"
    indptr, indices = value.get("indptr"), value.get("indices")
    if not isinstance(indptr, list) or not isinstance(indices, list) or len(indices) > MOST_EDGES:
        return "indptr and indices are not lists of a sensible length"
    if not all(map(_is_count, indptr)) or not all(map(_is_count, indices)):
        return "indptr or indices hold something else than numbers of clients and edges"
    if len(indptr) != value["clients"] + 1 or indptr[0] != 0 or indptr[-1] != len(indices):
        return "indptr does not fit clients and indices"
    if any(a > b for a, b in pairwise(indptr)) or max(indices, default=0) >= value["clients"]:
        return "indptr is not in order, or indices name clients that are not there"
    names = value.get("names", [])
    if not isinstance(names, list) or len(names) not in (0, value["clients"]):
        return "names are not those of the clients"
    if not all(isinstance(name, str) and 0 < len(name) <= _MOST_NAME for name in names):
        return "names hold something else than names"
    return None


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53
