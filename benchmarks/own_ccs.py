"""What CCS costs when clients run it themselves: processes of this machine, which begin when it has ended.

    python benchmarks/own_ccs.py [--clients 16] [--seconds 0.01]

For each graph one local run of SWIFT with gradients of a given time, in which a client is killed. `messages`
and `bytes` are those of the first run of CCS and of the one after the loss. `first` is the longest time that
a client took for the first run, from being told its part to its weights; it includes waiting for the
processes of others to start. `renewal` is the time from the kill until the last client has its new weights:
noticing the loss, telling everybody, and CCS between the clients' steps. `central` is the same with one
computation for all, until the last client has taken what it was sent.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import swiftfl
from swiftfl.algorithms import Swift
from swiftfl.data.batches import NoSamples
from swiftfl.engines import Setup
from swiftfl.engines.dynamics import Dynamics
from swiftfl.engines.live.local.engine import LocalEngine
from swiftfl.engines.live.options import LiveOptions
from swiftfl.engines.membership import Membership
from swiftfl.graph import Topology, communication_coefficients
from swiftfl.schedule import constant
from swiftfl.workload.emulated import Emulated
from swiftfl.workload.quadratic import Quadratic

VICTIM = 1
LIMIT = 60.0


def setup_of(graph: Topology, seconds: float) -> Setup:
    found = communication_coefficients(graph)
    given = found.influence.tolist()
    return Setup(
        algorithm=Swift(),
        workload=Emulated(Quadratic.random(graph.n, 1000, seed=0), seconds),
        weights=[found.weights(i) for i in range(graph.n)],
        batches=[NoSamples(i, 100) for i in range(graph.n)],
        step_size=constant(0.01),
        influence=given,
        epochs=1000,
        network=lambda: Membership(graph, given, "ccs", Dynamics(), 0),
    )


def until(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT
    while not happened():
        if time.monotonic() > end:
            raise SystemExit(f"not within {LIMIT:g} s")
        time.sleep(0.001)


def renewed(folder: Path, clients: list[int]) -> bool:
    """Whether each of these has its second weights, as its journal says."""
    return all((folder / f"client-{i:04d}.jsonl").read_text().count('["terms"') > 1 for i in clients)


def measure(setup: Setup) -> tuple[float, dict[str, float]]:
    """Seconds from a kill to the last client's new weights, and what CCS has cost in all."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "clients"
        engine = LocalEngine(setup, folder, LiveOptions(save_seconds=None))
        try:
            engine.start()
            until(lambda: min(engine.status.column("c")) > 5)
            first = engine.figures().get("ccs", {})
            os.kill(engine.pid(VICTIM), signal.SIGKILL)
            began = time.perf_counter()
            others = [i for i in range(engine.n) if i != VICTIM]
            until(lambda: renewed(folder, others))
            seconds = time.perf_counter() - began
            if first:
                until(lambda: bool(engine.supervisor.own_ccs and engine.supervisor.own_ccs.settled))
            last = engine.figures().get("ccs", {})
        finally:
            engine.close()
    return seconds, {**last, "first": first.get("seconds", 0.0)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=0.01, help="of a gradient, asleep")
    options = parser.parse_args()
    n = options.clients
    graphs = {
        "ring": swiftfl.ring(n),
        "ring of cliques": swiftfl.ring_of_cliques(n, 4),
        "Barabási-Albert 2": swiftfl.barabasi_albert(n, 2, seed=0),
        "complete": swiftfl.complete(n),
    }
    print(f"{n} clients, {1e3 * options.seconds:g} ms per gradient; seconds")
    print(f"{'':20}{'edges':>7}{'messages':>10}{'bytes':>8}{'first':>9}{'renewal':>9}{'central':>9}")
    for name, graph in graphs.items():
        setup = setup_of(graph, options.seconds)
        central, _ = measure(setup)
        own, cost = measure(replace(setup, ccs="distributed"))
        counts = f"{graph.m:7}{cost['messages']:10.0f}{cost['bytes']:8.0f}"
        print(f"{name:20}{counts}{cost['first']:9.3f}{own:9.3f}{central:9.3f}", flush=True)


if __name__ == "__main__":
    main()
