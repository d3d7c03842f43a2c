"""Random numbers by key: what a client draws depends on what it is for, never on the order of events.

Each draw belongs to a stream named by (seed, purpose, client, counter). Two engines that process
events in different orders therefore draw the same batches, delays and masks, and a run that is
resumed needs no generator state: the key is the state.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from struct import Struct

import numpy as np

_TWO_NUMBERS = Struct("<2Q")


@lru_cache(maxsize=65536)
def _key(seed: int, purpose: str, client: int) -> tuple[int, int]:
    digest = hashlib.blake2b(f"{seed}/{purpose}/{client}".encode(), digest_size=16).digest()
    first, second = _TWO_NUMBERS.unpack(digest)
    return first, second


def stream(seed: int, purpose: str, client: int = -1, counter: int = 0) -> np.random.Generator:
    """The generator of one key; `client` is -1 for draws that belong to no client.

    >>> a = stream(7, "shuffle", client=3, counter=2).permutation(5)
    >>> bool((a == stream(7, "shuffle", client=3, counter=2).permutation(5)).all())
    True
    """
    key = np.array(_key(seed, purpose, client), dtype=np.uint64)
    position = np.array([0, 0, 0, counter], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=position))


class _Shared:
    """One generator that is moved from key to key: a tenth of the cost of making a new one."""

    def __init__(self) -> None:
        self._bits = np.random.Philox(key=0)
        # Numbers are read out of a state one by one, which is quicker from tuples than from arrays.
        self._place: dict[str, tuple[int, ...]] = {}
        self._state = {**self._bits.state, "state": self._place, "buffer": (0, 0, 0, 0)}
        self.generator = np.random.Generator(self._bits)

    def move(self, key: tuple[int, int], counter: int) -> np.random.Generator:
        place = self._place
        place["key"], place["counter"] = key, (0, 0, 0, counter)
        self._bits.state = self._state  # type: ignore[assignment]  # its numbers need no arrays
        return self.generator


_shared = _Shared()


def quick(seed: int, purpose: str, client: int = -1, counter: int = 0) -> np.random.Generator:
    """The same numbers as `stream`, to be drawn at once: the next call takes the generator away.

    >>> bool((quick(7, "shuffle", 3, 2).permutation(5) == stream(7, "shuffle", 3, 2).permutation(5)).all())
    True
    """
    return _shared.move(_key(seed, purpose, client), counter)


def number(seed: int, purpose: str, client: int = -1, counter: int = 0) -> int:
    """One 63-bit integer of a key, to seed a generator of another library."""
    return int(stream(seed, purpose, client, counter).integers(0, 2**63 - 1))
