"""Who talks to whom: a simple undirected graph of clients 0..n-1, in sparse arrays.

Edges are kept once, as rows (i, j) with i < j in lexicographic order; the same edges are kept a
second time as compressed rows, so that `neighbours(i)` is a slice. Nothing can be changed after
construction: another graph is another `Topology`.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NoReturn, SupportsIndex, TypeAlias

import numpy as np
import numpy.typing as npt

from swiftfl.errors import UserError

Indices: TypeAlias = npt.NDArray[np.int64]

MAX_CLIENTS = 50_000_000
"""More clients than this are taken for a mistake, before anything is allocated."""
MAX_EDGES = 200_000_000
"""More edges than this are taken for a mistake, before anything is allocated."""


class Topology:
    """An immutable simple undirected graph of `n` clients; duplicate edges are merged.

    >>> t = Topology(4, [(0, 1), (2, 1), (3, 2), (1, 0)])
    >>> t.neighbours(1), t.degree(1), t.m
    ((0, 2), 2, 3)
    >>> t.is_connected
    True
    """

    n: int
    edges: Indices

    def __init__(self, n: int, edges: Iterable[Sequence[int]] | npt.NDArray[np.integer] = ()) -> None:
        count = checked_clients(n)
        pairs = _pairs(edges)
        _check_range(pairs, count)
        _check_loops(pairs)
        self.__dict__.update(n=count, edges=_frozen(_canonical(pairs, count)))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a Topology cannot be changed: {name!r} was not set")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a Topology cannot be changed: {name!r} was not deleted")

    @property
    def m(self) -> int:
        """The number of edges."""
        return len(self.edges)

    @cached_property
    def _rows(self) -> tuple[Indices, Indices, Indices]:
        return _compressed(self.n, self.edges)

    @property
    def indptr(self) -> Indices:
        """Row pointers: the neighbours of i are `indices[indptr[i]:indptr[i + 1]]`."""
        return self._rows[0]

    @property
    def indices(self) -> Indices:
        """Every client's neighbours, ascending, client after client."""
        return self._rows[1]

    @property
    def edge_ids(self) -> Indices:
        """For every entry of `indices`, the row of `edges` that it belongs to."""
        return self._rows[2]

    @cached_property
    def degrees(self) -> Indices:
        """The degree of every client."""
        return _frozen(np.diff(self.indptr))

    def degree(self, i: int) -> int:
        """The number of neighbours of client i."""
        return int(self.degrees[self._index(i)])

    def neighbours(self, i: int) -> tuple[int, ...]:
        """The neighbours of client i, ascending."""
        i = self._index(i)
        return tuple(self.indices[self.indptr[i] : self.indptr[i + 1]].tolist())

    def has_edge(self, i: int, j: int) -> bool:
        """Whether clients i and j are neighbours."""
        return j in self.neighbours(i)

    @cached_property
    def components(self) -> Indices:
        """For every client the number of its connected component (client 0 is in component 0)."""
        return _components(self.n, self.edges)

    @property
    def is_connected(self) -> bool:
        """Whether every client can be reached from client 0."""
        return not self.components.any()

    def require_connected(self) -> Topology:
        """This topology, or an error that names a client which client 0 cannot reach."""
        if not self.is_connected:
            lost = int(np.flatnonzero(self.components)[0])
            parts = int(self.components.max()) + 1
            raise UserError(
                f"the graph is not connected: client {lost} cannot be reached from client 0"
                f" ({parts} components)"
            )
        return self

    def without(self, clients: Iterable[int]) -> Topology:
        """The same clients, with every edge of `clients` removed (they are lost, and stay isolated).

        >>> ring = Topology(4, [(0, 1), (1, 2), (2, 3), (0, 3)])
        >>> ring.without([1]).edges.tolist()
        [[0, 3], [2, 3]]
        """
        gone = np.zeros(self.n, dtype=bool)
        gone[[self._index(i) for i in clients]] = True
        return Topology(self.n, self.edges[~gone[self.edges].any(axis=1)])

    def with_edges(self, edges: Iterable[Sequence[int]], n: int | None = None) -> Topology:
        """This graph with more edges, and with more clients if `n` says so (clients that join)."""
        return Topology(self.n if n is None else n, np.concatenate([self.edges, _pairs(edges)]))

    def subgraph(self, clients: Iterable[int]) -> tuple[Topology, tuple[int, ...]]:
        """The graph among `clients` renumbered 0.., and the old index of each new client."""
        keep = np.unique([self._index(i) for i in clients])
        new = np.full(self.n, -1, dtype=np.int64)
        new[keep] = np.arange(len(keep))
        pairs = new[self.edges]
        return Topology(len(keep), pairs[(pairs >= 0).all(axis=1)]), tuple(keep.tolist())

    def _index(self, i: SupportsIndex) -> int:
        k = operator.index(i)
        if not 0 <= k < self.n:
            raise UserError(f"client {k} is not in 0..{self.n - 1}")
        return k

    def __len__(self) -> int:
        return self.n

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Topology) and self.n == other.n and np.array_equal(self.edges, other.edges)

    @cached_property
    def _hash(self) -> int:
        return hash((self.n, self.edges.tobytes()))

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"Topology(n={self.n}, edges={self.m})"

    def __reduce__(self) -> tuple[type[Topology], tuple[int, Indices]]:
        return Topology, (self.n, self.edges)


def checked_clients(n: SupportsIndex) -> int:
    """`n` as an int, if it is a possible number of clients."""
    try:
        count = operator.index(n)
    except TypeError:
        raise UserError(f"the number of clients must be a whole number, not {n!r}") from None
    if count < 1:
        raise UserError(f"a graph needs at least one client, not {count}")
    if count > MAX_CLIENTS:
        raise UserError(f"{count} clients are more than the {MAX_CLIENTS} that this library allows")
    return count


def checked_edges(m: int, what: str) -> int:
    """`m`, if that many edges can be held in memory."""
    if m > MAX_EDGES:
        raise UserError(f"{what} has {m} edges, more than the {MAX_EDGES} that this library allows")
    return m


def _pairs(edges: Iterable[Sequence[int]] | npt.NDArray[np.integer]) -> Indices:
    rows = edges if isinstance(edges, np.ndarray) else list(edges)
    if len(rows) == 0:
        return np.empty((0, 2), dtype=np.int64)
    checked_edges(len(rows), "the edge list")
    try:
        pairs = np.asarray(rows)
    except (ValueError, OverflowError):
        raise UserError("every edge must be a pair of client indices") from None
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise UserError("every edge must be a pair of client indices")
    if pairs.dtype.kind not in "iu":
        odd = next((e for e in rows if not all(_is_index(k) for k in e)), rows[0])
        raise UserError(f"edge {tuple(odd)} is not a pair of client indices")
    return pairs.astype(np.int64)


def _is_index(k: object) -> bool:
    return isinstance(k, (int, np.integer)) and not isinstance(k, bool) and abs(int(k)) < 2**63


def _check_range(pairs: Indices, n: int) -> None:
    bad = ((pairs < 0) | (pairs >= n)).any(axis=1)
    if bad.any():
        i, j = pairs[int(np.argmax(bad))].tolist()
        k = i if not 0 <= i < n else j
        raise UserError(f"edge ({i}, {j}): client {k} is not in 0..{n - 1}")


def _check_loops(pairs: Indices) -> None:
    loops = pairs[:, 0] == pairs[:, 1]
    if loops.any():
        i = int(pairs[int(np.argmax(loops)), 0])
        raise UserError(f"edge ({i}, {i}) is a self-loop: a client is not its own neighbour")


def _canonical(pairs: Indices, n: int) -> Indices:
    """Rows (i, j) with i < j, sorted lexicographically, each once."""
    keys = np.minimum(pairs[:, 0], pairs[:, 1]) * np.int64(n) + np.maximum(pairs[:, 0], pairs[:, 1])
    if keys.size and not (keys[1:] > keys[:-1]).all():
        keys.sort()  # np.unique hashes, which is five times slower here
        keys = keys[np.append(True, keys[1:] != keys[:-1])]
    out = np.empty((keys.size, 2), dtype=np.int64)
    np.floor_divide(keys, n, out=out[:, 0])
    np.remainder(keys, n, out=out[:, 1])
    return out


def _compressed(n: int, edges: Indices) -> tuple[Indices, Indices, Indices]:
    """Row pointers, neighbours and edge numbers; scipy's conversion is a stable counting sort."""
    from scipy.sparse import coo_array

    ids = np.arange(len(edges), dtype=np.int64)
    row = np.concatenate([edges[:, 1], edges[:, 0]])
    column = np.concatenate([edges[:, 0], edges[:, 1]])
    matrix = coo_array((np.concatenate([ids, ids]), (row, column)), shape=(n, n)).tocsr()
    parts = (matrix.indptr, matrix.indices, matrix.data)
    pointers, indices, numbers = (_frozen(np.asarray(part, dtype=np.int64)) for part in parts)
    return pointers, indices, numbers


def _components(n: int, edges: Indices) -> Indices:
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    ones = np.ones(len(edges), dtype=np.int8)
    matrix = coo_array((ones, (edges[:, 0], edges[:, 1])), shape=(n, n))
    labels = connected_components(matrix.tocsr(), directed=False)[1]
    return _frozen(labels.astype(np.int64))


def _frozen(array: Indices) -> Indices:
    """A view of a read-only owner: numpy then refuses to make it writeable again."""
    owner = array if array.base is None else array.copy()
    owner.setflags(write=False)
    view: Indices = owner.view()
    return view
