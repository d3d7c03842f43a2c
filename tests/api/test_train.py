"""`swiftfl.train` against other ways to do the same: names, the command line, plain torch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import networkx
import numpy as np
import pytest
import torch
from torch import Tensor, nn

import swiftfl
from forked import forked
from swiftfl.algorithms import Swift
from swiftfl.client import Client, State
from swiftfl.costs import Costs
from swiftfl.engines import VirtualEngine
from swiftfl.errors import UserError
from swiftfl.experiment.build import build
from swiftfl.experiment.config import Config
from swiftfl.experiment.run import RunStopped, run
from swiftfl.record import RunFolder
from swiftfl.rules import SgdRule, UpdateRule
from swiftfl.verbs import WaitFree
from swiftfl.workload import MODELS

SETTINGS = {"evaluation.every_epochs": 1.0}


def blobs(samples: int, seed: int) -> tuple[Tensor, Tensor]:
    """Three classes around three points."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 3, (samples,), generator=draw)
    centres = torch.tensor([[2.0, 0.0], [-1.0, 2.0], [-1.0, -2.0]])
    return centres[labels] + torch.randn(samples, 2, generator=draw), labels


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


@dataclass(frozen=True)
class Mine:
    rule: UpdateRule = SgdRule()
    name: str = "mine"
    in_rounds: ClassVar[bool] = False

    def step(self, me: Client, s: State) -> Generator[WaitFree, object, State]:
        return (yield from Swift(rule=self.rule).step(me, s))


def test_names_give_the_bits_of_the_command(tmp_path: Path) -> None:
    result = swiftfl.train(
        "logistic", "digits", clients=4, epochs=1, seed=3, slowdown={1: 2}, out=tmp_path / "a"
    )
    assert forked("run", tmp_path / "a" / "config.json", "--out", "b", cwd=tmp_path).returncode == 0
    one, other = (RunFolder.open(tmp_path / name).read_models() for name in ("a", "b"))
    assert np.array_equal(one["models"], other["models"])
    assert json.loads((tmp_path / "a" / "summary.json").read_text())["loss"] == result.summary["loss"]


def test_the_defaults_are_those_of_a_configuration() -> None:
    changes = {"model.name": "logistic", "topology.clients": 4, "engine.epochs": 1}
    by_name = run(Config().with_changes(changes))
    result = swiftfl.train("logistic", "digits", clients=4, epochs=1)
    assert result.loss == by_name.summary["loss"]


def test_given_objects_are_the_same_run_as_registered_names() -> None:
    def registered(shape: tuple[int, ...], classes: int) -> nn.Module:
        """The same net under a name."""
        return net()

    MODELS.register("test_train_net", registered)
    data, held_out = blobs(120, 1), blobs(60, 2)
    one = swiftfl.train(net, data, held_out, clients=3, epochs=2)
    other = swiftfl.train("test_train_net", data, held_out, clients=3, epochs=2)
    for key, value in one.state_dict().items():
        assert torch.equal(value, other.state_dict()[key])
    assert one.config.model.name == "given:net"


def test_the_models_evaluated_by_plain_torch_have_the_accuracy_of_the_summary() -> None:
    inputs, labels = blobs(200, 2)
    result = swiftfl.train(
        net, blobs(240, 1), (inputs, labels), clients=4, epochs=2, partition="dirichlet:0.5"
    )
    module = result.model()
    with torch.no_grad():
        accuracy = float((module(inputs).argmax(1) == labels).double().mean())
        loss = nn.functional.cross_entropy(module(inputs), labels).item()
        clients = [float((result.model(k)(inputs).argmax(1) == labels).double().mean()) for k in range(4)]
    assert accuracy == pytest.approx(result.accuracy)
    assert loss == pytest.approx(result.loss, rel=1e-5)
    assert np.mean(clients) == pytest.approx(result.summary["mean_client_accuracy"])
    assert accuracy > 0.7
    means = [result.model(k)[1].running_mean for k in range(4)]  # type: ignore[index]
    torch.testing.assert_close(torch.stack(means).mean(0), module[1].running_mean)  # type: ignore[index]


def test_a_networkx_graph_edges_and_a_topology_are_the_same(tmp_path: Path) -> None:
    edges = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)]
    graphs = [networkx.Graph(edges), edges, np.array(edges), swiftfl.from_edges(edges)]
    found = [swiftfl.train("logistic", "digits", topology=graph, epochs=1) for graph in graphs]
    assert {result.loss for result in found} == {found[0].loss}
    assert [result.clients for result in found] == [4] * 4
    assert found[0].config.topology.name == "given:Graph"
    file = tmp_path / "graph.json"
    file.write_text(json.dumps({"clients": 4, "edges": edges}))
    assert swiftfl.train("logistic", "digits", topology=file, epochs=1).loss == found[0].loss


def test_losses_and_metrics_of_ones_own() -> None:
    data = blobs(120, 1)
    common = {"clients": 3, "epochs": 1}

    def of_batch(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    def error(outputs: Tensor, labels: Tensor) -> float:
        return float((outputs.argmax(1) != labels).double().mean())

    usual = swiftfl.train(net, data, metrics=["accuracy", error], **common)
    for loss in (of_batch, nn.CrossEntropyLoss(), "cross_entropy"):
        other = swiftfl.train(net, data, loss=loss, **common)
        assert other.loss == pytest.approx(usual.loss, rel=1e-4), loss
    metrics = usual.summary["metrics"]
    assert metrics["error"] == pytest.approx(1 - metrics["accuracy"])
    renamed = swiftfl.train(net, data, metrics={"wrong": error, "right": "accuracy"}, **common)
    assert renamed.summary["metrics"] == {"wrong": metrics["error"], "right": metrics["accuracy"]}


def test_an_algorithm_object_gets_the_optimizer_or_keeps_its_own_rule() -> None:
    def loss(**more: object) -> float | None:
        return swiftfl.train("logistic", "digits", clients=3, epochs=1, **more).loss  # type: ignore[arg-type]

    plain = swiftfl.SGD(lr=0.1)
    assert loss(algorithm=Mine(SgdRule(momentum=0.9))) == loss()
    assert loss(algorithm=Mine(SgdRule(momentum=0.9)), optimizer=plain) == loss(optimizer=plain)
    assert loss(algorithm=lambda context: Mine(context.rule)) == loss()
    assert loss(algorithm="swift:communication_set=1") != loss()


def test_a_schedule_that_is_a_function() -> None:
    def loss(schedule: object, lr: float) -> float | None:
        optimizer = swiftfl.SGD(lr=lr, schedule=schedule)  # type: ignore[arg-type]
        return swiftfl.train("logistic", "digits", clients=3, epochs=2, optimizer=optimizer).loss

    assert loss(lambda epoch: 0.5, 0.2) == loss("constant", 0.1)


def test_data_that_are_split_by_client_and_groups() -> None:
    parts = [blobs(40 + 10 * k, k) for k in range(3)]
    result = swiftfl.train(net, parts, blobs(50, 9), epochs=1)
    assert result.partition["sizes"] == [40, 50, 60]
    by_function = swiftfl.train(net, lambda client: parts[client], blobs(50, 9), clients=3, epochs=1)
    assert by_function.loss == result.loss
    inputs, labels = blobs(60, 1)
    grouped = swiftfl.train(net, (inputs, labels), groups=["a", "b", "c"] * 20, clients=3, epochs=1)
    assert grouped.config.data.partition == "by_group"
    assert grouped.partition["sizes"] == [20, 20, 20]


def test_settings_reach_everything_else() -> None:
    result = swiftfl.train("logistic", "digits", clients=3, settings={"engine.iterations": 7})
    assert result.summary["iterations"] == 7
    engine = swiftfl.Virtual(costs=Costs(compute=0.5))
    slow = swiftfl.train("logistic", "digits", clients=3, settings={"engine.iterations": 7}, engine=engine)
    assert slow.curve[-1]["time"] > 0.5


def test_local_processes_with_a_lambda_stop_and_go_on(tmp_path: Path) -> None:
    data, held_out = blobs(400, 1), blobs(60, 2)
    stop = _StopAtTheFirstEvaluation()
    common = {"clients": 3, "epochs": 40}
    engine = swiftfl.Local(evaluate_seconds=0.05, save_steps=5)
    with pytest.raises(RunStopped, match=r"swiftfl\.train\(\.\.\., resume="):
        swiftfl.train(
            lambda: nn.Linear(2, 3),
            data,
            held_out,
            engine=engine,
            out=tmp_path / "run",
            callbacks=[stop],
            **common,
        )
    with pytest.raises(UserError, match=r"resume: engine\.epochs was 40 and is 41"):
        swiftfl.train(lambda: nn.Linear(2, 3), data, held_out, epochs=41, resume=tmp_path / "run")
    result = swiftfl.train(lambda: nn.Linear(2, 3), data, held_out, resume=tmp_path / "run")
    assert result.summary["iterations"] == sum(40 * -(-size // 16) for size in result.partition["sizes"])
    assert result.accuracy is not None
    assert result.accuracy > 0.7
    with pytest.raises(UserError, match="has finished: there is nothing to resume"):
        swiftfl.train(lambda: nn.Linear(2, 3), data, held_out, resume=tmp_path / "run")


class _StopAtTheFirstEvaluation(swiftfl.Callback):
    """As Ctrl-C would; the second time the run would not be awaited."""

    done = False

    def on_evaluation(self, row: Mapping[str, Any]) -> None:
        if row["iteration"] > 0 and not self.done:
            self.done = True
            os.kill(os.getpid(), signal.SIGINT)


def test_torch_threads_are_as_before_a_run_and_one_in_it() -> None:
    seen = []

    class Net(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            seen.append(torch.get_num_threads())
            return super().forward(input)

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        swiftfl.train(lambda: Net(2, 3), blobs(40, 1), clients=2, epochs=1)
        assert set(seen) <= {1, 2}
        assert seen[-1] == 1
        assert torch.get_num_threads() == 2
        parts = build(Config().with_changes({"topology.clients": 2, "engine.epochs": 1}))
        torch.set_num_threads(2)
        VirtualEngine(parts.setup).start()
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_importing_swiftfl_loads_neither_torch_nor_matplotlib_nor_pandas() -> None:
    program = "import sys, swiftfl; assert not {'torch', 'matplotlib', 'pandas', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
