"""What a step of `swiftfl.Optimizer` costs besides the wrapped optimizer's own, over shared memory.

    python benchmarks/optimizer.py [--steps 30]

Two clients, and three sizes of models. Each takes steps of the wrapped optimizer alone and of
`swiftfl.Optimizer` (which averages, moves, publishes, fills the module) in turn, so that what else happens
on the machine happens to both. Medians over the steps of the first client; the second one does the same.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

import torch
from torch import nn

import swiftfl
from swiftfl.loop.federation import federation
from swiftfl.loop.launcher import Launcher

SIZES = {"0.1": 100_000, "1": 1_000_000, "11": 11_000_000}
"""Millions of parameters; 11 are those of ResNet-18."""
LAYERS = 20


def network(parameters: int) -> nn.Module:
    """Layers of equal size: a model of 11 million has 20 tensors of 550,000."""
    return nn.ParameterList([nn.Parameter(torch.randn(parameters // LAYERS)) for _ in range(LAYERS)])


def fill(net: nn.Module) -> None:
    for p in net.parameters():
        p.grad = torch.full_like(p, 1e-3)


def measure(steps: int, make: type[torch.optim.SGD] | type[torch.optim.AdamW]) -> None:
    """In a client's process: print one row per size."""
    peer = swiftfl.join()
    net = network(SIZES[sys.argv[3]])
    plain_net = network(SIZES[sys.argv[3]])
    plain = make(plain_net.parameters(), lr=1e-3)
    opt = swiftfl.Optimizer(make(net.parameters(), lr=1e-3), net, peer)
    seconds: dict[str, list[float]] = {"wrapped": [], "swiftfl": []}
    for step in range(steps + 3):
        for name, each, module in (("wrapped", plain, plain_net), ("swiftfl", opt, net)):
            fill(module)
            began = time.perf_counter()
            each.step()
            if step >= 3:  # the first make the optimizer's state, and touch memory for the first time
                seconds[name].append(time.perf_counter() - began)
    peer.consensus()
    if peer.rank == 0:
        wrapped, own = (1e3 * statistics.median(values) for values in seconds.values())
        print(
            f"{make.__name__:5} {sys.argv[3]:>4} million  wrapped {wrapped:8.3f} ms  swiftfl {own:8.3f} ms  "
            f"ratio {own / wrapped:5.2f}  more {own - wrapped:7.3f} ms"
        )


def main() -> None:
    if len(sys.argv) == 4 and sys.argv[1] in ("SGD", "AdamW"):
        measure(int(sys.argv[2]), getattr(torch.optim, sys.argv[1]))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=30)
    steps = parser.parse_args().steps
    for make in ("SGD", "AdamW"):
        for size in SIZES:
            command = [sys.executable, str(Path(__file__)), make, str(steps), size]
            failed: list[str] = []
            Launcher(federation(2), command, lambda line: print(line[4:], flush=True), failed.append).run()
            if "ended well" not in failed[-1] or len(failed) > 1:
                sys.exit("\n".join(failed))


if __name__ == "__main__":
    main()
