"""swiftfl: wait-free decentralized federated learning."""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING

from swiftfl._version import __version__

if TYPE_CHECKING:
    from swiftfl.api import Comparison, Local, Mpi, Result, Sampled, Virtual, compare, load, train
    from swiftfl.data import as_dataset
    from swiftfl.errors import UserError
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
    from swiftfl.loop.optimizer import Optimizer
    from swiftfl.loop.peer import Peer, join
    from swiftfl.optimizers import SGD, Adam, AdamW, Lion, RMSprop
    from swiftfl.trackers.base import Callback

# What loggers say is for developers, who ask for it (SWIFTFL_LOG, or logging.basicConfig in a program of
# their own); users get messages elsewhere.
logging.getLogger(__name__).addHandler(logging.NullHandler())

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "Callback",
    "Coefficients",
    "Comparison",
    "Lion",
    "Local",
    "Mpi",
    "Optimizer",
    "Peer",
    "RMSprop",
    "Result",
    "Sampled",
    "Topology",
    "UserError",
    "Virtual",
    "__version__",
    "as_dataset",
    "barabasi_albert",
    "ccs",
    "ccs_by_rate",
    "communication_coefficients",
    "compare",
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
    "join",
    "load",
    "metropolis",
    "path",
    "proportional_to",
    "random_regular",
    "ring",
    "ring_of_cliques",
    "star",
    "topology",
    "torus",
    "train",
    "uniform",
    "watts_strogatz",
]

_HOMES = {
    "swiftfl.optimizers": ("SGD", "Adam", "AdamW", "Lion", "RMSprop"),
    "swiftfl.api": (
        "Comparison", "Local", "Mpi", "Result", "Sampled", "Virtual", "compare", "load", "train",
    ),
    "swiftfl.data": ("as_dataset",),
    "swiftfl.loop.optimizer": ("Optimizer",),
    "swiftfl.loop.peer": ("Peer", "join"),
    "swiftfl.errors": ("UserError",),
    "swiftfl.trackers.base": ("Callback",),
}  # fmt: skip
"""Where names are defined; all others come from swiftfl.graph."""


def __getattr__(name: str) -> object:
    """The names above come with numpy, scipy and torch, which take a moment: they are imported when used.

    So the command `swiftfl` answers signals from its first moment on.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = next((module for module, names in _HOMES.items() if name in names), "swiftfl.graph")
    found: object = getattr(importlib.import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
