"""The simulator's updates per second against the code before all work on speed, in one run.

    python benchmarks/before.py [--before PATH] [--times 5] [--rounds 6] [--budget 0.2]

Three processes per case: the bare PyTorch loop of `simulator.py`, the engine of before, and today's, both
engines with one process. They take turns, in every order, in blocks of the same steps and of a fraction of a
second, while the other two are idle; a quarter of a block before each is not timed, since whoever was idle
finds its caches cold. Two processes of equal code differ, too, by where their memory lies, as long as they
live: so each case is begun anew several times. "before" and "now" are updates per second over the bare
loop's; all are medians of rounds, and of these the median of all times. Behind "now / before" are the lowest
and the highest of them. `--before` is a checkout, also this one, for how far from 1 two equal codes may be
told; without it the commit b8d0c90 is taken from this repository's history.
"""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from contextlib import ExitStack
from itertools import permutations
from pathlib import Path
from statistics import median

HERE = Path(__file__).parents[1]
COMMIT = "b8d0c90"
CASES = [(model, n) for model in ("logistic", "mlp") for n in (16, 100, 10_000)]
SIDE = """
import sys, time, torch, simulator
from swiftfl.experiment.build import build
which, model, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
torch.set_num_threads(1)
if hasattr(simulator, "small"):
    simulator.small.load(compile=True)
parts = build(simulator.config(model, n))
loop = simulator.bare_loop(parts, model) if which == "bare" else simulator.engine_loop(parts)
for line in sys.stdin:
    began = time.perf_counter()
    loop(int(line))
    print(time.perf_counter() - began, flush=True)
"""


class Side:
    """One of those that are compared, in a process of its own: it works when it is told, and else sleeps."""

    def __init__(self, tree: Path, which: str, model: str, n: int, stack: ExitStack) -> None:
        paths = os.pathsep.join((str(tree / "src"), str(tree / "benchmarks")))
        command = [sys.executable, "-c", SIDE, which, model, str(n)]
        environment = {**os.environ, "PYTHONPATH": paths}
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        stack.enter_context(process)  # whose end of input is its end
        assert process.stdin is not None
        assert process.stdout is not None
        self._asked, self._told = process.stdin, process.stdout

    def timed(self, steps: int, n: int) -> float:
        self.seconds(max(n, steps // 4))
        return self.seconds(steps)

    def seconds(self, steps: int) -> float:
        print(steps, file=self._asked, flush=True)
        return float(self._told.readline())


def case(before: Path, model: str, n: int, rounds: int, budget: float) -> tuple[float, float, float]:
    """Updates per second of before and now over a bare loop's, and of now over before."""
    with ExitStack() as stack:
        sides = [
            Side(tree, which, model, n, stack)
            for tree, which in ((HERE, "bare"), (before, "engine"), (HERE, "engine"))
        ]
        for side in sides:
            side.seconds(2 * n)
        steps = max(1, round(budget / sides[1].seconds(n))) * n
        orders = list(permutations(sides))
        found = [
            {side: side.timed(steps, n) for side in orders[turn % len(orders)]} for turn in range(rounds)
        ]
    bare, then, now = sides
    return (
        median(each[bare] / each[then] for each in found),
        median(each[bare] / each[now] for each in found),
        median(each[then] / each[now] for each in found),
    )


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


def compare(before: Path, times: int, rounds: int, budget: float) -> None:
    for model, n in CASES:
        found = [case(before, model, n, rounds, budget) for _ in range(times)]
        then, now, gain = map(median, zip(*found, strict=True))
        gains = [gain for *_, gain in found]
        row = f"{model:<9} n={n:<6} before {then:5.2f}   now {now:5.2f}   now / before {gain:5.2f}"
        print(f"{row}   ({min(gains):.2f} to {max(gains):.2f})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--before", type=Path, help="a checkout of the code to compare with")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--budget", type=float, default=0.2, help="seconds per block")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        before = given.before or Path(folder)
        if given.before is None and (why := unpacked(before)):
            print(f"the code before: skipped ({why})")
        else:
            compare(before, given.times, given.rounds, given.budget)


if __name__ == "__main__":
    main()
