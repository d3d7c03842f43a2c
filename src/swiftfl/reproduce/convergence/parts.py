"""The experiment in parts: each is computed by itself, kept in a file of its own, and never done twice."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swiftfl.errors import UserError

Parameters = dict[str, Any]
Result = dict[str, Any]
Progress = Callable[[str, int, int], None]
FORMAT = 1
"""To be raised when the same parameters come to mean another computation."""


@dataclass(frozen=True)
class Part:
    """`run(parameters)` gives the result; both are plain JSON."""

    name: str
    run: Callable[[Parameters], Result]
    parameters: Parameters

    def key(self) -> Parameters:
        """What the result depends on, as a file gives it back."""
        stored: Parameters = json.loads(json.dumps({**self.parameters, "format": FORMAT}))
        return stored


def write_json(path: Path, value: object) -> None:
    """The whole file at once: written beside, then renamed."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(value, indent=1, allow_nan=False) + "\n")
        temporary.replace(path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        temporary.unlink(missing_ok=True)


def stored(part: Part, folder: Path) -> Result | None:
    """The result of an earlier call, if it is there, whole, and of the same parameters."""
    try:
        found = json.loads((folder / f"{part.name}.json").read_text())
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict) or found.get("parameters") != part.key():
        return None
    result: Result = found["result"]
    return result


def run_parts(parts: Sequence[Part], folder: Path, progress: Progress, jobs: int) -> list[Result]:
    """Every part's result, in order; what is not stored yet is computed, `jobs` parts at once."""
    results = [stored(part, folder) for part in parts]
    todo = [k for k, result in enumerate(results) if result is None]
    done = len(parts) - len(todo)
    progress("convergence", done, len(parts))
    for k, result in _computed([parts[k] for k in todo], jobs):
        part = parts[todo[k]]
        write_json(folder / f"{part.name}.json", {"parameters": part.key(), "result": result})
        results[todo[k]] = result
        done += 1
        progress(part.name, done, len(parts))
    return [result for result in results if result is not None]


def _computed(parts: Sequence[Part], jobs: int) -> Any:
    """(position, result) of each part, as they come."""
    if jobs <= 1 or len(parts) <= 1:
        for k, part in enumerate(parts):
            yield k, part.run(part.parameters)
        return
    spawn = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(jobs, len(parts)), spawn, _begin_worker, (os.getpid(),))
    try:
        futures = {pool.submit(part.run, part.parameters): k for k, part in enumerate(parts)}
        for future in as_completed(futures):
            yield futures[future], future.result()
    except BaseException:
        for worker in multiprocessing.active_children():
            worker.kill()  # a part takes up to a minute, and nobody waits for it any more
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _begin_worker(parent: int) -> None:
    """Ctrl-C reaches everybody: the parent decides. And nobody computes on for a parent that is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)
