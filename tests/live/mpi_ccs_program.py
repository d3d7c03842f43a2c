"""A program for tests, run under mpiexec: `mpi_ccs_program.py ALGORITHM FOLDER [MISHAP]`.

Clients on a small irregular graph select their weights themselves; each keeps its journal in the folder, and
the recorder prints one JSON object. Mishaps: `kill` ends client 1 at step 20, and the run is ended once
the others have taken weights among themselves; `select` and `select0` end client 1 or 0 while the first
weights are selected, when it has told one neighbour something, others nothing.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

from live_worlds import Unhurried, live_setup

import swiftfl
from swiftfl.algorithms import Swift, dsgd
from swiftfl.engines import Setup
from swiftfl.engines.assignment import Assignment
from swiftfl.engines.live.mpi.engine import MpiEngine
from swiftfl.engines.live.options import LiveOptions
from swiftfl.engines.live.selecting import OwnSelection
from swiftfl.sample import Batch, Slope
from swiftfl.vector import Vector
from worlds import skewed

GRAPH = swiftfl.from_edges([(0, 1), (0, 2), (1, 2), (2, 3), (0, 3)], 4)  # two ties, and a client without any
AT_STEP = 20


class Mortal(Unhurried):
    def gradient(self, x: Vector, batch: Batch) -> Slope:
        if batch.counter == AT_STEP and batch.client == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().gradient(x, batch)


def die_while_selecting(victim: int) -> None:
    begin = OwnSelection._begin

    def begin_and_die(self: OwnSelection, assignment: Assignment) -> None:
        if self.i == victim:
            self._send(assignment.selection(victim).start()[:1])
            os.kill(os.getpid(), signal.SIGKILL)
        begin(self, assignment)

    OwnSelection._begin = begin_and_die  # type: ignore[method-assign]


def own_ccs_setup(name: str, mishap: str = "") -> Setup:
    """After a death nothing is said of the end: when it is noticed depends on the machine."""
    scores = skewed(GRAPH.n) if name.endswith("+") else None
    algorithm, epochs = Swift() if name.startswith("swift") else dsgd(), 10**6 if mishap == "kill" else 30
    return live_setup(
        algorithm, graph=GRAPH, influence=scores, ccs="distributed", epochs=epochs, seconds=0.004
    )


def have_changed(folder: Path) -> bool:
    """Whether all but client 1 have taken their first weights and then others, as their journals say."""
    journals = [folder / f"client-{i:04d}.jsonl" for i in range(GRAPH.n) if i != 1]
    return all(file.exists() and file.read_text().count('["terms"') >= 2 for file in journals)


def main(name: str, folder: Path, mishap: str) -> None:
    from swiftfl.transports.mpi import world

    ranks, setup = world(), own_ccs_setup(name, mishap)
    if mishap == "kill":
        setup = replace(setup, workload=Mortal(setup.workload, 0.0))
    elif mishap:
        die_while_selecting(0 if mishap.endswith("0") else 1)
    engine = MpiEngine(setup, ranks, folder, LiveOptions(save_seconds=None, patience=3.0))
    engine.start()
    while not engine.wait(0.1):
        if mishap == "kill" and have_changed(folder):
            engine.supervisor.setup = replace(setup, iterations=1)  # the first rank's: now it is over
    engine.close()
    if engine.has_result:
        models = [model.tolist() for model in engine.models]
        answer = {"lost": sorted(engine.supervisor.lost), "models": models, **engine.figures()}
        print(json.dumps(answer), flush=True)
    engine.leave()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), "".join(sys.argv[3:4]))
