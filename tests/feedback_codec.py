"""A codec for tests: it loses something, and remembers what."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from swiftfl.transports.codec import Bytes, codec
from swiftfl.vector import Memory, Vector


@codec("half_with_feedback")
class HalfWithFeedback:
    """Rounds to 16 bits, and adds what that left out to the next model (error feedback)."""

    name = "half_with_feedback"

    def __init__(self) -> None:
        self.left: Vector | None = None

    def most_bytes(self, size: int, dtype: npt.DTypeLike) -> int:
        return 2 * size

    def encode(self, x: Vector) -> Bytes:
        wanted = x if self.left is None else x + self.left
        code = wanted.astype(np.float16)
        self.left = wanted - code.astype(x.dtype)
        return code.view(np.uint8)

    def decode(self, data: Bytes, size: int, dtype: npt.DTypeLike) -> Vector:
        if data.size != 2 * size:
            raise ValueError(f"{data.size} bytes are no code of {size} numbers")
        return data.view(np.float16).astype(dtype)

    def state(self) -> Memory:
        return {} if self.left is None else {"left": self.left}

    def restore(self, memory: Memory) -> None:
        self.left = memory.get("left")
