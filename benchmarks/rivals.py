"""Other programs for decentralized learning beside this one, under the same load and in one run.

    python benchmarks/rivals.py                                   # what is installed
    python benchmarks/rivals.py --gossipy PATH --authors PATH [--ranks 16] [--epochs 3] [--seconds 0.04]

gossipy (`pip install gossipy-dfl`, or a checkout at PATH) simulates gossip learning in one process: client
updates per second of its simulator and of the virtual engine, on the same digits, with the same models, SGD
with batches of up to 32 and 100 clients in a ring; a bare PyTorch loop beside. `--authors` is a checkout of
the code of the SWIFT paper: its communicators and its loop over batches with 16 MPI ranks in a ring, 98,026
parameters and gradients that are sleeps of 40 ms, as in `benchmarks/mpi.py`, which runs after it; then both
side by side, each against its own floor. What is not there is skipped, and why is said.

Each method of the authors' code has an MPI communicator of its own: some of its messages are never received,
and D-SGD, which receives whatever comes from a neighbour, would take those of SWIFT for its own, and wait for
ever at its end.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import subprocess
import sys
import time
from contextlib import redirect_stdout
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

CLIENTS, RANKS, PARAMETERS = 100, 16, 98_026
REPEATS, SECONDS = 3, 2.0
LIMIT = 180.0
"""Seconds after which the authors' code is ended; what it had measured by then is shown."""
METHODS = ("floor", "swift", "d-sgd", "pd-sgd", "ld-sgd")
OURS = {"swift": "SWIFT C_0", "d-sgd": "D-SGD", "pd-sgd": "PA-SGD", "ld-sgd": "LD-SGD"}
"""What the methods of the authors' code are called in `benchmarks/mpi.py`."""
HERE = Path(__file__).parent


def find_gossipy(path: str | None) -> None:
    """Let it be imported; ImportError if it, or what it needs, is not there."""
    sys.path[:0] = [] if path is None else [path]
    if find_spec("torchvision") is None:  # of which it uses two datasets only, and those not here
        sys.modules["torchvision"] = ModuleType("torchvision")
    for part in ("core", "data.handler", "model.handler", "node", "simul"):
        importlib.import_module(f"gossipy.{part}")


def gossipy_updates(model: str) -> float:
    """Updates per second of gossipy's simulator: 100 nodes in a ring, each pushes its model once a round."""
    import numpy as np
    import torch
    from gossipy import set_seed  # type: ignore
    from gossipy.core import AntiEntropyProtocol, ConstantDelay, CreateModelMode, StaticP2PNetwork  # type: ignore
    from gossipy.data import DataDispatcher  # type: ignore
    from gossipy.data.handler import ClassificationDataHandler  # type: ignore
    from gossipy.model.handler import TorchModelHandler  # type: ignore
    from gossipy.model.nn import LogisticRegression, TorchMLP  # type: ignore
    from gossipy.node import GossipNode  # type: ignore
    from gossipy.simul import GossipSimulator  # type: ignore

    from swiftfl.data.registry import dataset

    set_seed(1)
    digits = dataset("digits")
    x, y = digits.train_inputs.float().flatten(1), digits.train_labels
    handler = ClassificationDataHandler(x, y, test_size=0.1)
    dispatcher = DataDispatcher(handler, n=CLIENTS, eval_on_user=False, auto_assign=True)
    ring = np.roll(np.eye(CLIENTS), 1, axis=1)
    features, classes = x.shape[1], 10
    net = LogisticRegression(features, classes) if model == "logistic" else TorchMLP(features, classes, (64,))
    nodes = GossipNode.generate(
        data_dispatcher=dispatcher,
        p2p_net=StaticP2PNetwork(CLIENTS, ring + ring.T),
        model_proto=TorchModelHandler(
            net=net,
            optimizer=torch.optim.SGD,
            optimizer_params={"lr": 0.1, "momentum": 0.9},
            criterion=torch.nn.CrossEntropyLoss(),
            batch_size=32,
            local_epochs=1,
            create_model_mode=CreateModelMode.MERGE_UPDATE,
        ),
        round_len=10,
        sync=True,
    )
    simulator = GossipSimulator(
        nodes=nodes,
        data_dispatcher=dispatcher,
        delta=10,
        protocol=AntiEntropyProtocol.PUSH,
        delay=ConstantDelay(1),
        sampling_eval=0.01,
    )
    simulator.init_nodes(seed=1)
    found = []
    with redirect_stdout(StringIO()):
        simulator.start(n_rounds=1)
        for _ in range(REPEATS):
            before, began = _updates(nodes), time.perf_counter()
            while time.perf_counter() - began < SECONDS:
                simulator.start(n_rounds=5)
            found.append((_updates(nodes) - before) / (time.perf_counter() - began))
    return median(found)


def _updates(nodes: Any) -> int:
    return sum(int(node.model_handler.n_updates) for node in nodes.values())


def own_updates(model: str) -> tuple[float, float]:
    """Updates per second of a bare loop and of the virtual engine, in one process."""
    from simulator import bare_loop, config, engine_loop, seconds_per_step

    from swiftfl.experiment.build import build

    parts = build(config(model, CLIENTS).with_changes({"engine.workers": 1}))
    bare, ours = seconds_per_step([bare_loop(parts, model), engine_loop(parts)], CLIENTS, SECONDS)
    return 1 / bare, 1 / ours


def simulators(path: str | None) -> None:
    try:
        find_gossipy(path)
    except ImportError as error:
        how = "pip install gossipy-dfl, or --gossipy PATH and pip install dill scikit-learn"
        print(f"gossipy: skipped ({error}; {how})")
        return
    for model in ("logistic", "mlp"):
        bare, ours = own_updates(model)
        # In a process of its own: gossipy keeps models in a cache of the process, by numbers of nodes.
        case = [sys.executable, __file__, "--case", model, *(["--gossipy", path] if path else [])]
        theirs = float(subprocess.run(case, check=True, stdout=subprocess.PIPE, text=True).stdout.split()[-1])
        print(
            f"{model:<9} n={CLIENTS}  bare loop {bare:>8,.0f}/s   gossipy {theirs:>8,.0f}/s   "
            f"virtual engine {ours:>8,.0f}/s   engine / gossipy {ours / theirs:6.2f}",
            flush=True,
        )


def authors_rank(path: str, epochs: int, seconds: float) -> None:
    """One rank of the authors' code: for each method, its loop over batches with sleeps for gradients."""
    sys.path.insert(0, path)
    import numpy as np
    import torch
    from Communicators.AsyncCommunicator import AsyncDecentralized  # type: ignore
    from Communicators.DSGD import decenCommunicator  # type: ignore
    from GDM.GraphConstruct import GraphConstruct  # type: ignore
    from mpi4py import MPI

    torch.set_num_threads(1)
    # Their code expects a GPU: here models stay on the host.
    setattr(torch.Tensor, "cuda", lambda self, *_, **__: self)  # noqa: B010
    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    steps = 32
    for method in METHODS:
        comm = world.Dup()
        torch.manual_seed(0)
        model = torch.nn.Linear(PARAMETERS - 1, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9)
        weights = "swift" if method == "swift" else "uniform-symmetric"
        graph = GraphConstruct(rank, size, comm, "ring", weights, p=3 / size, num_c=None)
        start = np.concatenate([p.detach().numpy().ravel() for p in model.parameters()])
        communicator: Any = None
        if method == "swift":
            communicator = AsyncDecentralized(rank, size, comm, graph, 1, 0, False, False, start)
        elif method != "floor":
            local, together = {"d-sgd": (0, 1), "pd-sgd": (1, 1), "ld-sgd": (1, 2)}[method]
            communicator = decenCommunicator(rank, size, comm, graph, local, together)
        comm.Barrier()
        began, cpu = time.perf_counter(), time.process_time()
        for _ in range(epochs * steps):
            time.sleep(seconds)
            for parameter in model.parameters():
                parameter.grad = torch.zeros_like(parameter)
            if method != "floor":
                communicator.communicate(model)
            optimizer.step()
        spent = (time.perf_counter() - began) / epochs, (time.process_time() - cpu) / (epochs * steps)
        means = np.mean(world.allgather(spent), axis=0)
        if rank == 0:
            print(json.dumps([method, *means.tolist()]), flush=True)


def authors_rows(command: list[str], environment: dict[str, str]) -> list[tuple[str, float, float]]:
    """What their program printed until its end, or until it was ended: method, epoch, CPU of a step."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as running:
        try:
            printed, _ = running.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            running.terminate()  # mpiexec ends its ranks
            printed, _ = running.communicate()
            print(f"the authors' code: ended after {LIMIT:.0f} s")
    return [tuple(json.loads(line)) for line in printed.splitlines() if line.startswith("[")]


def authors(path: str | None, ranks: int, epochs: int, seconds: float) -> None:
    if path is None:
        print("the authors' code: skipped (--authors PATH)")
        return
    missing = [name for name in ("networkx", "mpi4py") if find_spec(name) is None]
    if missing or not (Path(path) / "Communicators").is_dir():
        why = f"it needs {' and '.join(missing)}" if missing else f"{path} has no Communicators"
        print(f"the authors' code: skipped ({why})")
        return
    from swiftfl.errors import UserError
    from swiftfl.transports import launch

    mine = [
        str(HERE / "rivals.py"),
        "--rank",
        path,
        "--epochs",
        str(epochs),
        "--seconds",
        str(seconds),
    ]
    try:
        command = launch.command(ranks, mine, [])
    except UserError as error:
        print(f"the authors' code: skipped (without MPI: {error})")
        return
    rows = authors_rows(command, launch.environment())
    if not rows:
        print("the authors' code: failed (what it said stands above)")
        return
    floor = rows[0][1]
    print(f"the authors' code, {ranks} ranks, ring, {PARAMETERS:,} float32, 32 steps per epoch")
    for method, epoch, cpu in rows:
        print(
            f"{method:<12} {epoch:8.3f} s per epoch   / floor {epoch / floor:6.3f}   CPU {1e3 * cpu:8.3f} ms"
        )
    print("the same load here (benchmarks/mpi.py):", flush=True)
    line = [sys.executable, str(HERE / "mpi.py"), "--epochs", str(epochs), "--seconds", str(seconds)]
    line += ["--clients", str(ranks), "--only", *OURS.values()]
    printed = subprocess.run(line, check=False, stdout=subprocess.PIPE, text=True).stdout
    print(printed)
    side_by_side({method: epoch / floor for method, epoch, _ in rows}, printed)


def side_by_side(theirs: dict[str, float], printed: str) -> None:
    """Epochs over the floor of the same program, theirs and ours."""
    for method, name in OURS.items():
        found = re.search(rf"^{re.escape(name)}\s+[\d.]+\s+([\d.]+)", printed, re.MULTILINE)
        if found is not None and method in theirs:
            there, here = theirs[method], float(found[1])
            told = f"authors {there:6.3f}   here {here:6.3f}   here / authors {here / there:6.3f}"
            print(f"{name:<10} over its floor: {told}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--gossipy", help="a checkout of gossipy, where it is not installed")
    parser.add_argument("--authors", help="a checkout of the authors' code of SWIFT")
    parser.add_argument("--ranks", type=int, default=RANKS, help="of MPI, of both")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.04, help="of an emulated gradient")
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.case:
        find_gossipy(given.gossipy)
        print(gossipy_updates(given.case))
        return
    if given.rank:
        authors_rank(given.rank, given.epochs, given.seconds)
        return
    simulators(given.gossipy)
    authors(given.authors, given.ranks, given.epochs, given.seconds)


if __name__ == "__main__":
    main()
