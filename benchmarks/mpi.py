"""The table of `benchmarks/live.py` with MPI: 16 ranks on this machine, all in one run.

    python benchmarks/mpi.py [--epochs 3] [--seconds 0.04] [--clients 16] [--cnn] [--tcp] [--only "D-SGD" ...]

It starts itself under mpiexec. `--tcp` forbids Open MPI to use shared memory. CPU is that of all threads of a
rank: its client, the thread that moves messages, and the control channel.
"""

from __future__ import annotations

import argparse
import os
import sys

from live import SIZE, STEPS, asleep, busy, show
from swiftfl.engines import Setup
from swiftfl.engines.live.mpi.engine import MpiEngine
from swiftfl.engines.live.options import LiveOptions
from swiftfl.errors import UserError
from swiftfl.reproduce.live_baseline import Spent, spent
from swiftfl.transports import launch
from swiftfl.transports.mpi import world
from swiftfl.transports.ranks import rank_here

TCP = ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self"]


def measure(setup: Setup) -> Spent:
    """One run; every rank returns a row, with numbers only on the first."""
    engine = MpiEngine(setup, world(), None, LiveOptions(save_seconds=None))
    engine.start()
    while not engine.wait(1.0):
        pass
    return spent(engine) if engine.has_result else Spent(1.0, 0.0, 0.0, 0.0)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.04, help="of an emulated gradient")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--cnn", action="store_true", help="real gradients of a small CNN too")
    parser.add_argument("--only", nargs="+", default=(), help="these methods and the floors")
    parser.add_argument("--tcp", action="store_true", help="no shared memory between ranks")
    return parser.parse_args()


def start(given: argparse.Namespace) -> None:
    """This program again, under mpiexec."""
    try:
        command = launch.command(given.clients, sys.argv, TCP if given.tcp else [])
    except UserError as error:
        sys.exit(f"without MPI: {error}")
    os.execve(command[0], command, launch.environment())


def main() -> None:
    given = arguments()
    if rank_here() is None:
        start(given)
    title = f"{given.clients} ranks, {world().library}{', TCP only' if given.tcp else ''}, ring"
    rows = asleep(given.clients, given.epochs, given.seconds, measure, given.only)
    if world().rank == 0:
        sleeps = f"{STEPS} steps per epoch, {given.seconds * 1e3:.0f} ms sleeps"
        show(f"{title}, {SIZE:,} float32, {sleeps}", rows, STEPS)
    if given.cnn:
        rows, steps = busy(given.clients, 2, measure)
        if world().rank == 0:
            show(f"{title}, real gradients of a small CNN", rows, steps)
    world().leave()


if __name__ == "__main__":
    main()
