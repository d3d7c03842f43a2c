"""Arithmetic on large models: the bits of the plain calls, in one pass, without new memory."""

from __future__ import annotations

import gc
import tracemalloc

import numpy as np
import pytest

from swiftfl import kernels, recycled
from swiftfl.experiment.build import build
from swiftfl.experiment.recipes import digits
from swiftfl.experiment.run import run
from swiftfl.recycled import LARGE, like
from swiftfl.rules import (
    AdamRule,
    Clipped,
    LionRule,
    Remembering,
    RmspropRule,
    SgdRule,
    UpdateRule,
    applied,
    updated,
)
from swiftfl.sample import Slope
from swiftfl.vector import Statistics, Vector, Weights, advance, combined, finite, mix

SIZE = LARGE + 4_321
RULES = {
    "sgd": SgdRule(),
    "momentum": SgdRule(0.9),
    "decay": SgdRule(0.9, 0.01),
    "nesterov": SgdRule(0.9, 0.01, nesterov=True),
    "decay without momentum": SgdRule(0.0, 0.01),
    "adam": AdamRule(),
    "adam with decay": AdamRule(weight_decay=0.02),
    "adamw": AdamRule(weight_decay=0.02, decoupled=True),
    "rmsprop": RmspropRule(momentum=0.5, weight_decay=0.1),
    "lion": LionRule(weight_decay=0.1),
    "clipped": Clipped(AdamRule(), 1.0),
    "remembering": Remembering(SgdRule(0.9), lambda x: {"own": x + 1}),
}


@pytest.fixture(params=["compiled", "numpy"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of doing it."""
    if request.param == "numpy":
        monkeypatch.setattr(kernels, "_library", lambda: None)
    elif not kernels.compiled():
        pytest.skip("there is no C compiler here")
    return str(request.param)


def vectors(count: int, dtype: type[np.floating] = np.float32, size: int = SIZE) -> list[Vector]:
    draw = np.random.default_rng(7)
    return [draw.standard_normal(size).astype(dtype) * 10.0 ** (k - 1) for k in range(count)]


def plain_mix(w: Weights, x: Vector, inbox: dict[int, Vector]) -> Vector:
    out = x * (w.own + sum(c for k, c in w.of.items() if k not in inbox))
    for k, c in w.of.items():
        if k in inbox:
            out += inbox[k] * c
    return out


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_mix_has_the_bits_of_the_plain_sum(way: str, dtype: type[np.floating]) -> None:
    x, *others = vectors(4, dtype)
    w = Weights(0.1, {3: 0.3, 1: 0.4, 2: 0.2})
    for inbox in ({1: others[0], 2: others[1], 3: others[2]}, {2: others[1]}, {}):
        found = mix(w, x, inbox)
        assert found.dtype == dtype
        assert bytes(found) == bytes(plain_mix(w, x, inbox))


def test_many_neighbours_are_added_in_their_order(way: str) -> None:
    models = vectors(1) * 40
    w = Weights(0.2, dict.fromkeys(range(40), 0.02))
    inbox = dict(enumerate(models))
    assert bytes(mix(w, models[0], inbox)) == bytes(plain_mix(w, models[0], inbox))


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("at", [0, 1023, 1024, SIZE - 1])
def test_what_is_not_finite_is_seen_anywhere(way: str, bad: float, at: int) -> None:
    x, y = vectors(2)
    assert combined([(0.5, x), (0.5, y)])[1]
    y[at] = bad
    assert not combined([(0.5, x), (0.5, y)])[1]


def test_large_finite_numbers_are_finite(way: str) -> None:
    """Their squares are not: a sum of squares alone would not do."""
    assert combined([(1.0, np.full(SIZE, 3e30, dtype=np.float32))])[1]


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_move_has_the_bits_of_update_and_advance(way: str, name: str, dtype: type[np.floating]) -> None:
    rule: UpdateRule = RULES[name]
    half, at, *slopes = vectors(5, dtype)
    statistics = Statistics(at[:100].copy(), 0.1)
    memory, expected_memory = rule.init(at), rule.init(at)
    for g in slopes:
        given = [bytes(a) for a in (half, at, g, *memory.values())]
        after = applied(rule, half, Slope(g, 0.0, statistics), at, 0.05, memory)
        assert given == [bytes(a) for a in (half, at, g, *memory.values())]  # nothing was written to
        move, expected_memory = rule.update(g, at, 0.05, expected_memory)
        assert bytes(after.x) == bytes(advance(half, move, statistics))
        memory = after.memory
        assert memory.keys() == expected_memory.keys()
        for key, array in memory.items():
            assert array.dtype == expected_memory[key].dtype
            assert bytes(array) == bytes(expected_memory[key])


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_update_in_blocks_has_the_bits_of_the_whole(name: str, dtype: type[np.floating]) -> None:
    """Of algorithms that give their move to somebody else (AD-PSGD)."""
    rule: UpdateRule = RULES[name]
    at, *slopes = vectors(4, dtype, 2 * kernels.BLOCK + 77)
    memory, expected_memory = rule.init(at), rule.init(at)
    for g in slopes:
        given = [bytes(a) for a in (at, g, *memory.values())]
        move, after = updated(rule, g, at, 0.05, memory)
        assert given == [bytes(a) for a in (at, g, *memory.values())]  # nothing was written to
        expected, expected_memory = rule.update(g, at, 0.05, expected_memory)
        memory = after
        assert move.dtype == expected.dtype
        assert bytes(move) == bytes(expected)
        assert {key: bytes(a) for key, a in memory.items()} == {
            key: bytes(a) for key, a in expected_memory.items()
        }


@pytest.mark.parametrize("at", [0, kernels.BLOCK + 3, 3 * kernels.BLOCK])
def test_blocks_that_a_rule_leaves_as_they_were_stay_so(at: int) -> None:
    """Not what was in the memory before that the new numbers are put into."""

    class Lazy:
        elementwise = True

        def init(self, x: Vector) -> dict[str, Vector]:
            return {"m": np.full_like(x, 3.0)}

        def update(self, g: Vector, x: Vector, step_size: float, memory: dict[str, Vector]) -> object:
            if not g.any():
                return np.zeros_like(g), memory
            m = memory["m"] + g
            return m * -step_size, {"m": m}

    rule, (x, g) = Lazy(), vectors(2, size=3 * kernels.BLOCK + 5)
    g = np.zeros_like(g)
    g[at] = 1.0
    memory = rule.init(x)
    for _ in range(3):
        like(x).fill(7.0)  # which will be used again
    for found in (
        updated(rule, g, x, 0.1, memory)[1],  # type: ignore[arg-type]
        applied(rule, x, Slope(g, 0.0), x, 0.1, memory).memory,  # type: ignore[arg-type]
    ):
        assert bytes(found["m"]) == bytes(memory["m"] + g)


def test_what_a_rule_remembers_keeps_its_type() -> None:
    """Moments of double precision beside a model of single."""

    class Precise:
        elementwise = True

        def init(self, x: Vector) -> dict[str, Vector]:
            return {"sum": np.zeros(x.size), "same": np.ones(x.size)}

        def update(self, g: Vector, x: Vector, step_size: float, memory: dict[str, Vector]) -> object:
            total = memory["sum"] + g
            return total * -step_size, {**memory, "sum": total}

    rule, (x, g) = Precise(), vectors(2)
    memory = {**rule.init(x), "sum": np.full(x.size, 1e-12)}
    expected = (memory["sum"] + g) * -0.1
    move, after = updated(rule, g, x, 0.1, memory)  # type: ignore[arg-type]
    assert bytes(move) == bytes(expected)
    assert after["same"] is memory["same"]
    for found in (after, applied(rule, x, Slope(g, 0.0), x, 0.1, memory).memory):  # type: ignore[arg-type]
        assert bytes(found["sum"]) == bytes(memory["sum"] + g)


@pytest.mark.parametrize("name", ["momentum", "adam", "rmsprop", "lion"])
@pytest.mark.parametrize("where", ["gradient", "half", "statistics"])
def test_a_move_that_is_not_finite_is_never_called_finite(way: str, name: str, where: str) -> None:
    rule = RULES[name]
    half, at, g = vectors(3)
    statistics = Statistics(at[:100].copy(), 0.1)
    assert applied(rule, half, Slope(g, 0.0, statistics), at, 0.05, rule.init(at)).finite
    {"gradient": g, "half": half, "statistics": statistics.values}[where][50] = np.inf
    with np.errstate(all="ignore"):
        after = applied(rule, half, Slope(g, 0.0, statistics), at, 0.05, rule.init(at))
    assert not after.finite
    assert name == "lion" or not (finite(after.x) and all(map(finite, after.memory.values())))


@pytest.mark.parametrize("scale", [1.0, 0.3])
def test_a_move_of_somebody_else_has_the_bits_of_its_parts(way: str, scale: float) -> None:
    half, now, before = vectors(3)
    out = like(half)
    assert kernels.shift(out, half, now, before, scale)
    move = now - before
    move *= scale
    assert bytes(out) == bytes(half + move)
    before[17] = np.nan
    assert not kernels.shift(out, half, now, before, scale)


UNLIKE = [10, 1, kernels.BLOCK, kernels.BLOCK + 1, 2 * kernels.BLOCK + 7, 1_000_000]
"""Lengths that are none of `LONG`; some look right in the first block, or are one number in the second."""
LONG = 2 * kernels.BLOCK


@pytest.mark.parametrize("length", UNLIKE)
def test_an_average_with_a_vector_of_another_length_is_refused(way: str, length: int) -> None:
    x, other = np.zeros(LONG, np.float32), np.ones(length, np.float32)
    for terms in ([(0.5, x), (0.5, other)], [(0.5, x), (0.3, x), (0.2, other)]):
        with pytest.raises(ValueError, match="broadcast"):
            kernels.combine(like(x), terms)
    with pytest.raises(ValueError, match="broadcast"):
        mix(Weights(0.5, {1: 0.5}), x, {1: other})


@pytest.mark.parametrize("length", UNLIKE)
@pytest.mark.parametrize("name", ["sgd", "momentum", "nesterov", "decay", "adam", "rmsprop", "lion"])
def test_a_move_by_a_gradient_of_another_length_is_refused(way: str, name: str, length: int) -> None:
    rule, x, other = RULES[name], np.zeros(LONG, np.float32), np.ones(length, np.float32)
    with pytest.raises(ValueError, match="broadcast"):
        applied(rule, x, Slope(other, 0.0), x, 0.1, rule.init(x))
    with pytest.raises(ValueError, match="broadcast"):
        applied(rule, x, Slope(x, 0.0), other, 0.1, rule.init(x))


@pytest.mark.parametrize("name", ["momentum", "adam"])
def test_a_move_with_short_memory_is_refused(way: str, name: str) -> None:
    rule, x = RULES[name], np.zeros(LONG, np.float32)
    with pytest.raises(ValueError, match="broadcast"):
        applied(rule, x, Slope(x, 0.0), x, 0.1, rule.init(x[:10]))


@pytest.mark.parametrize("length", UNLIKE)
@pytest.mark.parametrize("short", [1, 2, 3])
def test_a_shift_by_a_vector_of_another_length_is_refused(way: str, short: int, length: int) -> None:
    given = [np.zeros(LONG, np.float32) for _ in range(4)]
    given[short] = np.ones(length, np.float32)
    with pytest.raises(ValueError, match="broadcast"):
        kernels.shift(*given, 1.0)


def test_a_rule_that_is_not_elementwise_is_asked_for_the_whole() -> None:
    class Centred:
        def init(self, x: Vector) -> dict[str, Vector]:
            return {}

        def update(self, g: Vector, x: Vector, step_size: float, memory: dict[str, Vector]) -> object:
            return (g - g.mean()) * -step_size, memory

    half, at, g = vectors(3)
    after = applied(Centred(), half, Slope(g, 0.0), at, 0.05, {})  # type: ignore[arg-type]
    assert bytes(after.x) == bytes(half + (g - g.mean()) * -0.05)


# --- memory ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [10, kernels._STREAM_BYTES // 4 - 1, kernels._STREAM_BYTES // 4 + 3])
@pytest.mark.parametrize("start", [0, 1])  # aligned, or not
def test_a_copy_is_one(way: str, size: int, start: int) -> None:
    x = np.arange(size + start, dtype=np.float32)
    for source in (x[start:], x[start:].astype(np.float64), np.repeat(x[start:], 2)[::2]):
        to = np.full(size + start + 1, -1, dtype=np.float32)
        kernels.copy(to[start:-1], source)
        assert (to[start:-1] == x[start:]).all()
        assert to[-1] == -1
        assert (to[:start] == -1).all()
    with pytest.raises(ValueError, match="broadcast"):
        kernels.copy(np.empty(size, np.float32), x[: size // 2])


def test_memory_is_used_again_only_when_nobody_sees_it() -> None:
    x = np.zeros(SIZE, dtype=np.float32)
    first = like(x)
    place, view = first.ctypes.data, first[10:20]
    del first
    gc.collect()
    second = like(x)
    assert second.ctypes.data != place  # a view is left
    del view
    third = like(x)
    assert third.ctypes.data == place
    assert third.ctypes.data % 64 == 0
    assert third.flags.writeable


def test_only_so_many_blocks_of_so_many_sizes_wait() -> None:
    recycled._free.clear()
    for size in range(SIZE, SIZE + 3 * recycled.SIZES):
        made = [like(np.zeros(size, dtype=np.float32)) for _ in range(recycled.KEPT + 3)]
        del made
        assert len(recycled._free) <= recycled.SIZES
        assert all(len(waiting) <= recycled.KEPT for waiting in recycled._free.values())


def test_no_memory_waits_after_a_run() -> None:
    """Nor does what is dropped later; whatever is still seen stays as it is."""
    config = digits().with_changes(
        {"model.name": "mlp", "model.options": {"hidden": 512}, "topology.clients": 3, "engine.workers": 1}
    )
    engine = build(config).engine("virtual")
    engine.start()
    engine.advance(12)
    x = like(engine.models[0])
    x[:] = 7.0
    assert any(recycled._free.values())
    engine.close()
    assert recycled._free == {}
    assert engine.models[0].size >= LARGE
    del engine
    gc.collect()
    assert recycled._free == {}
    y = [like(x) for _ in range(3)]
    for each in y:
        each[:] = 1.0
    assert np.all(x == 7.0)
    recycled.let_go()
    run(config.with_changes({"engine.epochs": 1}))
    gc.collect()
    assert recycled._free == {}


@pytest.mark.parametrize("name", sorted(set(RULES) - {"remembering"}))  # which copies, on purpose
def test_a_step_in_steady_state_makes_no_vector(way: str, name: str) -> None:
    rule: UpdateRule = RULES[name]
    x, y, z, g = vectors(4, size=64 * LARGE)
    w = Weights(0.4, {1: 0.3, 2: 0.3})
    memory = rule.init(x)

    def step() -> None:
        nonlocal x, memory
        half = mix(w, x, {1: y, 2: z})
        after = applied(rule, half, Slope(g, 0.0), x, 0.01, memory)
        x, memory = after.x, after.memory

    for _ in range(3):
        step()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        for _ in range(3):
            step()
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    blocks = 8 * kernels.BLOCK * 4 if way == "numpy" or name in ("rmsprop", "lion") else 0
    assert peak < x.nbytes / 2 + blocks
