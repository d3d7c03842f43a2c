"""Who learns, as `swiftfl.train` takes it: how many clients, their graph and shares, and what runs them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from pathlib import Path

import numpy as np
import torch

from swiftfl.api.chosen import Arguments, choose_named
from swiftfl.api.engines import ENGINES, Engine
from swiftfl.api.words import shown, whole
from swiftfl.data.dataset import Dataset
from swiftfl.data.split import usual_partition
from swiftfl.errors import UserError
from swiftfl.graph import TOPOLOGIES, Topology
from swiftfl.registry import GIVEN, suggestion


def read_clients(clients: object, graph: Topology | None, engine: str) -> int | None:
    """How many there are, as far as that is said."""
    if clients is not None:
        said = whole("clients", clients)
        if said < 1:
            raise UserError(f"clients must be at least 1, not {said}")
        if graph is not None and graph.n != said:
            raise UserError(f"clients is {said}, but topology has {graph.n} clients: leave clients out")
        return said
    if graph is not None:
        return graph.n
    if engine == "mpi":
        from swiftfl.transports.mpi import world

        ranks: int = world().size
        return ranks
    return None


def choose_topology(found: Arguments, topology: object, graph: Topology | None) -> None:
    if graph is None:
        if topology != "ring":
            assert isinstance(topology, str)
            if topology not in TOPOLOGIES and Path(topology).suffix:
                raise UserError(f"topology {topology!r} is not a name: for a file, give a pathlib.Path")
            choose_named(found, "topology", topology, TOPOLOGIES, "topology.name", "topology.options")
        return
    changes = {"topology.name": f"{GIVEN}{type(topology).__name__}", "topology.edges": graph.edges.tolist()}
    found.choose("topology", changes)


def choose_partition(found: Arguments, partition: object, data: Dataset | None) -> None:
    if partition is not None and not isinstance(partition, str):
        raise UserError(f"partition must be text such as 'iid' or 'dirichlet:0.3', not {shown(partition)}")
    if partition is not None:
        found.choose("partition", {"data.partition": partition})
    elif data is not None:
        found.usual["data.partition"] = usual_partition(data)


def read_engine(engine: object) -> Engine:
    if isinstance(engine, str):
        if engine not in ENGINES:
            raise UserError(f"there is no engine {engine!r}: {suggestion(engine, ENGINES)}")
        return ENGINES[engine]()
    kind = next((kind for kind in ENGINES.values() if kind is engine), None)
    if kind is not None:
        return kind()
    if not isinstance(engine, Engine):
        raise UserError(
            f"engine must be a name ({', '.join(ENGINES)}) or a description such as swiftfl.Local(), "
            f"not {shown(engine)}"
        )
    return engine


def choose_slowdown(found: Arguments, slowdown: object, clients: int) -> None:
    if slowdown is None:
        return
    if not isinstance(slowdown, Mapping):
        raise UserError(
            f"slowdown must be a dict from client to factor, such as {{5: 4}}, not {shown(slowdown)}"
        )
    for client, factor in slowdown.items():
        if isinstance(client, bool) or not isinstance(client, int | np.integer) or not 0 <= client < clients:
            raise UserError(f"slowdown: {client!r} is no client; clients are 0 to {clients - 1}")
        if isinstance(factor, bool) or not isinstance(factor, Real) or not 0 < float(factor) < math.inf:
            raise UserError(f"slowdown: the factor of client {client} must be above 0, not {shown(factor)}")
    slow = [{"client": int(client), "factor": float(factor)} for client, factor in slowdown.items()]
    found.choose("slowdown", {"engine.costs.slowdowns": slow})


def choose_device(found: Arguments, device: object) -> None:
    if isinstance(device, torch.device):
        device = str(device)
    if not isinstance(device, str):
        raise UserError(f"device must be 'auto' or a name such as 'cpu' or 'cuda:0', not {shown(device)}")
    if device != "auto":
        found.choose("device", {"model.device": device})
    elif torch.cuda.is_available():
        found.usual["model.device"] = "auto"
