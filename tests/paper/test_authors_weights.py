"""The communication coefficients of the authors' own code (uniform influence only), beside ours.

Written anew from what `GraphConstruct.py` does. A client whose degree no neighbour exceeds gives each one
1 / (degree + 1). Any other waits for its larger neighbours' coefficients, and gives each of the rest an equal
part of what is left, one part kept for itself; of neighbours of equal degree it takes the smallest such part.
"""

from __future__ import annotations

import pytest

import swiftfl as s


def coefficients(t: s.Topology) -> dict[tuple[int, int], float]:
    """w_{j,i} by (j, i)."""
    degrees = t.degrees.tolist()
    w: dict[tuple[int, int], float] = {}
    for degree in sorted(set(degrees), reverse=True):
        peers = [i for i in range(t.n) if degrees[i] == degree]
        part = {i: _part(t, degrees, i, w) for i in peers}
        for i in peers:
            around = t.neighbours(i)
            largest = all(degrees[j] <= degree for j in around)
            equals = [] if largest else [j for j in around if degrees[j] == degree]
            smallest = min(part[k] for k in (i, *equals))
            for j in around:
                if degrees[j] <= degree:
                    w[j, i] = smallest
                if degrees[j] < degree:
                    w[i, j] = smallest
    return w


def _part(t: s.Topology, degrees: list[int], i: int, w: dict[tuple[int, int], float]) -> float:
    larger = [j for j in t.neighbours(i) if degrees[j] > degrees[i]]
    left = 1.0 - sum(w[j, i] for j in larger)
    return left / (degrees[i] - len(larger) + 1)


def furthest(t: s.Topology) -> float:
    """The largest difference of a coefficient from `ccs`."""
    theirs, ours = coefficients(t), s.ccs(t)
    assert len(theirs) == 2 * t.m
    return max(abs(weight - ours.weights(i).of[j]) for (j, i), weight in theirs.items())


@pytest.mark.parametrize("t", [s.ring(16), s.ring_of_cliques(16, 2), s.ring_of_cliques(16, 4)], ids=str)
def test_the_same_on_most_graphs_of_the_paper(t: s.Topology) -> None:
    assert furthest(t) < 1e-15


def test_different_where_three_degrees_meet() -> None:
    """ROC-3C: Algorithm 2 takes the largest s_w and s_p of a tie, their code the smallest part."""
    assert furthest(s.ring_of_cliques(10, 3)) == pytest.approx(0.05)
