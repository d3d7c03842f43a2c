"""A process that runs one job after the other for a campaign: jobs come in as lines of JSON, news go out.

`python -m swiftfl.experiment.worker`. It starts torch once for many runs. A run that was begun goes on
from its checkpoint. SIGINT saves the run and ends the process; so does a parent that is no longer
there to hear the news, whatever ended it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any, TextIO

from swiftfl.errors import UserError
from swiftfl.experiment.config import Config, parse
from swiftfl.experiment.live import CLIENTS
from swiftfl.experiment.measure import Measurement
from swiftfl.experiment.run import Result, resume, run
from swiftfl.record import RunFolder

_CHECKPOINT_SECONDS = 30.0


def serve(jobs: TextIO, news: TextIO) -> None:
    """Until there are no more jobs."""
    for line in iter(jobs.readline, ""):
        job = json.loads(line)
        try:
            result = run_or_resume(Path(job["path"]), parse(job["config"]), _Teller(news))
            _tell(news, {"finished": True, "loss": result.summary["loss"]})
        except UserError as error:
            _tell(news, {"failed": str(error)})
        except Exception as error:  # whatever a run may raise: the campaign tells it and goes on
            _tell(news, {"failed": f"{type(error).__name__}: {error}"})


def run_or_resume(path: Path, config: Config, progress: _Teller) -> Result:
    """A run that has saved something goes on; one that has not starts anew, with the same result."""
    if begun(path):
        RunFolder.open(path).write_json("config.json", config.model_dump(mode="json"))
        return resume(path, progress, _CHECKPOINT_SECONDS)
    shutil.rmtree(path, ignore_errors=True)
    return run(config, path, progress, _CHECKPOINT_SECONDS)


def begun(path: Path) -> bool:
    """Whether a run has saved something to go on from."""
    return any((path / name).is_dir() for name in ("checkpoint", "checkpoint.old", CLIENTS))


class _Teller:
    """The progress of a run, as news."""

    def __init__(self, news: TextIO) -> None:
        self._news = news

    def __call__(self, done: int, total: int, last: Measurement) -> None:
        _tell(self._news, {"done": done, "total": total})


def _tell(news: TextIO, message: dict[str, Any]) -> None:
    try:
        news.write(json.dumps(message) + "\n")
        news.flush()
    except BrokenPipeError:
        raise KeyboardInterrupt from None  # nobody is there: save and end


def main() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where it came ignored
    news = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else prints does not disturb the news
    try:
        serve(sys.stdin, news)
    except KeyboardInterrupt:
        os._exit(0)  # without a last try to flush a broken pipe


if __name__ == "__main__":
    main()
