"""Memory for large vectors that is used again and again.

A step of a large model makes a gradient, an average, a model and what its update rule remembers, and drops
as many. Fresh memory for them would be faulted in page by page, which costs more than the arithmetic. An
array of `like` is an ordinary one; when it and every view of it are gone, its memory waits here for the next
array of its size. So nothing is ever written that somebody can still see, and no caller has to say when it
is done. Whoever ends a run lets go of what waits (`let_go`).
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.floating]
LARGE = 32_768
"""Numbers from which on a vector is large: its arithmetic is done in as few passes over memory as can be.

Below, every array of a step fits the cache, and NumPy's calls one by one are the fastest.
"""


def is_large(*vectors: Vector) -> bool:
    """Whether these take the passes of large vectors: those that are on a device do not."""
    return vectors[0].size >= LARGE and all(isinstance(x, np.ndarray) for x in vectors)


KEPT = 6
"""Blocks of one size that wait for their next use: as many as a step of Adam drops."""
SIZES = 4
"""Different sizes that are kept; a process has few models."""
_ALIGNED = 64  # bytes: a line of the cache

_Waiting = deque[npt.NDArray[np.uint8]]
_free: dict[int, _Waiting] = {}


class _Block:
    """Memory that goes back to those that wait when the last array in it is gone."""

    __slots__ = ("__array_interface__", "_memory")

    def __init__(self, memory: npt.NDArray[np.uint8], size: int, dtype: np.dtype[np.floating]) -> None:
        self._memory = memory
        address = memory.ctypes.data
        place = (address + -address % _ALIGNED, False)
        self.__array_interface__ = {"shape": (size,), "typestr": dtype.str, "data": place, "version": 3}

    def __del__(self, free: dict[int, _Waiting] = _free) -> None:  # which is there to the end of Python, too
        waiting = free.get(self._memory.size)
        if waiting is not None:  # else nobody has asked for its size since `let_go`
            waiting.append(self._memory)  # which drops its oldest


def like(x: Any) -> Vector:
    """A vector like x whose numbers are not set; if it is large, of memory that was used before."""
    if isinstance(x, np.ndarray):
        return vector(x.size, x.dtype)
    return np.empty_like(x)  # on its device


def vector(size: int, dtype: np.dtype[np.floating]) -> Vector:
    """The same, by size and type."""
    if size < LARGE:
        return np.empty(size, dtype)
    nbytes = size * dtype.itemsize + _ALIGNED
    waiting = _free.get(nbytes)
    if waiting is None:
        if len(_free) >= SIZES:
            _free.clear()
        waiting = _free[nbytes] = deque(maxlen=KEPT)
    try:
        memory = waiting.pop()  # the newest: what of it is in the cache is still there
    except IndexError:
        memory = np.empty(nbytes, dtype=np.uint8)
    return np.asarray(_Block(memory, size, dtype))


def let_go() -> None:
    """Give back the memory that waits; arrays that somebody still sees are not touched.

    At the end of a run: of a large model it is several times the model, and whatever comes next in the
    process may have another. What the run itself drops only now is given back, too.
    """
    _free.clear()
