"""Many clients: vectors and objects in large pages, gradients in the order of their use; the same bits."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swiftfl import small
from swiftfl.engines.simulation.virtual import VirtualEngine
from swiftfl.experiment.build import build
from swiftfl.experiment.recipes import digits
from swiftfl.vector import Vector

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux is asked for large pages")


@pytest.fixture(scope="module")
def compiled() -> None:
    small.load(compile=True)
    if not small.loaded():
        pytest.skip("there is no C compiler here, or Python's headers are missing")


@pytest.fixture
def rows(compiled: None) -> Iterator[None]:
    """Also of objects, which cannot be had apart."""
    small.calls.large_pages(True)
    yield
    small.calls.large_pages(False)


def filled(number: float, size: int, dtype: type = np.float32) -> Vector:
    x = np.full(size, number, dtype)
    made = small.calls.mix(1.0, {}, x, {})
    assert made is not None
    return made


def in_row(x: Vector) -> bool:
    return type(x.base).__name__ == "Row"


@pytest.mark.parametrize(
    ("size", "dtype", "row"),
    [
        (255, np.float32, False),
        (256, np.float32, True),
        (65_536, np.float32, True),
        (65_537, np.float32, False),
        (127, np.float64, False),
        (128, np.float64, True),
    ],
)
def test_small_vectors_are_rows_and_the_smallest_and_large_ones_are_not(
    rows: None, size: int, dtype: type, row: bool
) -> None:
    x = filled(2.5, size, dtype)
    assert in_row(x) == row
    assert x.dtype == dtype
    assert (x == 2.5).all()
    assert x.flags.writeable
    assert x.flags.c_contiguous
    if row:
        assert x.ctypes.data % 64 == 0


def test_few_clients_have_no_rows(rows: None) -> None:
    small.expect(small.MANY_CLIENTS - 1)
    assert not in_row(filled(1.0, 650))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([256, 300, 650, 5_000, 60_000]), st.integers(0, 40)),
        min_size=20,
        max_size=300,
    )
)
def test_no_row_is_written_while_somebody_sees_it(made: list[tuple[int, int]]) -> None:
    """Each vector is made, may be kept as a view only, and one of those before is dropped."""
    small.load(compile=True)
    if not small.loaded():
        pytest.skip("there is no C compiler here, or Python's headers are missing")
    small.calls.large_pages(True)
    try:
        kept: list[tuple[float, Vector]] = []
        for number, (size, drop) in enumerate(made):
            x = filled(float(number), size)
            kept.append((float(number), x[1:-1] if number % 3 == 0 else x))
            del x
            if drop < len(kept):
                del kept[drop]
            assert all((vector == value).all() for value, vector in kept)
    finally:
        small.calls.large_pages(False)


def test_more_sizes_than_there_are_pools_are_ordinary_memory(rows: None) -> None:
    kept = [filled(float(size), size) for size in range(400, 4_000, 200)]
    assert all((x == float(x.size)).all() for x in kept)
    assert in_row(kept[0])
    assert not in_row(kept[-1])
    del kept
    assert in_row(filled(1.0, 3_800))  # a pool of which nothing is left takes another size


def test_rows_of_many_areas_stay_apart(rows: None) -> None:
    """Areas that are full, that have room again, and that are given back, in no order."""
    draw = np.random.default_rng(1)
    kept: list[tuple[float, Vector]] = []
    for _ in range(6):
        kept += [(float(number), filled(float(number), 25_000)) for number in range(len(kept), 1_000)]
        assert all(in_row(x) and (x == number).all() for number, x in kept)
        draw.shuffle(kept)  # type: ignore[arg-type]
        del kept[: draw.integers(len(kept))]
    assert all((x == number).all() for number, x in kept)


MEMORY = """
import numpy as np
from swiftfl import small
from swiftfl.memory import own_memory

small.load(compile=True)
small.expect(small.MANY_CLIENTS)
area = 32 << 20

def made(size):
    return small.calls.mix(1.0, {}, np.ones(size, np.float32), {})

made(25_000)
before = own_memory()
kept = [made(25_000) for _ in range(3 * area // 100_000)]
assert own_memory() - before > 2.5 * area
del kept
assert own_memory() - before < area + (8 << 20)  # one stays, for the next
for size in (25_000, 30_000, 35_000):
    kept = [made(size) for _ in range(area // 150_000)]
    del kept
small.expect(1)
assert own_memory() - before < 8 << 20
again = made(25_000)
assert again.base is None
print("fine")
"""


def test_the_memory_of_rows_goes_back(compiled: None) -> None:
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, timeout=120)
    assert done.stdout == "fine\n", done.stderr


FIRST_RUN = """
import numpy as np
from swiftfl import small

small.expect(small.MANY_CLIENTS)
assert not small.loaded()  # nothing is compiled yet
small.load(compile=True)
made = small.calls.mix(1.0, {}, np.ones(650, np.float32), {})
assert type(made.base).__name__ == "Row"
print("fine")
"""


def test_a_machines_first_run_has_rows_as_soon_as_they_are_compiled(compiled: None, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FIRST_RUN],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
    )
    assert done.stdout == "fine\n", done.stderr


def test_rows_are_counted_by_who_counts_memory(rows: None) -> None:
    tracemalloc.start()
    try:
        kept = [filled(1.0, 1_000) for _ in range(100)]
        during = tracemalloc.get_traced_memory()[0]
        del kept
        assert during - tracemalloc.get_traced_memory()[0] >= 100 * 4_000
    finally:
        tracemalloc.stop()


def test_a_forked_process_may_drop_and_make_rows(rows: None) -> None:
    kept = [filled(3.0, 650) for _ in range(100)]
    child = os.fork()
    if child == 0:
        wrong = 1
        try:
            del kept[::2]
            again = [filled(4.0, 650) for _ in range(200)]
            wrong = not (all((x == 3.0).all() for x in kept) and all((x == 4.0).all() for x in again))
        finally:
            os._exit(int(wrong))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert all((x == 3.0).all() for x in kept)


ARENAS = """
import re
from swiftfl import small
from swiftfl.memory import own_memory

AREAS = r"^Rss: +(\\d+) kB$.*?^VmFlags:(.*?)$"

def in_large_pages():
    "Bytes of this process in areas for which large pages were asked."
    return sum(
        int(size) << 10
        for size, flags in re.findall(AREAS, open("/proc/self/smaps").read(), re.M | re.S)
        if " hg" in flags
    )

earlier = [(k, str(k)) for k in range(200_000)]
small.load(compile=True)
before = in_large_pages()
small.expect(small.MANY_CLIENTS)
held = own_memory()
del earlier  # of arenas of before
assert held - own_memory() > 8 << 20, held - own_memory()
start = own_memory()
objects = [(k, [k]) for k in range(700_000)]
held = in_large_pages() - before
assert held > 64 << 20, held
assert all(k == again for k, (again,) in objects)
del objects
left = own_memory() - start
assert left < held / 4, (left, held)
assert in_large_pages() - before < held / 4
more = [(k, [k]) for k in range(700_000)]
assert all(k == again for k, (again,) in more)
print("fine")
"""


def test_pythons_objects_are_in_large_pages_and_their_memory_goes_back(compiled: None) -> None:
    done = subprocess.run([sys.executable, "-c", ARENAS], capture_output=True, text=True, timeout=120)
    assert done.stdout == "fine\n", done.stderr


def run_of(clients: int, in_turn: bool = True, workers: int = 1) -> tuple[VirtualEngine, list[int]]:
    """Clients of unequal degrees, which go on at unequal times; the gradients that waited after each step."""
    config = digits().with_changes(
        {
            "model.name": "logistic",
            "topology.clients": clients,
            "topology.name": "barabasi_albert",
            "topology.options": {"attach": 4},
            "data.partition": "bootstrap:32",
            "data.batch_size": 32,
            "engine.epochs": 4,
            "engine.workers": workers,
        }
    )
    engine = VirtualEngine(build(config).setup)
    pending = engine.world.gradients
    if not in_turn:
        pending._events = None
    engine.start()
    waiting = []
    while not engine.over:
        engine.advance(1)
        waiting.append(len(pending._computed))
    engine.close()
    return engine, waiting


def test_a_run_has_the_same_bits_in_large_pages(compiled: None, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, _ = run_of(40)
    monkeypatch.setattr(small, "expect", lambda clients: small.calls.large_pages(True))
    try:
        large, _ = run_of(40)
    finally:
        small.calls.large_pages(False)
    assert not any(map(in_row, plain.models))
    assert all(map(in_row, large.models))
    assert [bytes(x) for x in large.models] == [bytes(x) for x in plain.models]


def test_gradients_are_computed_in_the_order_of_their_use_and_few_wait() -> None:
    by_number, all_of_them = run_of(800, in_turn=False)
    by_turn, few = run_of(800)
    assert [bytes(x) for x in by_turn.models] == [bytes(x) for x in by_number.models]
    assert max(all_of_them) > 400
    assert max(few) < 256  # two pieces
    helped, _ = run_of(800, workers=2)
    assert [bytes(x) for x in helped.models] == [bytes(x) for x in by_turn.models]
