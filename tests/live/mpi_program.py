"""A program for tests, run under mpiexec: `mpi_program.py ALGORITHM[,...] [MISHAP] [SECONDS]`.

Runs each algorithm on quadratics, one after the other; the recorder prints one JSON object per run.
Mishaps happen to client 1 in mid-run: `kill` and `stop` (for ever), `pause` (stopped for 2 s by a friend
outside), and `kill0` to client 0, which records. `deaf` is none: nobody has a doorbell, as between hosts.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from live_worlds import Unhurried, live_setup

import swiftfl
from conformance.test_contracts import Looking, LookingInRounds
from swiftfl.algorithms import (
    A2cid2,
    AdPsgd,
    AllReduceSgd,
    AsyncGossip,
    FedAvg,
    Gossip,
    Matcha,
    Prague,
    QuasiGlobal,
    Swarm,
    Swift,
    dsgd,
)
from swiftfl.engines.live.mpi.engine import MpiEngine
from swiftfl.engines.live.options import LiveOptions
from swiftfl.graph.acceleration import acceleration
from swiftfl.graph.matchings import matching_plan
from swiftfl.rules import SgdRule
from swiftfl.sample import Batch, Slope
from swiftfl.schedule import every
from swiftfl.transports.messages.doorbell import Doorbell
from swiftfl.transports.mpi import world
from swiftfl.vector import Vector, consensus

ALGORITHMS = {
    "swift": Swift(every(0)),
    "dsgd": dsgd(),
    "barrier": dsgd(),  # with a barrier of everybody before each exchange
    "adpsgd": AdPsgd(),
    "adpsgd_background": AdPsgd(averaging="background"),
    "allreduce": AllReduceSgd(),
    "gossip": Gossip(swiftfl.ring(3)),
    "matcha": Matcha(matching_plan(swiftfl.ring(3), 0.5)),
    "fedavg_half": FedAvg(every(2), participation=0.5, clients=3),
    "prague": Prague(swiftfl.ring(3)),
    "quasi_global": QuasiGlobal(SgdRule(0.5)),
    "swarm": Swarm(3),
    "gossip_async": AsyncGossip(),
    "a2cid2": A2cid2(acceleration(swiftfl.ring(3), 1.0)),
    "looking": Looking(),
    "looking_in_rounds": LookingInRounds(),
}
AT_STEP = 40


class Unlucky(Unhurried):
    """Something happens to a client at step 40, and everybody tells how long its longest step took."""

    mishap = ""
    longest = 0.0
    last = 0.0

    def gradient(self, x: Vector, batch: Batch) -> Slope:
        now = time.perf_counter()
        self.longest = max(self.longest, now - self.last) if self.last else 0.0
        victim = 0 if self.mishap.endswith("0") else 1
        if batch.counter == AT_STEP and batch.client == victim:
            self.suffer(self.mishap.rstrip("0"))
        self.last = time.perf_counter()
        return super().gradient(x, batch)

    def suffer(self, mishap: str) -> None:
        if mishap == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if mishap == "pause":
            subprocess.Popen(["sh", "-c", f"sleep 2; kill -CONT {os.getpid()}"])
        if mishap in ("stop", "pause"):
            os.kill(os.getpid(), signal.SIGSTOP)


def no_doorbell(doorbell: Doorbell) -> None:
    raise OSError("as if on another host")


def main(names: Sequence[str], mishap: str, seconds: float) -> None:
    if mishap == "deaf":
        Doorbell._bind = no_doorbell  # type: ignore[method-assign,assignment]
    ranks = world()
    for name in names:
        method = "ccs" if name in ("swift", "looking") else "metropolis"
        setup = live_setup(ALGORITHMS[name], ranks.size, 0.0, method, epochs=30, dimension=20_000)
        workload = Unlucky(setup.workload, seconds)
        setup = replace(setup, workload=workload, barrier="global" if name == "barrier" else "neighbours")
        workload.mishap = mishap
        engine = MpiEngine(setup, ranks, None, LiveOptions(save_seconds=None, patience=3.0))
        if mishap in ("", "stop"):
            engine.evaluate_with(lambda models, epochs, workload=workload: evaluation(models, workload))  # type: ignore[misc]
        engine.start()
        curve = []
        while not engine.wait(0.1):
            engine.request_evaluation()
            if found := engine.take_evaluation():
                curve.append(found)
        engine.close()
        print(f"rank {ranks.rank}: longest step {workload.longest:.3f} s", file=sys.stderr, flush=True)
        if engine.has_result:
            tell(name, engine, workload, curve)
    engine.leave()


def evaluation(models: list[Vector], workload: Unlucky) -> dict[str, float]:
    """In a process of its own: as slow as it gets, so that ranks would notice if they waited for it."""
    time.sleep(0.2)
    return {"loss": workload.evaluate([consensus(models)])[0].loss, "models": len(models), "nice": os.nice(0)}


def tell(name: str, engine: MpiEngine, workload: Unlucky, curve: list[dict[str, Any]]) -> None:
    there = [model for i, model in enumerate(engine.models) if i in engine.members()]
    loss = workload.evaluate([consensus(there)])[0].loss
    start = workload.evaluate([engine.x0])[0].loss
    answer = {
        "algorithm": name,
        "recorder": engine.me,
        "lost": sorted(engine.supervisor.lost),
        "steps": [int(c) - 1 for c in engine.status.column("c")],
        "loss": loss,
        "curve": curve,
        "start": start,
        "refused": engine.transport.refused,
        "renewals": 0 if engine.network is None else engine.network.renewals,
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "wall": engine.now,
        "communication": engine.figures()["communication"],
        "split": {k: sum(engine.status.column(k)) for k in ("compute", "communication", "waiting")},
        "cpu": sum(engine.status.column("cpu")) / max(1.0, sum(engine.status.column("steps"))),
    }
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(
        sys.argv[1].split(","),
        sys.argv[2] if len(sys.argv) > 2 else "",
        float(sys.argv[3]) if len(sys.argv) > 3 else 0.005,
    )
