"""Real clients on one machine: one process each, models in shared memory, and a supervisor.

The supervisor is a thread of the engine's process that no client ever waits for. It starts clients
through the nursery, notices within a moment when one ends, takes it off (its neighbours keep its weight
for themselves from their next fetch on), renews the coefficients among those who are left, sends them
(they are taken at the start of a step), and starts the lost one again if it is asked to.
"""

from __future__ import annotations

import select
import signal
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from swiftfl.engines.live.ending import Ending
from swiftfl.engines.live.local.control import ControlChannel
from swiftfl.engines.live.local.forkserver import Exit, ForkServer, Launch
from swiftfl.engines.live.local.watched import Watched
from swiftfl.engines.live.local.worker import LiveOptions, Worker
from swiftfl.engines.live.saves import Saved, read_all
from swiftfl.engines.live.status import ABSENT, AT, FINISHED, READY, RUNNING, STOPPED
from swiftfl.engines.setup import Setup
from swiftfl.engines.terms import Terms, pack_terms
from swiftfl.transports.base import MakePlan
from swiftfl.transports.codec import Identity, MakeCodec
from swiftfl.transports.shared_memory import SharedMemory
from swiftfl.vector import Weights

_TICK = 0.05
_ALONE = Weights(1.0, {})
_NOTICE_ROUNDS, _NOTICE_SECONDS = 3, 0.5  # how far ahead the round lies at which new weights hold


class Local(Watched):
    """A live run; `start` it, `wait` until it is over, and `close` it whatever happened.

    `saved` tells from where each client goes on (None: from the start), `lives` how often each has
    been started before. `folder` takes the clients' saves and their records; without it there are none.
    """

    name = "local"

    def __init__(
        self,
        setup: Setup,
        folder: Path | None = None,
        options: LiveOptions = LiveOptions(),
        saved: Sequence[Saved | None] = (),
        lives: Sequence[int] = (),
        transport: MakePlan = SharedMemory.create,
        codec: MakeCodec = Identity,
    ) -> None:
        super().__init__(setup)
        n = setup.n
        self.folder, self.options = folder, options
        self._make_plan, self._codec = transport, codec
        self._saved, self._lives = list(saved) or [None] * n, list(lives) or [0] * n
        self._joining: set[int] = set()
        self._closed = False

    # --- for whoever runs it -------------------------------------------------------------------

    def start(self) -> None:
        """Fork the nursery and every client; returns at once."""
        setup = self.setup
        if self.folder is not None:
            self.folder.mkdir(exist_ok=True)
        neighbours = [tuple(w.of) for w in setup.weights]
        self.wires = self._make_plan(neighbours, self.x0, self._codec, self.in_rounds)
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(self.n)]
        self._post = ControlChannel([ours for ours, _ in pairs], self.board, self.in_rounds)
        theirs = [line for _, line in pairs]
        home = Worker(setup, self.options, self.board, self.wires, theirs, self.folder, self.in_rounds)
        self._nursery = ForkServer(home.live)
        for line in theirs:
            line.close()
        self._observer = self.wires.observe()
        self.ending = Ending(self.board, self.in_rounds, self.options.patience)
        for i in range(self.n):
            self._start(self._birth(i))
        self._thread = threading.Thread(target=self._supervise, name="swiftfl-supervisor", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End every process and give everything back."""
        if self._closed or not hasattr(self, "_nursery"):
            return
        self._closed = True
        self._over.set()
        if hasattr(self, "_thread"):
            self._thread.join(timeout=10)
        self._nursery.close()
        self._observer.close()
        self.wires.close()
        self._post.close()

    # --- the supervisor's loop -----------------------------------------------------------------

    def _supervise(self) -> None:
        try:
            while not self._over.is_set():
                select.select([self._nursery.socket, *self._post.lines], [], [], _TICK)
                self._tick()
        except Exception as error:  # a mistake of ours must not leave a run that never ends
            self.errors[-1] = f"the supervisor failed: {type(error).__name__}: {error}"
            self._over.set()
            raise

    def _tick(self) -> None:
        self._listen()
        for ended in self._nursery.ended():
            self._ended(ended)
        if not self._nursery.alive:
            for i in list(self.living):
                self._ended(Exit(i, self._life(i), signal.SIGKILL))
        self._post.deliver(self.living)
        phases = {i: self.board.phase(i) for i in self.living}
        if not self.board.started:
            self._begin(phases)
            return
        for i in [i for i in self._joining if phases.get(i) in (READY, RUNNING)]:
            self._join(i)
        self._keep_time(phases)
        if all(phase == FINISHED for phase in phases.values()):
            self.board.release()
        if not self.living:
            self.ended_at = time.perf_counter()
            self._over.set()

    def _begin(self, phases: dict[int, int]) -> None:
        if self._asked.is_set():
            self.ending.stop(phases)
        if not self.living:
            self._over.set()
        if all(phase == READY for phase in phases.values()):
            self.began = time.perf_counter()
            self.board.go()

    def _keep_time(self, phases: dict[int, int]) -> None:
        """What happens by the clock or by the count of steps."""
        if self._asked.is_set():
            for i in self.ending.stop(phases):
                self._nursery.kill(i)
            return
        limit = self.setup.iterations
        if limit is not None and self.iteration >= limit:
            self.ending.finish(phases)
        if self.in_rounds and self.options.save_seconds is not None:
            self.ending.save(phases, self.options.save_seconds)
        if self._measured():
            self._renew()

    # --- births and deaths ---------------------------------------------------------------------

    def _birth(self, i: int) -> Launch:
        """How client i starts when the run does."""
        w, saved = self.setup.weights[i], self._saved[i]
        terms = pack_terms(Terms(w))[:3]
        if saved is None:
            return Launch(i, self._lives[i], terms=terms)
        c = saved.state.c
        return Launch(i, max(self._lives[i], saved.life + 1), "saved", c, (saved.life, c), terms)

    def _start(self, birth: Launch) -> None:
        self.board.enter(birth.client, ABSENT)
        self.living.add(birth.client)
        self._nursery.start(birth)

    def _ended(self, ended: Exit) -> None:
        i = ended.client
        self.living.discard(i)
        if self.board.phase(i) in (FINISHED, STOPPED):
            return
        self._note("lost", i, reason=self.errors.get(i, str(ended)))
        self.wires.mark_gone(i)
        if i not in self.lost:
            self.lost.append(i)
        self._away.add(i)
        if self.network is not None:
            self.network.known.discard(i)
            self.network.present.discard(i)
            self._renew()
        again = self.options.restart_lost and self.restarts[i] < self.options.most_restarts
        if again and not self._asked.is_set() and self.living:
            self._restart(i)

    def _restart(self, i: int) -> None:
        """From its last save, or else from the newest model of a neighbour."""
        self.restarts[i] += 1
        life = self._life(i) + 1
        alone = pack_terms(Terms(_ALONE))[:3]
        saves = [] if self.folder is None else read_all(self.folder, i, self.x0.size)
        if saves:
            saved = saves[0]
            birth = Launch(
                i, life, "saved", saved.state.c, (saved.life, saved.state.c), alone, self.in_rounds
            )
        else:
            c = max(1, int(self.board.rows[i, AT["c"]]))
            birth = Launch(i, life, "model", c, (self._teacher(i),), alone, self.in_rounds)
        self._note("restart", i, how=birth.how, life=life)
        self._lives[i] = life
        self._joining.add(i)
        self._start(birth)

    def _teacher(self, i: int) -> int:
        """The most advanced neighbour that is there, or whoever is."""
        near = [k for k in self.setup.weights[i].of if k in self.living] or sorted(self.living)
        return max(near, key=lambda k: (self.board.rows[k, AT["c"]], -k))

    def _join(self, i: int) -> None:
        """Client i is back and ready: it is a neighbour again from the renewal on."""
        self._joining.discard(i)
        from_round = self._next_round(without=i)
        self.wires.rejoin(i, from_round)
        self.lost.remove(i)
        self._note("join", i)
        if self.network is not None:
            self.network.known.add(i)
            self.network.present.add(i)
            self._renew(from_round)
        else:
            self._send(i, Terms(self.setup.weights[i], 1.0, from_round))

    # --- terms ---------------------------------------------------------------------------------

    def _next_round(self, without: int = -1) -> int:
        """A round that nobody will have begun before it has been told of it."""
        if not self.in_rounds:
            return 0
        others = self.living - self._joining - {without}
        active = [i for i in others if self.board.phase(i) != FINISHED]
        furthest = max((self.board.rows[i, AT["c"]] for i in active), default=0.0)
        rate = max((self.board.rows[i, AT["steps"]] for i in active), default=0.0) / max(self.now, 0.1)
        return int(furthest + max(_NOTICE_ROUNDS, _NOTICE_SECONDS * rate))

    def _renew(self, from_round: int | None = None) -> None:
        """Send everybody who is there its new coefficients."""
        assert self.network is not None
        from_round = self._next_round() if from_round is None else from_round
        renewed = self.network.renew()
        self._note("renew", clients=len(renewed), components=len(self.network.components()))
        for i, (w, scale) in renewed.items():
            if i in self.living and i not in self._joining:
                self._send(i, Terms(w, scale, from_round))

    def _send(self, i: int, terms: Terms) -> None:
        self.terms[i] = terms
        self._post.send(i, self._life(i), terms)
        self._post.deliver(self.living)

    def _life(self, i: int) -> int:
        return max(int(self.board.rows[i, AT["life"]]), self._lives[i])

    # --- news ----------------------------------------------------------------------------------

    def _listen(self) -> None:
        """Warnings and errors of clients."""
        for i, message in self._post.news():
            if "error" in message:
                self.errors[i] = message["error"]
            else:
                self.warnings.append(message["warning"])
                self._note("warning", i, text=message["warning"])
