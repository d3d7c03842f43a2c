"""What things cost in virtual time.

A client's time is spent in three ways: *compute* (gradients), *communication* (its own part of
sending, fetching and averaging, and transfers that it is busy with) and *waiting* (blocked on
others). A wait-free publish costs the sender `send` per neighbour; the model then travels by itself
and arrives `latency + bytes / bandwidth` later. A synchronous exchange keeps the client busy for the
journey too. A slowdown multiplies compute only, as in the paper's experiments.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from swiftfl.errors import UserError


@dataclass(frozen=True)
class Costs:
    """Seconds (and bytes per second) of the virtual world; the defaults imitate a small cluster."""

    compute: float = 0.010
    send: float = 0.0001
    mix: float = 0.0001
    latency: float = 0.0005
    bandwidth: float = 1e9
    slowdown: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("compute", "send", "mix", "latency"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise UserError(f"cost {name} must be finite and not negative, not {value}")
        if not self.bandwidth > 0:
            raise UserError(f"bandwidth must be positive, not {self.bandwidth}")
        for client, factor in self.slowdown.items():
            if not (math.isfinite(factor) and factor > 0):
                raise UserError(f"the slowdown of client {client} must be a positive number, not {factor}")

    def gradient(self, client: int, counter: int) -> float:
        return self.compute * self.slowdown.get(client, 1.0)

    def sending(self, neighbours: int) -> float:
        return self.send * neighbours

    def mixing(self, models: int) -> float:
        return self.mix * models

    def transit(self, size: int) -> float:
        """How long a model of `size` bytes travels over a link."""
        return self.latency + size / self.bandwidth

    def all_reduce(self, clients: int, size: int) -> float:
        """A ring all-reduce: 2 (n-1) messages of size/n each, one after the other."""
        return 2 * (clients - 1) * (self.latency + size / clients / self.bandwidth)

    def server(self, clients: int, size: int) -> float:
        """Upload and download through a server whose link the clients share."""
        return 2 * (self.latency + clients * size / self.bandwidth) if clients > 1 else 0.0


FREE = Costs(compute=0.0, send=0.0, mix=0.0, latency=0.0, bandwidth=math.inf)
"""A world in which nothing takes time."""
