"""swiftfl: wait-free decentralized federated learning."""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING

from swiftfl._version import __version__

if TYPE_CHECKING:
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
    from swiftfl.optimizers import SGD, Adam, AdamW, Lion, RMSprop

# What loggers say is for developers, who ask for it (SWIFTFL_LOG, or logging.basicConfig in a program of
# their own); users get messages elsewhere.
logging.getLogger(__name__).addHandler(logging.NullHandler())

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "Coefficients",
    "Lion",
    "RMSprop",
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

_OPTIMIZERS = ("SGD", "Adam", "AdamW", "Lion", "RMSprop")


def __getattr__(name: str) -> object:
    """The names above come with numpy and scipy, which take a moment: they are imported when one is used.

    So the command `swiftfl` answers signals from its first moment on.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = importlib.import_module("swiftfl.optimizers" if name in _OPTIMIZERS else "swiftfl.graph")
    found: object = getattr(home, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
