"""Whatever NumPy's arrays can be asked for: of tensors it is the same, or refused, and never lost."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from swiftfl.workload.device_vector import DeviceVector

Numbers = Any
MASK = np.arange(300) % 3 == 0


def pair(seed: int = 0, size: int = 300) -> tuple[Numbers, Any]:
    x = np.random.default_rng(seed).standard_normal(size).astype(np.float32)
    return x, DeviceVector(torch.from_numpy(x.copy()))


def agree(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-5, atol=1e-6)
    assert np.shape(np.asarray(found)) == np.shape(expected)


@pytest.mark.parametrize("on_device", [False, True], ids=["into NumPy's", "into a tensor"])
@pytest.mark.parametrize(
    "act",
    [
        lambda x, out: np.multiply(x, 2.0, out=out, where=MASK),
        lambda x, out: np.exp(x, out=out, where=MASK),
        lambda x, out: np.add(x, x, out=out, where=x > 0),
        lambda x, out: np.add(x, x, out=out, dtype=np.float32),
        lambda x, out: np.add.accumulate(x, out=out),
        lambda x, out: np.clip(x, -0.5, 0.5, out=out),
        lambda x, out: np.cumsum(x, out=out),
        lambda x, out: np.round(x, 1, out=out),
        lambda x, out: np.copyto(out, x, where=MASK),
        lambda x, out: np.multiply(x[:1], x, out=out),
    ],
)
def test_what_is_written_into_is_written_and_the_rest_stays(
    act: Callable[[Any, Any], Any], on_device: bool
) -> None:
    x, a = pair()
    expected, out = np.full_like(x, 7.0), np.full_like(a if on_device else x, 7.0)
    reply, found = act(x, expected), act(a, out)
    agree(out, expected)
    assert found is (None if reply is None else out)
    agree(a, x)


def test_what_numpy_changes_in_place_is_changed() -> None:
    acts: list[Callable[[Any], object]] = [
        lambda x: np.multiply(x, 2.0, out=x, where=MASK),
        lambda x: np.clip(x, -0.5, 0.5, out=x),
        lambda x: np.add.at(x, [0, 0, 3], 1.0),
        lambda x: np.put(x, [1, 2], 5.0),
        lambda x: np.putmask(x, MASK, 1.0),
        lambda x: np.place(x, MASK, [4.0]),
        lambda x: x.fill(2.0),
        lambda x: x[:9].fill(3.0),
        lambda x: x.ravel().__setitem__(4, 9.0),
        lambda x: x.__setitem__(MASK, np.full(100, 1.5)),
        lambda x: x.clip(-0.1, 0.1, out=x),
        lambda x: np.divmod(x, 0.5, out=(x, None)),
    ]
    for act in acts:
        x, a = pair()
        act(x)
        act(a)
        agree(a, x)


def test_what_would_be_lost_is_refused() -> None:
    acts: list[Callable[[Any], object]] = [
        lambda x: x.sort(),
        lambda x: x.partition(3),
        lambda x: x.put([1], 2.0),
        lambda x: np.clip(x, 0, 1, x),
        lambda x: np.nan_to_num(x, copy=False),
        lambda x: np.squeeze(x).__setitem__(0, 1.0),
        lambda x: x.view(np.int32).__setitem__(0, 1),
        lambda x: x.resize(3),
        lambda x: x.setflags(write=False),
        lambda x: np.add(x, x, out=x[:5]),
        bool,
    ]
    for act in acts:
        x, a = pair()
        with pytest.raises((ValueError, AttributeError)):
            act(a)
        agree(a, x)


def test_methods_and_functions_are_numpys() -> None:
    x, a = pair()
    wanted: list[Callable[[Any], Any]] = [
        lambda x: x.max(), lambda x: x.min(), lambda x: x.argmax(), lambda x: x.argmin(),
        lambda x: x.sum(), lambda x: x.mean(), lambda x: x.std(), lambda x: x.var(), lambda x: x.std(ddof=1),
        lambda x: x.sum(axis=0), lambda x: x.mean(dtype=np.float64), lambda x: x.max(initial=9.0),
        lambda x: (x > 0).sum(), lambda x: (x > 0).mean(), lambda x: (x > 0).any(), lambda x: (x > 9).all(),
        lambda x: x.prod(), lambda x: x.clip(-1, 1), lambda x: x.cumsum(), lambda x: x.argsort(),
        lambda x: x.ravel(), lambda x: x.flatten(), lambda x: x.reshape((3, 100)), lambda x: x.tolist(),
        lambda x: x.reshape(3, 100).max(axis=1), lambda x: x.round(1), lambda x: x.itemsize,
        lambda x: x.tobytes(), lambda x: x[:1].item(), lambda x: x.dot(x), lambda x: x.dot(x.astype(float)),
        lambda x: x.dot(2.0), lambda x: x @ x, lambda x: x // 2.0, lambda x: abs(x) ** 0.5,
        lambda x: np.max(x), lambda x: np.sum(x), lambda x: np.argpartition(x, 3)[:3].sum(),
        lambda x: np.linalg.norm(x, 1), lambda x: np.linalg.norm(x, ord=np.inf), lambda x: np.median(x),
        lambda x: np.concatenate((x, x), axis=0), lambda x: np.append(x, x, axis=0), lambda x: np.ravel(x),
        lambda x: np.full_like(x, 2.0, dtype=np.float64), lambda x: np.zeros_like(x, shape=(3,)),
        lambda x: np.copysign(1.0, x), lambda x: np.percentile(x, 90), lambda x: copy.deepcopy(x),
        lambda x: np.divmod(x, 0.5)[1], lambda x: np.add.reduce(x), lambda x: bool(x[:1] == x[:1]),
    ]  # fmt: skip
    for ask in wanted:
        expected = ask(x)
        if isinstance(expected, bytes):
            assert ask(a) == expected
        else:
            agree(ask(a), expected)
    twin = copy.copy(a)
    twin += 1
    agree(a, x)
    with pytest.raises(AttributeError, match=r"has no 'flags': numpy\.asarray"):
        _ = a.flags


def test_the_sign_of_what_is_not_a_number_is_not_one() -> None:
    """Else a rule that goes by signs would hide that its client has diverged."""
    x = np.array([np.nan, -2.0, 0.0, 3.0, np.inf], dtype=np.float32)
    a: Any = DeviceVector(torch.from_numpy(x.copy()))
    np.testing.assert_array_equal(np.asarray(np.sign(a)), np.sign(x))
    np.sign(a, out=a)
    np.testing.assert_array_equal(np.asarray(a), np.sign(x))
