"""Everything that an engine needs to know of a run, and nothing of how it was configured."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NoReturn, Protocol, TypeVar

import numpy as np

from swiftfl.algorithm import (
    Algorithm,
    FirstMessage,
    client_check_of,
    first_message_of,
    relies_on_the_start,
    resumed_of,
    why_only_simulated,
)
from swiftfl.client import Client, State
from swiftfl.costs import Costs
from swiftfl.engines.membership import Membership
from swiftfl.errors import UserError
from swiftfl.mixing import mix_by
from swiftfl.recycled import like
from swiftfl.sample import Batch
from swiftfl.schedule import StepSize, is_per_step
from swiftfl.transports.codec import Identity, MakeCodec
from swiftfl.vector import Vector, Weights
from swiftfl.verbs import Mix, Verb
from swiftfl.workload.base import Workload, placed

S = TypeVar("S")
Barrier = Literal["neighbours", "global"]
Buffers = Literal["averaged", "own"]
"""Whether running buffers (of BatchNorm) are averaged with the models, or stay each client's own."""
KeepBuffers = Callable[[Vector, Vector], Vector]
"""`Setup.keep_buffers`."""
SelectionMode = Literal["central", "distributed"]


class LocalBatches(Protocol):
    """A client's own data as batches by its counter, and how many of them make an epoch."""

    @property
    def steps_per_epoch(self) -> int: ...

    def __call__(self, c: int) -> Batch: ...


class LocalStepSize:
    """The step size by a client's own counter, times `scale`; one per epoch is asked once and remembered."""

    __slots__ = ("_epoch", "_per_step", "_scale", "_schedule", "_steps", "_value")

    def __init__(self, schedule: StepSize, steps_per_epoch: int, scale: float = 1.0) -> None:
        self._schedule = schedule
        self._per_step = is_per_step(schedule)
        self._steps = steps_per_epoch
        self._scale = scale
        self._epoch = -1
        self._value = 0.0

    def __call__(self, c: int) -> float:
        if self._per_step:
            return float(self._scale * self._schedule((c - 1) / self._steps))
        epoch = (c - 1) // self._steps
        if epoch != self._epoch:
            self._epoch, self._value = epoch, float(self._scale * self._schedule(epoch))
        return self._value


class Services(dict[type, S]):
    """Who serves which verb; whatever else a step yields is refused."""

    def __missing__(self, kind: type) -> NoReturn:
        raise UserError(
            f"the step of the algorithm yields {_a(kind.__name__)}, which is no verb: it must ask with "
            "`yield from`, as in `yield from Publish(...)` (docs/verbs.md)"
        )


def require_generator(algorithm: Algorithm[Verb], step: object) -> None:
    """That a step can be run: a function without `yield` gives its value and no generator."""
    if not isinstance(step, Generator):
        raise UserError(
            f"the step of the algorithm {algorithm.name} has no `yield`, so is no generator: it must ask the "
            "world with `yield from` (docs/verbs.md)"
        )


def _a(word: str) -> str:
    return f"an {word}" if word[:1] in "aeiouAEIOU" else f"a {word}"


def refuse_rounds(algorithm: Algorithm[Verb]) -> Callable[..., NoReturn]:
    """What serves verbs of rounds where an algorithm says that it has none.

    Engines rely on that: they would change weights, stop and save in the middle of a round, and some clients
    would wait for ever. The reverse is no mistake: between its rounds an algorithm may use all other verbs.
    """

    def refuse(*request: object) -> NoReturn:
        verb = type(request[-1]).__name__
        raise UserError(
            f"the algorithm {algorithm.name} says in_rounds = False, but its step yields {verb}, with which "
            "clients meet in rounds: it must say in_rounds = True (docs/verbs.md)"
        )

    return refuse


def own_messages(setup: Setup) -> FirstMessage | None:
    """How an algorithm makes the first message that it sends instead of models; None if it sends these."""
    first, name = first_message_of(setup.algorithm), setup.algorithm.name
    unlike_models = first is not None or why_only_simulated(setup.algorithm) is not None
    if unlike_models and not isinstance(setup.codec(), Identity):
        raise UserError(f"{name} does not send models, which is what codecs are for: leave out the codec")
    if setup.network is not None and relies_on_the_start(setup.algorithm):
        changing = setup.network().dynamics.changing
        if changing or setup.ccs == "distributed":
            raise UserError(f"{name} relies on the clients and links of the start: its network cannot change")
    return first


def refuse_in_live(setup: Setup, restarts: bool) -> FirstMessage | None:
    """What live engines cannot do for an algorithm; `restarts` says whether lost clients come back.

    They carry vectors of one length, and each client reaches its own cell and its neighbours' only. Gives
    what `own_messages` does.
    """
    name, why = setup.algorithm.name, why_only_simulated(setup.algorithm)
    if why is not None:
        raise UserError(f"{name} {why}, which processes cannot do yet: use --engine virtual or sampled")
    if restarts and relies_on_the_start(setup.algorithm):
        raise UserError(
            f"{name} relies on the clients of the start: one that is lost cannot come back "
            "(leave out engine.live.restart_lost)"
        )
    return own_messages(setup)


_OF_AN_ALGORITHM = ("name", "in_rounds", "rule", "step")  # the members of `Algorithm`


@dataclass(frozen=True)
class Setup:
    """A run: who trains what, with which algorithm, at what cost, until when.

    It ends when each client has passed `epochs` times over its own data, or after `iterations`
    client steps in all (the global count), whichever is given; with both, whichever comes first.
    """

    algorithm: Algorithm[Verb]
    workload: Workload
    weights: Sequence[Weights]
    batches: Sequence[LocalBatches]
    step_size: StepSize
    influence: Sequence[float]
    costs: Costs = field(default_factory=Costs)
    barrier: Barrier = "neighbours"
    ccs: SelectionMode = "central"
    """Who runs CCS: one for all, or the clients themselves by messages (`graph/messages.py`)."""
    network: Callable[[], Membership] | None = None
    epochs: int | None = None
    iterations: int | None = None
    seed: int = 0
    codec: MakeCodec = Identity
    """What models pass through on their way to neighbours."""
    buffers: Buffers = "averaged"
    workers: int = 1
    """Processes in which a simulated run computes, its own too; 0: one per core. No bit depends on it."""

    def __post_init__(self) -> None:
        missing = [name for name in _OF_AN_ALGORITHM if not hasattr(self.algorithm, name)]
        if missing:
            kind = type(self.algorithm).__name__
            raise UserError(
                f"the algorithm {kind} has no {', '.join(missing)} (docs/verbs.md says what that is)"
            )
        if not len(self.weights) == len(self.batches) == len(self.influence):
            raise UserError(
                f"{len(self.weights)} weights, {len(self.batches)} data parts and "
                f"{len(self.influence)} influence scores do not make one federation"
            )
        if self.buffers == "own" and not self.workload.buffers:
            raise UserError(
                f"model {self.workload.name} has no running buffers that could stay the clients' own: "
                "leave out --buffers own, or choose a model with batch norm"
            )
        if self.epochs is None and self.iterations is None:
            raise UserError("a run needs an end: give epochs or iterations")
        for name in ("epochs", "iterations"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(f"{name} must be at least 1, not {value}")
        self.costs.check_clients(self.n)
        check = client_check_of(self.algorithm)
        if check is not None:
            for i in range(self.n):
                check(self.client(i))

    @property
    def n(self) -> int:
        return len(self.weights)

    def client(self, i: int, w: Weights | None = None, scale: float = 1.0) -> Client:
        """Client i, with its own weights or others, and its step size scaled."""
        w, batches = w or self.weights[i], self.batches[i]
        step_size = LocalStepSize(self.step_size, batches.steps_per_epoch, scale)
        return Client(i, tuple(w.of), w, self.influence[i], batches, step_size)

    @property
    def own_buffers(self) -> int:
        """How many numbers at the end of a vector are not averaged."""
        return self.workload.buffers if self.buffers == "own" else 0

    def keep_buffers(self, average: Vector, own: Vector) -> Vector:
        """What a client with the model `own` makes of an average: its buffers may have to stay."""
        if self.buffers == "averaged":
            return average
        count = self.workload.buffers
        return np.concatenate((average[:-count], own[-count:]), out=like(average))

    def mixed(self, verb: Mix, inbox: Mapping[int, Vector]) -> Vector:
        """What the rule of a `Mix` makes of these models; running buffers may have to stay."""
        assert verb.rule is not None
        if not self.own_buffers:
            return mix_by(verb.rule, verb.w, verb.x, inbox, self.workload.buffers)
        count = self.own_buffers
        averaged = {k: inbox[k][:-count] for k in verb.w.of if k in inbox}
        half = mix_by(verb.rule, verb.w, verb.x[:-count], averaged, 0)
        return np.concatenate((half, verb.x[-count:]))

    def first_state(self, x: Vector, c: int = 1) -> State:
        """A client that starts from model x at step c, with nothing to remember yet."""
        x = placed(self.workload, x)
        return State(x, c, self.algorithm.rule.init(x))

    def resumed(self, state: State) -> State:
        """From where a live client goes on that was saved in this state."""
        resumed = resumed_of(self.algorithm)
        return state if resumed is None else resumed(state)

    def placed(self, state: State) -> State:
        """A state from elsewhere, its vectors where the workload computes."""
        memory = {name: placed(self.workload, array) for name, array in state.memory.items()}
        return State(placed(self.workload, state.x), state.c, memory)

    def batch_sizes(self) -> tuple[int, int]:
        """Of the smallest and the largest batch of all clients; zeros where batches do not say."""
        found = {sizes for batches in self.batches if (sizes := getattr(batches, "sizes", None)) is not None}
        return min((small for small, _ in found), default=0), max((large for _, large in found), default=0)

    def steps_of(self, i: int) -> float:
        """After how many local steps client i has finished."""
        return float("inf") if self.epochs is None else self.epochs * self.batches[i].steps_per_epoch
