"""CCS ordered by rate instead of degree: valid on every graph without a guard.

A client's rate is the largest common coefficient that it can still give to its open neighbours:

    r_i = min{ (1 - S_i) / (p_i + U_i), (1 - 1/n - S_i) / U_i }

with S_i the weight already assigned and U_i the influence of the neighbours not yet assigned. A client
whose rate is at most that of each open neighbour freezes its open edges at a = r_i; its neighbours
then compute r <- max(r, new). Rates never decrease, so the result does not depend on the order,
w_ii >= 1/n, and every edge gets at least the Metropolis coefficient.

Here clients freeze in rounds: all that are smallest among their open neighbours at once. A round
costs in proportion to the clients that the last one touched.
"""

from __future__ import annotations

import numpy as np

from swiftfl.graph.influence import Influence
from swiftfl.graph.metropolis import metropolis_rates
from swiftfl.graph.sums import Values, sum_by
from swiftfl.graph.topology import Indices, Topology


def ccs_by_rate_edges(topology: Topology, p: Influence) -> Values:
    """CCS ordered by rate instead of degree, which needs no guard."""
    if topology.n == 1:
        return np.zeros(0)
    a = np.zeros(topology.m)
    rates = metropolis_rates(topology, p)
    candidates = np.arange(topology.n)
    while len(candidates):
        frozen = _smallest(topology, a, rates, candidates)
        row, half = _half_edges(topology, frozen)
        open_ = a[topology.edge_ids[half]] == 0
        row, half = row[open_], half[open_]
        a[topology.edge_ids[half]] = rates[frozen][row]
        touched = _unique(topology.indices[half], topology.n)
        touched = _renew(topology, p, a, rates, touched)
        candidates = _with_open_neighbours(topology, a, touched)
    return a


def _smallest(topology: Topology, a: Values, rates: Values, clients: Indices) -> Indices:
    """Those of `clients` whose rate is at most the rate of each open neighbour."""
    row, half = _half_edges(topology, clients)
    open_ = a[topology.edge_ids[half]] == 0
    beaten = open_ & (rates[clients][row] > rates[topology.indices[half]])
    smallest: Indices = clients[np.bincount(row[beaten], minlength=len(clients)) == 0]
    return smallest


def _renew(topology: Topology, p: Influence, a: Values, rates: Values, clients: Indices) -> Indices:
    """New rates of `clients`; returns those that still have open edges."""
    row, half = _half_edges(topology, clients)
    weight = a[topology.edge_ids[half]]
    influence = p[topology.indices[half]]
    size = len(clients)
    S = sum_by(row, weight * influence, size)
    U = sum_by(row, np.where(weight == 0, influence, 0.0), size)
    open_ = U > 0
    clients, S, U = clients[open_], S[open_], U[open_]
    new = np.minimum((1.0 - S) / (p[clients] + U), (1.0 - 1.0 / topology.n - S) / U)
    rates[clients] = np.maximum(rates[clients], new)
    return clients


def _with_open_neighbours(topology: Topology, a: Values, clients: Indices) -> Indices:
    """`clients` and their open neighbours: only these can have become the smallest."""
    _, half = _half_edges(topology, clients)
    half = half[a[topology.edge_ids[half]] == 0]
    return _unique(np.concatenate([clients, topology.indices[half]]), topology.n)


def _half_edges(topology: Topology, clients: Indices) -> tuple[Indices, Indices]:
    """For the given clients, the row (position in `clients`) and position in CSR of each half-edge."""
    counts = topology.degrees[clients]
    row = np.repeat(np.arange(len(clients)), counts)
    offset = topology.indptr[clients] - (np.cumsum(counts) - counts)
    return row, np.arange(len(row)) + np.repeat(offset, counts)


def _unique(clients: Indices, n: int) -> Indices:
    """Ascending and each once; by marking, where that is cheaper than sorting."""
    if 16 * len(clients) < n:
        return np.unique(clients)
    mark = np.zeros(n, dtype=bool)
    mark[clients] = True
    return np.flatnonzero(mark)
