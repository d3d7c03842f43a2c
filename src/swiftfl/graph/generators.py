"""The regular topologies: the same request always gives the same graph."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from swiftfl.errors import UserError
from swiftfl.graph.registry import TOPOLOGIES
from swiftfl.graph.topology import MAX_CLIENTS, Indices, Topology, checked_clients, checked_edges


@TOPOLOGIES.add("path")
def path(n: int) -> Topology:
    """A line: client i and client i + 1 are neighbours."""
    return Topology(n, _chain(np.arange(checked_clients(n))))


@TOPOLOGIES.add("ring")
def ring(n: int) -> Topology:
    """A circle. `ring(2)` is one edge, `ring(1)` a single client.

    >>> ring(4).edges.tolist()
    [[0, 1], [0, 3], [1, 2], [2, 3]]
    """
    return Topology(n, _cycle(np.arange(checked_clients(n))))


@TOPOLOGIES.add("complete")
def complete(n: int) -> Topology:
    """Everyone is everyone's neighbour."""
    n = checked_clients(n)
    checked_edges(n * (n - 1) // 2, f"the complete graph of {n} clients")
    return Topology(n, _clique(0, n))


@TOPOLOGIES.add("star")
def star(n: int) -> Topology:
    """Client 0 in the middle, and no other edges."""
    leaves = np.arange(1, checked_clients(n), dtype=np.int64)
    return Topology(n, np.column_stack([np.zeros_like(leaves), leaves]))


@TOPOLOGIES.add("ring_of_cliques")
def ring_of_cliques(n: int, clusters: int) -> Topology:
    """The paper's ROC-xC: `clusters` cliques in a circle, joined by single bridges.

    Cliques have n // clusters clients, and the last one takes the remainder. A bridge joins the last
    client of each clique to the first of the next; the closing bridge (n - 1, 0) exists only for
    more than two clusters.

    >>> [ring_of_cliques(*request).m for request in [(16, 2), (16, 4), (10, 3)]]
    [57, 28, 15]
    """
    n = checked_clients(n)
    if not 1 <= clusters <= n:
        raise UserError(f"{n} clients cannot form {clusters} clusters: ask for 1 to {n}")
    size = n // clusters
    starts = [k * size for k in range(clusters)]
    ends = [*starts[1:], n]
    edges = sum((end - start) * (end - start - 1) // 2 for start, end in zip(starts, ends, strict=True))
    checked_edges(edges + clusters, f"the ring of {clusters} cliques of {n} clients")
    cliques = [_clique(start, end) for start, end in zip(starts, ends, strict=True)]
    bridges = [(end - 1, end) for end in ends[:-1]]
    if clusters > 2:
        bridges.append((n - 1, 0))
    return Topology(n, np.concatenate([*cliques, np.array(bridges, dtype=np.int64).reshape(-1, 2)]))


def grid(rows: int, cols: int) -> Topology:
    """A rows x cols lattice; client (r, c) has index r * cols + c."""
    return _lattice(rows, cols, "grid", wrap=False)


def torus(rows: int, cols: int) -> Topology:
    """A grid whose rows and columns are closed to rings."""
    return _lattice(rows, cols, "torus", wrap=True)


@TOPOLOGIES.add("hypercube")
def hypercube(n: int) -> Topology:
    """Clients are neighbours if their indices differ in one binary digit; n is a power of two."""
    n = checked_clients(n)
    if n & (n - 1):
        below = 1 << (n.bit_length() - 1)
        raise UserError(f"a hypercube needs a power of two clients, not {n} (try {below} or {2 * below})")
    index = np.arange(n, dtype=np.int64)
    bits = [1 << k for k in range(n.bit_length() - 1)]
    return Topology(n, _joined([np.column_stack([index, index ^ bit])[index & bit == 0] for bit in bits]))


@TOPOLOGIES.add("exponential")
def exponential(n: int) -> Topology:
    """Client i and client i + 2^k (modulo n) are neighbours, for every 2^k < n."""
    n = checked_clients(n)
    index = np.arange(n, dtype=np.int64)
    hops = [1 << k for k in range((n - 1).bit_length())]
    return Topology(n, _joined([np.column_stack([index, (index + hop) % n]) for hop in hops]))


def from_edges(edges: Iterable[Sequence[int]] | npt.NDArray[np.integer], n: int | None = None) -> Topology:
    """The graph with these edges.

    Args:
        edges: Pairs of clients, each counted from 0.
        n: The number of clients; without it, up to the largest index that is named.

    >>> from_edges([(0, 1), (1, 2)])
    Topology(n=3, edges=2)
    """
    rows = edges if isinstance(edges, np.ndarray) else list(edges)
    if n is None:
        n = _largest(rows) + 1
    return Topology(n, rows)


def from_networkx(graph: Any) -> Topology:
    """The graph of networkx.

    Args:
        graph: An undirected graph. Nodes named 0 to n-1 keep their number, others count in graph order.

    Raises:
        UserError: The graph is directed.
    """
    if graph.is_directed():
        raise UserError("the graph is directed, and neighbours are mutual: give it as undirected")
    nodes = list(graph.nodes)
    names = {node: k for k, node in enumerate(nodes)}
    if all(isinstance(v, int) for v in nodes) and set(nodes) == set(range(len(nodes))):
        names = {node: node for node in nodes}
    checked_edges(graph.number_of_edges(), "the graph")
    return Topology(len(nodes), [(names[u], names[v]) for u, v in graph.edges()])


def nearly_square(n: int) -> tuple[int, int]:
    """The most nearly square factorisation rows x cols = n, rows <= cols.

    >>> nearly_square(16), nearly_square(12), nearly_square(7)
    ((4, 4), (3, 4), (1, 7))
    """
    n = checked_clients(n)
    rows = next(r for r in range(math.isqrt(n), 0, -1) if n % r == 0)
    return rows, n // rows


@TOPOLOGIES.add("grid")
def _grid(n: int, rows: int | None = None, cols: int | None = None) -> Topology:
    """A lattice of rows and columns, as nearly square as possible where neither is given."""
    return grid(*_shape("grid", n, rows, cols))


@TOPOLOGIES.add("torus")
def _torus(n: int, rows: int | None = None, cols: int | None = None) -> Topology:
    """A grid whose rows and columns are closed to rings."""
    return torus(*_shape("torus", n, rows, cols))


def _shape(name: str, n: int, rows: int | None, cols: int | None) -> tuple[int, int]:
    if rows is None and cols is None:
        return nearly_square(n)
    given = rows if rows is not None else cols
    assert given is not None
    if given < 1 or n % given:
        raise UserError(f"a {name} of {n} clients cannot have {given} rows or columns: not a divisor")
    rows = n // given if rows is None else rows
    cols = n // given if cols is None else cols
    if rows * cols != n:
        raise UserError(f"a {name} of {rows} x {cols} has {rows * cols} clients, not {n}")
    return rows, cols


def _largest(rows: Sequence[Sequence[int]] | npt.NDArray[np.integer]) -> int:
    if len(rows) == 0:
        raise UserError("no edges and no number of clients: there is no graph")
    try:
        largest = max(max(int(i), int(j)) for i, j in rows) if isinstance(rows, list) else int(np.max(rows))
    except (TypeError, ValueError):
        raise UserError("every edge must be a pair of client indices") from None
    if largest >= MAX_CLIENTS:
        raise UserError(f"client {largest} is beyond the {MAX_CLIENTS} clients that this library allows")
    return largest


def _lattice(rows: int, cols: int, name: str, wrap: bool) -> Topology:
    if rows < 1 or cols < 1:
        raise UserError(f"a {name} needs at least one row and one column, not {rows} x {cols}")
    n = checked_clients(rows * cols)
    index = np.arange(n, dtype=np.int64).reshape(rows, cols)
    lines = [(index[:, :-1], index[:, 1:]), (index[:-1], index[1:])]
    if wrap and cols > 2:
        lines.append((index[:, 0], index[:, -1]))
    if wrap and rows > 2:
        lines.append((index[0], index[-1]))
    return Topology(n, _joined([np.column_stack([a.ravel(), b.ravel()]) for a, b in lines]))


def _chain(index: Indices) -> Indices:
    return np.column_stack([index[:-1], index[1:]])


def _cycle(index: Indices) -> Indices:
    if len(index) <= 2:
        return _chain(index)
    return np.column_stack([index, np.roll(index, -1)])


def _clique(start: int, end: int) -> Indices:
    first, second = np.triu_indices(end - start, k=1)
    return np.column_stack([first, second]).astype(np.int64) + start


def _joined(parts: Sequence[Indices]) -> Indices:
    return np.concatenate([np.empty((0, 2), dtype=np.int64), *parts])
