"""Large models that meet in cells and sums: bits of the plain calls, no new memory, nothing taken back."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from in_process_wire import Hub
from live_worlds import LIMIT

from swiftfl.kernels import BLOCK
from swiftfl.recycled import LARGE
from swiftfl.transports.base import Transport
from swiftfl.transports.memory import MemoryPlan
from swiftfl.transports.messages.transport import MessageTransport
from swiftfl.transports.shared_memory.transport import SharedMemory
from swiftfl.vector import Statistics, Vector

PAIR = ((1,), (0,))
SIZES = [100, LARGE + 4_321, 3 * BLOCK + 1]
Ends = tuple[Transport, Transport]
Connect = Callable[[Vector], Ends]


@pytest.fixture(params=["memory", "shared_memory", "messages"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def connect(kind: str) -> Iterator[Connect]:
    """Both ends of a pair, in this process."""
    opened: list[Transport] = []

    def ends(x0: Vector) -> Ends:
        if kind == "messages":
            opened.extend(MessageTransport(wire, PAIR, x0) for wire in Hub(2).wires)
        else:
            plan = MemoryPlan(PAIR, x0) if kind == "memory" else SharedMemory.create(PAIR, x0)
            opened.extend([plan.connect(0), plan.connect(1)])
        return opened[0], opened[1]

    yield ends
    for end in opened:
        end.close()


def models(size: int, dtype: type[np.floating] = np.float32) -> list[Vector]:
    """Ordinary numbers, tiny ones whose halves are rounded, large ones whose sums overflow, zeros below 0."""
    draw = np.random.default_rng(3)
    found = [draw.standard_normal(size).astype(dtype) for _ in range(4)]
    tiny, huge = np.finfo(dtype).smallest_subnormal, np.finfo(dtype).max
    for x in found:
        x[10:20] = tiny * np.arange(1, 11)
        x[20:25] = -0.0
    found[0][30:32] = found[1][30:32] = huge
    return found


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", SIZES)
def test_cells_have_the_bits_of_the_plain_calls(
    kind: str, connect: Connect, size: int, dtype: type[np.floating]
) -> None:
    x, y, move, values = models(size, dtype)
    statistics = Statistics(values[:50].copy(), 0.1)
    a, b = connect(np.zeros(size, dtype))
    with np.errstate(all="ignore"):
        a.set_cell(x)
        b.set_cell(y)
        if kind == "messages":  # whose difference is 0: an overflow in its thread would be an error here
            step = 0.5 * (x - y)
            mine, theirs = x - step, y + step
        else:
            mine = theirs = 0.5 * (x + y)
        found = a.average_with(1)
        assert found.dtype == dtype
        assert bytes(found) == bytes(a.load()) == bytes(mine)
        assert bytes(b.load()) == bytes(theirs)
        moved = mine + move
        moved[-50:] = mine[-50:] + 0.1 * (statistics.values - mine[-50:])
        assert bytes(a.add(move, statistics)) == bytes(a.load()) == bytes(moved)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", SIZES)
def test_a_mean_has_the_bits_of_the_plain_calls(
    connect: Connect, size: int, dtype: type[np.floating]
) -> None:
    """Added up from 0 in the clients' order: a sum of zeros below 0 is 0."""
    x, y, *_ = models(size, dtype)
    x[30:32] = y[30:32] = 1.0  # an overflow in a transport's thread would be an error here
    a, b = connect(np.zeros(size, dtype))
    expected = np.zeros_like(x)
    expected += 0.3 * x
    expected += 0.9 * y
    expected = expected / (0.3 + 0.9)
    with ThreadPoolExecutor(1) as other:
        theirs = other.submit(b.all_reduce, y, 0.9, 0)
        mine = a.all_reduce(x, 0.3, 0)
        for found in (mine, theirs.result(LIMIT)):
            assert found.clients == 2
            assert found.value.dtype == dtype
            assert bytes(found.value) == bytes(expected)


def meetings(ends: Ends, x: Vector, first: int, count: int) -> Iterator[Vector]:
    """All that is handed to the clients in some rounds."""
    a, b = ends
    with ThreadPoolExecutor(1) as other:
        for round in range(first, first + count):
            yield a.load()
            yield a.average_with(1)
            yield a.add(x, None)
            theirs = other.submit(b.all_reduce, x, 0.5, round)
            yield a.all_reduce(x, 0.5, round).value
            yield theirs.result(LIMIT).value


def test_what_was_handed_out_stays_as_it_was(connect: Connect) -> None:
    x = np.linspace(0, 1, LARGE + 99, dtype=np.float32)
    ends = connect(x)
    ends[1].set_cell(2 * x)
    handed = [(each, bytes(each)) for each in meetings(ends, x, 0, 4)]
    assert all(bytes(each) == was for each, was in handed)
    places = {each.ctypes.data for each, _ in handed}
    assert len(places) == len(handed)
    for each, _ in handed:  # and may be written into
        each[:] = np.nan
    assert np.isfinite(ends[0].load()).all()
    assert np.isfinite(ends[1].load()).all()


def test_a_meeting_in_steady_state_makes_no_vector(connect: Connect) -> None:
    x = np.linspace(0, 1, 64 * LARGE, dtype=np.float32)
    ends = connect(x)
    ends[1].set_cell(x)
    for _ in meetings(ends, x, 0, 3):
        pass
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in meetings(ends, x, 3, 3):
            pass
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert peak < x.nbytes / 4
