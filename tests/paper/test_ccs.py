"""Algorithm 2 against exact fractions, and the readings of it that must not come back."""

from __future__ import annotations

import json
import random
from fractions import Fraction
from pathlib import Path

import networkx
import pytest
from exact_ccs import Columns, Edges, Reading, by_rate, guarded, printed, violations

from swiftfl import communication_coefficients, from_edges, grid, ring, ring_of_cliques

GOLDEN = json.loads((Path(__file__).parent / "ccs_golden.json").read_text())["cases"]
K23: Edges = [(0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 4)]
RING4: Edges = [(0, 1), (1, 2), (2, 3), (0, 3)]
PATH3: Edges = [(0, 1), (1, 2)]


def thirds(*numbers: int) -> list[Fraction]:
    return [Fraction(k, sum(numbers)) for k in numbers]


def largest_difference(n: int, edges: Edges, p: list[Fraction], method: str, exact: Columns) -> float:
    c = communication_coefficients(from_edges(edges, n), [float(x) for x in p], method)
    ours = {(j, i): w for i in range(n) for j, w in c.column(i).items()}
    assert ours.keys() == exact.keys()
    return max(abs(ours[key] - float(exact[key])) for key in exact)


def influences(n: int, rng: random.Random) -> list[list[Fraction]]:
    """Uniform, linear, one giant, and heavy-tailed scores."""
    giant = [1] * n
    giant[rng.randrange(n)] = 20 * n
    tail = [max(1, int(1000 * rng.paretovariate(0.6))) for _ in range(n)]
    return [thirds(*scores) for scores in ([1] * n, list(range(1, n + 1)), giant, tail)]


@pytest.mark.parametrize("name", GOLDEN)
@pytest.mark.parametrize("method", ["ccs", "ccs_by_rate"])
def test_golden_fractions(name: str, method: str) -> None:
    case = GOLDEN[name]
    p = [Fraction(x) for x in case["p"]]
    columns = case[method]["columns"]
    exact = {(int(j), int(i)): Fraction(w) for i, column in columns.items() for j, w in column.items()}
    edges = [(i, j) for i, j in case["edges"]]
    assert largest_difference(case["n"], edges, p, method, exact) < 1e-12
    c = communication_coefficients(from_edges(edges, case["n"]), [float(x) for x in p], method)
    assert c.rho == pytest.approx(case[method]["rho"], abs=1e-12)
    assert (guarded if method == "ccs" else by_rate)(case["n"], edges, p) == exact


def small_graphs() -> list[tuple[int, Edges]]:
    """All connected graphs with 2 to 5 clients, a third of those with 6, some with 7."""
    atlas = [g for g in networkx.graph_atlas_g() if len(g) >= 2 and networkx.is_connected(g)]
    few = [g for g in atlas if len(g) <= 5]
    six = [g for g in atlas if len(g) == 6][::3]
    seven = [g for g in atlas if len(g) == 7][::40]
    return [(len(g), [(int(i), int(j)) for i, j in g.edges]) for g in few + six + seven]


def test_exact_on_small_graphs() -> None:
    rng = random.Random(0)
    for n, edges in small_graphs():
        for p in influences(n, rng):
            exact = guarded(n, edges, p)
            assert not violations(n, edges, p, exact)
            assert largest_difference(n, edges, p, "ccs", exact) < 1e-12, (edges, p)
            rate = by_rate(n, edges, p)
            assert not violations(n, edges, p, rate)
            assert largest_difference(n, edges, p, "ccs_by_rate", rate) < 1e-12, (edges, p)


def test_guard_fires_exactly_where_the_paper_fails() -> None:
    """The best reading is kept, value for value, wherever it is valid; and only there."""
    rng, fired = random.Random(1), 0
    for n, edges in small_graphs():
        for p in influences(n, rng):
            best = printed(n, edges, p)
            valid = not violations(n, edges, p, best)
            assert (guarded(n, edges, p) == best) == valid, (edges, p)
            fired += not valid
    assert fired >= 5


@pytest.mark.parametrize("seed", range(12))
def test_exact_on_random_graphs(seed: int) -> None:
    rng = random.Random(seed)
    n = rng.choice([9, 12, 16, 24])
    g = networkx.barabasi_albert_graph(n, rng.choice([1, 2, 4]), seed=seed)
    edges = [(int(i), int(j)) for i, j in g.edges]
    for p in influences(n, rng):
        best, exact = printed(n, edges, p), guarded(n, edges, p)
        assert (exact == best) == (not violations(n, edges, p, best))
        assert not violations(n, edges, p, exact)
        assert largest_difference(n, edges, p, "ccs", exact) < 1e-12
        assert largest_difference(n, edges, p, "ccs_by_rate", by_rate(n, edges, p)) < 1e-12


WRONG_READINGS: list[tuple[str, Reading, int, Edges, list[Fraction], str]] = [
    ("self not in s_p", Reading(self_in_open_influence=False), 3, PATH3, thirds(1, 1, 1), "a"),
    ("self not in s_p", Reading(self_in_open_influence=False), 4, RING4, thirds(1, 1, 1, 1), "b"),
    ("one maximum", Reading(maximum="all tied neighbours"), 4, RING4, thirds(1, 2, 3, 4), "d"),
    ("own maximum", Reading(maximum="each end its own"), 4, RING4, thirds(1, 2, 3, 4), "d"),
    ("else assigns", Reading(else_adds=False), 3, PATH3, thirds(1, 2, 3), "a"),
    ("send late", Reading(send_before_recomputing=False), 3, PATH3, thirds(1, 1, 1), "c"),
    ("start at 0", Reading(start_with_share=False), 2, [(0, 1)], thirds(1, 3), "b"),
    ("best reading", Reading(), 5, K23, thirds(6, 6, 1, 1, 1), "b"),
]


@pytest.mark.parametrize(("name", "reading", "n", "edges", "p", "condition"), WRONG_READINGS)
def test_wrong_reading_fails_and_ours_does_not(
    name: str, reading: Reading, n: int, edges: Edges, p: list[Fraction], condition: str
) -> None:
    assert condition in violations(n, edges, p, printed(n, edges, p, reading)), name
    assert largest_difference(n, edges, p, "ccs", guarded(n, edges, p)) < 1e-12
    communication_coefficients(from_edges(edges, n), [float(x) for x in p]).check()


def test_stated_values_of_wrong_readings() -> None:
    literal = printed(3, PATH3, thirds(1, 1, 1), Reading(self_in_open_influence=False))
    assert literal[0, 1] + literal[1, 1] + literal[2, 1] == Fraction(3, 2)
    assert printed(4, RING4, thirds(1, 1, 1, 1), Reading(self_in_open_influence=False))[0, 0] == 0
    assigned = printed(3, PATH3, thirds(1, 2, 3), Reading(else_adds=False))
    assert assigned[0, 0] + assigned[1, 0] == 1 - Fraction(1, 3)
    assert printed(5, K23, thirds(6, 6, 1, 1, 1))[2, 2] == Fraction(-1, 15)


def test_printed_algorithm_fails_with_uniform_scores_too() -> None:
    """On Barabasi-Albert(4) with 512 clients the best reading mostly fails; the guard never does."""
    p, failed = thirds(*[1] * 512), 0
    for seed in range(3):
        g = networkx.barabasi_albert_graph(512, 4, seed=seed)
        edges = [(int(i), int(j)) for i, j in g.edges]
        failed += bool(violations(512, edges, p, printed(512, edges, p)))
        communication_coefficients(from_edges(edges, 512)).check()
    assert failed >= 1


GAPS = {
    "ring 16": (ring(16), (0.00633, 0.00633, 0.00633, 0.00890)),
    "ROC-2C 16": (ring_of_cliques(16, 2), (0.00283, 0.00283, 0.00283, 0.00560)),
    "ROC-4C 16": (ring_of_cliques(16, 4), (0.00884, 0.00884, 0.00884, 0.01264)),
    "ROC-3C 10": (ring_of_cliques(10, 3), (0.02436, 0.02429, 0.02456, 0.03839)),
    "grid 4x4": (grid(4, 4), (0.01635, 0.01692, 0.01692, 0.02164)),
}


@pytest.mark.parametrize("name", GAPS)
def test_spectral_gaps(name: str) -> None:
    topology, gaps = GAPS[name]
    for method, gap in zip(["metropolis", "ccs", "ccs_by_rate", "fastest"], gaps, strict=True):
        found = communication_coefficients(topology, method=method)
        found.check()
        assert found.spectral_gap == pytest.approx(gap, abs=6e-6), method
