"""Topologies by name: functions of the number of clients and options of their own.

A topology of one's own is such a function under `@TOPOLOGIES.add("name")`. A parameter `seed` is given the
run's seed; all others are options.
"""

from __future__ import annotations

from collections.abc import Callable

from swiftfl.errors import UserError, kind_of
from swiftfl.graph.topology import Topology
from swiftfl.registry import Option, Registry, options_of
from swiftfl.settings import checked_options

TOPOLOGIES: Registry[Callable[..., Topology]] = Registry("topology")


def topology_options(name: str) -> dict[str, Option]:
    """What may be chosen of a topology besides the number of clients."""
    return options_of(TOPOLOGIES[name], after=1, supplied=("seed",))


def topologies_with(option: str) -> list[str]:
    """The topologies that have an option of this name."""
    return [name for name in TOPOLOGIES if option in topology_options(name)]


def topology(
    name: str, clients: int, clusters: int | None = None, seed: int = 0, **options: float | str | None
) -> Topology:
    """The topology `name` of `clients` clients; options that are None count as not given.

    >>> topology("ring_of_cliques", 16, clusters=4).m
    28
    >>> topology("grid", 12).degree(5)
    4
    """
    given = {key: value for key, value in {"clusters": clusters, **options}.items() if value is not None}
    values = checked_options(
        f"topology {name}", topology_options(name), given, elsewhere=topologies_with, section="option "
    )
    make = TOPOLOGIES[name]
    if "seed" in options_of(make, after=1):
        values["seed"] = seed
    return _checked(name, make(clients, **values), clients)


def _checked(name: str, made: object, clients: int) -> Topology:
    """What a topology's function made, which may be of the user's own."""
    if not isinstance(made, Topology):
        raise UserError(f"topology {name} must return a Topology, not {kind_of(made)}")
    if made.n != clients:
        raise UserError(f"topology {name} must have {clients} clients as it was asked to, not {made.n}")
    return made
