"""Random numbers by key: what a client draws depends on what it is for, never on the order of events.

Each draw belongs to a stream named by (seed, purpose, client, counter). Two engines that process
events in different orders therefore draw the same batches, delays and masks, and a run that is
resumed needs no generator state: the key is the state.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np


@lru_cache(maxsize=65536)
def _key(seed: int, purpose: str, client: int) -> int:
    digest = hashlib.blake2b(f"{seed}/{purpose}/{client}".encode(), digest_size=16).digest()
    return int.from_bytes(digest, "little")


def stream(seed: int, purpose: str, client: int = -1, counter: int = 0) -> np.random.Generator:
    """The generator of one key; `client` is -1 for draws that belong to no client.

    >>> a = stream(7, "shuffle", client=3, counter=2).permutation(5)
    >>> bool((a == stream(7, "shuffle", client=3, counter=2).permutation(5)).all())
    True
    """
    bits = np.random.Philox(key=_key(seed, purpose, client), counter=[0, 0, 0, counter])
    return np.random.Generator(bits)


def number(seed: int, purpose: str, client: int = -1, counter: int = 0) -> int:
    """One 63-bit integer of a key, to seed a generator of another library."""
    return int(stream(seed, purpose, client, counter).integers(0, 2**63 - 1))
