"""Starting programs under mpiexec, with what this machine needs for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from swiftfl.errors import UserError

AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
_MISSING = "pip install 'swiftfl[mpi]'"


def mpiexec() -> str:
    """The launcher: of this environment, or else of the machine."""
    beside = Path(sys.executable).with_name("mpiexec")
    found = str(beside) if beside.is_file() else shutil.which("mpiexec")
    if found is None or find_spec("mpi4py") is None:
        raise UserError(f"MPI is not installed: {_MISSING}")
    return found


def command(n: int, program: Sequence[str], options: Sequence[str] = ()) -> list[str]:
    """A command line for n ranks of a Python program, also more than there are processors."""
    plain = [] if is_mpich() else ["--oversubscribe", "--bind-to", "none"]
    return [mpiexec(), *plain, *options, "-n", str(n), sys.executable, *program]


def is_mpich() -> bool:
    asked = subprocess.run([mpiexec(), "--version"], capture_output=True, text=True, timeout=60, check=False)
    return "HYDRA" in asked.stdout


def environment() -> dict[str, str]:
    """Root may run Open MPI in a container, but has to say so; one thread per rank."""
    root = AS_ROOT if os.geteuid() == 0 else {}
    return {**os.environ, "OMP_NUM_THREADS": "1", **root}
