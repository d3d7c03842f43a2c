"""Evaluations during MPI runs: whose models they are of."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

from swiftfl.engines.live.mpi.evaluator import Evaluations


class Job:
    """As much of a transport as snapshots use."""

    i = 0

    def __init__(self) -> None:
        self.progress = self
        self.gone: set[int] = set()
        self.shown: Any = None
        self.moving = contextlib.nullcontext()

    iteration, now = 7, 1.5

    def epochs(self) -> list[float]:
        return [0.5]


def test_an_evaluation_is_never_of_the_models_before() -> None:
    """The control channel's thread may look at any moment, also in the middle of a request."""
    job, asked = Job(), []
    evaluations = Evaluations(1, np.zeros(2), lambda models, epochs: {"loss": float(models[0][0])})
    try:
        evaluations._process.ask = asked.append  # type: ignore[method-assign,assignment]
        request, snapshots = evaluations._snapshots.request, evaluations._snapshots
        evaluations.request(job, job)  # type: ignore[arg-type]
        job.shown = np.ones(2)
        evaluations.tick(job, [0])  # type: ignore[arg-type]
        assert asked == [[0]]

        def interrupted(transport: Any) -> None:
            evaluations.tick(job, [0])  # type: ignore[arg-type]
            request(transport)

        snapshots.request = interrupted  # type: ignore[method-assign]
        evaluations.request(job, job)  # type: ignore[arg-type]
        evaluations.tick(job, [0])  # type: ignore[arg-type]
        assert asked == [[0]]
        job.shown = np.full(2, 2.0)
        evaluations.tick(job, [0])  # type: ignore[arg-type]
        assert asked == [[0], [0]]
    finally:
        evaluations.close()
