"""A short real run on a device: two spawned clients there end where simulated ones on the cpu do.

It is a program of its own, whose argument is the device, so that whoever waits for it can end it in time.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time

import numpy as np

from swiftfl.engines.threads import cores
from swiftfl.errors import UserError
from swiftfl.experiment.recipes import recipe
from swiftfl.experiment.run import run
from swiftfl.fresh import fresh_python

SECONDS = 120.0
"""For the runs of all devices together."""
_PROCESSES = 3
"""Of one run: two clients, and the one that started them."""
_NEAR = 1e-3
_TINY = {"topology.clients": 2, "engine.epochs": 1, "data.batch_size": 64, "algorithm.name": "dsgd"}
_SPAWNED = {"engine.name": "local", "engine.live.start": "spawn", "engine.live.evaluate_seconds": 60.0}


def gap_to_the_cpu(device: str) -> float:
    """How far the two clients' models are from those of the cpu, as a share of the latter's length."""
    tiny = recipe("digits").with_changes({**_TINY, "model.tf32": False, "model.deterministic": True})
    there = run(tiny.with_changes({**_SPAWNED, "model.device": device}))
    if there.summary["lost"]:
        reasons = [str(event["reason"]) for event in there.events if event["event"] == "lost"]
        raise UserError(f"a client was lost: {reasons[0]}")
    here = run(tiny.with_changes({"engine.name": "virtual", "model.device": "cpu"}))
    mine, other = (np.concatenate([np.asarray(x) for x in found.models]) for found in (there, here))
    return float(np.linalg.norm(mine - other) / np.linalg.norm(other))


def check_runs(devices: list[str], seconds: float = SECONDS, at_once: int | None = None) -> dict[str, str]:
    """What is wrong with such a run on each of these devices, in words; empty where nothing is.

    As many run at once as there are cores for. They have their share of the time, and of what others have
    left of theirs: one that hangs takes nothing of those that come after it.
    """
    at_once = max(1, cores() // _PROCESSES) if at_once is None else at_once
    groups = [devices[start : start + at_once] for start in range(0, len(devices), at_once)]
    end, found = time.monotonic() + seconds, dict[str, str]()

    def check(device: str, share: float) -> None:
        try:
            found[device] = _check_run(device, share)
        except (OSError, ValueError) as error:  # it cannot be started, or prints what nobody expects
            found[device] = f"a run of two clients there failed: {error}"

    for place, group in enumerate(groups):
        share = (end - time.monotonic()) / (len(groups) - place)
        threads = [threading.Thread(target=check, args=(device, share), daemon=True) for device in group]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return {device: found[device] for device in devices}


def _check_run(device: str, seconds: float) -> str:
    if seconds <= 0:
        return "no time was left for a run of two clients there"
    try:
        done = subprocess.run(
            fresh_python("swiftfl.experiment.device_run", device),
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"a run of two clients there was not over after {seconds:.0f} s"
    said = done.stdout.strip().splitlines()
    if done.returncode or not said:
        why = (done.stderr.strip().splitlines() or [f"it ended with code {done.returncode}"])[-1]
        return f"a run of two clients there failed: {why}"
    gap = float(json.loads(said[-1]))
    return "" if gap < _NEAR else f"a run of two clients there is {gap:.0e} away from the cpu's"


def main() -> None:
    try:
        print(json.dumps(gap_to_the_cpu(sys.argv[1])))
    except UserError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
