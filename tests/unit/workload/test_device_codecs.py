"""Models as tensors through codecs: what arrives is what arrives of NumPy's vectors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from makers import MAKERS
from swiftfl.engines.simulation.checkpoint import restore, save
from swiftfl.experiment.build import build
from swiftfl.experiment.recipes import recipe
from swiftfl.rules import SgdRule
from swiftfl.transports.codec import CODECS, make_codec, transmitted
from swiftfl.transports.messages.message import Message
from swiftfl.vector import Vector
from swiftfl.workload.device_vector import DeviceVector

NAMES = sorted(CODECS)
SHORT = {"engine.epochs": None, "engine.iterations": 30, "topology.clients": 3, "model.batching": "off"}


def world(codec: str, vectors: str, engine: str, algorithm: str = "swift", **changes: Any) -> Any:
    changes = {"model.vectors": vectors, "engine.name": engine, "engine.codec": codec, **SHORT, **changes}
    parts = build(recipe("digits").with_changes(changes))
    made = MAKERS[algorithm](parts.topology, SgdRule(0.9, 0.001))
    return replace(parts, setup=replace(parts.setup, algorithm=made)).engine(engine)


def trained(*given: Any, **changes: Any) -> list[Vector]:
    run = world(*given, **changes)
    run.start()
    run.advance(10**6)
    models: list[Vector] = run.models
    return models


@pytest.mark.parametrize("algorithm", ["swift", "dsgd", "matcha"])
@pytest.mark.parametrize("engine", ["virtual", "sampled"])
@pytest.mark.parametrize("codec", NAMES)
def test_simulated_clients_learn_the_same_with_tensors(codec: str, engine: str, algorithm: str) -> None:
    expected = trained(codec, "numpy", engine, algorithm)
    found = trained(codec, "torch", engine, algorithm)
    assert all(isinstance(x, DeviceVector) for x in found)
    for mine, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(mine), other, rtol=1e-3, atol=1e-4)


def test_poisoned_messages_are_the_same_too() -> None:
    poison = {"faults.poison": [{"client": 1, "kind": "scaled"}]}
    expected, found = (trained("bf16", kind, "virtual", **poison) for kind in ("numpy", "torch"))
    for mine, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(mine), other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("codec", NAMES)
def test_a_checkpoint_goes_on_as_if_nothing_had_happened(codec: str) -> None:
    whole, first, second = (world(codec, "torch", "virtual") for _ in range(3))
    whole.start()
    whole.advance(30)
    first.start()
    first.advance(15)
    restore(second, save(first))
    second.advance(15)
    assert np.array_equal(np.stack(whole.models), np.stack(second.models))


@pytest.mark.parametrize("codec", NAMES)
def test_a_message_holds_a_tensor_as_it_holds_an_array(codec: str) -> None:
    """Twice, for those that remember what they left out; as bytes, and within one memory."""
    make = make_codec(codec)
    x = np.random.default_rng(0).standard_normal(300).astype(np.float32)
    here, there = Message(300, x.dtype, make()), Message(300, x.dtype, make())
    one, other = make(), make()
    for numbers in (x, x[::-1].copy()):
        tensor: Any = DeviceVector(torch.from_numpy(numbers.copy()))
        here.fill(numbers)
        there.fill(tensor)
        assert np.array_equal(here.filled, there.filled)
        assert np.array_equal(transmitted(one, numbers), np.asarray(transmitted(other, tensor)))
