"""Things of your own, each registered from outside the package and then chosen by name like those of swiftfl.

    swiftfl list --import examples/extensions/extensions.py
    swiftfl run digits --import examples/extensions/extensions.py --algorithm one_neighbour \\
        --topology chords:chord=3 --partition first_classes:2 --rule yogi --lr 0.002 --schedule halving

Everything here works in every engine, and in `swiftfl resume` and `swiftfl replay`: a run records the module.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn
from torch.nn import functional

from swiftfl.algorithms import Context, algorithm
from swiftfl.client import Client, State
from swiftfl.data import DATASETS, PARTITIONS, Dataset, Partition, as_dataset
from swiftfl.data.partition import Indices
from swiftfl.errors import UserError
from swiftfl.graph import TOPOLOGIES, Topology
from swiftfl.graph.influence import Influence
from swiftfl.graph.methods import METHODS
from swiftfl.graph.sums import Values
from swiftfl.mixing import mixing_rule
from swiftfl.rules import SgdRule, UpdateRule, update_rule
from swiftfl.schedule import SCHEDULES, StepSize
from swiftfl.streams import stream
from swiftfl.trackers.base import Callback, Row, RunInfo
from swiftfl.trackers.registry import TRACKERS
from swiftfl.transports.base import TransportPlan, transport
from swiftfl.transports.codec import Bytes, MakeCodec, codec
from swiftfl.transports.poison import Poison, poison
from swiftfl.transports.shared_memory import SharedMemory
from swiftfl.vector import Memory, Vector, Weights, advance
from swiftfl.verbs import Fetch, Gradient, Mix, Publish, WaitFree
from swiftfl.workload import METRICS, MODELS
from swiftfl.workload.losses import LOSSES

# --- an algorithm ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class OneNeighbour:
    """SWIFT that averages with one random neighbour at a time, with whatever that one sent last."""

    keep: float = 0.5
    rule: UpdateRule = SgdRule()
    seed: int = 0
    name: str = "one_neighbour"
    in_rounds: ClassVar[bool] = False

    def step(self, me: Client, s: State) -> Generator[WaitFree, object, State]:
        yield from Publish(s.x, me.neighbours, version=s.c)
        slope = yield from Gradient(s.x, me.batch(s.c))
        k = int(stream(self.seed, "one-neighbour", me.index, s.c).choice(me.neighbours))
        inbox = yield from Fetch((k,))
        half = s.x
        if k in inbox:
            half = yield from Mix(Weights(self.keep, {k: 1.0 - self.keep}), s.x, inbox)
        move, memory = self.rule.update(slope.g, s.x, me.step_size(s.c), s.memory)
        return State(advance(half, move, slope.statistics), s.c + 1, memory)


@algorithm("one_neighbour", weighted=False)
def one_neighbour(context: Context, *, keep: float = 0.5) -> OneNeighbour:
    """Averages with one random neighbour at a time; `keep` is the weight of the own model."""
    return OneNeighbour(keep, context.rule, context.seed)


# --- an update rule -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Yogi:
    """Yogi (Zaheer et al., 2018): Adam whose second moment changes by a bounded amount in each step."""

    beta1: float
    beta2: float
    epsilon: float

    def init(self, x: Vector) -> Memory:
        return {"mean": np.zeros_like(x), "square": np.zeros_like(x)}

    def update(self, g: Vector, x: Vector, step_size: float, memory: Memory) -> tuple[Vector, Memory]:
        mean = self.beta1 * memory["mean"] + (1 - self.beta1) * g
        before = memory["square"]
        square = before - (1 - self.beta2) * np.sign(before - g * g) * g * g
        move = -step_size * mean / (np.sqrt(square) + self.epsilon)
        return move, {"mean": mean, "square": square}


@update_rule("yogi")
def yogi(*, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-3) -> Yogi:
    """Yogi, with its usual constants."""
    return Yogi(beta1, beta2, epsilon)


# --- a mixing rule, and a client that misbehaves --------------------------------------------------


class Median:
    """The median of all models, number by number, whatever the weights."""

    def mix(self, w: Weights, x: Vector, models: Mapping[int, Vector]) -> Vector:
        out: Vector = np.median(np.stack([x, *models.values()]), axis=0).astype(x.dtype)
        return out


@mixing_rule("median")
def median() -> Median:
    """The median of one's own model and the neighbours', number by number."""
    return Median()


@poison("zeros")
def zeros() -> Poison:
    """Zeros in place of the model."""
    return lambda x, k, key: np.zeros_like(x)


# --- a schedule -----------------------------------------------------------------------------------


@SCHEDULES.add("halving")
def halving(initial: float, run_epochs: int | None, *, period: int = 10) -> StepSize:
    """Half the step size every `period` epochs."""
    return lambda epoch: initial * 0.5 ** (epoch // period)


# --- a topology, weights, a partition, a dataset --------------------------------------------------


@TOPOLOGIES.add("chords")
def chords(n: int, *, chord: int = 3) -> Topology:
    """A ring with chords: client i and client i + `chord` are neighbours too."""
    pairs = {tuple(sorted((i, (i + hop) % n))) for i in range(n) for hop in (1, chord) if hop % n}
    return Topology(n, sorted(pairs))


@METHODS.add("shy")
def shy(topology: Topology, p: Influence) -> Values:
    """Half of the Metropolis weights: clients keep more of their own model."""
    return 0.5 * METHODS["metropolis"](topology, p)


@PARTITIONS.add("first_classes")
def first_classes(labels: Indices, clients: int, seed: int, few: int = 1) -> Partition:
    """Client 0 holds the classes below `few`; the others share the rest at random."""
    own, rest = np.flatnonzero(labels < few), np.flatnonzero(labels >= few)
    if clients < 2 or not own.size:
        raise UserError(f"first_classes:{few} needs two clients and samples of the first classes")
    shuffled = stream(seed, "first-classes").permutation(rest)
    parts = tuple(np.sort(part) for part in (own, *np.array_split(shuffled, clients - 1)))
    return Partition(f"first_classes:{few}", parts)


@DATASETS.add("moons")
def moons(samples: int = 600, noise: float = 0.1, seed: int = 0) -> Dataset:
    """Two half moons, which no line separates."""
    draw = stream(seed, "moons")
    sets = []
    for count in (samples, samples // 3):
        label = np.arange(count) % 2
        angle = draw.uniform(0.0, np.pi, count) + np.pi * label
        points = np.stack([np.cos(angle) + label, np.sin(angle) + 0.5 * label], axis=1)
        points += noise * draw.standard_normal(points.shape)
        sets.append((points.astype(np.float32), label))
    return as_dataset(sets[0], sets[1], name="moons")


# --- a model and a metric -------------------------------------------------------------------------


@MODELS.add("two_layers")
def two_layers(shape: Sequence[int], classes: int, hidden: int = 16) -> nn.Module:
    """Two hidden layers of `hidden` units."""
    size = int(np.prod(shape))
    first, second = nn.Linear(size, hidden), nn.Linear(hidden, hidden)
    return nn.Sequential(nn.Flatten(), first, nn.Tanh(), second, nn.Tanh(), nn.Linear(hidden, classes))


@LOSSES.add("smoothed")
def smoothed(outputs: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of labels of which a tenth is spread over all classes."""
    return functional.cross_entropy(outputs, labels, label_smoothing=0.1)


@METRICS.add("worst_class")
def worst_class(outputs: Tensor, labels: Tensor) -> float:
    """The accuracy on the class on which it is lowest."""
    right = outputs.argmax(dim=1) == labels
    return min(float(right[labels == k].double().mean()) for k in labels.unique())


# --- a codec and a transport ----------------------------------------------------------------------


@codec("half")
class Half:
    """Numbers of two bytes instead of four; what is lost by rounding is not made up for."""

    name = "half"

    def most_bytes(self, size: int, dtype: npt.DTypeLike) -> int:
        return 2 * size

    def encode(self, x: Vector) -> Bytes:
        return x.astype(np.float16).view(np.uint8)

    def decode(self, data: Bytes, size: int, dtype: npt.DTypeLike) -> Vector:
        if data.size != 2 * size:
            raise ValueError(f"{data.size} bytes are no vector of {size} halves")
        return data.view(np.float16).astype(dtype)

    def state(self) -> Memory:
        return {}

    def restore(self, memory: Memory) -> None:
        """It remembers nothing."""


@transport("announced")
def announced(
    neighbours: Sequence[Sequence[int]], x0: Vector, codec: MakeCodec, in_rounds: bool
) -> TransportPlan:
    """Shared memory, whose size is announced. A transport from scratch is a folder: see CONTRIBUTING.md."""
    print(f"{len(neighbours)} clients, models of {x0.nbytes} bytes", file=sys.stderr)
    return SharedMemory.create(neighbours, x0, codec, in_rounds)


# --- a tracker ------------------------------------------------------------------------------------


class Losses(Callback):
    """Writes a line per evaluation into losses.txt of the run folder."""

    folder: Path | None = None

    def on_start(self, about: RunInfo) -> None:
        self.folder = about.folder

    def on_evaluation(self, row: Row) -> None:
        if self.folder is not None:
            with (self.folder / "losses.txt").open("a") as file:
                file.write(f"{row['iteration']} {row['loss']}\n")


TRACKERS.register("losses", Losses)
