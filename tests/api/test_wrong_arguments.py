"""Wrong uses of `swiftfl.train` and its relatives: each is one sentence that names what the user wrote."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
import torch
from torch import nn

import swiftfl
from swiftfl import rules

X, Y = torch.randn(40, 2, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 3


class NeedsWidth(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(2, width)


class SaysDict(nn.Linear):
    def forward(self, input: torch.Tensor) -> dict[str, torch.Tensor]:  # type: ignore[override]
        return {"scores": super().forward(input)}


def net() -> nn.Module:
    return nn.Linear(2, 3)


def train(*data: Any, **arguments: Any) -> swiftfl.Result:
    model = arguments.pop("model", net)
    return swiftfl.train(model, *(data or ((X, Y),)), **{"clients": 4, "epochs": 1, **arguments})


def two_islands() -> networkx.Graph:
    return networkx.Graph([(0, 1), (2, 3)])


def of_three(outputs: object, labels: object, weights: object) -> None:
    """A loss of too many things."""


WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "labels of another length": (
        lambda: train((X, Y[:-1])),
        "data training set: 40 inputs but labels of shape",
    ),
    "a wrong shape": (lambda: train((X.numpy().T, Y)), "data training set: 2 inputs but labels of shape"),
    "one number": (lambda: train((np.float32(3), Y)), "train"),
    "text for data": (lambda: train("digitz"), "there is no dataset 'digitz': did you mean digits?"),
    "no data": (lambda: train(None), "train must be the training data"),
    "a test set for a name": (
        lambda: train("digits", (X, Y)),
        "train is the name 'digits', which has everything",
    ),
    "another test set": (lambda: train((X, Y), (X[:, :1], Y)), "training and test inputs differ: (2,)"),
    "no such model": (lambda: train(model="mpl"), "there is no model 'mpl': did you mean mlp?"),
    "a class that needs arguments": (
        lambda: train(model=NeedsWidth),
        "model is the class NeedsWidth, which needs",
    ),
    "a class of something else": (
        lambda: train(model=dict),
        "model is the class dict, which is not a torch.nn.Module",
    ),
    "a number for a model": (
        lambda: train(model=3),
        "model must be a torch.nn.Module, a function that makes one",
    ),
    "a function that makes none": (lambda: train(model=lambda: 3), "model must be a torch module"),
    "a model that returns a dict": (
        lambda: train(model=SaysDict(2, 3)),
        "SaysDict returns a dict, not a tensor",
    ),
    "too few outputs": (lambda: train(model=nn.Linear(2, 2)), "Linear has 2 outputs, but data has 3 classes"),
    "no such loss": (lambda: train(loss="mes"), "there is no loss 'mes': did you mean mse?"),
    "a loss that is a class": (
        lambda: train(loss=nn.CrossEntropyLoss),
        "loss is the class CrossEntropyLoss: give",
    ),
    "a loss of three": (lambda: train(loss=of_three), "loss of_three cannot be called with two values"),
    "a number for a loss": (lambda: train(loss=0.5), "loss must be a function of (outputs, labels)"),
    "no such metric": (
        lambda: train(metrics=["acuracy"]),
        "there is no metric 'acuracy': did you mean accuracy?",
    ),
    "text for metrics": (lambda: train(metrics="accuracy"), "metrics must be a list of names and functions"),
    "a number for a metric": (
        lambda: train(metrics={"f1": 1}),
        "metrics: 'f1' must be a function of (outputs",
    ),
    "torch's optimizer": (
        lambda: train(optimizer=torch.optim.Adam),
        "such as swiftfl.Adam(lr=...), not the class",
    ),
    "text for an optimizer": (
        lambda: train(optimizer="adam"),
        "optimizer must be a description such as swiftfl.SGD",
    ),
    "negative clients": (lambda: train(clients=-4), "clients must be at least 1, not -4"),
    "half a client": (lambda: train(clients=2.5), "clients must be a whole number, not 2.5"),
    "too many clients": (lambda: train(clients=99), "99 clients"),
    "no such topology": (lambda: train(topology="rong"), "there is no topology 'rong': did you mean ring?"),
    "a file as text": (lambda: train(topology="graph.json"), "for a file, give a pathlib.Path"),
    "a graph of another size": (
        lambda: train(topology=networkx.cycle_graph(5)),
        "clients is 4, but topology has 5",
    ),
    "a directed graph": (
        lambda: train(topology=networkx.DiGraph([(0, 1)])),
        "topology: the graph is directed",
    ),
    "islands": (lambda: train(topology=two_islands()), "topology: the graph is not connected: client 2"),
    "edges of names": (lambda: train(topology=[("a", "b")]), "topology: ('a', 'b') is not an edge"),
    "a number for a topology": (lambda: train(topology=7), "topology must be a name, a swiftfl.Topology"),
    "no such partition": (lambda: train(partition="dirichlt:1"), "there is no partition 'dirichlt'"),
    "a partition without its number": (lambda: train(partition="dirichlet"), "it is written dirichlet:ALPHA"),
    "a number for a partition": (lambda: train(partition=0.3), "partition must be text such as 'iid'"),
    "classes where there are none": (lambda: train((X, X), partition="dirichlet:1"), "by their class, but"),
    "groups of another length": (
        lambda: train(groups=[1, 2]),
        "groups must have one entry per training sample (40)",
    ),
    "no such algorithm": (
        lambda: train(algorithm="dsdg"),
        "there is no algorithm 'dsdg': did you mean dsgd?",
    ),
    "an option it does not have": (
        lambda: train(algorithm="dsgd:budget=1"),
        "algorithm: budget is for matcha",
    ),
    "a class for an algorithm": (
        lambda: train(algorithm=NeedsWidth),
        "algorithm is the class NeedsWidth: give",
    ),
    "no algorithm at all": (lambda: train(algorithm=3), "3 has no name, in_rounds, rule, step"),
    "no such engine": (lambda: train(engine="virtul"), "there is no engine 'virtul': did you mean virtual?"),
    "a number for an engine": (
        lambda: train(engine=3),
        "engine must be a name (virtual, sampled, local, mpi)",
    ),
    "slow nobody": (lambda: train(slowdown={9: 4}), "slowdown: 9 is no client; clients are 0 to 3"),
    "slow by name": (lambda: train(slowdown={"a": 4}), "slowdown: 'a' is no client"),
    "slow by nothing": (
        lambda: train(slowdown={1: 0}),
        "slowdown: the factor of client 1 must be above 0, not 0",
    ),
    "a list of slow ones": (lambda: train(slowdown=[1, 4]), "slowdown must be a dict from client to factor"),
    "slow without a clock": (
        lambda: train(slowdown={1: 4}, engine="sampled"),
        "slowdown is for engine virtual, local",
    ),
    "no epochs": (lambda: train(epochs=0), "epochs must be at least 1, not 0"),
    "text for epochs": (lambda: train(epochs="10"), "epochs must be a whole number, not '10'"),
    "a seed that is none": (lambda: train(seed=-1), "seed must be at least 0, not -1"),
    "an empty batch": (lambda: train(batch_size=0), "batch_size must be at least 1, not 0"),
    "no such device": (lambda: train(device="gpu"), "device 'gpu' cannot be used here"),
    "progress in percent": (lambda: train(progress=50), "progress must be True or False, not 50"),
    "callbacks that are none": (
        lambda: train(callbacks=[print]),
        "callbacks[0] is a builtin_function_or_method",
    ),
    "a number for a folder": (lambda: train(out=3), "out must be the path of a folder, not 3"),
    "nothing to resume": (lambda: train(resume="nowhere"), "nowhere is not a run folder"),
    "settings that are none": (lambda: train(settings={"engine.iteration": 3}), "did you mean iterations?"),
    "settings as text": (lambda: train(settings="seed=3"), "settings must be a dict of dotted names"),
    "a client that is none": (lambda: train().model(4), "model: there is no client 4; clients are 0 to 3"),
    "a picture of no kind": (
        lambda: train().plot("loss.jpeg"),
        "plot: the file must end in .svg, .png, .pdf",
    ),
    "an axis of no kind": (lambda: train().plot(over="steps"), "over must be one of epoch, time, iteration"),
    "loading a number": (lambda: swiftfl.load(3), "folder must be the path of a run folder, not 3"),  # type: ignore[arg-type]
    "loading nothing": (lambda: swiftfl.load("nowhere"), "nowhere is not a run folder"),
    "comparing nothing": (
        lambda: swiftfl.compare({}, net, (X, Y)),
        "runs must be a dict from a name to an algorithm",
    ),
    "comparing wrongly": (lambda: swiftfl.compare(["swift"], net, (X, Y), epoch=1), "did you mean epochs?"),
    "no seeds": (lambda: swiftfl.compare(["swift"], net, (X, Y), seeds=0), "seeds must be a number of seeds"),
    "data of one run only": (
        lambda: swiftfl.compare({"a": {"train": (X, Y)}}, net, (X, Y)),
        "runs['a']: train is the same for all runs",
    ),
}


class NoSamples(torch.utils.data.Dataset[int]):
    def __len__(self) -> int:
        return -1

    def __getitem__(self, index: int) -> int:
        return index


class Broken(nn.Linear):
    def __init__(self) -> None:
        super().__init__(2, 3, device="nowhere")


class Nothing:
    """An algorithm whose step asks nothing of its world."""

    name, in_rounds, rule = "nothing", False, rules.SgdRule()

    def step(self, me: object, s: object) -> object:
        return s


class Three(Nothing):
    def step(self, me: object, s: object) -> object:
        yield 3
        return s


def no_data(client: int) -> object:
    raise FileNotFoundError(f"hospital-{client}.csv")


def cannot(outputs: object, labels: object) -> None:
    raise KeyError("weights")


WRONG |= {
    "a function that fails": (
        lambda: train(no_data),
        "train: the function failed for client 0: FileNotFoundError: hospital-0.csv",
    ),
    "a length below zero": (lambda: train(NoSamples()), "data: train has no length: ValueError"),
    "a model that cannot be made": (lambda: train(model=Broken), "model Broken cannot be made: RuntimeError"),
    "a loss that fails": (lambda: train(loss=cannot), "KeyError: 'weights'"),
    "no labels by name": (
        lambda: train({"x": X, "y": Y}),
        "data has no labels: name their entry (label=...)",
    ),
    "text for a step size": (
        lambda: train(optimizer=swiftfl.SGD(lr="0.1")),  # type: ignore[arg-type]
        "swiftfl.SGD: lr must be a number, not '0.1'",
    ),
    "a schedule that fails": (
        lambda: train(optimizer=swiftfl.SGD(0.1, schedule=lambda epoch: 1 / epoch)),
        "the schedule failed at epoch 0: ZeroDivisionError",
    ),
    "a schedule of words": (
        lambda: train(optimizer=swiftfl.SGD(0.1, schedule=lambda epoch: "half")),  # type: ignore[arg-type, return-value]
        "the schedule gave 'half' at epoch 0",
    ),
    "a schedule of nothing": (
        lambda: train(optimizer=swiftfl.SGD(0.1, schedule=lambda epoch: float("nan"))),
        "the schedule gave nan at epoch 0",
    ),
    "a matrix for a topology": (lambda: train(topology=np.ones((4, 4))), "networkx.from_numpy_array(matrix)"),
    "an engine's option": (
        lambda: train(engine=swiftfl.Local(restart_lost="x")),  # type: ignore[arg-type]
        'engine: restart_lost must be true or false, not "x"',
    ),
    "two that say the same": (
        lambda: train(epochs=2, settings={"engine.epochs": 3}),
        "epochs and settings['engine.epochs'] say the same",
    ),
    "no seed": (lambda: train(seed=None), "seed must be a whole number, not None"),
    "a path that cannot be": (lambda: train(out="a\0b"), "out must be the path of a folder"),
    "a step without yield": (lambda: train(algorithm=Nothing()), "of the algorithm nothing has no `yield`"),
    "a step that yields no verb": (lambda: train(algorithm=Three()), "yields an int, which is no verb"),
    "a function without arguments": (
        lambda: train(algorithm=lambda: Nothing()),
        "algorithm: the function that makes it failed: TypeError",
    ),
    "a page in a number": (lambda: train().report(3), "report: the file must be a path, not 3"),  # type: ignore[arg-type]
    "a client in words": (lambda: train().model("two"), "client must be a whole number, not 'two'"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_use_is_one_sentence(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    wrong, said = WRONG[name]
    with pytest.raises(swiftfl.UserError, match=re.escape(said)) as error:
        wrong()
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_a_graph_with_names_for_nodes_counts_them_in_its_order() -> None:
    graph = networkx.Graph([("anna", "ben"), ("ben", "cleo"), ("cleo", "dan")])
    result = train(topology=graph)
    assert result.config.topology.edges == [(0, 1), (1, 2), (2, 3)]
