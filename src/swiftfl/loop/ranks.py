"""A client's link to the others when `mpiexec` has started it: every process is one rank.

The first rank supervises, as in engine mpi: in the thread of its control channel, so that no client waits for
it. Leaving is together: MPI ends when all ranks do, so `close` waits for those that still train.
"""

from __future__ import annotations

import math
import sys
import threading

from swiftfl.client import State
from swiftfl.engines.live.client import LiveClient
from swiftfl.engines.live.journal import Journal
from swiftfl.engines.live.mpi.channel import FIRST, RankChannel
from swiftfl.engines.live.mpi.control import RankControl
from swiftfl.engines.live.options import LiveOptions
from swiftfl.engines.live.saves import Saver
from swiftfl.engines.live.status import FINISHED, RUNNING
from swiftfl.engines.live.supervisor import Supervisor
from swiftfl.engines.terms import Terms
from swiftfl.errors import UserError
from swiftfl.loop.federation import Federation, federation
from swiftfl.loop.module_vector import ModuleVector
from swiftfl.loop.wrapped_rule import WrappedRule
from swiftfl.transports.base import Stopped
from swiftfl.transports.mpi import MpiJob, world
from swiftfl.vector import Vector

_NOTICE_SECONDS = 1.0
_FLUSH = 5.0  # seconds for the last messages to arrive


def rank_link(topology: object, weights: str | None, algorithm: str, mixing: str) -> RankLink | None:
    """This rank's link; None if it is the only one."""
    job = world()
    if job.size == 1:
        return None
    return RankLink(job, federation(job.size, topology, weights, algorithm, mixing))


class RankLink:
    """One rank's end."""

    def __init__(self, job: MpiJob, together: Federation) -> None:
        self._job, self._federation = job, together
        self.rank, self.n = job.rank, job.size
        self._setup = together.setup()
        self._channel: RankChannel | None = None
        self._control: RankControl | None = None
        self._meetings = 0

    @property
    def neighbours(self) -> tuple[int, ...]:
        return tuple(self._setup.weights[self.rank].of)

    def connect(self, module: ModuleVector, rule: WrappedRule) -> LiveClient:
        """All ranks come here together, with the same model; the first rank's numbers are x0."""
        self._check(module)
        x0 = self._job.share(module.read())
        buffers = module.size - module.trainable
        setup = self._setup = self._federation.setup(rule, module.trainable, buffers)
        self.supervisor = Supervisor(setup, LiveOptions(), self, 0.0, _NOTICE_SECONDS)
        status, i = self.supervisor.status, self.rank
        self.transport = self._job.connect([tuple(w.of) for w in setup.weights], x0)
        if setup.algorithm.in_rounds:
            self.transport.take_part_in_rounds()
        patience = self.supervisor.options.patience
        self._channel = RankChannel(self.transport, self.supervisor.network, status, patience)
        self._channel.supervise = self._supervise
        in_rounds = setup.algorithm.in_rounds
        control = self._control = RankControl(self._channel, in_rounds, 0, math.inf, lambda x, version: None)
        journal, saver = Journal(None, control.warn), Saver(None, i, 0, control.warn, None, None)
        terms = Terms(setup.weights[i])
        client = LiveClient(setup, i, State(x0), 0, self.transport, control, journal, saver, terms)
        client.announce()
        status.enter(i, RUNNING)
        self.supervisor.start_clock()
        self._channel.start()
        return client

    def _check(self, module: ModuleVector) -> None:
        """That all have the same model; where they have not, every rank says so."""
        own = [module.size, module.shape(), module.frozen()]
        first, *others = [self._job.tell(own, k) for k in range(self.n)]
        for k, about in enumerate(others, start=1):
            if about[1] != first[1]:
                raise UserError(
                    f"rank {k} has another model than rank 0 ({about[0]} numbers against {first[0]}): "
                    "all must have the same"
                )
            if about[2] != first[2]:
                raise UserError(
                    f"parameters that are frozen differ between ranks 0 and {k}, and are not sent: "
                    "load the same ones everywhere (the same file, or the same seed)"
                )

    def consensus(self, client: LiveClient, x: Vector, seconds: float) -> tuple[Vector, int]:
        """An all-reduce among those who are there; the first rank adds up."""
        self._tell_warnings()
        self._meetings += 1
        alarm = threading.Timer(seconds, self.transport.stop)
        alarm.daemon = True
        alarm.start()
        try:
            mean, count = client.transport.all_reduce(x, 1.0, self._meetings)
        except Stopped:
            self.transport.progress.stopped = False
            raise UserError(
                f"consensus(timeout={seconds:g}): not all ranks came to it in time; "
                "the model is this client's own"
            ) from None
        except UserError:
            _say(self.rank, "the first rank is lost, and nobody adds up: the model stays this client's own")
            return x, 1
        finally:
            alarm.cancel()
        return mean, count

    def close(self) -> None:
        """Wait for the others, if MPI is to end in good order."""
        self._tell_warnings()
        channel = self._channel
        if channel is None:
            if (
                getattr(sys, "last_type", None) is None
            ):  # otherwise this rank fails, and must not wait for others
                self._job.leave()
            return
        status = channel.status
        status.enter(self.rank, FINISHED)
        channel.wait_for(lambda: status.released or channel.leaderless)
        if self.rank == FIRST:
            channel.tick()
            self.transport.flush(_FLUSH)
        complete = not self.transport.progress.gone and not channel.leaderless
        channel.close()
        self.transport.close()
        if complete:
            self._job.leave()

    def _tell_warnings(self) -> None:
        while self._control is not None and self._control.warnings:
            _say(self.rank, self._control.warnings.pop(0))

    # --- the supervisor, on the first rank -----------------------------------------------------

    def _supervise(self) -> None:
        gone = self.transport.progress.gone
        for i in sorted(gone.difference(self.supervisor.lost)):
            _say(self.rank, f"rank {i} died; the others go on")
            self.supervisor.lose(i, "its rank died")
        status = self.supervisor.status
        if all(status.phase(i) == FINISHED for i in range(self.n) if i not in gone):
            status.release()

    def mark_lost(self, i: int) -> None:
        assert self._channel is not None
        self._channel.orders.lose(i)
        self.transport.mark_gone(i)

    def renew(self, from_round: int) -> None:
        assert self._channel is not None
        self._channel.renew(from_round)

    def announce(self) -> int:
        raise AssertionError("every rank computes its coefficients itself")

    def switch(self, epoch: int, from_round: int) -> None:
        raise AssertionError("every rank computes its coefficients itself")

    def is_stopped(self, i: int) -> bool:
        return False

    def kill(self, i: int) -> None:
        """Only a loop knows how long its steps may take: nobody is given up for being slow."""


def _say(rank: int, text: str) -> None:
    print(f"swiftfl: rank {rank}: {text}", file=sys.stderr, flush=True)
