"""What things cost on this machine: the hardware profile `measured`, in about a second.

A gradient is timed on the configured model and data; a publication through the shared memory of the
engine `local`; averaging on two models; and the journey as what a client that waits would see: the
time until the operating system wakes it, and one copy of the model.
"""

from __future__ import annotations

import logging
import os
import statistics
import time
from collections.abc import Callable
from itertools import count

import numpy as np

from swiftfl.experiment.build import Parts, build
from swiftfl.experiment.config import Config
from swiftfl.experiment.costs_config import CostsConfig
from swiftfl.transports.shared_memory.transport import SharedMemory
from swiftfl.vector import Vector, Weights, mix

_log = logging.getLogger(__name__)

_GRADIENT_SECONDS = 0.8
_COPY_SECONDS = 0.1
_ROUND_TRIPS = 200


def measured_costs(config: Config) -> CostsConfig:
    """Costs of this machine for a configuration, rounded to three digits; other runs may differ.

    Slowdowns, links and the like of the configuration are not copied: these are the costs themselves.
    """
    parts = build(config)
    x = parts.workload.initial(config.seed)
    neighbours = max(1.0, 2 * len(parts.topology.edges) / parts.topology.n)
    spare = np.empty_like(x)
    inbox = {1: x.copy(), 2: x.copy()}
    weights = Weights(0.4, {1: 0.3, 2: 0.3})
    copied = median_seconds(lambda: np.copyto(spare, x), _COPY_SECONDS)
    mixed = median_seconds(lambda: mix(weights, x, inbox), _COPY_SECONDS)
    found = CostsConfig(
        compute=rounded(_gradient_seconds(parts, x)),
        send=rounded(_publish_seconds(x) / neighbours),
        mix=rounded(mixed / 2),
        latency=rounded(wake_up_seconds()),
        bandwidth=rounded(x.nbytes / copied),
        message_bytes=x.nbytes,
    )
    _log.info("measured on this machine: %s", found)
    return found


def rounded(value: float) -> float:
    """Three digits: more are noise.

    >>> rounded(0.00123456)
    0.00123
    """
    return float(f"{value:.3g}")


def median_seconds(act: Callable[[], object], seconds: float, least: int = 5) -> float:
    """The median of as many calls as fit the time, at least `least`, after one that does not count."""
    act()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < least or time.perf_counter() < end:
        began = time.perf_counter()
        act()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def _gradient_seconds(parts: Parts, x: Vector) -> float:
    counters = count(1)
    batches = parts.setup.batches[0]
    return median_seconds(lambda: parts.workload.gradient(x, batches(next(counters))), _GRADIENT_SECONDS)


def _publish_seconds(x: Vector) -> float:
    """One publication into shared memory, which serves all neighbours at once."""
    plan = SharedMemory.create([(1,), (0,)], x)
    try:
        wire = plan.connect(0)
        versions = count(1)
        seconds = median_seconds(lambda: wire.publish(x, next(versions)), _COPY_SECONDS)
        wire.close()
        return seconds
    finally:
        plan.close()


def wake_up_seconds() -> float:
    """How long the operating system takes to wake a process that waits: half a round trip of one byte."""
    there, answer = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        _echo(there, answer)
    try:
        return median_seconds(lambda: _ping(there[1], answer[0]), 0.0, least=_ROUND_TRIPS) / 2
    finally:
        os.write(there[1], b"q")
        os.waitpid(child, 0)
        for end in (*there, *answer):
            os.close(end)


def _ping(out: int, back: int) -> None:
    os.write(out, b"x")
    os.read(back, 1)


def _echo(there: tuple[int, int], answer: tuple[int, int]) -> None:
    """The child: answers each byte, and ends at a q or when the parent is gone."""
    try:
        os.close(there[1])
        os.close(answer[0])
        while os.read(there[0], 1) not in (b"q", b""):
            os.write(answer[1], b"x")
    finally:
        os._exit(0)
