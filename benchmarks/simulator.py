"""Client updates per second of the virtual engine against a bare PyTorch loop, in one run.

The bare loop is the fastest plain autograd that we know to write: the same batches, gradients and
momentum updates, one client after the other, without averaging, without time, without records.
"ratio" is the engine's updates per second over the loop's, with one process and with one per core, "gain" the
second over the first; the digest is that of all models after three steps per client, which must not depend on
the number of processes. Of the CNN also what an evaluation takes. Then: the engine alone (gradients free),
its cost per step as n grows, and the peak memory at 10,000 clients.

    python benchmarks/simulator.py            # everything, a few minutes
    python benchmarks/simulator.py --quick    # the small cases
    python benchmarks/simulator.py --workers 2
    python benchmarks/simulator.py --cpu      # one process, where other programs are busy beside
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.nn import functional

from swiftfl import small
from swiftfl.algorithms import Swift
from swiftfl.data.batches import NoSamples
from swiftfl.engines.simulation.engine import Simulation
from swiftfl.engines.threads import cores
from swiftfl.experiment.build import Parts, build
from swiftfl.experiment.config import Config
from swiftfl.experiment.recipes import digits, synthetic
from swiftfl.workload.quadratic import Free

MODELS = ("logistic", "mlp", "cnn")
BATCH = 32
REPEATS = 3
BRIEF, BRIEF_REPEATS = 0.05, 30
ASSESSED = 6
clock = time.perf_counter


def config(model: str, n: int) -> Config:
    """The digits (28x28 made-up images for the CNN); every client draws 64 samples of its own."""
    base = digits() if model != "cnn" else synthetic()
    changes: dict[str, Any] = {
        "model.name": model,
        "topology.clients": n,
        "data.partition": "bootstrap:64",
        "data.batch_size": BATCH,
        "engine.epochs": 100_000,
    }
    if model == "cnn":
        changes["data.options"] = {"samples": 4000, "shape": [1, 28, 28], "classes": 10}
        changes["algorithm.momentum"] = 0.9
    return base.with_changes(changes)


def bare_loop(parts: Parts, model: str) -> Callable[[int], None]:
    """Plain autograd, client by client: gather, forward, backward, momentum, step."""
    from swiftfl.workload.models import model as named

    module = named(model, parts.data.shape, parts.data.classes or 1)()
    inputs, labels = parts.data.train_inputs.float(), parts.data.train_labels
    if inputs.ndim == 4:
        inputs = inputs.contiguous(memory_format=torch.channels_last)
    n = parts.topology.n
    clients = [[p.detach().clone() for p in module.parameters()] for _ in range(n)]
    memories = [[torch.zeros_like(p) for p in ps] for ps in clients]
    own = list(module.parameters())
    batches = parts.setup.batches

    def run(steps: int) -> None:
        for step in range(steps):
            i, c = step % n, step // n + 1
            indices = torch.from_numpy(batches[i](c).indices)
            for parameter, value in zip(own, clients[i], strict=True):
                parameter.data = value
            loss = functional.cross_entropy(module(inputs[indices]), labels[indices])
            gradients = torch.autograd.grad(loss, own)
            with torch.no_grad():
                torch._foreach_mul_(memories[i], 0.9)
                torch._foreach_add_(memories[i], gradients)
                torch._foreach_add_(clients[i], memories[i], alpha=-0.1)

    return run


def engine_of(parts: Parts, workers: int) -> Simulation:
    engine = replace(parts, setup=replace(parts.setup, workers=workers)).engine("virtual")
    engine.start()
    return engine


def engine_loop(parts: Parts, workers: int = 1) -> Callable[[int], None]:
    return engine_of(parts, workers).advance


def digest(parts: Parts, workers: int) -> str:
    """Of all models after three steps per client."""
    engine = engine_of(parts, workers)
    engine.advance(3 * engine.n)
    engine.close()
    return hashlib.sha256(b"".join(x.tobytes() for x in engine.models)).hexdigest()[:12]


def seconds_per_step(loops: list[Callable[[int], None]], n: int, budget: float) -> list[float]:
    """Medians over interleaved repeats, each loop for about `budget` seconds, after a warm-up.

    By time of the processor: the least of many brief ones, which other programs have disturbed least.
    """
    of_processor = clock is time.process_time
    counts = []
    for loop in loops:
        loop(n)
        began = clock()
        loop(n)
        counts.append(max(1, round((BRIEF if of_processor else budget) / (clock() - began))) * n)
    times: list[list[float]] = [[] for _ in loops]
    for _ in range(BRIEF_REPEATS if of_processor else REPEATS):
        for k, loop in enumerate(loops):
            began = clock()
            loop(counts[k])
            times[k].append((clock() - began) / counts[k])
    return [min(found) if of_processor else median(found) for found in times]


def compare(model: str, n: int, budget: float, workers: list[int]) -> None:
    parts = build(config(model, n))
    engines = {count: engine_of(parts, count) for count in workers}
    loops = [bare_loop(parts, model), *(engine.advance for engine in engines.values())]
    bare, *ours = seconds_per_step(loops, n, budget)
    print(f"{model:<9} n={n:<6} bare loop {1 / bare:>8,.0f}/s", end="")
    for count, spent in zip(workers, ours, strict=True):
        processes = "1 process" if count == 1 else f"{count} processes"
        print(f"   {processes} {1 / spent:>8,.0f}/s ratio {bare / spent:5.2f}", end="")
    if len(ours) == 2:
        print(f"   gain {ours[0] / ours[1]:.2f}", end="")
    looked_at = engines if model == "cnn" else {}  # models that are evaluated one by one, by whoever is free
    assessed = {count: evaluation_seconds(engine) for count, engine in looked_at.items()}
    for engine in engines.values():
        engine.close()
    digests = [digest(parts, count) for count in workers]
    told = digests[0] if len(set(digests)) == 1 else f"THEY DIFFER: {' '.join(digests)}"
    print(f"   digest {told}", flush=True)
    if assessed:
        told = ", ".join(f"{1e3 * seconds:,.0f} ms with {count}" for count, seconds in assessed.items())
        print(f"          evaluation of {ASSESSED} models: {told}", flush=True)


def evaluation_seconds(engine: Simulation) -> float:
    """Of as many models as a measurement looks at by default: the consensus and five clients'."""
    models = engine.models[:ASSESSED]
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        engine.evaluate(models)
        times.append(time.perf_counter() - began)
    return median(times)


def overhead(parameters: int, n: int, budget: float) -> float:
    """Microseconds per client step of SWIFT, plain SGD, with gradients and data that cost nothing."""
    parts = build(config("logistic", n))
    setup = replace(
        parts.setup,
        algorithm=Swift(),
        workload=Free(parameters),
        batches=[NoSamples(i, steps_per_epoch=2) for i in range(n)],
    )
    (ours,) = seconds_per_step([engine_loop(replace(parts, setup=setup))], n, budget)
    return 1e6 * ours


def memory(n: int) -> float:
    """Peak memory in MB of a process that runs n clients for three epochs."""
    parts = build(config("mlp", n))
    engine = parts.engine("virtual")
    engine.start()
    engine.advance(6 * n)
    # Not `getrusage`, whose peak begins with that of the process which has started this one.
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line)
    return int(peak.split()[1]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--budget", type=float, default=2.0, help="seconds per repeat")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--memory", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--workers", type=int, help="only so many processes (default: 1, and one per core)")
    parser.add_argument(
        "--cpu", action="store_true", help="time of the processor, beside other programs; 1 process"
    )
    options = parser.parse_args()
    if options.cpu:
        global clock
        clock, options.workers = time.process_time, 1
    small.load(compile=True)  # which a machine's first long run does meanwhile
    torch.set_num_threads(1)
    if options.memory:
        print(json.dumps(memory(options.memory)))
        return
    workers = [options.workers] if options.workers else sorted({1, cores()})
    sizes = [16, 100] if options.quick else [16, 100, 1000, 10_000]
    for model in options.models:
        for n in [16, 100][: 1 if options.quick else 2] if model == "cnn" else sizes:
            compare(model, n, options.budget, workers)
    for parameters in (650, 5000):
        steps = {n: overhead(parameters, n, options.budget) for n in (100, *sizes[2:])}
        told = "   ".join(f"n={n}: {us:.1f} us" for n, us in steps.items())
        ratio = steps[max(steps)] / steps[min(steps)]
        print(
            f"engine alone, {parameters} parameters: {told}   largest n / smallest n: {ratio:.2f}", flush=True
        )
    if not options.quick:
        command = [sys.executable, __file__, "--memory", "10000"]
        peak = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        print(f"peak memory, 10,000 clients, MLP of 4,810 parameters with momentum: {peak:,.0f} MB")


if __name__ == "__main__":
    main()
