"""A recorded live run, again, in one process: each fetch is given the versions that it saw then.

What a client does depends on its data (keyed draws) and on the models that it averaged, and of these the
record tells which they were. So every life of every client is run as a generator that goes on as soon as
the versions that it needs exist; clocks and processes play no part. With gradients one by one and one
thread, the models are those of the live run, bit for bit.

SWIFT and the algorithms that meet in rounds can be replayed; all-reduce only if nobody was lost. AD-PSGD
cannot: its clients write into each other's cells, and the order of these writes is not recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from swiftfl.client import State
from swiftfl.engines.live.inbox import LazyInbox, blend
from swiftfl.engines.live.journal import version
from swiftfl.engines.live.lives import Life, Version, needed, read_lives, set_targets
from swiftfl.engines.setup import Setup
from swiftfl.errors import UserError
from swiftfl.vector import Vector, mix
from swiftfl.verbs import AllReduce, Exchange, Fetch, Gradient, Mix, Publish

Waiting = Iterator[None]
Round = tuple[int, int, int]
"""A client, a session and a round."""


class RecordedInbox(LazyInbox):
    """An inbox whose content is known: by neighbour, how to get the model that was used then."""

    def __init__(self, models: dict[int, Callable[[], Vector]]) -> None:
        super().__init__(tuple(models))
        self._models = models

    def take(self, k: int, use: Callable[[Vector], object], look: bool) -> bool:
        use(self._models[k]())
        return True


class Replay:
    """Runs the lives of all clients; `models` are their states at the end."""

    def __init__(self, setup: Setup, lives: list[list[Life]]) -> None:
        self.setup = setup
        self.lives = [life for mine in lives for life in mine]
        set_targets(self.lives)
        self.last = [max(mine, key=lambda life: life.life) for mine in lives]
        self.x0 = setup.workload.initial(setup.seed)
        self.steps = 0
        self._kept: dict[Version, Vector] = {}
        self._uses: Counter[Version] = needed(self.lives)
        self._offers: dict[Round, Vector] = {}
        self._offer_uses: Counter[Round] = Counter(
            (k, life.session, c) for life in self.lives for c, them in life.met.items() for k in them
        )
        self._given: dict[tuple[int, int], dict[int, AllReduce]] = {}
        self._saves = {(life.client, *life.source) for life in self.lives if life.how == "saved"}
        self._saved: dict[tuple[int, ...], State] = {}
        self._final: dict[tuple[int, int], State] = {}

    @property
    def total(self) -> int:
        return sum(life.target - life.c for life in self.lives)

    def run(self, progress: Callable[[int, int], None] = lambda done, total: None) -> list[Vector]:
        """Every client's model at the end of its last life."""
        playing = [self._play(life) for life in self.lives]
        while playing:
            before, count = self.steps, len(playing)
            playing = [play for play in playing if next(play, playing) is None]
            if self.steps == before and len(playing) == count and not self._moved:
                raise UserError("the record does not fit together: some model is never made")
            self._moved = False
            progress(self.steps, self.total)
        return [self._final[life.client, life.life].x for life in self.last]

    _moved = False

    # --- one life ------------------------------------------------------------------------------

    def _play(self, life: Life) -> Waiting:
        """Takes the steps of a life; yields after each, and whenever something is not there yet."""
        state = yield from self._first_state(life)
        while True:
            self._keep(life, state)
            if state.c >= life.target:
                break
            terms = life.terms_at(state.c)
            me = self.setup.client(life.client, terms.w, terms.scale)
            state = yield from self._step(life, state, self.setup.algorithm.step(me, state))
            self.steps += 1
            yield
        self._final[life.client, life.life] = state
        self._moved = True

    def _first_state(self, life: Life) -> Generator[None, None, State]:
        if life.how == "initial":
            return self.setup.first_state(self.x0, life.c)
        if life.how == "saved":
            name = (life.client, *life.source)
            while name not in self._saved:
                yield
            saved = self._saved[name]
            return State(saved.x, life.c, saved.memory)
        wanted = life.source[0], life.source[1]
        while not self._is_there(wanted):
            yield
        return self.setup.first_state(self._use(wanted), life.c)

    def _keep(self, life: Life, state: State) -> None:
        """What others, or a later life, need of the state at the start of a step."""
        self._publish(life.client, version(life.life, state.c), state.x)
        name = (life.client, life.life, state.c)
        if name in self._saves:
            self._saved[name] = state
        self._moved = True

    def _step(
        self, life: Life, state: State, generator: Generator[Any, object, State]
    ) -> Generator[None, None, State]:
        reply: object = None
        while True:
            try:
                verb = generator.send(reply)
            except StopIteration as end:
                new: State = end.value
                return new
            reply = yield from self._serve(life, state.c, verb)

    def _serve(self, life: Life, c: int, verb: object) -> Generator[None, None, object]:
        if isinstance(verb, Gradient):
            return self.setup.workload.gradient(verb.x, verb.batch)
        if isinstance(verb, Publish):
            self._publish(life.client, version(life.life, verb.version), verb.x)
            return None
        if isinstance(verb, Fetch):
            wanted = {k: (k, used) for k, used in life.saw.get(c, {}).items()}
            while not all(self._is_there(name) for name in wanted.values()):
                yield
            return RecordedInbox({k: self._getter(name) for k, name in wanted.items()})
        if isinstance(verb, Mix):
            if isinstance(verb.inbox, LazyInbox):
                with np.errstate(all="ignore"):
                    return blend(verb.w, verb.x, verb.inbox, np.empty_like(verb.x), look=False)
            return mix(verb.w, verb.x, verb.inbox)
        if isinstance(verb, Exchange):
            return (yield from self._exchange(life, verb))
        if isinstance(verb, AllReduce):
            return (yield from self._all_reduce(life, verb))
        raise UserError(
            f"{self.setup.algorithm.name} shares model cells, and the order in which clients write into them "
            "is not recorded: it cannot be replayed"
        )

    # --- published models ----------------------------------------------------------------------

    def _publish(self, client: int, number: int, x: Vector) -> None:
        if self._uses[client, number] > 0:
            self._kept[client, number] = x

    def _is_there(self, name: Version) -> bool:
        return name[1] == 0 or name in self._kept

    def _getter(self, name: Version) -> Callable[[], Vector]:
        return lambda: self._use(name)

    def _use(self, name: Version) -> Vector:
        """A version that was needed; after its last use it is dropped."""
        if name[1] == 0:
            return self.x0
        self._uses[name] -= 1
        return self._kept[name] if self._uses[name] else self._kept.pop(name)

    # --- rounds --------------------------------------------------------------------------------

    def _exchange(self, life: Life, verb: Exchange) -> Generator[None, None, RecordedInbox]:
        own = (life.client, life.session, verb.round)
        if self._offer_uses[own]:
            self._offers[own] = verb.x
            self._moved = True
        partners = life.met.get(verb.round, [])
        wanted = {k: (k, life.session, verb.round) for k in partners}
        while not all(self._made(name) for name in wanted.values()):
            yield
        return RecordedInbox({k: self._offer_getter(name) for k, name in wanted.items()})

    def _made(self, name: Round) -> bool:
        return name in self._offers or self._finished(name) is not None

    def _finished(self, name: Round) -> State | None:
        """The last state of a client that had finished before this round."""
        last = self.last[name[0]]
        over = last.end is not None and name[2] >= last.end and last.session == name[1]
        return self._final.get((last.client, last.life)) if over else None

    def _offer_getter(self, name: Round) -> Callable[[], Vector]:
        def get() -> Vector:
            finished = self._finished(name)
            if finished is not None:
                return finished.x
            self._offer_uses[name] -= 1
            return self._offers[name] if self._offer_uses[name] else self._offers.pop(name)

        return get

    def _all_reduce(self, life: Life, verb: AllReduce) -> Generator[None, None, Vector]:
        those = [other for other in self.lives if other.session == life.session]
        if any(other.end is None for other in those):
            raise UserError("an all-reduce from which a client was lost cannot be replayed")
        members = [other.client for other in those if other.c <= verb.round < other.target]
        given = self._given.setdefault((life.session, verb.round), {})
        given[life.client] = verb
        self._given.pop((life.session, verb.round - 2), None)  # nobody is two rounds behind
        self._moved = True
        while len(given) < len(members):
            yield
        total = np.zeros_like(verb.value)
        for k in sorted(members):
            total += given[k].weight * given[k].value
        weights = sum(given[k].weight for k in sorted(members))
        mean: Vector = (total / weights).astype(total.dtype, copy=False)
        return mean


def replay(
    setup: Setup, folder: Path, progress: Callable[[int, int], None] = lambda done, total: None
) -> list[Vector]:
    """The final models of the run whose clients' records are in this folder."""
    return Replay(setup, [read_lives(folder, i, setup.n) for i in range(setup.n)]).run(progress)
