"""`swiftfl.join("node.yaml")`: a training loop of one's own as a node."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from nodes import Federation, until

from node_processes import nodes, ran
from swiftfl.errors import UserError
from swiftfl.federation.manifest import Agreement
from swiftfl.loop.federated import FederatedLink, federated_link
from swiftfl.loop.optimizer import Optimizer
from swiftfl.loop.peer import Peer
from swiftfl.views import RunView
from swiftfl.workload.recorded_model import shapes_hash

pytest.importorskip("zenoh")


def loop(
    federation: Federation,
    i: int,
    found: dict[int, torch.Tensor],
    together: threading.Barrier,
    agreed: Agreement,
) -> None:
    """Each node pulls its parameter towards its own number."""
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    link = FederatedLink(replace(federation.plan(i), codec=agreed.codec), agreed)
    with Peer(link) as peer:
        optimizer = Optimizer(torch.optim.SGD(model.parameters(), lr=0.05), model, peer)

        def step() -> bool:
            optimizer.zero_grad()
            ((model.weight - float(i)) ** 2).sum().backward()
            optimizer.step()
            return link.counted and link.n == 2

        until(step, "both nodes")

        def agree() -> bool:
            """Whether the first node is between what each wants alone; it may take long on a busy machine."""
            step()
            time.sleep(0.002)
            return 0 in found if i else 0.2 < float(model.weight.detach()) < 0.8

        for _ in range(200):
            agree()
        until(agree, "the agreement")
        found[i] = model.weight.detach().clone()
        together.wait(60)
        if i == 0:
            peer.consensus(30)
        together.wait(60)
        assert link._node is not None
        assert link._node.connection.wire.refusals.by_sender() == {}


@pytest.mark.parametrize(
    "agreed",
    [Agreement(), Agreement(codec="bf16", mixing="clipped:tolerate=0.1")],
    ids=["plain", "all of it"],
)
def test_two_loops_agree(agreed: Agreement, tmp_path: Path) -> None:
    """Also where the federation has agreed on a codec and on a rule of averaging."""
    federation = Federation(tmp_path, 2, ((0, 1),))
    found: dict[int, torch.Tensor] = {}
    together = threading.Barrier(2)
    threads = [threading.Thread(target=loop, args=(federation, i, found, together, agreed)) for i in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(220)
    assert sorted(found) == [0, 1]
    assert 0.2 < float(found[0]) < 0.8  # between what each wants alone


PROGRAM = """
import sys, time
import torch, swiftfl
from swiftfl.data.digits import digits

data = digits()
inputs = torch.tensor(data.train.inputs).reshape(len(data.labels), -1).float()
labels = torch.tensor(data.train.labels).long()
model = torch.nn.Linear(64, 10)
with swiftfl.join(sys.argv[1]) as peer:
    optimizer = swiftfl.Optimizer(torch.optim.SGD(model.parameters(), lr=0.05), model, peer)
    while True:
        at = torch.randint(len(labels), (16,))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs[at]), labels[at]).backward()
        optimizer.step()
        time.sleep(0.01)
"""


def test_a_loop_goes_on_when_its_neighbour_dies_and_returns(tmp_path: Path) -> None:
    """aarhus is a loop of its own, basel a node as `swiftfl node` makes it; both have the same model."""
    (tmp_path / "loop.py").write_text(PROGRAM)
    with nodes(tmp_path / "federation", ("aarhus", "basel"), "path") as made:
        command = [sys.executable, str(tmp_path / "loop.py"), str(made.folder("aarhus") / "node.yaml")]
        with (made.root / "aarhus.log").open("wb") as log:
            made.running["aarhus"] = subprocess.Popen(command, stdout=log, stderr=log)
        made.start("basel")
        made.reach(2, "aarhus", "basel")
        until(lambda: (made.status("basel")["neighbours"]["aarhus"]["steps"] or 0) > 20, "models of the loop")
        made.kill("basel")
        until(lambda: not made.status("aarhus")["neighbours"]["basel"]["here"], "the loss")
        step = made.status("aarhus")["step"]
        until(lambda: made.status("aarhus")["step"] > step + 20, "further steps of the loop, alone")
        made.start("basel")
        made.reach(2, "aarhus", "basel")
        done = ran("federation", "consensus", made.folder("aarhus"))
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("The average of 2 nodes is in ")
        until((made.folder("basel") / "consensus.safetensors").exists, "the consensus at basel")
        columns = RunView(made.folder("aarhus")).now()["columns"]  # type: ignore[index]
        assert columns["state"] == ["running", "back"]
        assert columns["steps"][0] > 20
        assert "basel is here again" in made.log("aarhus")


def test_a_model_of_other_shapes_is_refused(tmp_path: Path) -> None:
    """It has as many numbers; names, which a loop gives as it likes, do not matter."""
    shapes = shapes_hash([(4, 6), (4,)], 28, "float32")
    agreed = Agreement(model="mine", shapes=shapes, size=28)
    plan = Federation(tmp_path, 2, ((0, 1),)).plan(0)

    def joined(module: torch.nn.Module) -> None:
        with Peer(FederatedLink(plan, agreed)) as peer:
            optimizer = Optimizer(torch.optim.SGD(module.parameters(), lr=0.1), module, peer)
            sum(parameter.sum() for parameter in module.parameters()).backward()  # type: ignore[union-attr]
            optimizer.step()

    with pytest.raises(UserError, match=r"28 numbers of the federation's .mine., in tensors of other shapes"):
        joined(torch.nn.Linear(3, 7))
    with pytest.raises(UserError, match=r"of another type .here float64"):
        joined(torch.nn.Linear(6, 4).double())
    with pytest.raises(UserError, match="the model has 21 numbers"):
        joined(torch.nn.Linear(6, 3))
    joined(torch.nn.Sequential(torch.nn.Linear(6, 4)))


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError):
        federated_link(tmp_path / "node.yaml")
