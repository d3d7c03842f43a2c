"""The wire of MPI: the one file that knows mpi4py.

Sends are synchronous-mode (`Issend`): they are over when the receiver has taken the message, whatever its
size. A plain `Isend` of a small model is "over" at once, and would pile up in front of a client that is
stopped. Every receive is posted beforehand, so that a message finds its buffer without anybody's help.

With Open MPI's `--with-ft ulfm` a transfer with a rank that died ends with an error, which tells everyone
who has to do with it. Otherwise MPI ends the whole job when a rank dies.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from swiftfl.errors import UserError
from swiftfl.transports.base import TransportPlan, transport
from swiftfl.transports.codec import Bytes, Identity, MakeCodec
from swiftfl.transports.messages.doorbell import ADDRESS_BYTES, Doorbell
from swiftfl.transports.messages.transport import MessageTransport
from swiftfl.transports.messages.wire import GARBLED, LOST, Transfer
from swiftfl.transports.ranks import rank_here, remember_local_rank
from swiftfl.vector import Vector

_log = logging.getLogger(__name__)
_LOOK = 0.01  # seconds between two looks for what a rank prepares
_NETWORKS = "OMPI_MCA_btl"  # which of Open MPI's ways between ranks are used
SAY_AFTER = 30.0
"""Seconds of waiting for another rank before the start, after which the user is told."""

if TYPE_CHECKING:
    from mpi4py import MPI


@lru_cache(None)
def _mpi() -> Any:
    try:
        import mpi4py

        mpi4py.rc.finalize = False  # the world decides when, and whether
        with _without_shared_memory():
            from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"engine mpi needs MPI: pip install 'swiftfl[mpi]' ({reason})") from None
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise UserError("engine mpi needs an MPI with MPI_THREAD_MULTIPLE")
    return MPI


@contextmanager
def _without_shared_memory() -> Iterator[None]:
    """A process that no launcher started is alone, and Open MPI would leave its segment in /dev/shm."""
    alone = rank_here() is None and _NETWORKS not in os.environ
    if alone:
        os.environ[_NETWORKS] = "self"
    try:
        yield
    finally:
        if alone:
            del os.environ[_NETWORKS]  # jobs that are started from here have more than one rank


@lru_cache(None)
def world() -> MpiJob:
    """This job's ranks; MPI can be started only once."""
    return MpiJob()


@transport("mpi", program="swiftfl.transports.conformance.ranks")
def mpi_plan(
    neighbours: Sequence[Sequence[int]], x0: Vector, codec: MakeCodec = Identity, in_rounds: bool = False
) -> TransportPlan:
    """Clients as ranks of MPI, for engine mpi.

    Ranks connect by themselves (`MpiJob.connect`), because they exist before the run does.
    """
    raise UserError("transport mpi needs engine mpi: mpiexec -n N swiftfl run ... --engine mpi")


class MpiWire:
    """One transport's messages, on a communicator of its own: no other's can be mistaken for them."""

    def __init__(self, mpi: Any, comm: MPI.Intracomm) -> None:
        self._mpi, self._comm = mpi, comm
        self._comm.Set_errhandler(mpi.ERRORS_RETURN)
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self._statuses: list[MPI.Status] = []
        self.doorbell = self._exchange_doorbells()

    def _exchange_doorbells(self) -> Doorbell:
        """Collective: every rank connects to everybody's doorbell, and then they are hidden."""
        doorbell = Doorbell(self.rank)
        own = np.frombuffer(doorbell.address.ljust(ADDRESS_BYTES, b"\0"), np.uint8)
        addresses = np.zeros((self.size, ADDRESS_BYTES), np.uint8)
        self._comm.Allgather(own, addresses)
        doorbell.connect([row.tobytes().rstrip(b"\0") for row in addresses])
        self._comm.Barrier()
        doorbell.hide()
        return doorbell

    def send(self, data: Bytes, to: int, tag: int) -> Transfer:
        transfer: Transfer = self._comm.Issend([data, self._mpi.BYTE], to, tag)
        return transfer

    def receive(self, data: Bytes, source: int, tag: int) -> Transfer:
        transfer: Transfer = self._comm.Irecv([data, self._mpi.BYTE], source, tag)
        return transfer

    def completed(self, transfers: Sequence[Transfer]) -> list[tuple[int, int]]:
        requests: list[Any] = list(transfers)
        while len(self._statuses) < len(requests):
            self._statuses.append(self._mpi.Status())
        statuses = self._statuses[: len(requests)]
        try:
            requests[0].Get_status()  # moves everything: Open MPI's Testsome tells first and moves then
            over = self._mpi.Request.Testsome(requests, statuses)
        except self._mpi.Exception as error:
            if error.Get_error_class() != self._mpi.ERR_IN_STATUS:
                raise
            over = [position for position, request in enumerate(requests) if not request]
        return [(at, self._count(status)) for at, status in zip(over or (), statuses, strict=False)]

    def _count(self, status: MPI.Status) -> int:
        """The bytes of a transfer that is over, or what became of it."""
        error = status.Get_error()
        if error == self._mpi.SUCCESS:
            return int(status.Get_count(self._mpi.BYTE))
        return GARBLED if self._mpi.Get_error_class(error) == self._mpi.ERR_TRUNCATE else LOST


class MpiJob:
    """All ranks of this job, or some of them."""

    def __init__(self, comm: MPI.Intracomm | None = None) -> None:
        self._mpi = _mpi()
        self._comm: MPI.Intracomm = self._mpi.COMM_WORLD.Dup() if comm is None else comm
        self._comm.Set_errhandler(self._mpi.ERRORS_RETURN)
        self.rank, self.size = self._comm.Get_rank(), self._comm.Get_size()
        if comm is None:
            self._look_around()
        _log.debug("rank %d of %d", self.rank, self.size)

    def _look_around(self) -> None:
        """Which of its machine's ranks this one is, and of how many; all ranks come to it together.

        Not every launcher tells, and ranks that take themselves for the first would share one GPU.
        """
        try:
            here: Any = self._comm.Split_type(self._mpi.COMM_TYPE_SHARED, self.rank)
        except (NotImplementedError, self._mpi.Exception):  # an MPI older than 3.0
            remember_local_rank(self.rank, 1)
            return
        remember_local_rank(here.Get_rank(), here.Get_size())
        here.Free()

    @property
    def library(self) -> str:
        """Which MPI this is."""
        name: str = self._mpi.Get_library_version().split(",")[0].splitlines()[0]
        return name

    def connect(
        self,
        neighbours: Sequence[Sequence[int]],
        x0: Vector,
        codec: MakeCodec = Identity,
        shown: Vector | None = None,
    ) -> MessageTransport:
        """This rank's end of a new transport; all ranks call it together."""
        wire = MpiWire(self._mpi, self._comm.Dup())
        return MessageTransport(wire, neighbours, x0, codec, shown=shown)

    def part(self, n: int) -> MpiJob | None:
        """The first n ranks as a world of their own, for them; all call it together."""
        comm: Any = self._comm.Split(0 if self.rank < n else 1, self.rank)
        return MpiJob(comm) if self.rank < n else None

    def tell(self, value: object, who: int = 0) -> Any:
        """That rank's value (anything JSON can hold), for everybody; all call it together."""
        text = json.dumps(value).encode() if self.rank == who else b""
        length = np.array([len(text)], dtype=np.int64)
        self._await(self._comm.Ibcast(length, who), who)
        data = np.frombuffer(text, np.uint8).copy() if self.rank == who else np.zeros(length[0], np.uint8)
        self._comm.Bcast(data, who)
        return json.loads(data.tobytes())

    def _await(self, told: MPI.Request, who: int) -> None:
        """Wait for what a rank prepares, without using up a processor; the user is told if that takes long.

        It may be about to read a large dataset, or hang: only the user can know which.
        """
        began, said = time.monotonic(), False
        while not told.Test():
            time.sleep(_LOOK)
            if not said and time.monotonic() - began > SAY_AFTER:
                said = True
                print(
                    f"swiftfl: rank {self.rank} has waited for rank {who} for {SAY_AFTER:g} s before the "
                    "start: if that one hangs, stop the job (Ctrl-C)",
                    file=sys.stderr,
                    flush=True,
                )

    def share(self, x: Vector, who: int = 0) -> Vector:
        """That rank's vector, for everybody; all call it together, with vectors of one size."""
        out: Vector = np.ascontiguousarray(x).copy()
        self._comm.Bcast([out.view(np.uint8), self._mpi.BYTE], who)
        return out

    def failed(self) -> set[int]:
        """The ranks that are known to be dead; none where MPI cannot tell."""
        try:
            group = self._comm.Get_failed()
            mine = self._comm.Get_group()
            ranks = group.Translate_ranks(range(group.Get_size()), mine)
            return {int(rank) for rank in ranks}
        except (NotImplementedError, self._mpi.Exception):
            return set()

    def leave(self) -> None:
        """The end of MPI in this process; waits for the others to come to it too."""
        self._mpi.Finalize()

    def abort(self, code: int) -> None:
        """End every rank at once, also one that is stopped."""
        self._comm.Abort(code)
