"""What a process knows from the launcher of MPI before MPI is started, and what MPI tells it then."""

from __future__ import annotations

import os

_LOCAL_RANKS = (
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "PMI_LOCAL_RANK",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "SLURM_LOCALID",
)
_LOCAL_SIZES = (
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MPI_LOCALNRANKS",
    "PMI_LOCAL_SIZE",
    "MV2_COMM_WORLD_LOCAL_SIZE",
)
_by_mpi: dict[str, int] = {}
_RANKS = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK")


def rank_here() -> int | None:
    """This process's rank; None if no launcher started it."""
    return _first(_RANKS)


def remember_local_rank(number: int, count: int) -> None:
    """What MPI itself says of this machine's processes, for launchers that do not tell."""
    _by_mpi.update(number=number, count=count)


def local_rank_here() -> int | None:
    """Its number among the processes of this machine; None if neither the launcher nor MPI has told."""
    found = _first(_LOCAL_RANKS)
    return _by_mpi.get("number") if found is None else found


def local_size_here() -> int | None:
    """How many processes of the job are on this machine; None if neither the launcher nor MPI has told."""
    found = _first(_LOCAL_SIZES)
    return _by_mpi.get("count") if found is None else found


def _first(names: tuple[str, ...]) -> int | None:
    return next((int(os.environ[name]) for name in names if os.environ.get(name, "").isdecimal()), None)
