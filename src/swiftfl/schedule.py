"""When a client averages (communication sets), and how large its steps are (step-size schedules).

Communication sets are predicates on the local counter c, which counts from 1:

* `every(s)` is the paper's C_s = {c : c mod (s+1) = 0}; the first averaging is at c = s+1.
* `alternating(i1, i2)` is LD-SGD's cycle: i1 local steps, then i2 averaging ones.

Step sizes are functions of the epoch: how many times a client has passed over its own data (the paper's
"epoch 81" is the 81st pass over the data or later; `decay_at` lowers the step size once that many epochs are
complete). They are asked once per epoch, with whole numbers; one whose `per_step` is true is asked at every
step, with fractions. Those that are chosen by name are in `SCHEDULES`:

* `step` (`Decay`), per epoch: initial rate^(how many of the epochs `at` have passed); `constant` is rate 1.
* `cosine` (`Cosine`), per step (Loshchilov and Hutter, SGDR, ICLR 2017, without restarts):
  initial (final + (1 - final) (1 + cos(pi epoch / epochs)) / 2), and `final` of it afterwards.
* Any of them after a linear warm-up (`WarmUp`; Goyal et al., 2017), per step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Annotated, ClassVar, Literal, Protocol, TypeAlias

from annotated_types import Ge, Le

from swiftfl.errors import UserError, in_one_line
from swiftfl.registry import Registry, absent
from swiftfl.settings import Count, Positive

Order: TypeAlias = Literal["update_first", "average_first"]
"""Of a synchronous step: (X - step_size G) W as printed, or X W - step_size G as in the authors' code."""

Broadcast: TypeAlias = Literal["before", "after"]
"""When SWIFT publishes: before the gradient as in line 7, or after it as the authors' code does."""

DecayAt: TypeAlias = Literal["start", "average"]
"""Where SWIFT's weight decay acts: at x^t, as its gradient, or at x^{t+1/2} as in the authors' code."""

Averaging: TypeAlias = Literal["after", "background"]
"""When AD-PSGD averages: after its gradient, or beside it as in its paper."""

MomentumOrder: TypeAlias = Literal["update_first", "swift"]
"""Of quasi-global momentum: its paper's order, in rounds, or SWIFT's, wait-free."""

PushForm: TypeAlias = Literal["synchronous", "overlapped"]
"""Of stochastic gradient push: in rounds, or without waiting."""

EpochOfDecay: TypeAlias = Literal["printed", "authors"]
"""Whether the step size falls at the epochs that the paper prints, or where the authors' code lowers it."""


class CommunicationSet(Protocol):
    def __contains__(self, c: object) -> bool: ...


@dataclass(frozen=True, slots=True)
class Cycle:
    """The counters at which a client averages: after `local` steps without, `averaging` steps with."""

    local: int
    averaging: int

    def __post_init__(self) -> None:
        if self.local < 0 or self.averaging < 1:
            raise UserError(
                "a communication set needs local steps >= 0 and averaging steps >= 1, "
                f"not {self.local} and {self.averaging}"
            )

    def __contains__(self, c: object) -> bool:
        return isinstance(c, int) and (c - 1) % (self.local + self.averaging) >= self.local

    def __str__(self) -> str:
        return f"C_{self.local}" if self.averaging == 1 else f"C_{self.local},{self.averaging}"


def every(s: int) -> Cycle:
    """The paper's C_s: average at every (s+1)-th local step.

    >>> [c for c in range(1, 9) if c in every(3)]
    [4, 8]
    """
    return Cycle(local=s, averaging=1)


def alternating(i1: int, i2: int) -> Cycle:
    """LD-SGD's C_{I1,I2}: I1 local steps, then I2 averaging ones.

    The paper's printed set (a union of multiples of I1+1 .. I1+I2+1) is not what its text and figure
    describe, nor what I2 = 1 reducing to PA-SGD needs; this is the cycle of the text.

    >>> [c for c in range(1, 11) if c in alternating(3, 2)]
    [4, 5, 9, 10]
    """
    return Cycle(local=i1, averaging=i2)


class StepSize(Protocol):
    """A step size by the epoch; whole numbers, unless it has an attribute `per_step` that is true."""

    def __call__(self, epoch: float, /) -> float: ...


def is_per_step(schedule: StepSize) -> bool:
    """Whether a schedule is asked at every step, with fractions of an epoch."""
    return bool(getattr(schedule, "per_step", False))


@dataclass(frozen=True, slots=True)
class Decay:
    """A step size that is multiplied by `rate` at given epochs, or from an epoch on, periodically.

    The authors' code lowers its step size at the end of an epoch and counts from 0: what the paper prints as
    epoch 81 takes effect at 82, and the first of the periodic steps one period after `start`. With
    `epoch_of_decay="authors"` it is so here.
    """

    initial: float
    rate: float = 1.0
    at: tuple[int, ...] = ()
    start: int | None = None
    period: int = 1
    epoch_of_decay: EpochOfDecay = "printed"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.initial) and self.initial >= 0):
            raise UserError(f"the step size must be finite and not negative, not {self.initial}")
        if not (math.isfinite(self.rate) and self.rate > 0) or self.period < 1:
            raise UserError(f"a decay needs rate > 0 and period >= 1, not {self.rate} and {self.period}")

    def __call__(self, epoch: float) -> float:
        late = self.epoch_of_decay == "authors"
        complete = math.floor(epoch)
        times = sum(complete >= e + late for e in self.at)
        if self.start is not None:
            start = self.start + self.period * late
            times += max(0, 1 + (complete - start) // self.period)
        return float(self.initial * self.rate**times)


def constant(step_size: float) -> Decay:
    return Decay(step_size)


def decay_at(step_size: float, rate: float, epochs: tuple[int, ...]) -> Decay:
    """The paper's "(1/10, 81 & 122, Single)".

    >>> step_size = decay_at(0.1, 0.1, (81, 122))
    >>> [round(step_size(e), 6) for e in (0, 80, 81, 122)]
    [0.1, 0.1, 0.01, 0.001]
    """
    return Decay(step_size, rate, at=tuple(epochs))


def decay_every(step_size: float, rate: float, start: int, period: int) -> Decay:
    """The paper's "(1/2, 200, 10)": halve at epoch 200 and every 10 epochs after.

    >>> step_size = decay_every(0.8, 0.5, 200, 10)
    >>> [step_size(e) for e in (199, 200, 209, 210)]
    [0.8, 0.4, 0.4, 0.2]
    """
    return Decay(step_size, rate, start=start, period=period)


def _check_length(what: str, epochs: float, **share: float) -> None:
    """Of a schedule that ends: how long it is, and the share of the step size at one of its ends."""
    ((end, value),) = share.items()
    if not (math.isfinite(epochs) and epochs > 0) or not 0 <= value <= 1:
        raise UserError(f"{what} needs epochs > 0 and {end} from 0 to 1, not {epochs} and {value}")


@dataclass(frozen=True, slots=True)
class Cosine:
    """Half a cosine from `initial` to the share `final` of it, `epochs` long; constant afterwards.

    >>> step_size = Cosine(0.4, epochs=10, final=0.5)
    >>> [round(step_size(e), 6) for e in (0, 5, 7.5, 10, 11)]
    [0.4, 0.3, 0.229289, 0.2, 0.2]
    """

    initial: float
    epochs: float
    final: float = 0.0
    per_step: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not (math.isfinite(self.initial) and self.initial >= 0):
            raise UserError(f"the step size must be finite and not negative, not {self.initial}")
        _check_length("a cosine", self.epochs, final=self.final)

    def __call__(self, epoch: float) -> float:
        passed = min(epoch / self.epochs, 1.0)
        return self.initial * (self.final + (1 - self.final) * (1 + math.cos(math.pi * passed)) / 2)


@dataclass(frozen=True, slots=True)
class WarmUp:
    """Any schedule times a factor that grows from `start` to 1 in the first `epochs`, a little at each step.

    The factor is that of torch's LinearLR with `start_factor=start`.

    >>> step_size = WarmUp(constant(0.5), epochs=2)
    >>> [round(step_size(e), 6) for e in (0, 0.5, 1, 2, 3)]
    [0.05, 0.1625, 0.275, 0.5, 0.5]
    """

    schedule: StepSize
    epochs: float
    start: float = 0.1
    per_step: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_length("a warm-up", self.epochs, start=self.start)

    def __call__(self, epoch: float) -> float:
        value = self.schedule(epoch if is_per_step(self.schedule) else math.floor(epoch))
        if epoch >= self.epochs:
            return value
        return value * (self.start + (1 - self.start) * epoch / self.epochs)


@dataclass(frozen=True, slots=True)
class Scaled:
    """`initial` times what a function of one's own says of the epoch."""

    initial: float
    factor: Callable[[float], float]

    @property
    def per_step(self) -> bool:
        return bool(getattr(self.factor, "per_step", False))

    def __call__(self, epoch: float) -> float:
        try:
            times = self.factor(epoch)
        except Exception as error:  # whatever a function of one's own may raise
            raise UserError(f"the schedule failed at epoch {epoch:g}: {in_one_line(error)}") from error
        if isinstance(times, bool) or not isinstance(times, Real) or not 0 <= float(times) < math.inf:
            raise UserError(
                f"the schedule gave {times!r} at epoch {epoch:g}: it must give a number, at least 0, "
                "by which lr is multiplied"
            )
        return self.initial * float(times)


# --- by name --------------------------------------------------------------------------------------

SCHEDULES: Registry[Callable[..., StepSize]] = Registry("schedule", stand_in=absent)
"""Functions `(initial, run_epochs, *, option=default, ...)`; `run_epochs` is None if a run ends by steps."""

FromZeroToOne: TypeAlias = Annotated[float, Ge(0), Le(1)]


@SCHEDULES.add("constant")
def _constant(initial: float, run_epochs: int | None) -> Decay:
    """The same step size throughout."""
    return constant(initial)


@SCHEDULES.add("step")
def _step(
    initial: float,
    run_epochs: int | None,
    *,
    rate: Positive = 1.0,
    at: tuple[int, ...] = (),
    start: int | None = None,
    period: Count = 1,
    epoch_of_decay: EpochOfDecay = "printed",
) -> Decay:
    """Times `rate` at the epochs `at`, or from the epoch `start` on every `period` epochs."""
    return Decay(initial, rate, at, start, period, epoch_of_decay)


@SCHEDULES.add("cosine")
def _cosine(
    initial: float, run_epochs: int | None, *, epochs: Positive | None = None, final: FromZeroToOne = 0.0
) -> Cosine:
    """Half a cosine, down to the share `final` after `epochs` (those of the run, unless they are given)."""
    length = epochs or run_epochs
    if length is None:
        raise UserError(
            "schedule cosine needs its length in epochs, because the run ends after a number of steps: "
            "give algorithm.step_size.epochs"
        )
    return Cosine(initial, length, final)


def after_warmup(schedule: StepSize, epochs: float) -> StepSize:
    """The schedule, after a warm-up if that has any length."""
    return WarmUp(schedule, epochs) if epochs else schedule
