"""A run under MPI as its first rank sees and leads it.

It says go, notices who is lost or silent, has coefficients renewed, ends the run early if that was asked
for, and knows everybody's numbers. All of this happens in the thread of its channel: no client waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from swiftfl.engines.live.ending import Ending
from swiftfl.engines.live.local.worker import LiveOptions
from swiftfl.engines.live.mpi.control import FIRST, RankChannel
from swiftfl.engines.live.observed import Observed
from swiftfl.engines.live.saves import Saved
from swiftfl.engines.live.status import COLUMNS, FINISHED, READY, STOPPED
from swiftfl.engines.setup import Setup
from swiftfl.engines.terms import Terms
from swiftfl.errors import UserError
from swiftfl.transports.messages.message import Message
from swiftfl.transports.mpi import MpiJob
from swiftfl.vector import Vector

_NOTICE_ROUNDS, _NOTICE_SECONDS = 3, 1.0  # how far ahead the round lies at which new weights hold


class Supervised(Observed):
    """The state of a run on every rank; it is complete only where it is supervised, and at its end."""

    def __init__(
        self,
        setup: Setup,
        world: MpiJob,
        folder: Path | None = None,
        options: LiveOptions = LiveOptions(),
        saved: Sequence[Saved | None] = (),
        lives: Sequence[int] = (),
    ) -> None:
        super().__init__(setup)
        self.world, self.folder, self.options = world, folder, options
        self.me = world.rank
        self.transport = world.connect([tuple(w.of) for w in setup.weights], self.x0)
        self.channel = RankChannel(self.transport, self.network, self.board)
        self.ending = Ending(self.board, self.in_rounds, options.patience)
        self.channel.supervise = self._supervise
        self.silent: list[int] = []
        self._saved, self._lives = list(saved) or [None] * self.n, list(lives) or [0] * self.n
        self._finals: dict[int, Message] = {}

    # --- the supervisor, on the first rank -------------------------------------------------------

    def _living(self) -> list[int]:
        return [i for i in range(self.n) if i not in self.transport.progress.gone]

    def _supervise(self) -> None:
        for i in sorted(self.transport.progress.gone.difference(self.lost)):
            self._lose(i, "its rank died")
        phases = {i: self.board.phase(i) for i in self._living()}
        if not self.board.started:
            if all(phase == READY for phase in phases.values()):
                self.began = time.perf_counter()
                self.board.go()
            return
        self._keep_time(phases)
        if all(phase == FINISHED for phase in phases.values()):
            self.board.release()
        else:
            self._give_up_the_silent(phases)

    def _keep_time(self, phases: dict[int, int]) -> None:
        if self.channel.asked:
            self.ending.stop(phases)
            return
        if self.setup.iterations is not None and self.iteration >= self.setup.iterations:
            self.ending.finish(phases)
        if self.in_rounds and self.options.save_seconds is not None:
            self.ending.save(phases, self.options.save_seconds, self._next_round())
        if self._measured():
            self.channel.renew(self._next_round())

    def _give_up_the_silent(self, phases: dict[int, int]) -> None:
        """When everybody else is done, a rank that has said nothing for a while is not waited for."""
        behind = [i for i, phase in phases.items() if phase != FINISHED]
        now = time.monotonic()
        if all(i != FIRST and now - self.channel.last_heard[i] > self.options.patience for i in behind):
            for i in behind:
                self.silent.append(i)
                self._lose(i, f"silent for {self.options.patience:g} s")

    def _lose(self, i: int, reason: str) -> None:
        self._note_loss(i, reason)
        self.channel.lose(i)
        self.transport.mark_gone(i)
        self._away.add(i)
        if self.network is not None:
            self.channel.renew(self._next_round())

    def _note_loss(self, i: int, reason: str) -> None:
        if i not in self.lost:
            self.lost.append(i)
            self._note("lost", i, reason=reason)

    def _next_round(self) -> int:
        """A round that nobody will have begun before it has been told of it."""
        if not self.in_rounds:
            return 0
        steps = max((self.board.rows[i, 0] for i in self._living()), default=0.0)
        return int(steps + max(_NOTICE_ROUNDS, _NOTICE_SECONDS * steps / max(self.now, 0.1)))

    # --- what can be seen of it, on the recorder -------------------------------------------------

    def stop(self) -> None:
        """Stop where the run can go on later; may be called by a signal handler."""
        self.channel.ask()

    @property
    def stopped(self) -> bool:
        return self.board.phase(self.me) == STOPPED

    def models(self) -> list[Vector]:
        """Everybody's last model; x0 for the lost."""
        skip = len(COLUMNS)
        found = {k: message.vector[skip:].astype(self.x0.dtype) for k, message in self._finals.items()}
        return [found.get(i, self.x0) for i in range(self.n)]

    @property
    def terms(self) -> list[Terms]:
        """As they hold now, for everybody."""
        if self.network is None or not self.network.renewals:
            return [Terms(w) for w in self.setup.weights]
        count, renewed = self.network.renewals, self.network.renew()
        self.network.renewals = count
        return [Terms(*renewed[i]) if i in renewed else Terms(self.setup.weights[i]) for i in range(self.n)]

    @property
    def models_in_memory(self) -> int:
        """As on this rank: its slots, what it received, and its own."""
        return self.n * (1 + self.transport.models_in_memory)

    def fail_if_all_are_lost(self) -> None:
        if not self.members():
            raise UserError("no client is left")
