"""swiftfl: wait-free decentralized federated learning."""

import logging

from swiftfl._version import __version__
from swiftfl.graph import (
    Coefficients,
    Topology,
    barabasi_albert,
    ccs,
    ccs_by_rate,
    communication_coefficients,
    complete,
    erdos_renyi,
    exponential,
    fastest,
    from_edges,
    from_networkx,
    given,
    grid,
    hypercube,
    is_uniform,
    metropolis,
    path,
    proportional_to,
    random_regular,
    ring,
    ring_of_cliques,
    star,
    topology,
    torus,
    uniform,
    watts_strogatz,
)

# What loggers say is for developers, who ask for it (logging.basicConfig); users get messages elsewhere.
logging.getLogger(__name__).addHandler(logging.NullHandler())

__all__ = [
    "Coefficients",
    "Topology",
    "__version__",
    "barabasi_albert",
    "ccs",
    "ccs_by_rate",
    "communication_coefficients",
    "complete",
    "erdos_renyi",
    "exponential",
    "fastest",
    "from_edges",
    "from_networkx",
    "given",
    "grid",
    "hypercube",
    "is_uniform",
    "metropolis",
    "path",
    "proportional_to",
    "random_regular",
    "ring",
    "ring_of_cliques",
    "star",
    "topology",
    "torus",
    "uniform",
    "watts_strogatz",
]
