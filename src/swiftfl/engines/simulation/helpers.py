"""Processes that compute gradients and evaluate models beside the run's own, over shared memory.

They are forks of the run's process, so that they have its model, its data and whatever the user wrote without
any copying, and they keep no state: whoever computes a piece, the bits are the same. Tasks lie in slots of
shared memory (`slots.py`); their numbers travel through two pipes. The run writes a task into a slot and its
number into the first pipe; whoever reads it, a helper, or the run itself when it would have to wait, does
the task. The second pipe tells what helpers have finished. If one dies, all are dismissed and the run goes
on alone.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import struct
import sys
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from io import TextIOWrapper
from typing import Any, Generic, NoReturn, TypeVar

from swiftfl.engines.simulation.slots import TaskSlots, bytes_of_one
from swiftfl.engines.threads import cores
from swiftfl.errors import in_one_line
from swiftfl.memory import free_memory, own_memory
from swiftfl.sample import Batch, Slope
from swiftfl.vector import Vector
from swiftfl.workload.base import Evaluation, Workload, divisible

_log = logging.getLogger(__name__)
AUTO = 0
_WORTH_SECONDS = 0.5  # of gradients computed by the run alone, before `auto` starts helpers
_WORTH_PIECE = 5e-5  # seconds of a mean piece, below which handing it over costs more than it saves
_AWAKE_SECONDS = 5e-4  # for which who waits looks again and again, before it sleeps
_LOOK_SECONDS = 1.0  # between looks whether somebody has died
_PER_CORE = 8  # processes, at most: more only cost memory
_SLOTS_EACH = 2  # for a helper, at least: one that it works at, and the next
_SHARE = 0.5  # of the free memory, which slots may take at most
_QUIT, _NUMBER = -1, struct.Struct("<q")

_replaced: list[TextIOWrapper] = []  # in a helper; to drop one would write what it holds, and close its file

T = TypeVar("T")


class HandedOut(Generic[T]):
    """A task that was handed out, how its result is read, and how the run itself would compute it."""

    __slots__ = ("finished", "found", "here", "read", "slot")

    def __init__(self, slot: int, here: Callable[[], T], read: Callable[[int], T | None]) -> None:
        self.slot, self.here, self.read = slot, here, read
        self.finished = False
        self.found: T | None = None  # where the run itself has computed it


class Helpers:
    """The helpers of one run; none before they are worth their while."""

    def __init__(self, workload: Workload, workers: int, x0: Vector) -> None:
        """`workers` counts the run's own process; AUTO is one per processor, where that pays."""
        self._alone = workload
        self._workload, self._x0, self._auto = divisible(workload), x0, workers == AUTO
        self._count = (cores() if self._auto else min(workers, _PER_CORE * cores())) - 1
        self._warnings: list[str] = []
        self._seconds, self._pieces = 0.0, 0
        self._slots: TaskSlots | None = None  # none yet, or none any more
        self._tasks: dict[int, HandedOut[Any]] = {}
        self._able()

    @property
    def processes(self) -> int:
        """How many compute where helpers are worth their while, the run's own among them."""
        return self._count + 1

    # --- whether there are any --------------------------------------------------------------------

    def spent(self, seconds: float) -> None:
        """The run itself has computed a piece, in so many seconds."""
        self._seconds += seconds
        self._pieces += 1

    def wanted(self, waiting: bool, largest: Callable[[], tuple[int, int]]) -> bool:
        """Whether there are helpers, or should be if pieces are waiting.

        `largest` says of how many clients one may be, with batches of how many samples.
        """
        if self._slots is not None or self._count < 1 or not waiting:
            return self._slots is not None
        if self._auto and not self._worthwhile():
            return False
        if not self._able():
            return False
        self._start(*largest())
        return self._slots is not None

    def _able(self) -> bool:
        """Whether other processes can help at all."""
        if self._workload is None:
            why: str | None = "its gradients are all computed at once"
        else:
            why = self._workload.why_one_process if hasattr(os, "fork") else "processes cannot be forked here"
        if why is not None and self._count > 0:
            self._count = 0
            self._say(f"the run stays in one process: {why}")
        return why is None

    def _say(self, why: str) -> None:
        """Who has asked for processes is told why there are none; of those of `auto` only the log says it."""
        _log.log(logging.INFO if self._auto else logging.WARNING, "%s", why)
        if not self._auto:
            self._warnings.append(why)

    def take_warnings(self) -> list[str]:
        """What a user should know, once."""
        found, self._warnings = self._warnings, []
        return found

    def _worthwhile(self) -> bool:
        if self._seconds < max(_WORTH_SECONDS, _WORTH_PIECE * self._pieces):
            return False
        if own_memory() > free_memory() / 2:  # what this process writes after the fork is there twice
            self._count = 0
            _log.info("the run stays in one process: more would need too much memory")
        return self._count > 0

    def _start(self, clients: int, samples: int) -> None:
        assert self._workload is not None
        each = _SLOTS_EACH * bytes_of_one(self._workload, self._x0, clients, samples)
        room = int(_SHARE * free_memory()) // each
        if room < self._count:
            instead, self._count = _fewer(room, self._count), room
            self._say(f"{instead}: memory for the tasks of more would be over half of what is free")
        if not room:
            return
        try:
            self._slots = TaskSlots(self._workload, self._x0, clients, samples, _SLOTS_EACH * self._count)
            (jobs, self._give), (self._done, done) = _two_pipes()
        except OSError as error:
            self._slots, self._count = None, 0
            self._say(f"the run stays in one process: no room to hand out tasks ({in_one_line(error)})")
            return
        for end in (jobs, self._done):
            os.set_blocking(end, False)
        self._jobs, parent = jobs, os.getpid()
        pids: list[int] = []
        streams = _in_whole_lines()
        for _ in range(self._count):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
                try:
                    pid = os.fork()
                except OSError as error:  # no more processes here, or no memory: those that there are will do
                    instead = _fewer(len(pids), self._count)
                    self._say(f"{instead}: no room for more processes ({in_one_line(error)})")
                    break
            if pid == 0:
                _help(self._slots, jobs, done, parent, (self._give, self._done))
            pids.append(pid)
        os.close(done)
        self._pids = pids
        self._end = weakref.finalize(self, _dismiss, pids, streams, jobs, self._give, self._done)
        _log.debug("%d helpers compute beside the run", len(pids))
        if not pids:
            self.close()

    def close(self) -> None:
        """Dismiss them."""
        if self._slots is not None:
            self._slots, self._count = None, 0
            self._end()

    # --- tasks ------------------------------------------------------------------------------------

    def hand_out(
        self, way: str, xs: Sequence[Vector], batches: Sequence[Batch], here: Callable[[], list[Slope]]
    ) -> HandedOut[list[Slope]] | None:
        """Let somebody compute this piece; None where there is no room for it."""
        slot = None if self._slots is None else self._slots.put(way, xs, batches)
        if self._slots is None or slot is None:
            return None
        return self._give_out(HandedOut(slot, here, self._slots.read))

    def _give_out(self, task: HandedOut[T]) -> HandedOut[T]:
        self._tasks[task.slot] = task
        os.write(self._give, _NUMBER.pack(task.slot))
        return task

    def evaluate(self, xs: Sequence[Vector]) -> list[Evaluation]:
        """How good each of these models is; by helpers, too, where they would find the same bits."""
        work = self._workload
        if self._slots is None or work is None or not work.evaluates_apart(len(xs)):
            return self._alone.evaluate(xs)
        found: list[Evaluation] = []
        tasks: deque[HandedOut[Evaluation]] = deque()
        for x in xs:
            task = self._hand_out_model(x)
            while task is None and tasks:
                found.append(self.finish(tasks.popleft()))
                task = self._hand_out_model(x)
            if task is None:  # a helper has died
                break
            tasks.append(task)
        found += map(self.finish, tasks)
        return found + self._alone.evaluate(xs[len(found) :])

    def _hand_out_model(self, x: Vector) -> HandedOut[Evaluation] | None:
        """Let somebody evaluate this model; None where there is no room for it."""
        slots = self._slots
        if slots is None or not slots.for_evaluations:
            return None
        return self._give_out(
            HandedOut(slots.put_model(x), partial(self._evaluated, x), slots.read_evaluation)
        )

    def _evaluated(self, x: Vector) -> Evaluation:
        return self._alone.evaluate([x])[0]

    @property
    def room(self) -> bool:
        return self._slots is not None and bool(self._slots.free)

    def finish(self, task: HandedOut[T]) -> T:
        """What a task gives, when it is done; meanwhile do those that nobody has begun."""
        self._collect()
        while not task.finished:
            number = _next(self._jobs) if self._slots is not None else task.slot
            if number is None:
                self._wait()
            else:
                mine = self._tasks[number]
                mine.found, mine.finished = mine.here(), True
        found, failure = task.found, None
        if found is None and self._slots is not None:
            found = task.read(task.slot)
            failure = self._slots.failure(task.slot) if found is None else None
        del self._tasks[task.slot]
        if self._slots is not None:
            self._slots.give_back(task.slot)
        if found is None:
            found = task.here()  # what fails in a helper fails here again, with its message
            if failure is not None:  # only forks cannot do it, and will not do what they are given next
                self._say(f"the run goes on in one process, since helpers fail where it does not: {failure}")
                self.close()
        return found

    def _collect(self) -> None:
        while self._slots is not None and (number := _next(self._done)) is not None:
            self._tasks[number].finished = True

    def _wait(self) -> None:
        ready, number = _await(self._done)
        if number is not None:
            self._tasks[number].finished = True
            self._collect()
        elif ready or any(_has_died(pid) for pid in self._pids):  # what is ready without a number has ended
            _log.warning("a helper process died: the run goes on in one process")
            self.close()


def _two_pipes() -> tuple[tuple[int, int], tuple[int, int]]:
    first = os.pipe()
    try:
        return first, os.pipe()
    except OSError:
        for end in first:
            os.close(end)
        raise


def _fewer(there: int, wanted: int) -> str:
    if not there:
        return "the run stays in one process"
    return f"{there} helper{'s' if there > 1 else ''} instead of {wanted}"


def _in_whole_lines() -> list[tuple[Any, bool, bool]]:
    """Let this process write every line at once; the streams that did not, and how they were.

    Several processes write into one file: what a full buffer cuts off in a line, another's would follow. Any
    object may stand in the place of stdout and stderr: None, what is closed, or that of a notebook.
    """
    changed = []
    streams: tuple[Any, Any] = sys.stdout, sys.stderr
    for stream in streams:
        with contextlib.suppress(Exception):
            stream.flush()
            before = stream.line_buffering, stream.write_through
            if before != (True, False):
                stream.reconfigure(line_buffering=True, write_through=False)
                changed.append((stream, *before))
    return changed


def _streams_of_its_own() -> list[TextIOWrapper]:
    """In a fork: what the run had not yet written is the run's, and a thread of it may have held the lock.

    Objects that are no files, such as a notebook's, stay: they know of forks, or nobody sees what they get.
    """
    own: list[TextIOWrapper] = []
    for name in ("stdout", "stderr"):
        old = getattr(sys, name)
        if isinstance(old, TextIOWrapper):
            with contextlib.suppress(OSError, ValueError):
                file = os.dup(old.fileno())
                own.append(
                    TextIOWrapper(os.fdopen(file, "wb"), old.encoding, old.errors, line_buffering=True)
                )
                setattr(sys, name, own[-1])
                _replaced.append(old)
    return own


def _ready(pipe: int, seconds: float) -> bool:
    """Wait so long for something in a pipe; its end, when nobody can write any more, is something, too."""
    poll = select.poll()  # which takes any number of a file, unlike `select`
    poll.register(pipe, select.POLLIN)
    return bool(poll.poll(1000 * seconds))


def _await(pipe: int) -> tuple[bool, int | None]:
    """Wait for the number that comes next: whether something has come, and the number if it is one.

    Awake for a moment, because to fall asleep and to be woken take longer than a piece of a small model.
    """
    until = time.perf_counter() + _AWAKE_SECONDS
    while time.perf_counter() < until:
        if (number := _next(pipe)) is not None:
            return True, number
    return _ready(pipe, _LOOK_SECONDS), _next(pipe)


def _next(pipe: int) -> int | None:
    """The number that comes next in a pipe, if there is one."""
    try:
        data = os.read(pipe, _NUMBER.size)
    except BlockingIOError:
        return None
    return _NUMBER.unpack(data)[0] if data else None


def _help(slots: TaskSlots, jobs: int, done: int, parent: int, others: Sequence[int]) -> NoReturn:
    """A helper's life: one task after the other, until it is dismissed or its run is gone."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run is asked, and decides
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for end in others:
            os.close(end)
        own = _streams_of_its_own()
        while os.getppid() == parent:
            _, number = _await(jobs)
            if number == _QUIT:
                break
            if number is not None:
                slots.compute(number)
                for stream in own:  # before it is told: then the run may be over, and this process be ended
                    with contextlib.suppress(OSError):
                        stream.flush()
                os.write(done, _NUMBER.pack(number))
    finally:
        os._exit(0)  # nothing of the run's own clean-up is ours


def _has_died(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True


def _dismiss(pids: Sequence[int], streams: Sequence[tuple[Any, bool, bool]], *ends: int) -> None:
    """Helpers keep nothing: they can be ended at any moment."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
    for end in ends:
        os.close(end)
    for stream, line_buffering, write_through in streams:
        with contextlib.suppress(Exception):  # such as of one that was closed meanwhile
            stream.reconfigure(line_buffering=line_buffering, write_through=write_through)
