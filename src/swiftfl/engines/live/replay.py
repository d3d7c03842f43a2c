"""A recorded live run, again, in one process: each inbox is given the models that were used then.

What a client does depends on its data (keyed draws) and on the models that it used, and of these the
journal tells which they were. So every incarnation of every client is run as a generator that goes on as
soon as the models that it needs exist; clocks and processes play no part. With gradients one by one and one
thread, the models are those of the live run, bit for bit.

A client that was killed may have given its model of a round to some of its neighbours without having put
down whose models it used itself. It then takes part in that round up to its exchange, and ends there; so
it does in a step up to what it published in it, which need not be the model with which the step began.

SWIFT and the algorithms that meet in rounds can be replayed; all-reduce only if nobody was lost. AD-PSGD
cannot: its clients write into each other's cells, and the order of these writes is not recorded.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path

import numpy as np

from swiftfl.algorithm import first_message_of
from swiftfl.client import State
from swiftfl.engines.discard import contribution, kept
from swiftfl.engines.live.announced import first_published, sent_already
from swiftfl.engines.live.inbox import LazyInbox
from swiftfl.engines.live.journal import (
    InboxName,
    Incarnation,
    ModelName,
    needed,
    read_incarnations,
    set_targets,
    split,
    version,
)
from swiftfl.engines.setup import Setup
from swiftfl.errors import UserError
from swiftfl.transports.codec import Codec, tell_whose, transmitted
from swiftfl.vector import Memory, Vector, mix
from swiftfl.verbs import AllReduce, Exchange, Fetch, Fetched, Gradient, Mix, Publish, Verb

_log = logging.getLogger(__name__)

Waiting = Iterator[None]
Offer = tuple[int, int, int]
"""A client, a session and a round."""


class RecordedInbox(LazyInbox, Fetched):
    """An inbox whose content is known: the models that were used then, and how old they were."""

    def __init__(self, models: Mapping[int, Vector], ages: Mapping[int, float] | None = None) -> None:
        super().__init__(tuple(models))
        self._models, self._ages = models, ages or {}

    @property
    def ages(self) -> Mapping[int, float]:
        return self._ages

    def take(self, k: int, use: Callable[[Vector], object], look: bool) -> bool:
        use(self._models[k])
        return True


class _Sender:
    """One incarnation's codec, what it has published last, and what of that arrives."""

    def __init__(self, codec: Codec) -> None:
        self.codec = codec
        self.last: tuple[int, Vector] | None = None
        self.image: Vector | None = None


class Replay:
    """Runs the incarnations of all clients; `run` gives their models at the end."""

    def __init__(self, setup: Setup, incarnations: list[list[Incarnation]]) -> None:
        self.setup = setup
        self.incarnations = [each for mine in incarnations for each in mine]
        self.last = [max(mine, key=lambda each: each.number, default=None) for mine in incarnations]
        set_targets(self.incarnations)
        self._offer_uses = self._offers_used()
        self._reach_offers()
        self.x0 = setup.workload.initial(setup.seed)
        first_message = first_message_of(setup.algorithm)
        self.sends_models = first_message is None
        self.first_message = self.x0 if first_message is None else first_message(self.x0)
        self.steps = 0
        self._moved = False
        self._kept: dict[ModelName, Vector] = {}
        self._uses: Counter[ModelName] = needed(self.incarnations)
        self._offers: dict[Offer, Vector] = {}
        self._given: dict[tuple[int, int], dict[int, AllReduce]] = {}
        self._saves = {(each.client, *each.source) for each in self.incarnations if each.how == "save"}
        self._saved: dict[tuple[int, ...], tuple[State, Memory]] = {}
        self._senders: dict[tuple[int, int], _Sender] = {}
        self._sources = {each.source[:2] for each in self.incarnations if self._copies_a_save(each)}
        self._exact: dict[tuple[int, ...], Vector] = {}
        self._final: dict[tuple[int, int], State] = {}

    def _offers_used(self) -> Counter[Offer]:
        return Counter(
            (k, each.session, round)
            for each in self.incarnations
            for used in each.exchanged.values()
            for k, round in used.items()
        )

    def _reach_offers(self) -> None:
        """Let killed clients go on to their last exchange, if others have used what they gave there."""
        rounds: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
        for client, session, round in self._offer_uses:
            rounds[client, session].add(round)
        for each in self.incarnations:
            if each.end is None:
                own = {round for used in each.exchanged.values() for round in used.values()}
                later = self._next_start(each)
                since = max(own, default=each.c - 1)
                ahead = [round for round in rounds[each.client, each.session] if since < round < later]
                each.last_offer = max(ahead, default=None)

    def _next_start(self, incarnation: Incarnation) -> float:
        """The first step of the client's next incarnation in the same session."""
        later = [
            each.c
            for each in self.incarnations
            if (each.client, each.session) == (incarnation.client, incarnation.session)
            and each.number > incarnation.number
        ]
        return min(later, default=float("inf"))

    @property
    def total(self) -> int:
        return sum(each.target - each.c for each in self.incarnations)

    def run(self, progress: Callable[[int, int], None] = lambda done, total: None) -> list[Vector]:
        """Every client's model at the end of its last incarnation."""
        playing = [self._play(each) for each in self.incarnations]
        while playing:
            before, count = self.steps, len(playing)
            with np.errstate(all="ignore"):  # steps that are not finite are left out, as they were then
                playing = [play for play in playing if next(play, playing) is None]
            if self.steps == before and len(playing) == count and not self._moved:
                raise UserError("the record does not fit together: some model is never made")
            self._moved = False
            progress(self.steps, self.total)
        return [self.x0 if each is None else self._final[each.client, each.number].x for each in self.last]

    # --- one incarnation -----------------------------------------------------------------------

    def _play(self, incarnation: Incarnation) -> Waiting:
        """Takes the steps of an incarnation; yields after each, and whenever something is not there yet."""
        state = yield from self._first_state(incarnation)
        if self.sends_models and not self.setup.algorithm.in_rounds:
            self._publish(incarnation, state.c, self._first_published(incarnation, state))
        while True:
            if state.c == incarnation.target and self._has_finished(incarnation, state):
                self._publish_model(incarnation, state)
            self._keep(incarnation, state)
            if state.c == incarnation.target:
                if incarnation.end is not None:  # of one that was killed, its step says what it published
                    self._publish_model(incarnation, state)
                self._final[incarnation.client, incarnation.number] = state
                self._moved = True
            if state.c >= incarnation.target and not self._sent_more(incarnation, state):
                return
            after = yield from self._step(incarnation, state)
            if after is None:
                return
            state, _ = kept(state, after)
            self.steps += 1
            yield

    def _first_published(self, incarnation: Incarnation, state: State) -> Vector:
        """What others saw of it before its first step; a client that died before it had weights made none."""
        if not incarnation.terms:
            return state.x
        terms = incarnation.terms[0][1]
        me = self.setup.client(incarnation.client, terms.w, terms.scale)
        return first_published(self.setup, me, state)[0]

    def _sent_more(self, incarnation: Incarnation, state: State) -> bool:
        """Whether others have used what a client sent in a step in which it was killed."""
        name = (incarnation.client, version(incarnation.number, state.c))
        published = incarnation.end is None and self._uses[name] > 0 and name not in self._kept
        return published or self._offers_more(incarnation, state)

    def _offers_more(self, incarnation: Incarnation, state: State) -> bool:
        """Whether others have used an offer that was made after all that is on its own record."""
        wanted = incarnation.last_offer
        return wanted is not None and state.c <= min(wanted, self.setup.steps_of(incarnation.client))

    def _first_state(self, incarnation: Incarnation) -> Generator[None, None, State]:
        if incarnation.how == "initial":
            return self.setup.first_state(self.x0, incarnation.c)
        if incarnation.how == "save":
            name = (incarnation.client, *incarnation.source)
            while name not in self._saved:
                yield
            saved, memory = self._saved[name]
            self._sender(incarnation).codec.restore(memory)
            return self.setup.resumed(State(saved.x, incarnation.c, saved.memory))
        wanted = incarnation.source[0], incarnation.source[1]
        if self._copies_a_save(incarnation):
            while wanted not in self._exact:
                yield
            return self.setup.first_state(self._exact[wanted], incarnation.c)
        while not self._is_there(wanted):
            yield
        return self.setup.first_state(self._use(wanted), incarnation.c)

    def _copies_a_save(self, incarnation: Incarnation) -> bool:
        """Whether a client started from a neighbour's model as it was saved, not as it was published."""
        if incarnation.how != "model":
            return False
        client, (number, c) = incarnation.source[0], split(incarnation.source[1])
        sessions = {
            each.session for each in self.incarnations if (each.client, each.number) == (client, number)
        }
        return c != 0 and incarnation.session not in sessions

    def _has_finished(self, incarnation: Incarnation, state: State) -> bool:
        """Whether a client published its last model; one that was stopped, or killed in a step, did not."""
        ended = incarnation.end is not None and incarnation is self.last[incarnation.client]
        return ended or state.c > self.setup.steps_of(incarnation.client)

    def _keep(self, incarnation: Incarnation, state: State) -> None:
        """What others, or a later incarnation, need of the state at the start of a step."""
        name = (incarnation.client, incarnation.number, state.c)
        if name in self._saves:
            self._saved[name] = (state, dict(self._sender(incarnation).codec.state()))
        model = (incarnation.client, version(incarnation.number, state.c))
        if model in self._sources:
            self._exact[model] = state.x
        if self.setup.algorithm.in_rounds and self._uses[model] > 0:
            self._kept.setdefault(model, state.x)  # models that were shown, from which a lost client started
        self._moved = True

    def _step(self, incarnation: Incarnation, state: State) -> Generator[None, None, State | None]:
        """The state after a step; None if the client was killed in it, after all that others have used."""
        terms = incarnation.terms_at(state.c)
        me = self.setup.client(incarnation.client, terms.w, terms.scale)
        generator = self.setup.algorithm.step(me, state)
        reply: object = None
        inboxes = 0
        while True:
            try:
                verb = generator.send(reply)
            except StopIteration as end:
                after: State = end.value
                return after
            if isinstance(verb, Exchange):
                self._offer(incarnation, verb)
                if verb.round == incarnation.last_offer:
                    return None
            reply = yield from self._serve(incarnation, (state.c, inboxes), verb)
            inboxes += isinstance(verb, Fetch | Exchange)
            on_no_record = isinstance(verb, Publish) and state.c >= incarnation.target
            if on_no_record and not self._sent_more(incarnation, state):
                return None

    def _serve(self, incarnation: Incarnation, name: InboxName, verb: Verb) -> Generator[None, None, object]:
        if isinstance(verb, Gradient):
            return self.setup.workload.gradient(verb.x, verb.batch)
        if isinstance(verb, Publish):
            self._publish(incarnation, verb.version, verb.x)
            return None
        if isinstance(verb, Fetch):
            models = yield from self._fetch(incarnation, name)
            return RecordedInbox(models, incarnation.ages.get(name))
        if isinstance(verb, Mix):
            if verb.rule is not None:
                return self.setup.mixed(verb, verb.inbox)
            if isinstance(verb.inbox, LazyInbox):
                half = verb.inbox.mix(verb.w, verb.x, np.empty_like(verb.x))
            else:
                half = mix(verb.w, verb.x, verb.inbox)
            return self.setup.keep_buffers(half, verb.x)
        if isinstance(verb, Exchange):
            fetched = yield from self._fetch(incarnation, name)
            exchanged = yield from self._exchange(incarnation, name)
            return RecordedInbox({**fetched, **exchanged})
        if isinstance(verb, AllReduce):
            return self.setup.keep_buffers((yield from self._all_reduce(incarnation, verb)), verb.value)
        raise UserError(
            f"{self.setup.algorithm.name} shares model cells, and the order in which clients write into them "
            "is not recorded: it cannot be replayed"
        )

    def _fetch(self, incarnation: Incarnation, name: InboxName) -> Generator[None, None, dict[int, Vector]]:
        """The published models that were used, as soon as they are there."""
        wanted = incarnation.fetched.get(name, {}).items()
        while not all(self._is_there(model) for model in wanted):
            yield
        return {model[0]: self._use(model) for model in wanted}

    # --- published models ----------------------------------------------------------------------

    def _sender(self, incarnation: Incarnation) -> _Sender:
        name = (incarnation.client, incarnation.number)
        if name not in self._senders:
            self._senders[name] = _Sender(tell_whose(self.setup.codec(), incarnation.client))
        return self._senders[name]

    def _publish(self, incarnation: Incarnation, c: int, x: Vector) -> None:
        """As the client did then: every model once, through its codec."""
        sender = self._sender(incarnation)
        if not sent_already(sender.last, c, x):
            sender.last = (c, x)
            sender.image = transmitted(sender.codec, x)
            name = (incarnation.client, version(incarnation.number, c))
            if self._uses[name] > 0:
                self._kept[name] = sender.image
            self._moved = True

    def _publish_model(self, incarnation: Incarnation, state: State) -> None:
        """Where messages are models, the last one stays with the neighbours."""
        if self.sends_models:
            self._publish(incarnation, state.c, state.x)

    def _is_there(self, name: ModelName) -> bool:
        return name[1] == 0 or name in self._kept

    def _use(self, name: ModelName) -> Vector:
        """A version that was needed; after its last use it is dropped."""
        if name[1] == 0:
            return self.first_message
        self._uses[name] -= 1
        return self._kept[name] if self._uses[name] else self._kept.pop(name)

    # --- rounds --------------------------------------------------------------------------------

    def _offer(self, incarnation: Incarnation, verb: Exchange) -> None:
        own = (incarnation.client, incarnation.session, verb.round)
        image = transmitted(self._sender(incarnation).codec, verb.x)
        if self._offer_uses[own]:
            self._offers[own] = image
            self._moved = True

    def _exchange(
        self, incarnation: Incarnation, name: InboxName
    ) -> Generator[None, None, dict[int, Vector]]:
        """The models of other clients' rounds that were used, as soon as they are there."""
        used = incarnation.exchanged.get(name, {})
        wanted = {k: (k, incarnation.session, round) for k, round in used.items()}
        while not all(offer in self._offers for offer in wanted.values()):
            yield
        return {k: self._use_offer(offer) for k, offer in wanted.items()}

    def _use_offer(self, offer: Offer) -> Vector:
        self._offer_uses[offer] -= 1
        return self._offers[offer] if self._offer_uses[offer] else self._offers.pop(offer)

    def _all_reduce(self, incarnation: Incarnation, verb: AllReduce) -> Generator[None, None, Vector]:
        those = [other for other in self.incarnations if other.session == incarnation.session]
        if any(other.end is None for other in those):
            raise UserError("an all-reduce from which a client was lost cannot be replayed")
        members = [other.client for other in those if other.c <= verb.round < other.target]
        given = self._given.setdefault((incarnation.session, verb.round), {})
        given[incarnation.client] = verb
        self._given.pop((incarnation.session, verb.round - 2), None)  # nobody is two rounds behind
        self._moved = True
        while len(given) < len(members):
            yield
        total = np.zeros_like(verb.value)
        gifts = [contribution(given[k]) for k in sorted(members)]
        for value, weight in gifts:
            total += weight * value
        weights = sum(weight for _, weight in gifts)
        mean: Vector = (total / weights).astype(total.dtype, copy=False)
        return mean


def replay(
    setup: Setup, folder: Path, progress: Callable[[int, int], None] = lambda done, total: None
) -> list[Vector]:
    """The final models of the run whose clients' journals are in this folder."""
    incarnations = [read_incarnations(folder, i, setup.n) for i in range(setup.n)]
    later = set() if setup.network is None else set(range(setup.n)) - setup.network().present
    for i, mine in enumerate(incarnations):
        if not mine and i not in later:  # who joins later may never have come to it
            raise UserError(f"{folder} has no record of client {i}: the run cannot be replayed")
    _log.debug("replaying %d incarnations of %d clients", sum(map(len, incarnations)), setup.n)
    return Replay(setup, incarnations).run(progress)
