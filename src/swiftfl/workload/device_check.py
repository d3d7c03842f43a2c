"""A short self-check of a device: does it compute what the cpu computes, and do numbers survive the way?"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from swiftfl.vector import Weights, mix
from swiftfl.workload import generators
from swiftfl.workload.device_vector import DeviceVector
from swiftfl.workload.transfer import CHUNK_BYTES, download, known_since, moment, upload

_NEAR = 1e-4


def check_device(name: str) -> tuple[list[str], float]:
    """What is wrong with this device, in words, and how many GB/s come down from it."""
    device = torch.device(name)
    looks = (_way, _beside, _averages, _gradients, _draws)
    with torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False):
        wrong = [problem for look in looks for problem in look(device) if problem]
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


def _beside(device: torch.device) -> Iterator[str]:
    """A model that another thread brings down while this one goes on computing."""
    there = DeviceVector(torch.full((CHUNK_BYTES["cuda"],), 2.0, device=device) * 3)
    back, since = np.zeros(there.size, dtype=np.float32), moment(there)

    def publish() -> None:
        with known_since(since):
            download(there.tensor, back)

    thread = threading.Thread(target=publish)
    thread.start()
    square = torch.ones(500, 500, device=device)
    for _ in range(10):
        square = square @ square / 500
    thread.join()
    fine = bool((back == 6.0).all()) and float(square.mean()) == 1.0
    yield "" if fine else "a model that came down beside other work is not the same"


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
    for where in (torch.device("cpu"), device, device):
        net.to(where)
        loss = functional.cross_entropy(net(inputs.to(where)), labels.to(where))
        grads = torch.autograd.grad(loss, list(net.parameters()))
        slopes.append(torch.cat([grad.reshape(-1).cpu() for grad in grads]))
    gap = float((slopes[0] - slopes[1]).norm() / slopes[0].norm())
    yield "" if gap < _NEAR else f"a gradient differs from the cpu's by {gap:.0e} of its length"
    yield "" if torch.equal(slopes[1], slopes[2]) else "the same gradient again has other bits"


def _draws(device: torch.device) -> Iterator[str]:
    """Whoever draws numbers there has moved a generator that is looked at."""
    with torch.random.fork_rng(devices=generators.devices(device)):
        before = generators.states(device)
        torch.rand(3, device=device)
        moved = not all(map(torch.equal, before, generators.states(device)))
    yield "" if moved else "random numbers that are drawn there are not noticed"


def _speed(device: torch.device) -> float:
    x = torch.zeros(8 << 20, device=device)
    host = np.zeros(8 << 20, dtype=np.float32)
    download(x, host)
    began = time.perf_counter()
    download(x, host)
    return host.nbytes / (time.perf_counter() - began) / 1e9
