"""How long it takes until something is trained: the smallest run against `import torch`, and 16 ranks of MPI.

    python benchmarks/startup.py [--repeats 3] [--ranks 16] [--no-mpi]

`swiftfl run digits --epochs 1` and `python -c "import torch"` in turn: medians of the wall clock and of the
processor. Target: at most 2.5 times. Then under mpiexec: Python that does nothing, Python that imports torch,
and the smallest run, from the command to its end and until its ranks take their first step. Imports are from
compiled files, as after an installation. Target for ranks: at most 2 times what importing torch costs them.
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

from swiftfl.errors import UserError
from swiftfl.transports import launch

LIMIT = 600.0
TORCH = [sys.executable, "-c", "import torch"]
AT_MOST, RANKS_AT_MOST = 2.5, 2.0


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
    torch = launch.command(count, ["-c", "import torch"], [])
    out = folder / "ranks"
    line = ["-m", "swiftfl", "run", "digits", "--engine", "mpi", "--clients", str(count), "--out", str(out)]
    ours = launch.command(count, [*line, "--epochs", "1"], [])
    rows = [(name, spent(command, environment)) for name, command in (("nothing", nothing), ("torch", torch))]
    rows.append(("a run", spent(ours, environment)))
    trained = float(json.loads((out / "summary.json").read_text())["wall_seconds"])
    print(f"{count} ranks: seconds, and of the processor per rank")
    for name, (wall, cpu) in rows:
        print(f"  {name:28} {wall:8.2f} {cpu / count:8.2f}")
    (_, (torch_wall, torch_cpu)), (_, (wall, cpu)) = rows[1:]
    print(f"  of the run, until its first step {wall - trained:8.2f}")
    what = f"the start of {count} ranks"
    verdict(what, (wall - trained) / torch_wall, cpu / torch_cpu, "importing torch there", RANKS_AT_MOST)


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
