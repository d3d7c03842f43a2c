"""A training loop for tests of `swiftfl launch`: tiny, keyed by client and step, so that it can be repeated.

    loop_program.py STEPS [--kill CLIENT STEP] [--sleep SECONDS]

`--kill` ends the first process of that client by SIGKILL when it has taken so many steps.
"""

from __future__ import annotations

import argparse
import os
import signal
import time

import torch
from torch import Tensor, nn

SIZES = (3, 4, 2)


def network() -> nn.Sequential:
    first, hidden, last = SIZES
    return nn.Sequential(nn.Linear(first, hidden), nn.Tanh(), nn.Linear(hidden, last))


def loss_of(net: nn.Module, client: int, counter: int) -> Tensor:
    draw = torch.Generator().manual_seed(1000 * client + counter)
    x, y = torch.randn(4, SIZES[0], generator=draw), torch.randint(SIZES[-1], (4,), generator=draw)
    return nn.functional.cross_entropy(net(x), y)


def main() -> None:
    import swiftfl

    parser = argparse.ArgumentParser()
    parser.add_argument("steps", type=int)
    parser.add_argument("--kill", type=int, nargs=2, default=(-1, 0))
    parser.add_argument("--sleep", type=float, default=0.0)
    options = parser.parse_args()
    peer = swiftfl.join()
    torch.manual_seed(7 + peer.rank)
    net = network()
    opt = swiftfl.Optimizer(torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), net, peer)
    training = peer.training
    again = training is not None and training.client.incarnation > 0
    print(f"start {float(net[0].weight.detach().sum()):.6f}{' again' if again else ''}")
    for step in range(1, options.steps + 1):
        opt.zero_grad()
        loss_of(net, peer.rank, step).backward()
        opt.step()
        if (peer.rank, step) == tuple(options.kill) and not again:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(options.sleep)
    x = torch.cat([p.detach().reshape(-1) for p in net.parameters()])
    print("last " + x.numpy().tobytes().hex())
    clients = peer.consensus()
    x = torch.cat([p.detach().reshape(-1) for p in net.parameters()])
    print(f"neighbours {list(peer.neighbours)}")
    print(f"consensus {clients} {x.numpy().tobytes().hex()}")


if __name__ == "__main__":
    main()
