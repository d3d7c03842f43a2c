"""Random numbers by key: what a client draws depends on what it is for, never on the order of events.

Each draw belongs to a stream named by (seed, purpose, client, counter). Two engines that process
events in different orders therefore draw the same batches, delays and masks, and a run that is
resumed needs no generator state: the key is the state.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np
import numpy.typing as npt


@lru_cache(maxsize=65536)
def _key(seed: int, purpose: str, client: int) -> npt.NDArray[np.uint64]:
    digest = hashlib.blake2b(f"{seed}/{purpose}/{client}".encode(), digest_size=16).digest()
    return np.frombuffer(digest, dtype="<u8").astype(np.uint64)


def _position(counter: int) -> npt.NDArray[np.uint64]:
    return np.array([0, 0, 0, counter], dtype=np.uint64)


def stream(seed: int, purpose: str, client: int = -1, counter: int = 0) -> np.random.Generator:
    """The generator of one key; `client` is -1 for draws that belong to no client.

    >>> a = stream(7, "shuffle", client=3, counter=2).permutation(5)
    >>> bool((a == stream(7, "shuffle", client=3, counter=2).permutation(5)).all())
    True
    """
    bits = np.random.Philox(key=_key(seed, purpose, client), counter=_position(counter))
    return np.random.Generator(bits)


class _Shared:
    """One generator that is moved from key to key: a tenth of the cost of making a new one."""

    def __init__(self) -> None:
        self._bits = np.random.Philox(key=0)
        self._state = self._bits.state
        self._place = self._state["state"]  # its arrays are copied when a state is set
        self._position = _position(0)
        self.generator = np.random.Generator(self._bits)

    def move(self, key: npt.NDArray[np.uint64], counter: int) -> np.random.Generator:
        position = self._position
        position[3] = counter
        place = self._place
        place["key"], place["counter"] = key, position
        self._bits.state = self._state
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
