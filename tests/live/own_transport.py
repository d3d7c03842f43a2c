"""A transport of one's own, registered from outside the package: shared memory that counts what is published.

It shows how little a transport has to inherit: nothing. Every call of `swiftfl.transports.base.Transport`
that it does not care about is passed on.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from swiftfl.transports.base import Observer, Transport, transport
from swiftfl.transports.codec import MakeCodec
from swiftfl.transports.shared_memory import SharedMemory
from swiftfl.vector import Vector


@transport("counted")
class CountedPlan:
    """Where COUNTED_FOLDER is set, each client writes there how often it has published."""

    def __init__(
        self, neighbours: Sequence[Sequence[int]], x0: Vector, codec: MakeCodec, in_rounds: bool
    ) -> None:
        self.inner = SharedMemory.create(neighbours, x0, codec, in_rounds)
        self.models_in_memory = self.inner.models_in_memory

    def connect(self, i: int) -> Transport:
        return CountedTransport(self.inner.connect(i), i)  # type: ignore[return-value] # passes the rest on

    def observe(self) -> Observer:
        return self.inner.observe()

    def mark_gone(self, i: int) -> None:
        self.inner.mark_gone(i)

    def rejoin(self, i: int, from_round: int = 0) -> None:
        self.inner.rejoin(i, from_round)

    def stop(self) -> None:
        self.inner.stop()

    def close(self) -> None:
        self.inner.close()


class CountedTransport:
    def __init__(self, inner: Transport, i: int) -> None:
        self.inner, self.i, self.count = inner, i, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def publish(self, x: Vector, version: int) -> None:
        self.count += 1
        self.inner.publish(x, version)

    def close(self) -> None:
        if folder := os.environ.get("COUNTED_FOLDER"):
            (Path(folder) / f"{self.i}").write_text(str(self.count))
        self.inner.close()
