"""The simulator's updates per second against the code before all work on speed, in one run.

    python benchmarks/before.py [--before PATH] [--repeats 2] [--budget 0.4]

Both are told as ratios to the bare PyTorch loop of `simulator.py`, which each measures beside itself, with
one process. What a call of PyTorch costs beside one of Python differs between machines, so does the ratio:
two codes are compared on one machine, in turn. `--before` is a checkout; without it the commit b8d0c90 is
taken from the history of this repository.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from statistics import median

HERE = Path(__file__).parents[1]
COMMIT = "b8d0c90"
CASES = [(model, n) for model in ("logistic", "mlp") for n in (16, 100, 10_000)]
ONE_CASE = """
import inspect, sys, torch, simulator
model, n, budget = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
torch.set_num_threads(1)
if hasattr(simulator, "small"):
    simulator.small.load(compile=True)
more = [[1]] if "workers" in inspect.signature(simulator.compare).parameters else []
simulator.compare(model, n, budget, *more)
"""


def ratio(tree: Path, model: str, n: int, budget: float) -> float:
    """Updates per second of the engine over those of a bare loop, in a process of its own."""
    paths = os.pathsep.join((str(tree / "src"), str(tree / "benchmarks")))
    command = [sys.executable, "-c", ONE_CASE, model, str(n), str(budget)]
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    found = re.search(r"ratio\s+([\d.]+)", done.stdout)
    assert found is not None, done.stdout
    return float(found[1])


def unpacked(folder: Path) -> str | None:
    """Put the code of before into a folder; why that cannot be done, if so."""
    command = ["git", "-C", str(HERE), "archive", COMMIT, "src", "benchmarks"]
    try:
        done = subprocess.run(command, check=False, capture_output=True)
    except OSError as error:
        return str(error)
    if done.returncode:
        return f"no commit {COMMIT} here: --before PATH"
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder)  # of this repository's own history
    return None


def compare(before: Path, repeats: int, budget: float) -> None:
    for model, n in CASES:
        pairs = [tuple(ratio(tree, model, n, budget) for tree in (before, HERE)) for _ in range(repeats)]
        then, now = (median(column) for column in zip(*pairs, strict=True))
        gain = median(b / a for a, b in pairs)
        print(
            f"{model:<9} n={n:<6} before {then:5.2f}   now {now:5.2f}   now / before {gain:5.2f}", flush=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--before", type=Path, help="a checkout of the code to compare with")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--budget", type=float, default=0.4, help="seconds per measurement")
    given = parser.parse_args()
    if given.before is not None:
        compare(given.before, given.repeats, given.budget)
        return
    with tempfile.TemporaryDirectory() as folder:
        if why := unpacked(Path(folder)):
            print(f"the code before: skipped ({why})")
        else:
            compare(Path(folder), given.repeats, given.budget)


if __name__ == "__main__":
    main()
