"""Random topologies: connected, and the same for the same seed. All are built by array operations."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from swiftfl.errors import UserError
from swiftfl.graph.generators import complete, ring
from swiftfl.graph.registry import TOPOLOGIES
from swiftfl.graph.topology import Indices, Topology, checked_clients, checked_edges
from swiftfl.streams import stream

Marks: TypeAlias = npt.NDArray[np.bool_]

ATTEMPTS = 100


@TOPOLOGIES.add("erdos_renyi")
def erdos_renyi(n: int, probability: float, seed: int = 0) -> Topology:
    """Every pair is an edge with this probability, given that the graph is connected."""
    n = checked_clients(n)
    _check_probability(probability)
    if n == 1 or probability == 1.0:
        return complete(n)
    checked_edges(int(probability * n * (n - 1) / 2), f"erdos_renyi({n}, {probability:g})")
    hint = f"connected graphs need a probability of about ln(n)/n = {math.log(n) / n:.3g} or more"
    isolated = n * (1.0 - probability) ** (n - 1)
    if isolated > 30.0:
        what = f"erdos_renyi({n}, {probability:g})"
        raise UserError(f"{what} would leave about {isolated:.0f} clients alone; {hint}")

    def draw(random: np.random.Generator) -> Indices:
        return _pair_numbers_to_edges(_coin_flips(n * (n - 1) // 2, probability, random), n)

    return _connected(n, draw, f"erdos_renyi({n}, {probability:g})", hint, seed, "graph/erdos_renyi")


@TOPOLOGIES.add("random_regular")
def random_regular(n: int, degree: int, seed: int = 0) -> Topology:
    """Every client has `degree` neighbours: paired at random, clashes shuffled again until none is left."""
    n = checked_clients(n)
    if not 0 <= degree < n or n * degree % 2:
        raise UserError(
            f"{n} clients cannot all have degree {degree}: it needs degree < n and n * degree even"
        )
    if degree == n - 1:
        return complete(n)
    if degree < 2:
        raise UserError(f"{n} clients of degree {degree} cannot be connected: ask for at least 2")
    checked_edges(n * degree // 2, f"random_regular({n}, {degree})")
    if degree == 2:
        order = stream(seed, "graph/random_regular").permutation(n)
        return Topology(n, order[ring(n).edges])

    def draw(random: np.random.Generator) -> Indices | None:
        if degree <= (n - 1) // 2:
            return _paired(n, degree, random)
        missing = _paired(n, n - 1 - degree, random)
        return None if missing is None else _complement(n, missing)

    what = f"random_regular({n}, {degree})"
    return _connected(n, draw, what, "try another seed", seed, "graph/random_regular")


def barabasi_albert(n: int, m: int, seed: int = 0) -> Topology:
    """Preferential attachment: from a star of m + 1 clients, each newcomer joins m different clients,
    each drawn in proportion to its degree.

    The list of all edge ends holds each client as often as its degree, so a draw is a uniform position
    in the list as it was before the newcomer. A position may itself hold a draw: positions are
    resolved by following them back, for all newcomers at once.
    """
    n = checked_clients(n)
    if not 1 <= m < n:
        raise UserError(f"barabasi_albert needs 1 <= m < n, not m = {m} with {n} clients")
    checked_edges(m * (n - m), f"barabasi_albert({n}, {m})")
    random = stream(seed, "graph/barabasi_albert")
    newcomers = np.arange(m + 1, n, dtype=np.int64)
    owner = np.concatenate([np.zeros(m, dtype=np.int64), np.repeat(newcomers, m)])
    ends_before = np.repeat(2 * m * (newcomers - m), m)
    draws = random.integers(0, ends_before)
    while True:
        target = np.concatenate([np.arange(1, m + 1, dtype=np.int64), _resolve(draws, owner, m)])
        clash = _repeats(target[m:].reshape(-1, m)).ravel()
        if not clash.any():
            return Topology(n, np.column_stack([target, owner]))
        draws[clash] = random.integers(0, ends_before[clash])


@TOPOLOGIES.add("watts_strogatz")
def watts_strogatz(n: int, degree: int, probability: float, seed: int = 0) -> Topology:
    """A ring where each client joins its `degree` nearest, and each edge's far end moves at random
    with this probability (small world)."""
    n = checked_clients(n)
    _check_probability(probability)
    if degree % 2 or not 2 <= degree < n:
        raise UserError(f"watts_strogatz needs an even degree of 2 to {n - 1}, not {degree}")
    checked_edges(n * degree // 2, f"watts_strogatz({n}, {degree})")

    def draw(random: np.random.Generator) -> Indices | None:
        return _rewired(n, degree, probability, random)

    what = f"watts_strogatz({n}, {degree}, {probability:g})"
    return _connected(n, draw, what, "ask for a larger degree", seed, "graph/watts_strogatz")


@TOPOLOGIES.add("barabasi_albert")
def _barabasi_albert(n: int, attach: int, seed: int = 0) -> Topology:
    """Preferential attachment: each newcomer joins `attach` clients, drawn in proportion to their degrees."""
    return barabasi_albert(n, attach, seed)


def _connected(
    n: int,
    draw: Callable[[np.random.Generator], Indices | None],
    what: str,
    hint: str,
    seed: int,
    purpose: str,
) -> Topology:
    """The first connected graph among keyed attempts."""
    attempts = ATTEMPTS if n <= 10_000 else 10
    for attempt in range(attempts):
        edges = draw(stream(seed, purpose, counter=attempt))
        if edges is not None:
            graph = Topology(n, edges)
            if graph.is_connected:
                return graph
    raise UserError(f"{what} gave no connected graph in {attempts} attempts; {hint}")


def _check_probability(probability: float) -> None:
    if not 0.0 <= probability <= 1.0:
        raise UserError(f"a probability must be between 0 and 1, not {probability}")


def _coin_flips(count: int, probability: float, random: np.random.Generator) -> Indices:
    """The numbers below `count` whose coin fell on its head: gaps between them are geometric."""
    if probability == 0.0:
        return np.empty(0, dtype=np.int64)
    parts, last = [], -1
    while last < count:
        mean = (count - last) * probability
        gaps = random.geometric(probability, size=int(mean + 4.0 * math.sqrt(mean) + 10.0))
        parts.append(last + np.cumsum(np.minimum(gaps, count + 1)))
        last = int(parts[-1][-1])
    heads = np.concatenate(parts)
    below: Indices = heads[heads < count]
    return below


def _pair_numbers_to_edges(numbers: Indices, n: int) -> Indices:
    """Pair number k counts (0,1), (0,2), .., (0,n-1), (1,2), ..."""
    first = np.arange(n, dtype=np.int64)
    starts = first * (2 * n - first - 1) // 2
    i = np.searchsorted(starts, numbers, side="right") - 1
    # rows n-2 and n-1: the last row is empty and starts where row n-2 ends
    return np.column_stack([i, numbers - starts[i] + i + 1])


def _resolve(draws: Indices, owner: Indices, m: int) -> Indices:
    """The clients at the drawn positions: 2k holds owner[k]; 2k+1 holds k+1 (k < m) or draw k - m."""
    at = draws.copy()
    open_ = np.flatnonzero(_is_draw(at, m))
    while len(open_):
        at[open_] = draws[at[open_] // 2 - m]
        open_ = open_[_is_draw(at[open_], m)]
    k = at // 2
    clients: Indices = np.where(at % 2 == 0, owner[k], k + 1)
    return clients


def _is_draw(at: Indices, m: int) -> Marks:
    odd: Marks = (at % 2 == 1) & (at >= 2 * m)
    return odd


def _repeats(rows: Indices) -> Marks:
    """Entries that occur earlier in their row."""
    repeat: Marks = np.zeros(rows.shape, dtype=bool)
    for later in range(1, rows.shape[1]):
        for earlier in range(later):
            repeat[:, later] |= rows[:, later] == rows[:, earlier]
    return repeat


def _paired(n: int, degree: int, random: np.random.Generator) -> Indices | None:
    """The pairing model; clashing pairs are shuffled with as many others, until none clashes."""
    if degree == 0:
        return np.empty((0, 2), dtype=np.int64)
    pairs = random.permutation(np.repeat(np.arange(n, dtype=np.int64), degree)).reshape(-1, 2)
    for _ in range(200):
        clash = _clashes(pairs, n)
        bad = np.flatnonzero(clash)
        if len(bad) == 0:
            return pairs
        others = random.choice(len(pairs), size=min(len(pairs), len(bad) + 2), replace=False)
        mixed = np.union1d(bad, others)
        pairs[mixed] = random.permutation(pairs[mixed].ravel()).reshape(-1, 2)
    return None


def _clashes(pairs: Indices, n: int) -> Marks:
    """Self-loops, and all but the first of equal pairs."""
    keys = np.minimum(pairs[:, 0], pairs[:, 1]) * n + np.maximum(pairs[:, 0], pairs[:, 1])
    clash: Marks = np.ones(len(pairs), dtype=bool)
    clash[np.unique(keys, return_index=True)[1]] = False
    clash |= pairs[:, 0] == pairs[:, 1]
    return clash


def _complement(n: int, edges: Indices) -> Indices:
    everyone = complete(n).edges
    keys = np.minimum(edges[:, 0], edges[:, 1]) * n + np.maximum(edges[:, 0], edges[:, 1])
    rest: Indices = everyone[~np.isin(everyone[:, 0] * n + everyone[:, 1], keys)]
    return rest


def _rewired(n: int, degree: int, probability: float, random: np.random.Generator) -> Indices | None:
    index = np.arange(n, dtype=np.int64)
    hops = range(1, degree // 2 + 1)
    pairs = np.concatenate([np.column_stack([index, (index + hop) % n]) for hop in hops])
    moved = random.random(len(pairs)) < probability
    pairs = np.concatenate([pairs[~moved], pairs[moved]])
    kept = int((~moved).sum())
    pairs[kept:, 1] = random.integers(0, n, len(pairs) - kept)
    for _ in range(200):
        bad = kept + np.flatnonzero(_clashes(pairs, n)[kept:])
        if len(bad) == 0:
            return pairs
        pairs[bad, 1] = random.integers(0, n, len(bad))
    return None
