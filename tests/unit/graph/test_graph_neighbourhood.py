"""Neighbourhood-uniform weights: what they are, and what they lack."""

from __future__ import annotations

import numpy as np
import pytest
from graph_strategies import cases
from hypothesis import given, settings
from typer.testing import CliRunner

import swiftfl as s
from swiftfl.cli.main import app
from swiftfl.graph import Coefficients
from swiftfl.graph.influence import Influence


def uniform(topology: s.Topology, p: Influence | None = None) -> Coefficients:
    return s.communication_coefficients(topology, p, "uniform")


def test_a_star_by_hand() -> None:
    """The centre takes a quarter of each, a leaf half of itself and half of the centre."""
    c = uniform(s.star(4))
    assert c.columns() == [
        {0: 0.25, 1: 0.25, 2: 0.25, 3: 0.25},
        {0: 0.5, 1: 0.5},
        {0: 0.5, 2: 0.5},
        {0: 0.5, 3: 0.5},
    ]
    # Rows of the expected matrix: 3/4 I plus a quarter of the columns' entries.
    np.testing.assert_allclose(c.expected_matrix().sum(axis=1), [19 / 16, 15 / 16, 15 / 16, 15 / 16])


@pytest.mark.parametrize("graph", [s.ring(16), s.ring(2), s.complete(5), s.torus(4, 4), s.hypercube(4)])
def test_on_regular_graphs_they_are_metropolis(graph: s.Topology) -> None:
    c, m = uniform(graph), s.metropolis(graph)
    assert c.check().valid
    np.testing.assert_allclose(c.of_neighbours, m.of_neighbours)
    np.testing.assert_allclose(c.own, m.own)
    np.testing.assert_allclose(c.a, m.a)
    assert c.spectral_gap == pytest.approx(m.spectral_gap)


@settings(max_examples=60, deadline=None)
@given(cases())
def test_columns_sum_to_one_on_every_graph_and_rows_only_where_edges_agree(
    case: tuple[s.Topology, Influence],
) -> None:
    c = uniform(*case)
    mean = sum(p * c.active_matrix(i) for i, p in enumerate(c.influence))
    expected = c.expected_matrix().toarray()
    np.testing.assert_allclose(expected, mean, atol=1e-14)
    np.testing.assert_allclose(expected.sum(axis=0), 1.0, atol=1e-12)
    report = c.check()
    assert report.valid == bool(np.allclose(expected, expected.T, rtol=1e-9, atol=0))
    if not report.valid:
        assert str(report.violation).startswith("(d)")
    others = sorted(abs(np.linalg.eigvals(expected)))[:-1]
    assert c.rho == pytest.approx(max(others) ** 2, abs=1e-9)


def test_the_gap_of_a_large_graph() -> None:
    """Beyond the dense limit, against the same graph's dense eigenvalues."""
    c = uniform(s.barabasi_albert(450, 2))
    others = np.sort(np.abs(np.linalg.eigvals(c.expected_matrix().toarray())))[:-1]
    assert c.spectral_gap == pytest.approx(1 - others.max() ** 2, rel=1e-6)


def test_the_graph_command_says_what_fails() -> None:
    shown = CliRunner().invoke(app, ["graph", "path", "--clients", "3", "--weights", "uniform"]).output
    assert "0.944444 to 1.11111" in shown
    assert "(d) fails: edge (0, 1)" in shown
    plain = CliRunner().invoke(app, ["graph", "path", "--clients", "3"]).output
    assert "expected row sums   1\n" in "\n".join(line.rstrip() for line in plain.splitlines())
