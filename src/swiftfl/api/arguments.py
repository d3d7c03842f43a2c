"""The arguments of `swiftfl.train`, as settings of a configuration and objects that take the place of names.

Whatever is wrong is said here or at the first look at the data, in one sentence that names the argument.
"""

from __future__ import annotations

from collections.abc import Mapping

from swiftfl.api.chosen import Arguments
from swiftfl.api.clients import (
    choose_device,
    choose_partition,
    choose_slowdown,
    choose_topology,
    read_clients,
    read_engine,
)
from swiftfl.api.engines import Virtual
from swiftfl.api.graphs import graph_of
from swiftfl.api.learning import (
    read_algorithm,
    read_data,
    read_loss,
    read_metrics,
    read_model,
    read_optimizer,
)
from swiftfl.api.words import shown, whole
from swiftfl.errors import UserError
from swiftfl.experiment.given import Given

CLIENTS = 16
EPOCHS = 10
"""Unless something else says how many."""


def read_arguments(
    model: object,
    train: object,
    test: object = None,
    *,
    loss: object = None,
    metrics: object = (),
    optimizer: object = None,
    clients: object = None,
    topology: object = "ring",
    partition: object = None,
    groups: object = None,
    label: str | None = None,
    batch_size: object = None,
    algorithm: object = "swift",
    engine: object = "virtual",
    slowdown: object = None,
    epochs: object = None,
    seed: object = 0,
    device: object = "auto",
    settings: object = None,
) -> Arguments:
    """Read what `swiftfl.train` was given; see there."""
    found = Arguments()
    read_settings(found, settings)
    described = read_engine(engine)
    if described != Virtual():
        for key, value in described.changes().items():
            option = key.rpartition(".")[2]
            found.choose("engine" if option == "name" else f"engine: {option}", {key: value})
    graph = None if isinstance(topology, str) else graph_of(topology)
    n = read_clients(clients, graph, described.name)
    data = read_data(found, train, test, groups, label, n)
    n = len(data.parts) if n is None and data is not None and data.parts is not None else n
    if n is not None:
        found.choose("clients", {"topology.clients": n})
    choose_topology(found, topology, graph)
    choose_partition(found, partition, data)
    own_optimizer = read_optimizer(found, optimizer)
    own_algorithm = read_algorithm(found, algorithm, own_optimizer)
    choose_slowdown(found, slowdown, n or CLIENTS)
    for argument, key, value in (
        ("batch_size", "data.batch_size", batch_size),
        ("epochs", "engine.epochs", epochs),
    ):
        if value is not None:
            found.choose(argument, {key: whole(argument, value)})
    if whole("seed", seed) != 0:
        found.choose("seed", {"seed": whole("seed", seed)})
    if "engine.iterations" not in found.changes:
        found.usual["engine.epochs"] = EPOCHS
    else:
        found.usual["engine.epochs"] = None
    choose_device(found, device)
    schedule = own_optimizer.schedule if own_optimizer is not None else None
    found.given = Given(
        model=read_model(found, model),
        data=data,
        loss=read_loss(found, loss),
        metrics=read_metrics(found, metrics),
        algorithm=own_algorithm,
        schedule=schedule if callable(schedule) else None,
    )
    return found


def read_settings(found: Arguments, settings: object) -> None:
    if settings is None:
        return
    if not isinstance(settings, Mapping) or not all(isinstance(key, str) for key in settings):
        example = "{'engine.iterations': 100}"
        raise UserError(f"settings must be a dict of dotted names, such as {example}, not {shown(settings)}")
    for key, value in settings.items():
        found.choose(f"settings[{key!r}]", {key: value})
