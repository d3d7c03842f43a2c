"""What a process knows from the launcher of MPI before MPI is started."""

from __future__ import annotations

import os

_RANKS = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK")


def rank_here() -> int | None:
    """This process's rank; None if no launcher started it."""
    return next((int(os.environ[name]) for name in _RANKS if os.environ.get(name, "").isdigit()), None)
