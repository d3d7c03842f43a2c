"""A process that runs one job after the other for a campaign: jobs come in as lines of JSON, news go out.

`python -m swiftfl.experiment.worker`. It starts torch once for many runs. A run that was begun goes on
from its checkpoint. SIGINT saves the run and ends the process; so does a parent that is no longer
there to hear the news, whatever ended it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from swiftfl.errors import UserError
from swiftfl.experiment.config import Config, parse
from swiftfl.experiment.measure import Measurement
from swiftfl.experiment.run import Progress, resume, run
from swiftfl.record import RunFolder
from swiftfl.record.folder import CLIENTS


def serve(jobs: TextIO, news: TextIO) -> None:
    """Until there are no more jobs."""
    for line in iter(jobs.readline, ""):
        job = json.loads(line)
        path, teller = Path(job["path"]), _Teller(news)
        try:
            with _alone(path):
                run_or_resume(path, parse(job["config"]), teller, job["checkpoint_seconds"])
            _tell(news, {"finished": True, "loss": RunFolder(path).read_json("summary.json")["loss"]})
        except UserError as error:
            _tell(news, {"failed": str(error)})
        except Exception as error:  # whatever a run may raise: the campaign tells it and goes on
            _tell(news, {"failed": f"{type(error).__name__}: {error}"})


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Wait for a worker of an earlier campaign: when that was killed, its workers may still be saving."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = (path.parent / f".{path.name}.lock").open("w")
    except OSError as error:
        raise UserError(f"cannot write to {path.parent}: {error.strerror or error}") from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def run_or_resume(path: Path, config: Config, progress: Progress, checkpoint_seconds: float) -> None:
    """A run that has saved something goes on; one that has not starts anew, with the same result."""
    if (path / "summary.json").is_file():
        return
    if begun(path):
        RunFolder.open(path).write_json("config.json", config.model_dump(mode="json"))  # where the data lies
        resume(path, progress, checkpoint_seconds)
    else:
        shutil.rmtree(path, ignore_errors=True)
        run(config, path, progress, checkpoint_seconds)


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
