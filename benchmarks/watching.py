"""What it costs to record facts and to look at them, as ratios measured in one run.

    python benchmarks/watching.py [--clients 1000] [--rows 1000000] [--no-live]

Part 1, virtual: 1,000 clients with logistic regression, blocks of half a second with and without facts in
turn, the processor's time per step, medians of several beginnings. Target: at most 1.05. Part 2, live: what a
step of a real client has to do for its facts (a buffer; a write twice a second), against the median step of a
run with real processes, whose facts say how long that is. Target: at most 1 %. Part 3: bytes per client-hour,
and how often a client's write took longer than a millisecond. Part 4: the first picture of a folder of 1,000
clients and a million rows.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path
from statistics import median

import numpy as np

from swiftfl.cli.watch_picture import Pen
from swiftfl.cli.watching import Watcher
from swiftfl.engines.engine import SimulatedEngine
from swiftfl.engines.live.facts import FactsPlan, StepFacts
from swiftfl.experiment.build import build
from swiftfl.experiment.config import Config
from swiftfl.experiment.facts import FactsRecorder
from swiftfl.experiment.recipes import digits
from swiftfl.experiment.run import run
from swiftfl.record.facts import ROW, FactsReader
from swiftfl.record.facts.joining import duration
from swiftfl.views import RunView

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from facts_made import make_facts

BLOCK, BLOCKS, BEGINNINGS = 32_000, 6, 5
LIVE_STEPS, LIVE_STEP = 200_000, 1e-4
"""Steps of a client, and seconds of each by the clock that it is shown: so it writes as often as in a run."""


def config(clients: int) -> Config:
    """Logistic regression of the digits; every client draws 64 samples of its own."""
    return digits().with_changes(
        {
            "model.name": "logistic",
            "topology.clients": clients,
            "data.partition": "bootstrap:64",
            "engine.epochs": 100_000,
            "engine.costs.spread": 0.2,
        }
    )


def block(engine: SimulatedEngine, facts: FactsRecorder | None) -> float:
    """The processor's seconds for some steps, as the run loop takes them."""
    began, end = time.process_time(), engine.iteration + BLOCK
    while engine.iteration < end:
        engine.advance(16, 0.5)
        if facts is not None:
            facts.tick()
    if facts is not None:
        facts.write()  # what is still in the buffer belongs to the block, too
    return time.process_time() - began


def virtual(clients: int, folder: Path) -> None:
    """Begun anew several times, each in its own process: engines of equal code differ by their memory."""
    cases = [(clients, folder / str(number), number % 2 == 0) for number in range(BEGINNINGS)]
    with get_context("spawn").Pool(1, maxtasksperchild=1) as fresh:
        found = fresh.starmap(beginning, cases, chunksize=1)
    without, with_facts, ratio = map(median, zip(*found, strict=True))
    ratios = [ratio for *_, ratio in found]
    told = f"{without:.1f} us per step without facts, {with_facts:.1f} with; median ratio {ratio:.3f}"
    print(f"virtual, {clients:,} clients: {told} ({min(ratios):.3f} to {max(ratios):.3f})")


def beginning(clients: int, folder: Path, plain_first: bool) -> tuple[float, float, float]:
    """Microseconds per step without facts and with them, and their ratio."""
    folder.mkdir()
    given = config(clients)
    plain, watched = (build(given).engine("virtual") for _ in range(2))
    if not plain_first:
        plain, watched = watched, plain
    facts = FactsRecorder(folder, watched, given, BLOCK * (BLOCKS + 1))
    for engine in (plain, watched):
        engine.start()
        engine.advance(2 * clients)
    block(plain, None)
    block(watched, facts)
    without, with_facts = [], []
    for number in range(BLOCKS):  # in turn, and in turn the first: a busy machine is busy for both
        if number % 2:
            with_facts.append(block(watched, facts))
        without.append(block(plain, None))
        if not number % 2:
            with_facts.append(block(watched, facts))
    ratio = median(b / a for a, b in zip(without, with_facts, strict=True))
    return 1e6 * median(without) / BLOCK, 1e6 * median(with_facts) / BLOCK, ratio


def live(folder: Path) -> None:
    """The median step of real clients, the work for facts beside it, and what clients write."""
    cost, slow, longest, writes = recording_cost(folder)
    for model in ("logistic", "mlp"):
        changes = {"engine.name": "local", "engine.epochs": 40, "topology.clients": 2, "model.name": model}
        out = folder / model
        run(digits().with_changes(changes), out)
        rows = FactsReader(out).rows()
        step = float(np.median(duration(rows)))
        hours = 2 * float((rows["start"] + duration(rows)).max()) / 3600
        print(
            f"live, {model}: a step takes {1e6 * step:.0f} us, its facts {1e6 * cost:.2f} us, "
            f"{cost / step:.2%}; {len(rows) * ROW.itemsize / hours / 1e6:.0f} MB per client-hour"
        )
    told = f"{slow} of {LIVE_STEPS:,} steps, with {writes} writes, took over a millisecond to record"
    print(f"live: {told}, {1e3 * longest:.1f} ms at most")


def recording_cost(folder: Path) -> tuple[float, int, float, int]:
    """Seconds per step for its facts, steps with over a millisecond, the longest, and the writes."""
    plan = FactsPlan(folder / "facts-alone", 1_000_000, [(1, 2), (0,), (0,)])
    facts = StepFacts(plan, 0, print)
    facts.look = lambda neighbours: dict.fromkeys(neighbours, (7, 0.0))
    origin, writes = time.perf_counter(), 0
    facts.begin(origin)
    times = np.empty(LIVE_STEPS)
    for c in range(LIVE_STEPS):
        now, due = origin + c * LIVE_STEP, facts._due
        began = time.perf_counter()
        facts.add(c, now, 1e-3, 0.0, 1e-4, 0.5, 1.0, now)
        times[c] = time.perf_counter() - began
        writes += facts._due != due
    facts.close()
    assert writes, "what is to be measured"
    return float(np.minimum(times, 0.05).mean()), int((times > 1e-3).sum()), float(times.max()), writes


def first_picture(clients: int, rows: int, folder: Path) -> None:
    made = make_facts(folder / "made", clients, rows)
    began = time.process_time()
    RunView(made).stream(bins=1000)
    seconds = time.process_time() - began
    print(f"first picture of the stream, {clients:,} clients, {rows:,} rows: {seconds:.2f} s")
    began = time.process_time()
    watcher = Watcher(RunView(made))
    Pen(120).picture(watcher.look(), watcher.lanes(110, 16, whole=True))
    print(f"first picture of watch: {time.process_time() - began:.2f} s")
    began = time.process_time()
    Pen(120).picture(watcher.look(), watcher.lanes(110, 16, whole=False))
    print(f"the next one: {time.process_time() - began:.3f} s")


def main() -> None:
    options = argparse.ArgumentParser(description="what facts cost")
    options.add_argument("--clients", type=int, default=1000)
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--no-live", action="store_true")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        virtual(given.clients, Path(folder))
        if not given.no_live:
            live(Path(folder))
        first_picture(given.clients, given.rows, Path(folder))


if __name__ == "__main__":
    main()
