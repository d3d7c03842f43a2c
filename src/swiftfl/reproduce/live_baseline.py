"""The baseline with real processes on this machine: what communication and waiting really cost.

The machine has fewer cores than clients, so each gradient is replaced by a sleep, as if every client had
an accelerator of its own; messages are as large as the paper's and go through the engine `local`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from swiftfl.algorithm import Algorithm
from swiftfl.data.batches import NoSamples
from swiftfl.engines import Setup
from swiftfl.engines.live.local.engine import LocalEngine
from swiftfl.engines.live.mpi.engine import MpiEngine
from swiftfl.engines.live.options import LiveOptions
from swiftfl.errors import UserError
from swiftfl.experiment.build import build_algorithm, build_topology, weights_method
from swiftfl.experiment.measure import mean_per_epoch
from swiftfl.files import write_json
from swiftfl.graph import Topology, communication_coefficients
from swiftfl.reproduce.hardware import BASELINE
from swiftfl.reproduce.plan import Experiment
from swiftfl.schedule import constant
from swiftfl.verbs import Verb
from swiftfl.workload.emulated import Emulated
from swiftfl.workload.quadratic import Free

FILE = "live.json"
LIMIT = 600.0


@dataclass(frozen=True)
class Accelerator:
    """An emulated one: how long a gradient takes, of how many parameters, and for how many steps."""

    gradient_seconds: float = 0.04
    parameters: int = BASELINE.parameters
    steps_per_epoch: int = 32
    epochs: int = 6


SCALES = {
    "smoke": Accelerator(gradient_seconds=0.02, epochs=2),
    "small": Accelerator(),
    "paper": Accelerator(),
}


def emulated(algorithm: Algorithm[Verb], graph: Topology, weights: str, like: Accelerator) -> Setup:
    """Clients whose gradients are sleeps."""
    coefficients = communication_coefficients(graph, None, weights)
    return Setup(
        algorithm=algorithm,
        workload=Emulated(Free(like.parameters), like.gradient_seconds),
        weights=[coefficients.weights(i) for i in range(graph.n)],
        batches=[NoSamples(i, like.steps_per_epoch) for i in range(graph.n)],
        step_size=constant(0.1),
        influence=coefficients.influence.tolist(),
        epochs=like.epochs,
    )


@dataclass(frozen=True)
class Spent:
    """Seconds per epoch, means over clients; `cpu` is the processor's time within them."""

    compute: float
    communication: float
    waiting: float
    cpu: float

    @property
    def total(self) -> float:
        return self.compute + self.communication + self.waiting


def spent(engine: LocalEngine | MpiEngine) -> Spent:
    """How the clients of a run that is over spent their time."""
    if engine.supervisor.lost:
        raise UserError(f"clients {sorted(engine.supervisor.lost)} were lost while times were measured")
    epochs, seconds = engine.epochs(), engine.seconds()
    parts = ("compute", "communication", "waiting", "cpu")
    return Spent(*(mean_per_epoch(seconds[name], epochs) for name in parts))


def run_locally(setup: Setup) -> Spent:
    """One run with a process per client, nothing recorded."""
    engine = LocalEngine(setup, None, LiveOptions(save_seconds=None))
    try:
        engine.start()
        if not engine.wait(LIMIT):
            raise UserError(f"a run of {setup.algorithm.name} is not over after {LIMIT:.0f} s")
        return spent(engine)
    finally:
        engine.close()


def write_live(experiment: Experiment, folder: Path, scale: str) -> None:
    """Measure the experiment's methods and write `live.json`, unless it is already there."""
    if not (folder / FILE).is_file():
        write_json(folder / FILE, measure_methods(experiment, SCALES[scale]))


def measure_methods(experiment: Experiment, like: Accelerator) -> dict[str, Any]:
    """Every method in the experiment's first group: seconds per epoch, and what was measured."""
    first = next(iter(experiment.groups))
    methods: dict[str, dict[str, float]] = {}
    for method in experiment.methods:
        config = experiment.case(first, method).config
        graph = build_topology(config.topology, config.seed)
        algorithm = build_algorithm(config.algorithm, graph, config.seed)
        found = run_locally(emulated(algorithm, graph, weights_method(config.algorithm), like))
        methods[method] = {name: getattr(found, name) for name in ("compute", "communication", "waiting")}
    clients = experiment.case(first, next(iter(experiment.methods))).config.topology.clients
    return {**asdict(like), "clients": clients, "methods": methods}
