"""How long the communication coefficients take, and how much memory, from 10^3 to 10^6 clients.

Run: python benchmarks/coefficients.py [--method ccs] [--most 1000000]

Each case runs in a process of its own. `build` makes the topology, `coefficients` is
`communication_coefficients` (with the check that the graph is connected), `columns` makes the weights
that clients use, and `valid` is the check of the conditions (a)-(d). `peak` is the largest resident
memory of the process, `ours` is how much of it the coefficients added to interpreter and topology.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time

GRAPHS = {"ring": ("ring", 0), "barabasi_albert(4)": ("barabasi_albert", 4)}


def megabytes() -> float:
    """The largest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def measure(name: str, n: int, method: str) -> dict[str, float | bool]:
    """One case, in this process."""
    import scipy.sparse.csgraph  # noqa: F401  (imported lazily by the library; not what is measured)

    import swiftfl

    kind, attach = GRAPHS[name]
    start = time.perf_counter()
    topology = swiftfl.ring(n) if kind == "ring" else swiftfl.barabasi_albert(n, attach)
    _ = topology.indices
    built, before = time.perf_counter(), megabytes()
    coefficients = swiftfl.communication_coefficients(topology, method=method)
    done, after = time.perf_counter(), megabytes()
    _ = coefficients.own
    columns = time.perf_counter()
    valid = coefficients.report().valid
    return {
        "edges": topology.m,
        "build": built - start,
        "coefficients": done - built,
        "columns": columns - done,
        "peak": after,
        "ours": after - before,
        "valid": valid,
    }


def in_own_process(name: str, n: int, method: str) -> dict[str, float | bool]:
    """One case, in a fresh process with one thread."""
    command = [sys.executable, __file__, "--case", name, "--most", str(n), "--method", method]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    row: dict[str, float | bool] = json.loads(done.stdout)
    return row


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--method", default="ccs")
    parser.add_argument("--most", type=int, default=1_000_000)
    parser.add_argument("--case", choices=GRAPHS, help="(used by the benchmark itself)")
    options = parser.parse_args()
    if options.case:
        print(json.dumps(measure(options.case, options.most, options.method)))
        return
    print(f"method {options.method}; seconds, and megabytes of resident memory")
    heads = ["clients", "edges", "build", "coefficients", "columns", "peak MB", "ours MB", "valid"]
    print(f"{'graph':20}" + "".join(f"{head:>13}" for head in heads))
    for name in GRAPHS:
        n = 1000
        while n <= options.most:
            row = in_own_process(name, n, options.method)
            numbers = [f"{row[key]:.3f}" for key in ("build", "coefficients", "columns")]
            memory = [f"{row[key]:.0f}" for key in ("peak", "ours")]
            cells = [str(n), str(row["edges"]), *numbers, *memory, "yes" if row["valid"] else "NO"]
            print(f"{name:20}" + "".join(f"{cell:>13}" for cell in cells), flush=True)
            n *= 10


if __name__ == "__main__":
    main()
