"""CCS in exact fractions, client by client: written from the paper and apart from the library's code.

`printed` is Algorithm 2 with a switch for each place that can be read in two ways; `guarded` is what the
library must compute; `by_rate` is its other order. Each returns {(j, i): w_{j,i}}, own weights included.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

Columns = dict[tuple[int, int], Fraction]
Edges = list[tuple[int, int]]


@dataclass(frozen=True)
class Reading:
    """The best reading of the printed algorithm; each field can be set to the wrong one."""

    self_in_open_influence: bool = True
    maximum: str = "pairwise"  # or "all tied neighbours", "each end its own"
    else_adds: bool = True
    send_before_recomputing: bool = True
    start_with_share: bool = True


def neighbour_sets(n: int, edges: Edges) -> list[list[int]]:
    sets: list[list[int]] = [[] for _ in range(n)]
    for i, j in edges:
        sets[i].append(j)
        sets[j].append(i)
    return [sorted(s) for s in sets]


def printed(n: int, edges: Edges, p: list[Fraction], reading: Reading = Reading()) -> Columns:
    J = neighbour_sets(n, edges)
    d = [len(s) for s in J]
    uniform = len(set(p)) == 1
    w: Columns = {(i, i): Fraction(0) for i in range(n)}
    if not uniform and reading.start_with_share:
        w = {(i, i): Fraction(1, n) for i in range(n)}

    def column_sum(i: int) -> Fraction:
        return sum((v for (_, c), v in w.items() if c == i), Fraction(0))

    for degree in sorted(set(d), reverse=True):
        members = [i for i in range(n) if d[i] == degree]
        E = {i: [j for j in J[i] if d[j] == degree] for i in members}
        S = {i: [j for j in J[i] if d[j] < degree] for i in members}
        s_w = {i: column_sum(i) for i in members}
        s_p = {i: sum((p[j] for j in E[i] + S[i]), Fraction(0)) for i in members}
        if reading.self_in_open_influence:
            s_p = {i: s_p[i] + p[i] for i in members}
        for i in members:
            for j in E[i]:
                if reading.maximum == "pairwise":
                    group = [i, j]
                elif reading.maximum == "each end its own":
                    group = [i]
                else:
                    group = [i, *E[i]]
                w[j, i] = (1 - max(s_w[k] for k in group)) * p[j] / max(s_p[k] for k in group)
        for i in members:
            if not E[i] and not S[i]:
                w[i, i] = 1 - s_w[i] + (w[i, i] if reading.else_adds else 0)
                continue
            # without ties the first s_p is kept, and i itself shares in it only if it was counted
            open_p = sum((p[j] for j in S[i]), p[i]) if E[i] else s_p[i]
            left = 1 - column_sum(i)
            for j in [*S[i], i]:
                w[j, i] = w.get((j, i), Fraction(0)) + left * p[j] / open_p
            if not reading.send_before_recomputing:
                left = 1 - column_sum(i)
            for j in S[i]:
                w[i, j] = left * p[i] / open_p
    return w


def guarded(n: int, edges: Edges, p: list[Fraction]) -> Columns:
    """The waterfall with its three guards, one client after another."""
    J = neighbour_sets(n, edges)
    d = [len(s) for s in J]
    uniform = len(set(p)) == 1
    delta = Fraction(0) if uniform else Fraction(1, n)
    order = sorted(range(n), key=lambda i: -d[i])
    a: dict[frozenset[int], Fraction] = {}
    R, sigma = [Fraction(0)] * n, [Fraction(0)] * n
    cL, cE = [Fraction(1)] * n, [Fraction(1)] * n

    def side(i: int, sign: int) -> list[int]:
        return [j for j in J[i] if (d[j] > d[i]) - (d[j] < d[i]) == sign]

    def load(i: int, js: list[int]) -> Fraction:
        return sum((a[frozenset((i, j))] * p[j] for j in js), Fraction(0))

    for degree in sorted(set(d), reverse=True):
        members = [i for i in order if d[i] == degree]
        for i in members:
            L, rest = side(i, 1), side(i, 0) + side(i, -1)
            R[i], sigma[i] = load(i, L), p[i] + sum(p[j] for j in rest)
            if not rest:
                if R[i] > 1 - Fraction(1, n):
                    cL[i] = (1 - Fraction(1, n)) / R[i]
            elif 1 - delta - R[i] <= Fraction(1, 10**12):
                P = sum(p[j] for j in L)
                target = (1 - delta) * P / (P + sigma[i])
                cL[i], R[i] = target / R[i], target
        for i in members:
            for j in side(i, 0):
                a[frozenset((i, j))] = (1 - delta - max(R[i], R[j])) / max(sigma[i], sigma[j])
        for i in members:
            L, E, S = side(i, 1), side(i, 0), side(i, -1)
            if not E and not S:
                continue
            A = R[i] + load(i, E)
            if uniform and (1 - A) / (len(S) + 1) < Fraction(1, n):
                target = Fraction(len(L) + len(E), d[i] + 1)
                cE[i], cL[i], A = target / A, cL[i] * target / A, target
            for j in S:
                a[frozenset((i, j))] = (1 - delta - A) / (p[i] + sum(p[k] for k in S))
    for i, j in edges:
        low = i if d[i] < d[j] else j
        a[frozenset((i, j))] *= min(cE[i], cE[j]) if d[i] == d[j] else cL[low]
    return columns_of(n, edges, p, a)


def by_rate(n: int, edges: Edges, p: list[Fraction]) -> Columns:
    """The client of smallest rate freezes its open edges; again, until none is open."""
    J = neighbour_sets(n, edges)
    a: dict[frozenset[int], Fraction] = {}

    def rate(i: int) -> Fraction:
        S = sum((a[frozenset((i, j))] * p[j] for j in J[i] if frozenset((i, j)) in a), Fraction(0))
        U = sum(p[j] for j in J[i] if frozenset((i, j)) not in a)
        return min((1 - S) / (p[i] + U), (1 - Fraction(1, n) - S) / U)

    while len(a) < len(edges):
        still = [i for i in range(n) if any(frozenset((i, j)) not in a for j in J[i])]
        r, i = min((rate(i), i) for i in still)
        for j in J[i]:
            a.setdefault(frozenset((i, j)), r)
    return columns_of(n, edges, p, a)


def columns_of(n: int, edges: Edges, p: list[Fraction], a: dict[frozenset[int], Fraction]) -> Columns:
    w: Columns = {}
    for i, j in edges:
        w[j, i] = a[frozenset((i, j))] * p[j]
        w[i, j] = a[frozenset((i, j))] * p[i]
    for i in range(n):
        w[i, i] = 1 - sum((v for (_, c), v in w.items() if c == i), Fraction(0))
    return w


def violations(n: int, edges: Edges, p: list[Fraction], w: Columns) -> set[str]:
    """Which of (a)-(d) fail."""
    failed = set()
    for i in range(n):
        if sum((v for (_, c), v in w.items() if c == i), Fraction(0)) != 1:
            failed.add("a")
        if w[i, i] < Fraction(1, n):
            failed.add("b")
    for i, j in edges:
        if w[i, j] <= 0 or w[j, i] <= 0:
            failed.add("c")
        if p[j] * w[i, j] != p[i] * w[j, i]:
            failed.add("d")
    return failed
