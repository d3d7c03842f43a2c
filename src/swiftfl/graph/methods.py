"""The methods that compute communication coefficients, by name."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from swiftfl.errors import UserError
from swiftfl.graph.by_rate import ccs_by_rate_edges
from swiftfl.graph.ccs import ccs_edges
from swiftfl.graph.coefficients import Coefficients
from swiftfl.graph.fastest import fastest_edges
from swiftfl.graph.influence import Influence, given, uniform
from swiftfl.graph.metropolis import metropolis_edges
from swiftfl.graph.neighbourhood import neighbourhood_uniform
from swiftfl.graph.one_over_n import one_over_n_edges
from swiftfl.graph.sums import Values
from swiftfl.graph.topology import Topology
from swiftfl.registry import Registry, suggestion

_log = logging.getLogger(__name__)

Scores: TypeAlias = Sequence[float] | npt.NDArray[np.number] | None

METHODS: Registry[Callable[[Topology, Influence], Values]] = Registry("weight method")
"""Methods whose coefficients keep (a)-(d): from topology and influence to one number a per edge, which gives
its two weights, w_ij = p_i a and w_ji = p_j a. One of one's own is registered with `@METHODS.add("name")`."""
METHODS.register("ccs", ccs_edges)
METHODS.register("ccs_by_rate", ccs_by_rate_edges)
METHODS.register("metropolis", metropolis_edges)
METHODS.register("fastest", fastest_edges)
METHODS.register("one_over_n", one_over_n_edges)


def method_names() -> list[str]:
    return [*METHODS, "uniform"]


def communication_coefficients(
    topology: Topology, influence: Scores = None, method: str = "ccs"
) -> Coefficients:
    """Column w_i of every client: how it averages its own model with its neighbours'.

    Args:
        topology: Who is whose neighbour; it must be connected.
        influence: How much each client counts: scores that are scaled to add up to 1, or None for all alike.
        method: "ccs", "ccs_by_rate", "metropolis", "fastest", "uniform" or another of `swiftfl list weights`.

    Returns:
        The weights, with their expected matrix and its spectral gap.

    Raises:
        UserError: The graph is not connected, the scores do not fit, or there is no such method.

    >>> from swiftfl.graph import ring
    >>> communication_coefficients(ring(2)).column(0)
    {0: 0.5, 1: 0.5}
    """
    if method not in method_names():
        raise UserError(f"there is no weight method {method!r}: {suggestion(method, method_names())}")
    topology.require_connected()
    _log.debug("%s weights of %d clients and %d edges", method, topology.n, topology.m)
    p = uniform(topology.n) if influence is None else given(influence, topology.n)
    if method == "uniform":
        return neighbourhood_uniform(topology, p)
    return Coefficients(topology, p, method, METHODS[method](topology, p))


def ccs(topology: Topology, influence: Scores = None) -> Coefficients:
    """The paper's Algorithm 2, guarded (see `swiftfl.graph.ccs`)."""
    return communication_coefficients(topology, influence, "ccs")


def ccs_by_rate(topology: Topology, influence: Scores = None) -> Coefficients:
    """CCS ordered by rate: needs no guard (see `swiftfl.graph.by_rate`)."""
    return communication_coefficients(topology, influence, "ccs_by_rate")


def metropolis(topology: Topology, influence: Scores = None) -> Coefficients:
    """Influence-weighted Metropolis coefficients (see `swiftfl.graph.metropolis`)."""
    return communication_coefficients(topology, influence, "metropolis")


def fastest(topology: Topology, influence: Scores = None) -> Coefficients:
    """The coefficients of largest spectral gap, for small graphs (see `swiftfl.graph.fastest`)."""
    return communication_coefficients(topology, influence, "fastest")
