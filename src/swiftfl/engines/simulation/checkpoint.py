"""Pausing a simulated run anywhere, and going on from there as if nothing had happened.

At any moment every client is in the middle of a step. A generator cannot be saved, but a step is a
pure function of its start state and of the replies that it got: so a checkpoint holds, per client,
the state at the start of the step and the replies since, and resuming re-runs the step on them,
without their effects. With it go the heap, the clocks, the models in mailboxes and on their way, the
offers of synchronous rounds, and gradients that were computed but not yet delivered. Random draws
need nothing: they are keyed.

A checkpoint is a tree of plain values, with arrays replaced by references into a pool in which each
array is stored once, so that shared models stay shared. It is written as JSON and safetensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np

from swiftfl.client import State
from swiftfl.engines.membership import Change
from swiftfl.engines.simulation.barriers import Offer, Wait
from swiftfl.engines.simulation.mailboxes import Letter
from swiftfl.engines.simulation.sampled import Sampled
from swiftfl.engines.simulation.virtual import Virtual
from swiftfl.engines.simulation.world import World
from swiftfl.engines.terms import pack_terms, unpack_terms
from swiftfl.errors import UserError
from swiftfl.sample import Slope
from swiftfl.vector import Statistics, Vector
from swiftfl.verbs import AllReduce, Gradient

FORMAT = 3


@dataclass(frozen=True)
class Checkpoint:
    """What a paused run is made of: a JSON tree, and the arrays that it refers to."""

    tree: dict[str, Any]
    arrays: dict[str, Vector]


class _Pool:
    """Arrays by name, each stored once."""

    def __init__(self) -> None:
        self.arrays: dict[str, Vector] = {}
        self._names: dict[int, str] = {}

    def put(self, x: Vector | None) -> str | None:
        if x is None:
            return None
        name = self._names.get(id(x))
        if name is None:
            name = self._names[id(x)] = str(len(self.arrays))
            self.arrays[name] = x
        return name


# Replies by their kind: what a step may have been sent since it started.


def _pack_slope(slope: Slope, pool: _Pool) -> dict[str, Any]:
    s = slope.statistics
    packed: dict[str, Any] = {"g": pool.put(slope.g), "loss": slope.loss}
    if s is not None:
        constant = isinstance(s.rate, float)
        packed["statistics"] = pool.put(s.values)
        packed["rate"] = s.rate if constant else pool.put(cast(Vector, s.rate))
    return packed


def _unpack_slope(packed: Mapping[str, Any], arrays: Mapping[str, Vector]) -> Slope:
    statistics = None
    if "statistics" in packed:
        rate = packed["rate"]
        values = arrays[packed["statistics"]]
        statistics = Statistics(values, arrays[rate] if isinstance(rate, str) else rate)
    return Slope(arrays[packed["g"]], packed["loss"], statistics)


def _pack_reply(reply: object, pool: _Pool) -> Any:
    if reply is None:
        return None
    if isinstance(reply, Slope):
        return {"slope": _pack_slope(reply, pool)}
    if isinstance(reply, np.ndarray):
        return {"vector": pool.put(reply)}
    if isinstance(reply, Mapping):
        return {"inbox": [[k, pool.put(x)] for k, x in reply.items()]}
    raise TypeError(f"a reply of type {type(reply).__name__} cannot be saved")


def _unpack_reply(packed: Any, arrays: Mapping[str, Vector]) -> object:
    if packed is None:
        return None
    ((kind, value),) = packed.items()
    if kind == "slope":
        return _unpack_slope(value, arrays)
    if kind == "vector":
        return arrays[value]
    return {k: arrays[name] for k, name in value}


_PLAIN = ("iteration", "now", "active", "finished", "loss_sum", "loss_count", "pending", "busy",
          "loaded_at", "largest_delay", "order", "heap", "expected", "present", "lost_until")  # fmt: skip
_TIMES = ("clock", "compute", "communication", "waiting", "asleep", "steps")


def save(world: World) -> Checkpoint:
    """Everything that the rest of the run depends on, as it is now."""
    pool = _Pool()
    put = pool.put
    meetings, gathering = world.meetings, world.gathering
    tree: dict[str, Any] = {
        "format": FORMAT,
        "n": world.n,
        **{name: getattr(world, name) for name in _PLAIN},
        "times": {name: getattr(world.times, name) for name in _TIMES},
        "models": [put(x) for x in world.models],
        "states": [[put(s.x), s.c, {name: put(x) for name, x in s.memory.items()}] for s in world.states],
        "replies": [[_pack_reply(r, pool) for r in replies] for replies in world.replies],
        "slopes": [None if s is None else _pack_slope(s, pool) for s in world.slopes],
        "letters": [[[a.sent, a.version, put(a.x)] for a in box] for box in world.mailboxes.letters],
        "outcome": [[i, _pack_reply(r, pool), w, b] for i, (r, w, b) in world.outcome.items()],
        "offers": [
            [[round, o.time, put(o.x), sorted(o.readers)] for round, o in offers.items()]
            for offers in meetings.offers
        ],
        "waiting": [[i, list(wait)] for i, wait in meetings.waiting.items()],
        "missing": [[i, sorted(them)] for i, them in meetings.missing.items()],
        "latest": list(meetings.latest.items()),
        "last": meetings.last,
        "gone": list(meetings.gone.items()),
        "gathering": [
            [
                [i, time, put(verb.value), verb.weight, verb.round, verb.by_server]
                for i, (time, verb) in given.items()
            ]
            for given in gathering.rounds.values()
        ],
        # Mixes that were computed but not delivered are computed again: the same bits, in the same order.
        "mixing": [*(i for i, _ in world.mixed), *world.mixing],
        "draws": world.draws if isinstance(world, Sampled) else 0,
        "changes": _pack_changes(world) if isinstance(world, Virtual) else None,
    }
    return Checkpoint(tree, pool.arrays)


def restore(world: World, checkpoint: Checkpoint) -> None:
    """Put a newly made world of the same setup into the saved state."""
    tree, arrays = checkpoint.tree, checkpoint.arrays
    if tree.get("format") != FORMAT:
        raise UserError(f"this checkpoint has format {tree.get('format')}, this version reads {FORMAT}")
    if tree["n"] != world.n:
        raise UserError(f"this checkpoint is of {tree['n']} clients, the run has {world.n}")
    for name in _PLAIN:
        setattr(world, name, tree[name])
    world.heap = [(time, order, i) for time, order, i in tree["heap"]]
    for name in _TIMES:
        setattr(world.times, name, tree["times"][name])
    world.models = [arrays[x] for x in tree["models"]]
    world.states = [
        State(arrays[x], c, {name: arrays[m] for name, m in memory.items()})
        for x, c, memory in tree["states"]
    ]
    world.slopes = [None if s is None else _unpack_slope(s, arrays) for s in tree["slopes"]]
    world.mailboxes.letters = [[Letter(t, v, arrays[x]) for t, v, x in box] for box in tree["letters"]]
    world.mixing = list(tree["mixing"])
    world.outcome = {i: (_unpack_reply(r, arrays), w, b) for i, r, w, b in tree["outcome"]}
    _restore_rounds(world, tree, arrays)
    if isinstance(world, Sampled):
        world.draws = tree["draws"]
    elif isinstance(world, Virtual) and tree["changes"] is not None:
        _restore_changes(world, tree["changes"])
    world.replies = [[_unpack_reply(r, arrays) for r in replies] for replies in tree["replies"]]
    _rerun_steps(world)


def _restore_rounds(world: World, tree: Mapping[str, Any], arrays: Mapping[str, Vector]) -> None:
    meetings = world.meetings
    meetings.offers = [
        {round: Offer(time, arrays[x], set(readers)) for round, time, x, readers in offers}
        for offers in tree["offers"]
    ]
    meetings.waiting = {i: Wait(time, round, tuple(them)) for i, (time, round, them) in tree["waiting"]}
    meetings.missing = {i: set(them) for i, them in tree["missing"]}
    meetings.latest, meetings.last = dict(tree["latest"]), tree["last"]
    meetings.gone = dict(tree["gone"])
    world.gathering.rounds = {
        given[0][4]: {
            i: (time, AllReduce(arrays[x], w, round, server)) for i, time, x, w, round, server in given
        }
        for given in tree["gathering"]
    }


# The state of a network that changes, where there is one.


def _pack_changes(world: Virtual) -> dict[str, Any] | None:
    if world.network is None:
        return None
    return {
        "network": world.network.state(),
        "planned": [[order, asdict(change)] for order, change in world.changes.items()],
        "log": world.log,
        "measured_at": world.measured_at,
        "steps_then": world.steps_then,
        "cut": sorted(world.cut),
        "since": [[*pair, time] for pair, time in world.mailboxes.since.items()],
        "terms": [pack_terms(terms) for terms in world.terms],
        "renewed": [[i, [pack_terms(t) for t in queue]] for i, queue in world.renewed.items()],
        "naps": list(world.naps.items()),
        "were_away": sorted(world.were_away),
        "logged": world.logged,
    }


def _restore_changes(world: Virtual, packed: Mapping[str, Any]) -> None:
    assert world.network is not None
    world.network.restore(packed["network"])
    world.changes = {order: _unpack_change(change) for order, change in packed["planned"]}
    world.log = list(packed["log"])
    world.measured_at, world.steps_then = packed["measured_at"], packed["steps_then"]
    world.cut = {(i, j) for i, j in packed["cut"]}
    world.mailboxes.since = {(i, j): time for i, j, time in packed["since"]}
    for i, terms in enumerate(packed["terms"]):
        world.adopt(i, unpack_terms(terms))
    world.renewed = {i: [unpack_terms(t) for t in queue] for i, queue in packed["renewed"]}
    world.naps = dict(packed["naps"])
    world.were_away, world.logged = set(packed["were_away"]), packed["logged"]


def _unpack_change(packed: Mapping[str, Any]) -> Change:
    edge = packed["edge"]
    return Change(**{**packed, "edge": None if edge is None else tuple(edge)})


def _rerun_steps(world: World) -> None:
    """Bring each client's generator back to where it was parked."""
    algorithm = world.setup.algorithm
    world.generators = [algorithm.step(c, s) for c, s in zip(world.clients, world.states, strict=True)]
    for i, generator in enumerate(world.generators):
        if world.finished[i] or not world.present[i]:
            continue
        verb = next(generator)
        for reply in world.replies[i]:
            verb = generator.send(reply)
        world.parked[i] = verb
    unparked = [i for i in world.pending if not isinstance(world.parked[i], Gradient)]
    if unparked:
        raise UserError(f"this checkpoint belongs to another algorithm: client {unparked[0]} is elsewhere")
