"""The jobs of a pool, one after the other in this process: for tests of what they compute, not of the pool.

Each process of a real pool imports torch first, which takes longer than a small job.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from swiftfl.errors import UserError
from swiftfl.experiment.pool import Job, JobEvent, JobFailed, JobFinished, JobProgress
from swiftfl.experiment.worker import load
from swiftfl.files import json_text


def run_jobs_here(
    jobs: Sequence[Job],
    workers: int,
    on_event: Callable[[JobEvent], None],
    on_tick: Callable[[], None] = lambda: None,
) -> None:
    """As `swiftfl.experiment.pool.run_jobs`; arguments and results become plain JSON here, too."""
    for job in jobs:
        arguments = json.loads(json.dumps(dict(job.arguments)))

        def report(done: int, job: Job = job) -> None:
            on_event(JobProgress(job, done))

        try:
            result = load(job.function)(report, **arguments)
        except UserError as error:
            on_event(JobFailed(job, str(error)))
        except Exception as error:
            on_event(JobFailed(job, f"{type(error).__name__}: {error}"))
        else:
            on_event(JobFinished(job, json.loads(json_text(result))))
        on_tick()
