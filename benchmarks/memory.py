"""The memory of every live client while one of them is ten times as slow: flat after the first minute?

    python benchmarks/memory.py [--minutes 10] [--clients 16] [--factor 10] [--seconds 0.1]

SWIFT on this machine, real processes in a ring, models of 97,510 float32; gradients are sleeps, and one
client takes `factor` times as long for its own. Memory is a client's own (RssAnon): the shared slots are made
before the start and never grow. The last looks do not count: at its end a client saves its model.
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
import time
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TypeAlias

from swiftfl.experiment.config import Config
from swiftfl.experiment.recipes import recipe
from swiftfl.experiment.run import run

SLOW, LAST_LOOKS = 5, 3
LEEWAY = 0.02
"""How much more than after the first minute counts as growth: two per cent."""
Curves: TypeAlias = dict[int, list[tuple[float, float]]]


def configuration(clients: int, factor: float, seconds: float, minutes: float) -> Config:
    steps = round(60 * minutes / seconds * (clients - 1 + 1 / factor))
    return recipe("digits").with_changes(
        {
            "topology.clients": clients,
            "model.options": {"hidden": 1300},
            "engine.name": "local",
            "engine.epochs": None,
            "engine.iterations": steps,
            "engine.live.gradient_seconds": seconds,
            "engine.costs.slowdowns": [{"client": SLOW, "factor": factor}],
            "evaluation.clients": 0,
        }
    )


def clients_alive() -> dict[int, int]:
    """Client -> process, by the name that each client gives to its process."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            name = (process / "comm").read_text().strip()
        except OSError:
            continue
        if name.startswith("swiftfl-") and name.removeprefix("swiftfl-").isdigit():
            found[int(name.removeprefix("swiftfl-"))] = int(process.name)
    return found


def own_memory(pid: int) -> float:
    """Megabytes that belong to this process alone."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    return 0.0


def watch(process: BaseProcess, clients: int, every: float) -> Curves:
    """(seconds, megabytes) per client until the run ends."""
    seen: Curves = {i: [] for i in range(clients)}
    began = time.monotonic()
    while process.is_alive():
        if not any(seen.values()):
            began = time.monotonic()  # nobody is there yet
        for i, pid in clients_alive().items():
            try:
                seen[i].append((time.monotonic() - began, own_memory(pid)))
            except OSError:
                continue
        process.join(every)
    return seen


def growth(points: list[tuple[float, float]], minute: float) -> tuple[float, float, float]:
    """At the end of the first minute, the most after it, and the last before the end."""
    points = points[:-LAST_LOOKS]
    first = [mb for seconds, mb in points if seconds <= minute]
    later = [mb for seconds, mb in points if seconds > minute]
    return first[-1], max(later), later[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--factor", type=float, default=10.0)
    parser.add_argument("--seconds", type=float, default=0.1, help="of an emulated gradient")
    given = parser.parse_args()
    config = configuration(given.clients, given.factor, given.seconds, given.minutes)
    process = mp.get_context("fork").Process(target=run, args=(config,))
    process.start()
    minute = min(60.0, 6.0 * given.minutes)
    seen = watch(process, given.clients, every=minute / 12)
    slow = f"client {SLOW} {given.factor:g}x slower"
    print(f"{given.clients} clients, {given.minutes:g} minutes, {slow}; megabytes of their own")
    print(f"{'client':>8}{'first minute':>14}{'most after':>12}{'at the end':>12}{'growth':>9}")
    rows = {i: growth(points, minute) for i, points in seen.items()}
    for i, (first, most, last) in rows.items():
        mark = " slow" if i == SLOW else " its neighbour" if abs(i - SLOW) == 1 else ""
        print(f"{i:8d}{first:14.2f}{most:12.2f}{last:12.2f}{most / first - 1:9.2%}{mark}")
    worst = max(most / first - 1 for first, most, _ in rows.values())
    print(f"largest growth after the first minute {worst:.2%}: {'flat' if worst <= LEEWAY else 'NOT FLAT'}")


if __name__ == "__main__":
    main()
