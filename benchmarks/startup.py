"""How long it takes until something is trained: the smallest run against `import torch`, and 16 ranks of MPI.

    python benchmarks/startup.py [--repeats 3] [--ranks 16] [--no-mpi]

`swiftfl run digits --epochs 1` and `python -c "import torch"` in turn: medians of the wall clock and of the
processor. Target: at most 2.5 times. Then under mpiexec: Python that does nothing, Python that imports torch,
and the smallest run, from the command to its end and until its ranks take their first step, where every rank
imports by itself (SWIFTFL_IMPORTS=apart) and as it is, where ranks share their imports if they are more than
the processors. Imports are from compiled files, as after an installation. Target for ranks: half of what a
start takes where every rank imports by itself, and at most 2 times what importing torch costs each of them.
Under mpiexec the processor's time is that of the whole machine, so let nothing else run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from swiftfl.cli.shared_start import APART, IMPORTS
from swiftfl.errors import UserError
from swiftfl.transports import launch

LIMIT = 600.0
TICKS = os.sysconf("SC_CLK_TCK")
TORCH = [sys.executable, "-c", "import torch"]
AT_MOST, RANKS_AT_MOST, HALF = 2.5, 2.0, 0.5


def spent(command: Sequence[str], environment: dict[str, str]) -> tuple[float, float]:
    """Seconds of the wall clock and of the processor, of the command and all that it started."""
    before, began = os.times(), time.perf_counter()
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    wall, after = time.perf_counter() - began, os.times()
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with code {done.returncode}:\n{done.stderr[-2000:]}")
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return wall, cpu


def busy() -> float:
    """Seconds that the processors of this machine have worked since it was started."""
    first = Path("/proc/stat").read_text().splitlines()[0]
    user, nice, system, _, _, irq, softirq, *_ = map(int, first.split()[1:])
    return (user + nice + system + irq + softirq) / TICKS


def middle(found: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return median(wall for wall, _ in found), median(cpu for _, cpu in found)


def one_run(folder: Path, environment: dict[str, str], repeats: int) -> None:
    def run(k: int) -> list[str]:
        return [
            sys.executable,
            "-m",
            "swiftfl",
            "run",
            "digits",
            "--epochs",
            "1",
            "--out",
            str(folder / f"{k}"),
        ]

    spent(TORCH, environment)
    spent(run(-1), environment)  # compiles what is imported
    torch, ours = [], []
    for k in range(repeats):
        torch.append(spent(TORCH, environment))
        ours.append(spent(run(k), environment))
    (torch_wall, torch_cpu), (wall, cpu) = middle(torch), middle(ours)
    print(f"import torch                     {torch_wall:6.2f} s  {torch_cpu:6.2f} s of the processor")
    print(f"swiftfl run digits --epochs 1    {wall:6.2f} s  {cpu:6.2f} s of the processor")
    verdict("the smallest run", wall / torch_wall, cpu / torch_cpu, "import torch", AT_MOST)


def verdict(what: str, wall: float, cpu: float, against: str, target: float) -> None:
    kept = "kept" if wall <= target else "MISSED"
    print(
        f"{what} takes {wall:.2f} of {against} ({cpu:.2f} of the processor; at most {target:g}: {kept})",
        flush=True,
    )


def ranks(folder: Path, environment: dict[str, str], count: int) -> None:
    try:
        nothing = launch.command(count, ["-c", "pass"], [])
    except UserError as error:
        print(f"ranks of MPI: skipped ({error})")
        return
    environment = {**(launch.AS_ROOT if os.geteuid() == 0 else {}), **environment}
    print(f"{count} ranks: seconds, and of the processors per rank")

    def told(what: str, command: Sequence[str], more: dict[str, str]) -> tuple[float, float]:
        before = busy()
        wall, _ = spent(command, {**environment, **more})  # not all that it starts are its descendants
        cpu = busy() - before
        print(f"  {what:34} {wall:8.2f} {cpu / count:8.2f}", flush=True)
        return wall, cpu

    def run(what: str, name: str, more: dict[str, str]) -> tuple[float, float]:
        out = folder / name
        line = [
            "-m",
            "swiftfl",
            "run",
            "digits",
            "--engine",
            "mpi",
            "--clients",
            str(count),
            "--out",
            str(out),
        ]
        wall, cpu = told(what, launch.command(count, [*line, "--epochs", "1"], []), more)
        start = wall - float(json.loads((out / "summary.json").read_text())["wall_seconds"])
        print(f"    until its first step             {start:8.2f}", flush=True)
        return start, cpu

    told("nothing", nothing, {})
    torch = told("torch", launch.command(count, ["-c", "import torch"], []), {})
    apart = run("a run, every rank imports by itself", "apart", {IMPORTS: APART})
    ours = run("a run", "ranks", {})
    start = f"the start of {count} ranks"
    against_torch = ours[0] / torch[0], ours[1] / torch[1]
    verdict(start, *against_torch, "importing torch there", RANKS_AT_MOST)
    verdict(start, ours[0] / apart[0], ours[1] / apart[1], "that with imports of their own", HALF)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=16)
    parser.add_argument("--no-mpi", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment |= {"PYTHONPYCACHEPREFIX": str(folder / "compiled"), "OMP_NUM_THREADS": "1"}
        one_run(folder, environment, given.repeats)
        if not given.no_mpi:
            ranks(folder, environment, given.ranks)


if __name__ == "__main__":
    main()
