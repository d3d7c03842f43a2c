"""From where each client of a stopped or killed run goes on.

Where clients do not meet in rounds, each goes on from its own newest save. Where they do, all go on from the
newest round that all have saved. A client that was lost long before the others were stopped has no save of
that round: it starts from the save of a neighbour, as after a restart. A run that could go on only from its
first step is refused, unless that is asked for.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swiftfl.client import State
from swiftfl.engines.live.changes import apply, done_before
from swiftfl.engines.live.journal import Incarnation, read_incarnations, version
from swiftfl.engines.live.saves import read_all
from swiftfl.engines.live.status import Tally
from swiftfl.engines.setup import Setup
from swiftfl.errors import UserError
from swiftfl.vector import Memory

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Start:
    """Start at step `c` from a save: of which client and incarnation, before which step."""

    c: int
    client: int
    incarnation: int
    saved_c: int


@dataclass(frozen=True)
class ResumePoint:
    """How a run starts: plain numbers, which can be told to other processes.

    `starts[i]` is None for a client that starts from the initial model; `incarnations[i]` is the number of
    its next incarnation; `elapsed` are the seconds of the sessions before; `notes` are for the user.
    """

    starts: tuple[Start | None, ...]
    incarnations: tuple[int, ...]
    session: int = 0
    elapsed: float = 0.0
    notes: tuple[str, ...] = ()
    changes: tuple[int, ...] = ()
    """The planned changes of the network that have happened, by their place in the list."""
    skipped: tuple[int, ...] = ()
    """Rounds before each client joined, which it has not taken."""

    @classmethod
    def first(cls, n: int) -> ResumePoint:
        """The start of a new run."""
        return cls((None,) * n, (0,) * n)

    @classmethod
    def unpack(cls, row: Mapping[str, Any]) -> ResumePoint:
        """From `dataclasses.asdict`, which may have passed through JSON."""
        starts = tuple(None if start is None else Start(**start) for start in row["starts"])
        tuples = {name: tuple(row[name]) for name in ("incarnations", "notes", "changes", "skipped")}
        return cls(**{**row, **tuples, "starts": starts})

    @property
    def iteration(self) -> int:
        """Client steps in all that are kept."""
        return sum(start.c - 1 for start in self.starts if start is not None) - sum(self.skipped)


@dataclass(frozen=True)
class _Saves:
    """What one client has saved, by step, and what is wrong with saves that cannot be used."""

    starts: dict[int, Start]
    problems: list[str]
    newest: int
    finished: bool
    skipped: int
    """Rounds before the newest that the client has not taken, because it joined later."""

    def at(self, round: int) -> Start | None:
        """Its start in a round; one that has finished starts, and ends again, from its last save."""
        if self.finished and self.newest <= round:
            return self.starts[self.newest]
        return self.starts.get(round)


def find_resume_point(
    folder: Path, setup: Setup, elapsed: float = 0.0, from_start: bool = False
) -> ResumePoint:
    """Where the run whose clients' files are in this folder goes on.

    `from_start` allows that clients without a usable save (in rounds: all of them) start from step 1.
    """
    journals = [read_incarnations(folder, i, setup.n) for i in range(setup.n)]
    saves = [_saves_of(folder, i, setup) for i in range(setup.n)]
    notes = [
        f"{problem}; an older save is used" for mine in saves for problem in mine.problems if mine.starts
    ]
    steps = sum(max(0, mine.newest - 1 - mine.skipped) for mine in saves)
    changes, there = _changes_before(setup, elapsed, steps)
    choose = _common_round if setup.algorithm.in_rounds else _own_newest
    starts = choose({i: saves[i] for i in there}, journals, setup, notes, from_start)
    known = [[each.number for each in mine] for mine in journals]
    saved = [[start.incarnation for start in mine.starts.values()] for mine in saves]
    incarnations = [1 + max([-1, *known[i], *saved[i]]) for i in range(setup.n)]
    session = 1 + max([0, *(each.session for mine in journals for each in mine)])
    _log.debug("session %d starts from %s", session, starts)
    skipped = tuple(saves[i].skipped if i in there else 0 for i in range(setup.n))
    told = tuple(starts.get(i) for i in range(setup.n))
    return ResumePoint(told, tuple(incarnations), session, elapsed, tuple(notes), changes, skipped)


def _changes_before(setup: Setup, elapsed: float, steps: int) -> tuple[tuple[int, ...], list[int]]:
    """The planned changes that the run has behind it, and who is there after them."""
    if setup.network is None:
        return (), list(range(setup.n))
    network = setup.network()
    done = done_before(network, elapsed, steps)
    apply(network, [network.dynamics.changes[number] for number in done])
    return done, sorted(network.present)


def _saves_of(folder: Path, i: int, setup: Setup) -> _Saves:
    like = setup.first_state(setup.workload.initial(setup.seed))
    found, problems = read_all(folder, i, like)
    starts: dict[int, Start] = {}
    for saved in found:  # newest first
        c = saved.state.c
        starts.setdefault(c, Start(c, i, saved.incarnation, c))
    newest = found[0].state.c if found else 0
    skipped = max(0, newest - 1 - found[0].tally.steps) if found else 0
    return _Saves(starts, problems, newest, newest > setup.steps_of(i), skipped)


def _own_newest(
    saves: Mapping[int, _Saves],
    journals: Sequence[Sequence[Incarnation]],
    setup: Setup,
    notes: list[str],
    from_start: bool,
) -> dict[int, Start | None]:
    starts: dict[int, Start | None] = {}
    for i, mine in saves.items():
        others = [saves[k] for k in setup.weights[i].of if k in saves]
        near = [other.starts[other.newest] for other in others if other.starts]
        if mine.starts:
            starts[i] = mine.starts[mine.newest]
        elif near and not mine.problems:
            c = journals[i][-1].recorded if journals[i] else 1
            source = max(near, key=lambda start: start.c)
            starts[i] = Start(c, source.client, source.incarnation, source.saved_c)
            notes.append(
                f"client {i} has no save and starts from the model that client {source.client} saved"
            )
        elif from_start:
            starts[i] = None
            notes.append(f"client {i} starts again from step 1")
        else:
            reason = "; ".join(mine.problems) or "there is none"
            raise UserError(
                f"client {i} has no save to go on from ({reason}): resume with --from-start to let clients "
                "without a save start again from step 1"
            )
    return starts


def _common_round(
    saves: Mapping[int, _Saves],
    journals: Sequence[Sequence[Incarnation]],
    setup: Setup,
    notes: list[str],
    from_start: bool,
) -> dict[int, Start | None]:
    rounds = sorted({c for mine in saves.values() for c in mine.starts}, reverse=True)
    for wanted in rounds:
        if all(mine.at(wanted) for mine in saves.values()):
            return {i: mine.at(wanted) for i, mine in saves.items()}
    for wanted in rounds:
        starts = _with_replacements(saves, wanted, setup)
        if starts is not None:
            lost = [i for i, mine in saves.items() if mine.at(wanted) is None]
            notes.append(f"clients {lost} have no save of round {wanted} and start from a neighbour's")
            return starts
    if from_start:
        notes.append("every client starts again from step 1")
        return dict.fromkeys(saves)
    problems = [problem for mine in saves.values() for problem in mine.problems]
    reason = "; ".join(problems) or "no round was saved by all"
    raise UserError(
        f"the clients have no common round to go on from ({reason}): resume with --from-start to start again "
        "from step 1"
    )


def _with_replacements(
    saves: Mapping[int, _Saves], wanted: int, setup: Setup
) -> dict[int, Start | None] | None:
    """Starts in a round that most clients have, if the others were lost before it."""
    missing = [i for i, mine in saves.items() if mine.at(wanted) is None]
    if 2 * len(missing) >= len(saves) or any(saves[i].problems or saves[i].newest > wanted for i in missing):
        return None
    starts = {i: mine.at(wanted) for i, mine in saves.items()}
    there = [start for start in starts.values() if start is not None and start.c == wanted]
    for i in missing:
        near = [start for start in there if start.client in setup.weights[i].of] or there
        if not near:
            return None
        starts[i] = Start(wanted, near[0].client, near[0].incarnation, wanted)
    return starts


@dataclass(frozen=True)
class FirstState:
    """What a client starts with, and for its journal, how and from where that is."""

    state: State
    tally: Tally
    how: str = "initial"
    source: tuple[int, ...] = ()
    codec: Memory = field(default_factory=dict)
    """What the codec of its models remembered."""


def load_start(folder: Path | None, setup: Setup, i: int, start: Start | None, c: int = 1) -> FirstState:
    """Client i's first state, what it has counted before, and its source as the journal has it."""
    first = setup.first_state(setup.workload.initial(setup.seed), c)
    if start is None or folder is None:
        return FirstState(first, Tally())
    for saved in read_all(folder, start.client, first)[0]:
        if (saved.incarnation, saved.state.c) != (start.incarnation, start.saved_c):
            continue
        if start.client == i:
            state = setup.resumed(State(saved.state.x, start.c, saved.state.memory))
            return FirstState(state, saved.tally, "save", (saved.incarnation, saved.state.c), saved.codec)
        source = (start.client, version(saved.incarnation, saved.state.c))
        return FirstState(setup.first_state(saved.state.x, start.c), Tally(), "model", source)
    raise UserError(f"client {i} has lost its save of step {start.saved_c}")
