"""Random connected graphs and influence scores for property tests."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from swiftfl import Topology, proportional_to
from swiftfl.graph.influence import Influence


@st.composite
def topologies(draw: st.DrawFn, most: int = 24) -> Topology:
    """A random tree plus random edges, with hubs now and then."""
    n = draw(st.integers(2, most))
    seed = draw(st.integers(0, 2**32 - 1))
    extra = draw(st.integers(0, 3 * n))
    hubs = draw(st.integers(0, 2))
    random = np.random.default_rng(seed)
    tree = [(int(random.integers(0, i)), i) for i in range(1, n)]
    pairs = [tuple(random.integers(0, n, 2).tolist()) for _ in range(extra)]
    pairs += [(hub, int(k)) for hub in range(min(hubs, n)) for k in random.integers(0, n, n)]
    return Topology(n, tree + [(i, j) for i, j in pairs if i != j])


@st.composite
def scores(draw: st.DrawFn, n: int) -> Influence:
    """Uniform, equal groups, log-normal or Pareto scores."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kind = draw(st.sampled_from(["uniform", "groups", "log-normal", "pareto"]))
    if kind == "uniform":
        return proportional_to(np.ones(n))
    if kind == "groups":
        return proportional_to(random.integers(1, 4, n))
    if kind == "log-normal":
        return proportional_to(random.lognormal(0.0, 2.0, n))
    return proportional_to(random.pareto(0.5, n) + 1.0)


@st.composite
def cases(draw: st.DrawFn, most: int = 24) -> tuple[Topology, Influence]:
    topology = draw(topologies(most))
    return topology, draw(scores(topology.n))
