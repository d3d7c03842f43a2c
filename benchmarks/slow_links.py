"""What a slow link costs a node that trains: time per step with and without it, and what the link carries.

    python benchmarks/slow_links.py              # about two and a half minutes
    python benchmarks/slow_links.py --steps 10   # quicker, and less exact

Two nodes with certificates, each a process, and a model of 11.2 million numbers (45 MB, as ResNet-18). They
are joined by a proxy that carries 50 Mbit/s each way, 20 ms late. Node a trains with the link cut, then with
its neighbour, then with the link cut again, all in one run: the ratio is of its time per step with the
neighbour to the mean of the two times alone. The neighbour trains all the time, linked or not: two processes
that compute share caches, memory and perhaps a core, and that is not what a link costs. It trains at a third
of the pace, so that proxy and senders have a processor to run on.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "federation"))
from proxy import Proxy

WIDTH = 3354  # a layer of so many inputs and outputs has 11.2 million numbers
BATCH = 1536  # so a step is 0.1 TFLOP, as one of ResNet-18 on 64 images of CIFAR-10
MBIT, DELAY = 50.0, 0.02
PATIENCE = 300.0


def experiment(slowdown: float) -> dict[str, Any]:
    import torch

    chance = np.random.default_rng(0)
    inputs = chance.standard_normal((2 * BATCH, WIDTH)).astype(np.float32)
    return {
        "model": lambda: torch.nn.Linear(WIDTH, WIDTH),
        "train": (inputs, chance.integers(0, WIDTH, 2 * BATCH)),
        "test": (inputs[:8], chance.integers(0, WIDTH, 8)),
        "batch_size": BATCH,
        "epochs": 1_000_000,
        "clients": 1,
        "slowdown": {0: slowdown},
    }


class End:
    """A node of this process, whose steps others can wait for."""

    def __init__(self, folder: Path, steps: int, slowdown: float) -> None:
        from swiftfl.api.arguments import read_arguments
        from swiftfl.experiment.build import build
        from swiftfl.federation.enrolled import agreed, plan_of
        from swiftfl.federation.folder import NodeFolder
        from swiftfl.federation.node import Node

        read, arguments = NodeFolder.read(folder), read_arguments(**experiment(slowdown))
        config = agreed(arguments.given.described(arguments.config()), read)
        setup = build(config, arguments.given).setup
        self.steps = steps
        self.node = Node(plan_of(read, "0" * 64), setup, lambda line: None, save_seconds=1e9)
        threading.Thread(target=self.node.train, daemon=True).start()

    def until(self, true: Any) -> None:
        end = time.monotonic() + PATIENCE
        while not true():
            if time.monotonic() > end:
                sys.exit("slow_links: waited in vain")
            time.sleep(0.005)

    def measured(self) -> dict[str, float]:
        """Seconds a step over so many of them, and how many models came meanwhile."""
        control, gate = self.node.control, self.node.client.server.gate
        first = control.c + 1
        self.until(lambda: control.c >= first)
        began, versions, slowest, last = time.monotonic(), set(), 0.0, time.monotonic()
        for step in range(first + 1, first + self.steps + 1):
            self.until(lambda step=step: control.c >= step)
            now = time.monotonic()
            slowest, last = max(slowest, now - last), now
            versions |= set(gate.newest.items())
        seconds = time.monotonic() - began
        resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return {
            "step": seconds / self.steps,
            "slowest": slowest,
            "seconds": seconds,
            "models": max(0, len(versions) - 1),
            "memory": resident,
        }


def end(folder: Path, steps: int, measures: bool) -> None:
    """In a process of its own: the measured node prints what it found, as the one that started it asks."""
    made = End(folder, steps, 1.0 if measures else 3.0)
    if not measures:
        made.until(lambda: sys.stdin.readline() == "")
        return
    membership = made.node.membership
    for line in sys.stdin:
        count = int(line)
        made.until(lambda count=count: membership.selected and membership.selected[0].n == count)
        if count > 1:
            made.until(lambda: made.node.client.server.gate.newest)
        print(json.dumps(made.measured()), flush=True)


def start(folder: Path, steps: int, measures: bool) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--end", str(folder), "--steps", str(steps)]
    command += ["--measures"] if measures else []
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def asked(process: subprocess.Popen[str], nodes: int) -> dict[str, float]:
    assert process.stdin is not None
    assert process.stdout is not None
    print(nodes, file=process.stdin, flush=True)
    found: dict[str, float] = json.loads(process.stdout.readline())
    return found


def folders(root: Path) -> tuple[Path, Path, Proxy]:
    """Two nodes, of which b dials a through the proxy."""
    command = [sys.executable, "-m", "swiftfl", "federation", "init", str(root / "pair"), "--nodes", "a,b"]
    subprocess.run([*command, "--topology", "complete"], check=True, stdout=subprocess.DEVNULL)
    a, b = root / "pair" / "a", root / "pair" / "b"
    line = next(line for line in (a / "node.yaml").read_text().splitlines() if line.startswith("listen"))
    link = Proxy(int(line.rpartition(":")[2].strip("'] ")), MBIT * 1e6 / 8, DELAY)
    for folder, other, port in ((b, "a", link.port), (a, "b", 1)):  # nobody is at port 1
        with (folder / "node.yaml").open("a") as file:
            file.write(f"endpoints: {{{other}: 'tls/127.0.0.1:{port}'}}\n")
    return a, b, link


def measure(steps: int) -> dict[str, float]:
    """All of it; see the head of this file."""
    root = Path(tempfile.mkdtemp(prefix="swiftfl-links-"))
    a, b, link = folders(root)
    link.cut()
    first = start(a, steps, measures=True)
    started = [first, start(b, 0, measures=False)]
    try:
        before = asked(first, 1)
        link.heal()
        together = asked(first, 2)
        link.cut()
        after = asked(first, 1)
    finally:
        for process in started:
            process.kill()
            process.communicate()  # which also closes its pipes
        link.close()
    alone = (before["step"] + after["step"]) / 2
    return {
        "alone": alone,
        "alone before": before["step"],
        "alone after": after["step"],
        "together": together["step"],
        "ratio": together["step"] / alone,
        "slowest": together["slowest"],
        "models": together["models"],
        "seconds": together["seconds"],
        "memory alone": before["memory"],
        "memory": after["memory"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="What a slow link costs a node that trains.")
    parser.add_argument("--steps", type=int, default=45, help="in each of the three parts")
    parser.add_argument("--end", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--measures", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.end is not None:
        end(chosen.end, chosen.steps, chosen.measures)
        return
    found = measure(chosen.steps)
    print(f"a step alone: {found['alone before']:.3f} s, and {found['alone after']:.3f} s at the end")
    print(f"a step with a neighbour at {MBIT:g} Mbit/s, {1e3 * DELAY:g} ms away: {found['together']:.3f} s, "
          f"at most {found['slowest']:.3f} s")  # fmt: skip
    print(f"ratio: {found['ratio']:.3f}")
    rate = found["models"] * 4 * (WIDTH + 1) * WIDTH * 8 / found["seconds"] / 1e6
    print(f"models of 45 MB that came: {found['models']:.0f} in {found['seconds']:.0f} s: {rate:.0f} Mbit/s")
    print(f"memory, at most: {found['memory alone']:.0f} MB alone, {found['memory']:.0f} MB in all")


if __name__ == "__main__":
    main()
