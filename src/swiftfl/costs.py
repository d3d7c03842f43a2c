"""What things cost in virtual time.

A client's time is spent in three ways: *compute* (gradients), *communication* (its own part of
sending, fetching and averaging, and transfers that it is busy with) and *waiting* (blocked on
others). A wait-free publish costs the sender `send` per neighbour; the model then travels by itself
and arrives `latency + bytes / bandwidth` later. A synchronous exchange keeps the client busy for the
journey too. A slowdown multiplies compute only, as in the paper's experiments.

With `shared_bandwidth`, all clients live on one host and an exchange of everybody (barrier global) moves all
its messages through the host's memory at once: it takes `latency + all bytes / shared_bandwidth`, in which
sending and averaging are included (and never less than the journey of one message and the averaging).

Whatever is random is keyed by (client or link, counter), so that it does not depend on the order of
events: the k-th gradient of client i takes the same time in every run of a seed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from swiftfl.errors import UserError
from swiftfl.streams import stream

_BLOCK = 256

_LARGEST_SPREAD = 20.0


@dataclass(frozen=True)
class Slowdown:
    """Client `client` computes `factor` times as slowly, from a time on, until another."""

    client: int
    factor: float
    start: float = 0.0
    end: float = math.inf

    def __post_init__(self) -> None:
        if not (math.isfinite(self.factor) and self.factor > 0):
            raise UserError(f"the slowdown of client {self.client} must be positive, not {self.factor}")
        if not self.start < self.end:
            raise UserError(f"the slowdown of client {self.client} ends ({self.end}) before it starts")


@dataclass(frozen=True)
class Link:
    """A link's own latency (seconds) and bandwidth (bytes per second)."""

    latency: float
    bandwidth: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.latency) and self.latency >= 0):
            raise UserError(f"latency must be finite and not negative, not {self.latency}")
        if not self.bandwidth > 0:
            raise UserError(f"bandwidth must be positive, not {self.bandwidth}")


@dataclass(frozen=True)
class Costs:
    """Seconds (and bytes per second) of the virtual world; the defaults imitate a small cluster.

    `spread` is the standard deviation of the logarithm of compute times (0: constant); `trace` gives,
    per client, factors that are gone through again and again. `jitter` is the mean of an exponential
    delay added to each message, `loss` the share of published models, or of fragments and packets, that never
    arrive (other exchanges are reliable: there a loss is a resend, which jitter stands for). Messages are as
    large as the model, or have `message_bytes` whatever is trained, to imitate the traffic of another model.
    Without a `shared_bandwidth`, messages of an exchange do not slow each other down.
    """

    compute: float = 0.010
    send: float = 0.00005
    mix: float = 0.00005
    latency: float = 0.0002
    bandwidth: float = 1e9
    slowdowns: tuple[Slowdown, ...] = ()
    spread: float = 0.0
    trace: Mapping[int, Sequence[float]] = field(default_factory=dict)
    links: Mapping[tuple[int, int], Link] = field(default_factory=dict)
    jitter: float = 0.0
    loss: float = 0.0
    message_bytes: int | None = None
    shared_bandwidth: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("compute", "send", "mix", "spread", "jitter"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise UserError(f"cost {name} must be finite and not negative, not {value}")
        if self.spread > _LARGEST_SPREAD:
            raise UserError(
                f"cost spread must be at most {_LARGEST_SPREAD:g}, not {self.spread}: "
                "it is the standard deviation of a logarithm"
            )
        Link(self.latency, self.bandwidth)
        if self.shared_bandwidth is not None and not self.shared_bandwidth > 0:
            raise UserError(f"shared_bandwidth must be positive, not {self.shared_bandwidth}")
        if self.message_bytes is not None and self.message_bytes < 1:
            raise UserError(f"message_bytes must be at least 1, not {self.message_bytes}")
        if not 0 <= self.loss < 1:
            raise UserError(f"message loss must be in [0, 1), not {self.loss}")
        for client, factors in self.trace.items():
            if not factors or not all(math.isfinite(f) and f > 0 for f in factors):
                raise UserError(f"the trace of client {client} must be positive numbers")

    def check_clients(self, n: int) -> None:
        """That whoever is named here exists."""
        named = [s.client for s in self.slowdowns] + list(self.trace)
        for client in (*named, *(i for link in self.links for i in link)):
            if not 0 <= client < n:
                raise UserError(f"there is no client {client} to be slow or linked: clients are 0 to {n - 1}")

    # --- compute -------------------------------------------------------------------------------

    def gradient(self, client: int, counter: int, at: float) -> float:
        """How long client's gradient number `counter` takes if it starts at time `at`."""
        seconds = self.compute
        if self._constant:
            return seconds
        if self._slow:
            for slow in self._slow.get(client, ()):
                if slow.start <= at < slow.end:
                    seconds *= slow.factor
        if client in self.trace:
            factors = self.trace[client]
            seconds *= factors[(counter - 1) % len(factors)]
        if self.spread:
            # The mean of a log-normal with this median is the given cost.
            seconds *= math.exp(self.spread * self._normal(client, counter) - self.spread**2 / 2)
        return seconds

    @cached_property
    def _constant(self) -> bool:
        return not (self.slowdowns or self.trace or self.spread)

    @cached_property
    def _slow(self) -> dict[int, list[Slowdown]]:
        by_client: dict[int, list[Slowdown]] = {}
        for slow in self.slowdowns:
            by_client.setdefault(slow.client, []).append(slow)
        return by_client

    def _normal(self, client: int, counter: int) -> float:
        return float(self._drawn("compute", client, counter, kind="normal"))

    # --- messages ------------------------------------------------------------------------------

    @property
    def same_everywhere(self) -> bool:
        """Whether every message of a size travels equally long."""
        return not (self.links or self.jitter or self.loss)

    def message(self, model_bytes: int) -> int:
        """The bytes of one message that carries a model of this size."""
        return model_bytes if self.message_bytes is None else self.message_bytes

    def transit(self, sender: int, receiver: int, size: int) -> float:
        """How long a model of `size` bytes travels over a link, without jitter."""
        link = self.links.get((min(sender, receiver), max(sender, receiver)))
        if link is None:
            return self.latency + size / self.bandwidth
        return link.latency + size / link.bandwidth

    def delay(self, sender: int, receiver: int, number: int, purpose: str = "jitter") -> float:
        """The jitter of the number-th message (for this purpose) of a sender to a receiver."""
        if not self.jitter:
            return 0.0
        return self.jitter * float(self._drawn(f"{purpose}/{receiver}", sender, number, kind="exponential"))

    def lost(self, sender: int, receiver: int, number: int) -> bool:
        """Whether the number-th published model of a sender never reaches this receiver."""
        return bool(self.loss) and self._drawn(f"loss/{receiver}", sender, number, kind="uniform") < self.loss

    def lost_packets(self, sender: int, receiver: int, round: int, count: int) -> npt.NDArray[np.bool_]:
        """Which of the packets of a sender's model of a round never reach this receiver."""
        drawn = stream(self.seed, f"packets/{receiver}", sender, round).random(count)
        return np.asarray(drawn < self.loss)

    def shared_exchange(self, messages: int, size: int) -> float:
        """An exchange of everybody, through one medium that all its messages share."""
        assert self.shared_bandwidth is not None
        return self.latency + messages * size / self.shared_bandwidth

    def all_reduce(self, clients: int, size: int) -> float:
        """A ring all-reduce: 2 (n-1) messages of size/n each, one after the other."""
        return 2 * (clients - 1) * (self.latency + size / clients / self.bandwidth)

    def server(self, clients: int, uploads: int, size: int) -> float:
        """Upload and download through a server; those of the `clients` who upload share its link."""
        return 2 * (self.latency + uploads * size / self.bandwidth) if clients > 1 else 0.0

    # --- random draws by key, made in blocks ---------------------------------------------------

    def _drawn(self, purpose: str, client: int, counter: int, kind: str) -> float:
        block, position = divmod(counter, _BLOCK)
        key = (purpose, client)
        kept = self._blocks.get(key)
        if kept is None or kept[0] != block:
            generator = stream(self.seed, purpose, client, block)
            make = {"normal": generator.standard_normal, "exponential": generator.standard_exponential}
            kept = self._blocks[key] = (block, make.get(kind, generator.random)(_BLOCK))
        return float(kept[1][position])

    @cached_property
    def _blocks(self) -> dict[tuple[str, int], tuple[int, npt.NDArray[np.float64]]]:
        return {}


FREE = Costs(compute=0.0, send=0.0, mix=0.0, latency=0.0, bandwidth=math.inf)
"""A world in which nothing takes time."""
