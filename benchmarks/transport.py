"""Publish and fetch through shared memory against one plain copy of the same bytes, 16 clients in a ring.

Every client publishes, reads a neighbour in place and copies the same bytes between two private arrays,
in turns (who is first changes: whoever is second finds the source in the cache), and sleeps between, as
with an accelerator; so the copy is measured in the same processes under the same load. Then the same
again while one client is stopped (SIGSTOP): its two neighbours are the ones that are timed.

    python benchmarks/transport.py [--clients 16] [--seconds 4] [--json]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import os
import signal
import time
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from swiftfl.transports.shared_memory.transport import SharedMemory

SIZES = {0.4: 98_026, 4.5: 1_125_000, 45.0: 11_250_000}
PAUSES = {0.4: 0.04, 4.5: 0.08, 45.0: 0.6}  # seconds between two rounds: two cores serve 16 clients
ALLOWED = {0.4: "copy + 0.15 ms", 4.5: "copy + 0.6 ms", 45.0: "1.5 copies"}


def client(plan: SharedMemory, i: int, seconds: float, pause: float, mouth: Connection) -> None:
    """Measure for a while, each time the parent says so."""
    wire = plan.connect(i)
    draw = np.random.default_rng(i)
    x = draw.random(plan.layout.size, dtype=np.float32)
    spare = x.copy()
    version = 0

    def publish() -> None:
        wire.publish(x, version)

    def fetch() -> None:
        wire.read(plan.layout.neighbours[i][version % 2], lambda model, version: None)

    def copy() -> None:
        spare[:] = x

    mouth.send_bytes(b"{}")
    while mouth.recv_bytes() == b"measure":
        times: dict[str, list[float]] = {"publish": [], "fetch": [], "copy": [], "refused": []}
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or len(times["copy"]) < 10:
            time.sleep(pause * (0.5 + draw.random()))
            version += 1
            for act in (publish, fetch, copy) if version % 2 else (copy, publish, fetch):
                began = time.perf_counter()
                act()
                times[act.__name__].append(1e3 * (time.perf_counter() - began))
        times["refused"] = [float(wire.own.refused)]
        mouth.send_bytes(json.dumps(times).encode())


def measure(megabytes: float, clients: int, seconds: float) -> dict[str, Any]:
    """Median and 99th percentile of publish, fetch and copy; with everybody well, and one stopped."""
    size = SIZES[megabytes]
    ring = [((i - 1) % clients, (i + 1) % clients) for i in range(clients)]
    began = time.perf_counter()
    plan = SharedMemory.create(ring, np.zeros(size, np.float32))
    context = mp.get_context("fork")
    pipes = [context.Pipe() for _ in range(clients)]
    processes = [
        context.Process(target=client, args=(plan, i, seconds, PAUSES[megabytes], pipes[i][1]), daemon=True)
        for i in range(clients)
    ]
    try:
        for process in processes:
            process.start()
        ears = [ear for ear, _ in pipes]
        answers(ears)
        ready = time.perf_counter() - began
        well = answers(ears, b"measure")
        pid = processes[0].pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        beside = answers([ears[i] for i in range(1, clients)], b"measure")
        beside = [beside[0], beside[-1]]
    finally:
        for process in processes:
            process.kill()
            process.join()
        plan.close()
    return {"seconds_to_connect": ready, "well": summary(well), "beside_a_stopped_client": summary(beside)}


def answers(ears: list[Connection], order: bytes | None = None) -> list[dict[str, list[float]]]:
    for ear in ears:
        if order is not None:
            ear.send_bytes(order)
    return [json.loads(ear.recv_bytes()) for ear in ears]


def summary(times: list[dict[str, list[float]]]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name in ("publish", "fetch", "copy"):
        values = np.concatenate([client[name][2:] for client in times])
        out[name] = {"median": float(np.median(values)), "p99": float(np.percentile(values, 99))}
    out["rounds"] = sum(len(client["copy"]) for client in times)
    out["refused"] = sum(client["refused"][0] for client in times)
    return out


def allowed(megabytes: float, copy: float) -> float:
    return {0.4: copy + 0.15, 4.5: copy + 0.6, 45.0: 1.5 * copy}[megabytes]


def show(megabytes: float, results: dict[str, Any]) -> None:
    for name, found in results.items():
        if not isinstance(found, dict):
            print(f"{megabytes:>5} MB  all connected after {found:.1f} s")
            continue
        publish, fetch, copy = (found[what] for what in ("publish", "fetch", "copy"))
        numbers = "   ".join(
            f"{what} {found[what]['median']:8.4f} /{found[what]['p99']:9.4f}"
            for what in ("publish", "fetch", "copy")
        )
        kept = publish["median"] <= allowed(megabytes, copy["median"])
        print(
            f"{megabytes:>5} MB  {name.replace('_', ' '):<24}{numbers}"
            f"   publish/copy {publish['median'] / copy['median']:.2f}"
            f" ({ALLOWED[megabytes]}: {'kept' if kept else 'MISSED'})"
            f"   fetch (0.1 ms: {'kept' if fetch['median'] <= 0.1 else 'MISSED'})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results = {}
    if not options.json:
        print(f"{options.clients} clients; milliseconds, median / 99th percentile")
    for megabytes in SIZES:
        results[megabytes] = measure(megabytes, options.clients, options.seconds)
        if not options.json:
            show(megabytes, results[megabytes])
    if options.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
