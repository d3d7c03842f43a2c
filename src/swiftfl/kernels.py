"""Arithmetic on large models in one pass over memory: compiled if there is a compiler, else NumPy in blocks.

`kernels.c` is compiled once per machine (`compiling`), in about a second. When it is loaded it must give
the bits that NumPy gives, or it is not used. SWIFTFL_KERNELS=numpy does without it; results are the same
either way.
"""

from __future__ import annotations

import ctypes
import logging
import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from swiftfl.compiling import FAILURES, CSource, allowed
from swiftfl.recycled import Vector

log = logging.getLogger(__name__)

BLOCK = 65_536
"""Numbers that NumPy takes at a time: a few such blocks fit the second-level cache."""
_STREAM_BYTES = 8 << 20  # vectors from this size on are written past the caches
_NAMES = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}


def combine(out: Vector, terms: Sequence[tuple[float, Vector]]) -> bool:
    """Put the sum of factor times vector, in this order, into `out`, which is none of the vectors.

    Gives whether all of the result is finite.
    """
    found = _function("combine", out, *(x for _, x in terms))
    return _combine_in_blocks(out, terms) if found is None else _combine_by(found, out, terms)


def _combine_by(found: Any, out: Vector, terms: Sequence[tuple[float, Vector]]) -> bool:
    count = len(terms)
    places = (ctypes.c_void_p * count)(*(x.ctypes.data for _, x in terms))
    factors = (ctypes.c_double * count)(*(factor for factor, _ in terms))
    return bool(found(out.ctypes.data, out.size, places, factors, count, _streams(out)))


def copy(to: Vector, x: Any) -> None:
    """Put the numbers of x into `to`; where both are large, what is overwritten is not read first."""
    here = isinstance(x, np.ndarray)  # and not on a device
    if here and _streams(to) and x.shape == to.shape and _function("combine", to, x):
        library = _library()
        assert library is not None
        library.copy(to.ctypes.data, x.ctypes.data, x.nbytes)
    else:
        np.copyto(to, x)


def sgd(
    after: Vector,
    m_after: Vector | None,
    half: Vector,
    g: Vector,
    x: Vector,
    m: Vector | None,
    momentum: float,
    weight_decay: float,
    step_size: float,
    nesterov: bool,
) -> bool | None:
    """A step of SGD from `half`, into `after` and `m_after`; None if there is no such kernel."""
    found = _function("sgd", after, half, g, x, *(a for a in (m, m_after) if a is not None))
    if found is None:
        return None
    places = [_place(array) for array in (after, m_after, half, g, x, m)]
    scalars = (momentum, weight_decay, -step_size)
    return bool(found(*places, after.size, *map(ctypes.c_double, scalars), nesterov, _streams(after)))


def shift(out: Vector, half: Vector, now: Vector, before: Vector, scale: float) -> bool:
    """Put half + (now - before) scale into `out`; whether it is finite."""
    found = _function("shift", out, half, now, before)
    if found is not None:
        places = [_place(array) for array in (out, half, now, before)]
        return bool(found(*places, out.size, scale, _streams(out)))
    same_shapes(out, half, now, before)
    fine = True
    for start in range(0, out.size, BLOCK):
        part = slice(start, start + BLOCK)
        move = now[part] - before[part]
        move *= scale
        fine = finite(np.add(half[part], move, out=out[part])) and fine
    return fine


def adam(
    after: Sequence[Vector],
    half: Vector,
    g: Vector,
    x: Vector,
    moments: Sequence[Vector],
    scalars: Sequence[float],
    decoupled: bool,
) -> bool | None:
    """A step of Adam from `half`, into `after` (model, mean, square); None if there is no such kernel.

    The scalars are beta1, 1 - beta1, beta2, 1 - beta2, what the root of the square is multiplied by, epsilon,
    what the quotient is multiplied by, weight decay, and that times the step size.
    """
    found = _function("adam", *after, half, g, x, *moments)
    if found is None:
        return None
    places = [_place(array) for array in (*after, half, g, x, *moments)]
    given = (ctypes.c_double * len(scalars))(*scalars)
    return bool(found(*places, half.size, given, decoupled, _streams(half)))


def compiled() -> bool:
    """Whether the compiled kernels are there; makes them, if need be."""
    return _library() is not None


def why_not_compiled() -> str:
    """Why the compiled kernels are not used; empty if they are."""
    if not allowed():
        return "SWIFTFL_KERNELS is numpy"
    if compiled():
        return ""
    try:
        _loaded()
    except FAILURES as error:
        return str(error)
    return "they do not give NumPy's bits"


def _function(name: str, *vectors: Vector) -> Any:
    """The compiled function, if it can take these vectors: it would read past the end of a shorter one."""
    library = _library()
    kind = _NAMES.get(vectors[0].dtype)
    if library is None or kind is None:
        return None
    dtype, shape = vectors[0].dtype, vectors[0].shape
    if any(v.dtype != dtype or v.shape != shape or not v.flags.c_contiguous for v in vectors):
        return None
    return getattr(library, f"{name}_{kind}")


def blocks(size: int) -> Iterator[slice]:
    """A vector of this size, block after block: what was made of one is in the cache for the next pass."""
    return (slice(start, min(start + BLOCK, size)) for start in range(0, size, BLOCK))


def same_shapes(*vectors: Vector) -> None:
    """Refuse what NumPy's blocks would not see: a longer vector, or one of whose block one number is left.

    Raises:
        ValueError: if the shapes differ.
    """
    if any(v.shape != vectors[0].shape for v in vectors):
        shapes = " ".join(str(v.shape) for v in vectors)
        raise ValueError(f"operands could not be broadcast together with shapes {shapes}")


def _place(array: Vector | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if array is None else array.ctypes.data)


def _streams(out: Vector) -> bool:
    return out.nbytes >= _STREAM_BYTES


def _combine_in_blocks(out: Vector, terms: Sequence[tuple[float, Vector]]) -> bool:
    same_shapes(out, *(x for _, x in terms))
    spare = np.empty(min(BLOCK, out.size), dtype=out.dtype)
    (own, x), *others = terms
    fine = True
    for start in range(0, out.size, BLOCK):
        part = slice(start, start + BLOCK)
        total = np.multiply(x[part], own, out=out[part])
        product = spare[: total.size]
        for factor, other in others:
            np.multiply(other[part], factor, out=product)
            total += product
        fine = fine and finite(total)
    return fine


def finite(x: Vector) -> bool:
    """Whether every number is finite: one dot product; each number is looked at only if that overflows."""
    with np.errstate(all="ignore"):
        return math.isfinite(x.dot(x)) or bool(np.isfinite(x).all())


# --- the library ---------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL | None:
    if not allowed():
        return None
    try:
        library = _loaded()
    except FAILURES as error:
        log.debug("no compiled kernels, NumPy instead: %s", error)
        return None
    if not _agrees(library):
        log.warning("the compiled kernels do not give NumPy's bits, and are not used")
        return None
    return library


def _loaded() -> ctypes.CDLL:
    return CSource("kernels.c").loaded(lambda file: _declared(ctypes.CDLL(str(file))))


def _declared(library: ctypes.CDLL) -> ctypes.CDLL:
    pointer, number, size, flag = ctypes.c_void_p, ctypes.c_double, ctypes.c_size_t, ctypes.c_int
    library.copy.argtypes = [pointer, pointer, size]
    library.copy.restype = None
    for kind in _NAMES.values():
        getattr(library, f"combine_{kind}").argtypes = [pointer, size, pointer, pointer, flag, flag]
        getattr(library, f"sgd_{kind}").argtypes = [*[pointer] * 6, size, *[number] * 3, flag, flag]
        getattr(library, f"shift_{kind}").argtypes = [*[pointer] * 4, size, number, flag]
        getattr(library, f"adam_{kind}").argtypes = [*[pointer] * 8, size, pointer, flag, flag]
    return library


def _agrees(library: ctypes.CDLL) -> bool:
    """Whether an average has NumPy's bits: it would not where products and sums are joined."""
    terms = [(0.1 + 0.3 * k, np.linspace(0.1, k + 1.7, 1_111, dtype=np.float32)) for k in range(3)]
    out, expected = np.empty_like(terms[0][1]), np.empty_like(terms[0][1])
    if not _combine_by(library.combine_float, out, terms):
        return False
    _combine_in_blocks(expected, terms)
    said = _combine_by(library.combine_float, expected.copy(), [(1.0, np.full_like(out, np.inf))])
    return bytes(out) == bytes(expected) and not said
