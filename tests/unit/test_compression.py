"""Codecs that lose something: how much at most, and that feedback gives it back."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from swiftfl.cli.main import run_command
from swiftfl.errors import UserError
from swiftfl.transports.codec import Codec, decode, encode, incremental, measured, transmitted
from swiftfl.transports.compression import Bf16, Int8, TopK
from swiftfl.transports.registry import codec_named, make_codec
from swiftfl.vector import Vector

pytestmark = pytest.mark.usefixtures("without_pictures")

SIZE = 1003  # no multiple of a block


def models(count: int, dtype: str = "float32", size: int = SIZE) -> list[Vector]:
    """A model that moves a little from one to the next, with numbers of very different sizes."""
    draw = np.random.default_rng(3)
    scale = np.exp(draw.normal(size=size) * 3)
    first = draw.normal(size=size) * scale
    moves = np.cumsum([draw.normal(size=size) * scale * 0.05 for _ in range(count)], axis=0)
    return [(first + move).astype(dtype) for move in moves]


def test_bf16_is_torchs_bfloat16() -> None:
    draw = np.random.default_rng(0)
    bits = draw.integers(0, 2**32, size=200_000, dtype=np.uint32).view(np.float32)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 3.4e38, 1.00390625], np.float32)
    x = np.concatenate([bits, special])
    expected = torch.from_numpy(x).to(torch.bfloat16).to(torch.float32).numpy()
    np.testing.assert_array_equal(transmitted(Bf16(), x), expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bf16_loses_at_most_a_256th_of_a_number(dtype: str) -> None:
    x = models(1, dtype)[0]
    got = transmitted(Bf16(), x)
    assert got.dtype == x.dtype
    assert (np.abs(got - x) <= 2.0**-8 * (1 + 1e-6) * np.abs(x)).all()
    assert encode(Bf16(), x).size == 2 * SIZE


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("block", [1, 7, 256, 5000])
def test_int8_loses_at_most_half_a_step_of_its_block(block: int, dtype: str) -> None:
    x = models(1, dtype)[0]
    codec = Int8(block=block)
    data = encode(codec, x)
    assert data.size == SIZE + 4 * -(-SIZE // block)
    got = decode(codec, data, SIZE, dtype)
    for start in range(0, SIZE, block):
        part = slice(start, start + block)
        step = np.abs(x[part]).max() / 127
        assert np.abs(got[part] - x[part]).max() <= step / 2 * (1 + 1e-4)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_int8_leaves_out_is_added_to_the_next_model(dtype: str) -> None:
    """The sum of what arrived is the sum of what was sent, but for the last error: it does not grow."""
    codec, sent, got = Int8(block=64), np.zeros(SIZE), np.zeros(SIZE)
    for x in models(200, dtype):
        got += transmitted(codec, x)
        sent += x
        left = codec.state()["left"]
        np.testing.assert_allclose(got + left, sent, rtol=2e-4 if dtype == "float32" else 1e-9, atol=1e-3)
    without = sum(transmitted(Int8(block=64), x).astype(float) for x in models(200, dtype))
    assert np.abs(got - sent).mean() < 0.2 * np.abs(without - sent).mean()


def test_topk_sends_what_differs_most_and_nothing_is_forgotten() -> None:
    codec, image = TopK(share=0.05), None
    for x in models(100):
        before = image
        data = encode(codec, x)
        image = codec.image()
        if before is None:
            np.testing.assert_array_equal(image, x)
            continue
        changed = np.flatnonzero(image != before)
        k = 51  # of 1003, rounded up
        assert data.size == 24 + 8 * k
        assert changed.size <= k
        np.testing.assert_array_equal(image[changed], x[changed])
        left = np.abs(x - before)
        others = np.setdiff1d(np.arange(SIZE), changed)
        assert left[others].max() <= left[changed].min()
    last = models(100)[-1]
    for _ in range(20):  # a model that rests is at last sent to its last number
        encode(codec, last)
    np.testing.assert_array_equal(codec.image(), last)


def test_topk_telescopes() -> None:
    """The image is the first model and the sum of all differences that were sent; the rest is the error."""
    codec, total, before = TopK(share=0.02), np.zeros(SIZE), np.zeros(SIZE)
    for x in models(60, "float64"):
        transmitted(codec, x)
        total += codec.image() - before
        before = codec.image()
        np.testing.assert_allclose(total, codec.image(), rtol=1e-9, atol=1e-12)


def test_a_receiver_that_missed_some_codes_gets_all_that_changed_since() -> None:
    draw, sender, receiver = np.random.default_rng(1), TopK(share=0.03), TopK(share=0.03)
    image, has = np.zeros(SIZE, np.float32), -1
    for x in models(80):
        sender.since(has)
        data = encode(sender, x)
        if draw.random() < 0.4:
            has = receiver.decode_onto(data, image, has)
            assert has == sender.serial
            assert image.tobytes() == sender.image().tobytes()
    late = np.zeros(SIZE, np.float32)
    sender.since(has)
    with pytest.raises(ValueError, match="these are changes since code"):
        receiver.decode_onto(encode(sender, models(1)[0]), late, has - 1)


@pytest.mark.parametrize("make", [Bf16, Int8, lambda: TopK(share=0.1)])
def test_a_state_goes_on_where_it_was_bit_for_bit(make: Callable[[], Codec]) -> None:
    one, other = make(), make()
    *first, second, third = models(6)
    for x in first:
        transmitted(one, x)
    other.restore({name: array.copy() for name, array in one.state().items()})
    for x in (second, third):
        assert transmitted(one, x).tobytes() == transmitted(other, x).tobytes()


@pytest.mark.parametrize("make", [Bf16, Int8, lambda: TopK(share=0.1)])
def test_a_model_is_not_changed_and_what_is_not_finite_arrives_as_such(make: Callable[[], Codec]) -> None:
    codec = make()
    good, bad = models(2)
    bad[5], bad[900] = np.nan, np.inf
    kept = good.copy()
    assert np.isfinite(transmitted(codec, good)).all()
    np.testing.assert_array_equal(good, kept)
    assert not np.isfinite(transmitted(codec, bad)).all()
    assert np.isfinite(transmitted(codec, good)).all()  # and is over as soon as the model is finite again


@pytest.mark.parametrize("make", [Bf16, Int8, lambda: TopK(share=0.1)])
def test_what_is_no_code_is_refused(make: Callable[[], Codec]) -> None:
    codec = make()
    data = encode(codec, models(1)[0])
    for wrong in (data[:-1], data[:10], data[:0], np.concatenate([data, data[:1]])):
        with pytest.raises(ValueError, match="bytes are no"):
            decode(codec, wrong, SIZE, "float32")
    with pytest.raises(ValueError, match="bytes are no"):
        decode(codec, data, SIZE + 1, "float32")


def test_wrong_parts_are_refused_and_change_nothing() -> None:
    sender, image = TopK(share=0.01), np.zeros(SIZE, np.float32)
    first, second, *_ = models(3)
    has = sender.decode_onto(encode(sender, first), image, -1)
    data = encode(sender, second)
    kept = image.copy()
    beyond, twice, many = data.copy(), data.copy(), data.copy()
    beyond[24:28].view("<u4")[:] = SIZE
    twice[24:28] = twice[28:32]
    many[4:8].view("<u4")[:] = 2**32 - 1
    for wrong in (beyond, twice, many, data[:-1], data[:20]):
        with pytest.raises(ValueError, match=r"no code|no places"):
            sender.decode_onto(wrong, image, has)
        np.testing.assert_array_equal(image, kept)


def test_codecs_as_users_write_them() -> None:
    assert codec_named("topk:0.01") == codec_named("topk:share=0.01") == ("topk", {"share": 0.01})
    assert codec_named("int8") == ("int8", {"block": 256})
    assert isinstance(make_codec("topk:0.5")(), TopK)
    assert incremental(measured(make_codec("topk:0.5"))) is not None
    assert incremental(measured(make_codec("bf16"))) is None
    for text, said in {
        "topk:2": "codec share must be at most 1, not",
        "topk:size=1": "there is no such setting",
        "bf16:3": "options are written bf16:option=value",
        "tipk": "there is no codec 'tipk': did you mean topk",
    }.items():
        with pytest.raises(UserError, match=said):
            codec_named(text)


def test_a_run_says_how_many_bytes_it_sent(capsys: pytest.CaptureFixture[str]) -> None:
    tiny = ["run", "digits", "--clients", "3", "--iterations", "9", "--model", "logistic", "--codec"]
    assert run_command([*tiny, "topk:0.1", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "topk" in shown
    assert "0.1" in shown
    assert run_command([*tiny, "int8:block=0", "--dry-run"]) == 2
    assert "--codec int8:block=0: codec block must be at least 1" in capsys.readouterr().err
