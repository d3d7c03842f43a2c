"""A million clients in virtual time: memory in copies of all models, and what a step costs as n grows.

    python benchmarks/million.py                     # twenty minutes, up to 16 GB
    python benchmarks/million.py --clients 100000    # less of both

Logistic regression (650 parameters, float32, momentum) on the digits, 32 samples per client, on a ring and on
a Barabási-Albert graph with 4 links per newcomer; three steps per client. And 10,000 clients of an MLP with
4,810 parameters and momentum. Each case is a process of its own, which makes topology, partition, weights
and clients, trains, and evaluates the consensus and five clients. "copies" is its peak memory, everything
included, over that of all models once; a case that would take more than 20 GB of addresses fails. Steps are
told in microseconds of the processor, because other programs may be busy beside; "system" is the part in
which the operating system gives memory that was never touched, much of it on virtual machines, where the host
may have to find it first: 1 to 20 us per 4 kB. So the cost of a step is told with and without that part.
Cases of 10,000 clients take a second, and are the median of three.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from typing import Any

SMALL = 10_000
STEPS = 3
REPEATS = 3  # of cases with few clients
MOST_ADDRESSES = 20 * 10**9
COPIES, GIGABYTES, SLOWER = 4.0, 16.0, 1.5
"""Targets: copies of all models at 10,000 clients; memory of the most clients; a step's cost over few."""
TOPOLOGIES: dict[str, dict[str, Any]] = {
    "ring": {},
    "barabasi_albert(4)": {"topology.name": "barabasi_albert", "topology.options": {"attach": 4}},
}


def case(model: str, topology: str, clients: int) -> dict[str, Any]:
    """Run one case in this process."""
    from swiftfl import small
    from swiftfl.experiment.build import build
    from swiftfl.experiment.measure import measure
    from swiftfl.experiment.recipes import digits
    from swiftfl.memory import collecting_seldom

    config = digits().with_changes(
        {
            "model.name": model,
            "topology.clients": clients,
            "data.partition": "bootstrap:32",
            "data.batch_size": 32,
            "engine.epochs": STEPS,  # of one step each: everybody finishes
            "engine.workers": 1,
            **TOPOLOGIES[topology],
        }
    )
    clock = [time.process_time()]

    def system() -> float:
        return resource.getrusage(resource.RUSAGE_SELF).ru_stime

    def spent() -> float:
        clock.append(time.process_time())
        return clock[-1] - clock[-2]

    small.load(compile=True)  # which a machine's first long run does meanwhile
    with collecting_seldom(clients):  # as every run does
        parts = build(config)
        say("built")
        engine = parts.engine("virtual")
        engine.start()
        built, before = spent(), system()
        for step in range(1, STEPS + 1):
            for tenth in range(1, 11):
                engine.advance(step * clients - clients + tenth * clients // 10 - engine.iteration)
                say(f"step {step}: {10 * tenth} %")
        steps, given = spent(), system() - before
        found = measure(engine, 5)
        evaluation = spent()
    return {
        "parameters": parts.workload.parameters,
        "build": built,
        "step": 1e6 * steps / (STEPS * clients),
        "system": 1e6 * given / (STEPS * clients),
        "evaluation": evaluation,
        "loss": found.loss,
        "peak": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    }


def say(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{text:<30}", end="", file=sys.stderr, flush=True)


def measured(model: str, topology: str, clients: int) -> dict[str, Any] | None:
    """What the case gave; of few clients the median of several runs. None where it failed."""
    runs = [run(model, topology, clients) for _ in range(REPEATS if clients <= SMALL else 1)]
    found = [each for each in runs if each is not None]
    return sorted(found, key=lambda each: each["step"])[len(found) // 2] if len(found) == len(runs) else None


def run(model: str, topology: str, clients: int) -> dict[str, Any] | None:
    """The case in a process of its own; None where it fails (for lack of memory)."""
    command = [sys.executable, __file__, "--case", model, topology, str(clients)]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    say("")
    return json.loads(done.stdout) if done.returncode == 0 else None


def show(model: str, topology: str, clients: int, found: dict[str, Any] | None) -> float:
    """A row of the table; the copies."""
    if found is None:
        print(f"{model:<9} {topology:<19} {clients:>9,}  failed", flush=True)
        return float("inf")
    models = 4 * found["parameters"] * clients
    copies: float = found["peak"] / models
    print(
        f"{model:<9} {topology:<19} {clients:>9,} {models / 1e9:>8.2f} {found['build']:>8.1f} "
        f"{found['step']:>8.1f} {found['system']:>7.1f} {found['evaluation']:>8.1f} "
        f"{found['peak'] / 1e9:>8.2f} {copies:>7.2f}",
        flush=True,
    )
    return copies


def verdict(what: str, value: float, target: float) -> None:
    print(f"{what}: {value:.2f} (at most {target:g}: {'kept' if value <= target else 'missed'})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--clients", type=int, default=1_000_000)
    parser.add_argument("--case", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.case:
        model, topology, clients = given.case
        resource.setrlimit(resource.RLIMIT_AS, (MOST_ADDRESSES, MOST_ADDRESSES))
        print(json.dumps(case(model, topology, int(clients))))
        return
    print("                                        models    build  us/step         evaluate     peak")
    print(
        "model     topology              clients     GB    s CPU      CPU  system    s CPU       GB  copies"
    )
    copies = show("mlp", "ring", SMALL, measured("mlp", "ring", SMALL))
    verdict(f"copies of all models, {SMALL:,} clients of the MLP", copies, COPIES)
    for topology in TOPOLOGIES:
        compare(topology, given.clients)


def compare(topology: str, clients: int) -> None:
    """Few clients and many on a topology."""
    few, many = (measured("logistic", topology, n) for n in (SMALL, clients))
    show("logistic", topology, SMALL, few)
    show("logistic", topology, clients, many)
    if few is None or many is None:
        return
    verdict(f"{topology}, GB of {clients:,} clients", many["peak"] / 1e9, GIGABYTES)
    slope = (many["peak"] - few["peak"]) / (clients - SMALL)
    print(f"{topology}: {slope:,.0f} bytes per client, so 256 GB hold {256e9 / slope / 1e6:.0f} million")
    verdict(f"{topology}, cost of a step over that at {SMALL:,}", many["step"] / few["step"], SLOWER)
    own_few, own_many = (found["step"] - found["system"] for found in (few, many))
    verdict(f"{topology}, the same without the system's part", own_many / own_few, SLOWER)


if __name__ == "__main__":
    main()
