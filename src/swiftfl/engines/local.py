"""Real clients on one machine: one process each, models in shared memory, and a supervisor.

The supervisor is a thread of the engine's process that no client ever waits for. It starts clients
through the nursery, notices within a moment when one ends, takes it off (its neighbours keep its weight
for themselves from their next fetch on), renews the coefficients among those who are left, sends them
(they are taken at the start of a step), and starts the lost one again if it is asked to.
"""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from swiftfl.engines.board import ABSENT, AT, FINISHED, READY, RUNNING, STOPPED, Board
from swiftfl.engines.ending import Ending
from swiftfl.engines.nursery import Birth, Ended, Nursery
from swiftfl.engines.process import Home, Options, pack_terms
from swiftfl.engines.saves import Saved, read_all
from swiftfl.engines.setup import Setup
from swiftfl.engines.world import Terms
from swiftfl.errors import UserError
from swiftfl.transports.shared_memory import SharedMemory
from swiftfl.vector import Vector, Weights

_TICK = 0.05
_LARGEST = 1 << 16
_ALONE = Weights(1.0, {})
_NOTICE_ROUNDS, _NOTICE_SECONDS = 3, 0.5  # how far ahead the round lies at which new weights hold


class Local:
    """A live run; `start` it, `wait` until it is over, and `close` it whatever happened.

    `saved` tells from where each client goes on (None: from the start), `lives` how often each has
    been started before. `folder` takes the clients' saves and their records; without it there are none.
    """

    name = "local"

    def __init__(
        self,
        setup: Setup,
        folder: Path | None = None,
        options: Options = Options(),
        saved: Sequence[Saved | None] = (),
        lives: Sequence[int] = (),
    ) -> None:
        n = setup.n
        self.setup, self.folder, self.options, self.n = setup, folder, options, n
        self.in_rounds: bool = getattr(setup.algorithm, "in_rounds", True)
        self.network = None if setup.network is None else setup.network()
        self._saved, self._lives = list(saved) or [None] * n, list(lives) or [0] * n
        self.x0 = setup.workload.initial(setup.seed)
        self.board = Board(n)
        self.living: set[int] = set()
        self.lost: list[int] = []  # who is not there at the end, or was not for a while
        self.restarts = [0] * n
        self.log: list[dict[str, Any]] = []
        self.warnings: list[str] = []
        self.errors: dict[int, str] = {}
        self.terms = [Terms(w) for w in setup.weights]  # as they were last sent
        self.born = self.began = self.ended_at = time.perf_counter()
        self._losses = (0.0, 0.0)
        self._over, self._asked = threading.Event(), threading.Event()
        self._joining: set[int] = set()
        self._unsent: dict[int, list[bytes]] = {}
        self._measured_at, self._steps_then = 0, [0.0] * n
        self._away: set[int] = set()
        self._closed = False

    # --- for whoever runs it -------------------------------------------------------------------

    def start(self) -> None:
        """Fork the nursery and every client; returns at once."""
        setup = self.setup
        if self.folder is not None:
            self.folder.mkdir(exist_ok=True)
        neighbours = [tuple(w.of) for w in setup.weights]
        self.wires = SharedMemory.create(
            neighbours, self.x0.size, self.x0.dtype, self.x0, prefault=not self.in_rounds
        )
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(self.n)]
        self._lines = [ours for ours, _ in pairs]
        theirs = [line for _, line in pairs]
        home = Home(setup, self.options, self.board, self.wires, theirs, self.folder, self.in_rounds)
        self._nursery = Nursery(home.live)
        for line in theirs:
            line.close()
        self._observer = self.wires.observe()
        assert self.wires.board is not None  # opened here, after the fork, for the supervisor
        self.ending = Ending(self.board, self.in_rounds, self.options.patience)
        for i in range(self.n):
            self._start(self._birth(i))
        self._thread = threading.Thread(target=self._supervise, name="swiftfl-supervisor", daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Wait some time; whether the run is over."""
        return self._over.wait(seconds)

    @property
    def over(self) -> bool:
        return self._over.is_set()

    def stop(self) -> None:
        """Ask everybody to stop where the run can go on later."""
        self._asked.set()

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
        for line in self._lines:
            line.close()

    # --- what can be seen of it ----------------------------------------------------------------

    @property
    def stopped(self) -> bool:
        """Whether it ended because it was asked to, before everybody had finished."""
        return any(self.board.phase(i) == STOPPED for i in range(self.n)) or (
            self._asked.is_set() and any(self.board.phase(i) != FINISHED for i in self.members())
        )

    @property
    def iteration(self) -> int:
        """Client steps in all (also those of earlier lives that a save kept)."""
        return int(sum(max(0.0, c - 1) for c in self.board.column("c")))

    @property
    def now(self) -> float:
        return (self.ended_at if self.over else time.perf_counter()) - self.began

    def members(self) -> list[int]:
        """The clients whose models count."""
        return [i for i in range(self.n) if i not in self.lost]

    def models(self) -> list[Vector]:
        """A copy of each client's newest model; x0 for one that has none."""
        return [self._newest(i) for i in range(self.n)]

    def _newest(self, i: int) -> Vector:
        model: Vector | None = self._observer.read(i, lambda x, version: x.copy())
        return self.x0.copy() if model is None else model

    def pid(self, i: int) -> int:
        return self._nursery.pids[i]

    def train_loss(self) -> float | None:
        """The mean loss of the batches since the last call."""
        before = self._losses
        self._losses = sum(self.board.column("loss_sum")), sum(self.board.column("loss_count"))
        count = self._losses[1] - before[1]
        return (self._losses[0] - before[0]) / count if count > 0 else None

    def given_influence(self) -> list[float]:
        """What the coefficients in force were made for."""
        return list(self.setup.influence) if self.network is None else self.network.influence.tolist()

    @property
    def start_seconds(self) -> float:
        """How long it took until every client was ready."""
        return self.began - self.born

    @property
    def models_in_memory(self) -> int:
        """One per client, and its slots in shared memory."""
        return sum(1 + self.wires.layout.slots(i) for i in range(self.n))

    # --- the supervisor's loop -----------------------------------------------------------------

    def _supervise(self) -> None:
        try:
            while not self._over.is_set():
                select.select([self._nursery.socket, *self._lines], [], [], _TICK)
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
                self._ended(Ended(i, int(self.board.rows[i, 1]), 9))
        self._flush()
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
        self._measure()

    # --- births and deaths ---------------------------------------------------------------------

    def _birth(self, i: int) -> Birth:
        """How client i starts when the run does."""
        w, saved = self.setup.weights[i], self._saved[i]
        terms = pack_terms(Terms(w))[:3]
        if saved is None:
            return Birth(i, self._lives[i], terms=terms)
        c = saved.state.c
        return Birth(i, max(self._lives[i], saved.life + 1), "saved", c, (saved.life, c), terms)

    def _start(self, birth: Birth) -> None:
        self.board.enter(birth.client, ABSENT)
        self.living.add(birth.client)
        self._nursery.start(birth)

    def _ended(self, ended: Ended) -> None:
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
        life = int(max(self.board.rows[i, 1], self._lives[i])) + 1
        alone = pack_terms(Terms(_ALONE))[:3]
        saves = [] if self.folder is None else read_all(self.folder, i, self.x0.size)
        if saves:
            saved = saves[0]
            birth = Birth(i, life, "saved", saved.state.c, (saved.life, saved.state.c), alone, self.in_rounds)
        else:
            c = max(1, int(self.board.rows[i, 0]))
            birth = Birth(i, life, "model", c, (self._teacher(i),), alone, self.in_rounds)
        self._note("restart", i, how=birth.how, life=life)
        self._lives[i] = life
        self._joining.add(i)
        self._start(birth)

    def _teacher(self, i: int) -> int:
        """The most advanced neighbour that is there, or whoever is."""
        near = [k for k in self.setup.weights[i].of if k in self.living] or sorted(self.living)
        return max(near, key=lambda k: (self.board.rows[k, 0], -k))

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
        furthest = max((self.board.rows[i, 0] for i in active), default=0.0)
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
        """Put terms on their way; what does not fit now goes later, the newest only if in no rounds."""
        self.terms[i] = terms
        packet = json.dumps({"life": self._life(i), "terms": pack_terms(terms)}).encode()
        waiting = self._unsent.get(i, []) if self.in_rounds else []
        self._unsent[i] = [*waiting, packet]
        self._flush()

    def _life(self, i: int) -> int:
        return max(int(self.board.rows[i, 1]), self._lives[i])

    def _flush(self) -> None:
        for i, packets in list(self._unsent.items()):
            try:
                while packets:
                    self._lines[i].send(packets[0], socket.MSG_DONTWAIT)
                    packets.pop(0)
            except OSError:
                if i in self.living:
                    continue
            del self._unsent[i]

    def _measure(self) -> None:
        """Every so many steps, renew with each client's share of the steps as its influence."""
        network = self.network
        if network is None or not network.dynamics.measured:
            return
        if self.iteration - self._measured_at < network.dynamics.measure_every * self.n:
            return
        steps = self.board.column("c")
        taken = [max(0, round(now - then)) for now, then in zip(steps, self._steps_then, strict=True)]
        network.measure(taken, self._away)
        self._away = {i for i in range(self.n) if i not in self.living}
        self._measured_at, self._steps_then = self.iteration, steps
        self._renew()

    # --- news ----------------------------------------------------------------------------------

    def _listen(self) -> None:
        """Warnings and errors of clients."""
        for i, line in enumerate(self._lines):
            while True:
                try:
                    message = json.loads(line.recv(_LARGEST, socket.MSG_DONTWAIT))
                except (BlockingIOError, OSError):
                    break
                if "error" in message:
                    self.errors[i] = message["error"]
                else:
                    self.warnings.append(message["warning"])
                    self._note("warning", i, text=message["warning"])

    def _note(self, event: str, client: int | None = None, **more: object) -> None:
        row: dict[str, Any] = {"event": event, "iteration": self.iteration, "time": round(self.now, 3)}
        self.log.append({**row, **({} if client is None else {"client": client}), **more})

    def fail_if_all_are_lost(self) -> None:
        """A run of which nobody is left has no result."""
        if len(self.members()) == 0:
            reason = next(iter(self.errors.values()), "every client was lost")
            raise UserError(f"no client is left: {reason}")
