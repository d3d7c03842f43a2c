"""A short self-check of a device: does it compute what the cpu computes, and do numbers survive the way?"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from swiftfl.vector import Weights, mix
from swiftfl.workload.device_vector import DeviceVector
from swiftfl.workload.transfer import CHUNK_BYTES, download, upload

_NEAR = 1e-3  # of TF32 products, too


def check_device(name: str) -> tuple[list[str], float]:
    """What is wrong with this device, in words, and how many GB/s come down from it."""
    device = torch.device(name)
    wrong = [problem for problem in (*_way(device), *_averages(device), *_gradients(device)) if problem]
    return wrong, _speed(device)


def _numbers(size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(size).astype(np.float32)


def _way(device: torch.device) -> Iterator[str]:
    """Up and down in several chunks, the last one not whole."""
    x = _numbers(5 * CHUNK_BYTES["cuda"] // 8 + 3)
    up, back = torch.empty(x.shape, device=device), np.zeros_like(x)
    upload(x, up)
    download(up, back)
    yield "" if np.array_equal(x, back) else "numbers that go there and back are not the same"


def _averages(device: torch.device) -> Iterator[str]:
    x, y = _numbers(100_003), _numbers(100_003, seed=1)
    there = DeviceVector(torch.empty(x.shape, device=device))
    there[:] = x
    w = Weights(0.6, {1: 0.4})
    found = np.asarray(mix(w, there, {1: y}))  # type: ignore[arg-type]
    yield "" if np.allclose(found, mix(w, x, {1: y}), atol=1e-5) else "an average differs from the cpu's"


def _gradients(device: torch.device) -> Iterator[str]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10))
    inputs, labels = torch.randn(16, 3, 8, 8), torch.randint(10, (16,))
    slopes = []
    for where in (torch.device("cpu"), device):
        net.to(where)
        loss = functional.cross_entropy(net(inputs.to(where)), labels.to(where))
        grads = torch.autograd.grad(loss, list(net.parameters()))
        slopes.append(torch.cat([grad.reshape(-1).cpu() for grad in grads]))
    gap = float((slopes[0] - slopes[1]).norm() / slopes[0].norm())
    yield "" if gap < _NEAR else f"a gradient differs from the cpu's by {gap:.0e} of its length"


def _speed(device: torch.device) -> float:
    x = torch.zeros(8 << 20, device=device)
    host = np.zeros(8 << 20, dtype=np.float32)
    download(x, host)
    began = time.perf_counter()
    download(x, host)
    return host.nbytes / (time.perf_counter() - began) / 1e9
