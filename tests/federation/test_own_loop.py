"""`swiftfl.join("node.yaml")`: a training loop of one's own as a node."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
import torch
from nodes import Federation, until

from swiftfl.errors import UserError
from swiftfl.loop.federated import FederatedLink, federated_link
from swiftfl.loop.optimizer import Optimizer
from swiftfl.loop.peer import Peer

pytest.importorskip("zenoh")


def loop(federation: Federation, i: int, found: dict[int, torch.Tensor], together: threading.Barrier) -> None:
    """Each node pulls its parameter towards its own number."""
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    link = FederatedLink(federation.plan(i))
    with Peer(link) as peer:
        optimizer = Optimizer(torch.optim.SGD(model.parameters(), lr=0.05), model, peer)

        def step() -> bool:
            optimizer.zero_grad()
            ((model.weight - float(i)) ** 2).sum().backward()
            optimizer.step()
            return link.counted and link.n == 2

        until(step, "both nodes")
        for _ in range(200):
            step()
            time.sleep(0.002)
        together.wait(60)
        if i == 0:
            peer.consensus(30)
        together.wait(60)
        found[i] = model.weight.detach().clone()


def test_two_loops_agree(tmp_path: Path) -> None:
    federation = Federation(tmp_path, 2, ((0, 1),))
    found: dict[int, torch.Tensor] = {}
    together = threading.Barrier(2)
    threads = [threading.Thread(target=loop, args=(federation, i, found, together)) for i in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert sorted(found) == [0, 1]
    assert 0.2 < float(found[0]) < 0.8  # between what each wants alone


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError):
        federated_link(tmp_path / "node.yaml")
