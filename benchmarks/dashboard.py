"""How quick the dashboard is with a large run: the first picture, zooms, and a run that goes on.

    python benchmarks/dashboard.py [--clients 1000] [--rows 1000000]

A run folder with made-up facts is looked at in two ways: by `swiftfl.views` alone, and over HTTP by a server
process of its own, as a browser would, with everything that the stream's picture needs. Seconds of the wall
clock, and of the processor, which tell whether the machine was busy with something else.
"""

from __future__ import annotations

import argparse
import gzip
import http.client
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np

from swiftfl.record.facts import FACTS, ROW
from swiftfl.views import RunView

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from facts_made import make_facts, make_rows

BINS = 1000
ZOOMS = (1.0, 0.5, 0.3, 0.1, 0.03, 0.01, 0.001)
"""Shares of the run that are in view."""
REPEATS = 5


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds of the wall clock and of the processor."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def first_picture(folder: Path) -> tuple[float, float]:
    """Seconds until the stream of a folder that nobody has looked at can be drawn."""
    return timed(lambda: json.dumps(RunView(folder).stream(bins=BINS)))


def zooms(folder: Path) -> dict[float, tuple[float, float]]:
    """Seconds of a zoom to such a share of the run, the median over places; the run is known already."""
    view = RunView(folder)
    whole = view.stream(bins=BINS)
    assert whole is not None
    found = {}
    for share in ZOOMS:
        places = [k * (1 - share) / REPEATS * whole["end"] for k in range(REPEATS)]
        windows = [(a, a + share * whole["end"], BINS) for a in places]
        times = [timed(partial(_as_text, view, window)) for window in windows]
        found[share] = (median(wall for wall, _ in times), median(cpu for _, cpu in times))
    return found


def _as_text(view: RunView, window: tuple[float, float, int]) -> str:
    return json.dumps(view.stream(*window))


def growth(folder: Path) -> tuple[float, float]:
    """Seconds for the next picture after a thousand steps were appended."""
    view = RunView(folder)
    whole = view.stream(bins=BINS)
    assert whole is not None
    file = max((folder / FACTS).glob("steps-*.bin"), key=lambda path: path.stat().st_mtime)
    times = []
    for number in range(REPEATS):
        rows = make_rows(whole["last"] + 1, 1000, waiting=False, seed=number)[:1000].astype(ROW)
        rows["start"] += whole["end"] * (1 + number / 100)
        with file.open("ab") as stream:
            stream.write(np.ascontiguousarray(rows).tobytes())
        times.append(timed(lambda: json.dumps(view.stream(bins=BINS))))
    return median(wall for wall, _ in times), median(cpu for _, cpu in times)


def over_http(folder: Path) -> dict[str, float]:
    """The same through a server process: seconds as a browser on this machine sees them."""
    command = [sys.executable, "-m", "swiftfl", "dashboard", str(folder), "--port", "0"]
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            host = server.stdout.readline().strip().removeprefix("http://").rstrip("/")
            connection = http.client.HTTPConnection(host)

            def get(path: str) -> bytes:
                connection.request("GET", f"/api/{path}", headers={"Accept-Encoding": "gzip"})
                reply = connection.getresponse()
                body = reply.read()
                assert reply.status == 200, body
                return gzip.decompress(body) if reply.getheader("Content-Encoding") == "gzip" else body

            run = json.loads(get("runs"))[0]["id"]
            found = {"start of the server": time.perf_counter() - began}
            found["first picture"] = timed(lambda: json.loads(get(f"runs/{run}/stream?bins={BINS}")))[0]
            end = json.loads(get(f"runs/{run}/stream?bins=10"))["end"]
            for share in ZOOMS[1:]:
                places = [(0.1 + 0.01 * k) * (1 - share) * end for k in range(REPEATS)]
                queries = [f"from={a}&to={a + share * end}&bins={BINS}" for a in places]
                times = [timed(partial(get, f"runs/{run}/stream?{q}"))[0] for q in queries]
                found[f"zoom to {100 * share:g} %"] = median(times)
            for name in ("curves", "now", ""):
                found[name or "run, graph"] = timed(partial(get, f"runs/{run}/{name}".rstrip("/")))[0]
            connection.close()
            return found
        finally:
            server.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description="How quick the dashboard is with a large run.")
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=1_000_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = make_facts(Path(temporary) / "run", given.clients, given.rows, "d-sgd", finished=True)
        print(
            f"{given.clients:,} clients, {given.rows:,} steps, {BINS} bins: milliseconds (of the processor)"
        )
        wall, cpu = first_picture(folder)
        print(f"  {'first picture':22}{1000 * wall:8.0f} {1000 * cpu:8.0f}")
        for share, (wall, cpu) in zooms(folder).items():
            print(f"  {f'zoom to {100 * share:g} %':22}{1000 * wall:8.0f} {1000 * cpu:8.0f}")
        wall, cpu = growth(folder)
        print(f"  {'1,000 steps later':22}{1000 * wall:8.0f} {1000 * cpu:8.0f}")
        print("over HTTP, from a process of its own: milliseconds")
        for name, seconds in over_http(folder).items():
            print(f"  {name:22}{1000 * seconds:8.0f}")


if __name__ == "__main__":
    main()
