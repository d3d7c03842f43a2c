"""Topologies by name, as the command line and configurations ask for them."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from swiftfl.errors import UserError
from swiftfl.graph import generators, random_graphs
from swiftfl.graph.topology import Topology

Option = int | float | None


def topology(
    name: str, clients: int, clusters: int | None = None, seed: int = 0, **options: Option
) -> Topology:
    """The topology `name` of `clients` clients; options that are None count as not given.

    >>> topology("ring_of_cliques", 16, clusters=4).m
    28
    >>> topology("grid", 12).degree(5)
    4
    """
    if name not in BUILDERS:
        raise UserError(f"there is no topology {name!r}: choose one of {', '.join(sorted(BUILDERS))}")
    build = BUILDERS[name]
    wanted = {key: value for key, value in {"clusters": clusters, **options}.items() if value is not None}
    accepted = list(inspect.signature(build).parameters.values())[1:]
    if "seed" in [parameter.name for parameter in accepted]:
        wanted["seed"] = seed
    names = [parameter.name for parameter in accepted]
    for key in wanted:
        if key not in names:
            raise UserError(f"topology {name} takes no option {key!r}")
    for parameter in accepted:
        if parameter.default is inspect.Parameter.empty and parameter.name not in wanted:
            raise UserError(f"topology {name} needs the option {parameter.name!r}")
    return build(clients, **wanted)


def _grid(n: int, rows: int | None = None, cols: int | None = None) -> Topology:
    return generators.grid(*_shape("grid", n, rows, cols))


def _torus(n: int, rows: int | None = None, cols: int | None = None) -> Topology:
    return generators.torus(*_shape("torus", n, rows, cols))


def _barabasi_albert(n: int, attach: int, seed: int = 0) -> Topology:
    return random_graphs.barabasi_albert(n, attach, seed)


def _shape(name: str, n: int, rows: int | None, cols: int | None) -> tuple[int, int]:
    if rows is None and cols is None:
        return generators.nearly_square(n)
    given = rows if rows is not None else cols
    assert given is not None
    if given < 1 or n % given:
        raise UserError(f"a {name} of {n} clients cannot have {given} rows or columns: not a divisor")
    rows = n // given if rows is None else rows
    cols = n // given if cols is None else cols
    if rows * cols != n:
        raise UserError(f"a {name} of {rows} x {cols} has {rows * cols} clients, not {n}")
    return rows, cols


BUILDERS: dict[str, Callable[..., Topology]] = {
    "ring": generators.ring,
    "ring_of_cliques": generators.ring_of_cliques,
    "complete": generators.complete,
    "star": generators.star,
    "path": generators.path,
    "grid": _grid,
    "torus": _torus,
    "hypercube": generators.hypercube,
    "exponential": generators.exponential,
    "random_regular": random_graphs.random_regular,
    "erdos_renyi": random_graphs.erdos_renyi,
    "barabasi_albert": _barabasi_albert,
    "watts_strogatz": random_graphs.watts_strogatz,
}
"""Every topology that can be asked for by name."""
