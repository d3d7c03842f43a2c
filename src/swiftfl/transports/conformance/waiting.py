"""Rounds, reductions and cells: in order, told of losses, and never for ever."""

from __future__ import annotations

import random
import signal
import time

import numpy as np

from swiftfl.transports.base import Finished, Lost, Stopped, Transport
from swiftfl.transports.conformance.participants import (
    Failed,
    Participants,
    Report,
    Task,
    full,
    newest,
    ring,
    until,
    value_of,
)

ROUNDS = 150
CLIENTS = 4


def rounds_in_order(group: Participants) -> str:
    """A ring of four in lock step: everybody gets exactly its neighbours' models of the round."""
    group.open(ring(CLIENTS), 5000)
    group.results(lambda i: exchange(group, i, lambda round: ring(CLIENTS)[i]), range(CLIENTS))
    return f"{ROUNDS} rounds of {CLIENTS} clients"


def rounds_with_some(group: Participants) -> str:
    """Partners change from round to round (MATCHA, gossip), and one client dawdles."""
    group.open(ring(CLIENTS), 5000)

    def partners(i: int, round: int) -> list[int]:
        return [
            k for k in ring(CLIENTS)[i] if random.Random(round * 100 + min(i, k) + max(i, k)).random() < 0.4
        ]

    group.results(
        lambda i: exchange(group, i, lambda round: partners(i, round), dawdle=i == 2), range(CLIENTS)
    )
    return f"{ROUNDS} rounds, a random 40 % of the links in each"


def exchange(group: Participants, i: int, partners: object, dawdle: bool = False) -> Task:
    def task(transport: Transport, report: Report) -> int:
        for round in range(1, ROUNDS + 1):
            those = partners(round)  # type: ignore[operator]
            if dawdle and round % 10 == 0:
                time.sleep(0.005)
            if those:
                transport.offer(full(group, 1000 * round + i), round, those)
            for k in those:
                got = transport.collect(k, round, value_of)
                if got != 1000 * round + k:
                    raise Failed(f"client {i} got {got:g} from client {k} in round {round}")
        return ROUNDS

    return task


def loss_is_noticed(group: Participants) -> str:
    """Whoever waits for a client that dies is told, in rounds, reductions and cells."""
    plan = group.open(ring(3))
    waiters = [group.start(0, wait_for_one()), group.start(1, wait_for_all(group))]
    for waiter in waiters:
        waiter.answer()
    time.sleep(0.05)
    began = time.perf_counter()
    plan.mark_gone(2)
    if waiters[0].answer() != "lost":
        raise Failed("collect from a client that was lost did not raise Lost")
    seconds = time.perf_counter() - began
    if waiters[1].answer() != 1.5:
        raise Failed("a reduction did not go on with the living clients")
    return f"noticed {seconds * 1e3:.0f} ms after it was known"


def wait_for_one() -> Task:
    def task(transport: Transport, report: Report) -> str:
        report("waiting")
        try:
            transport.collect(2, 1, value_of)
        except Lost:
            until(lambda: 2 in transport.lost(), "lost() names the client")
            try:
                transport.average_with(2)
            except Lost:
                transport.all_reduce(np.full(1000, 1.0), 1.0, 1)
                return "lost"
        return "not lost"

    return task


def wait_for_all(group: Participants) -> Task:
    def task(transport: Transport, report: Report) -> float:
        report("waiting")
        return value_of(transport.all_reduce(full(group, 2.0), 1.0, 1).value)

    return task


def the_finished(group: Participants) -> str:
    """A client that has finished is not waited for, and its last model stays."""
    group.open(ring(2))
    waiter = group.start(0, wait_for_the_finished())
    waiter.answer()
    group.start(1, leave(group)).answer()
    if waiter.answer() != [5.0, 5]:
        raise Failed("the last model of a client that has finished is not there")
    return "the last model stays"


def leave(group: Participants) -> Task:
    def task(transport: Transport, report: Report) -> object:
        transport.publish(full(group, 5), 5)
        transport.finish()
        return None

    return task


def wait_for_the_finished() -> Task:
    def task(transport: Transport, report: Report) -> object:
        report("waiting")
        try:
            transport.collect(1, 3, value_of)
        except Finished:
            return newest(transport, 1)
        return None

    return task


def stop_wakes(group: Participants) -> str:
    """Every call that waits raises Stopped when the run is stopped."""
    plan = group.open(ring(4))
    calls = {
        "collect": lambda transport: transport.collect(1, 9, value_of),
        "all_reduce": lambda transport: transport.all_reduce(full(group, 1), 1.0, 1),
        "barrier": lambda transport: transport.barrier(1),
        "offer": lambda transport: [transport.offer(full(group, 1), round, (0,)) for round in (1, 2, 3)],
    }
    workers = {name: group.start(i, until_stopped(call)) for i, (name, call) in enumerate(calls.items())}
    for worker in workers.values():
        worker.answer()
    time.sleep(0.05)
    plan.stop()
    for name, worker in workers.items():
        if worker.answer() != "stopped":
            raise Failed(f"{name} did not wait, or was not stopped")
    return ", ".join(calls)


def until_stopped(call: object) -> Task:
    def task(transport: Transport, report: Report) -> str:
        report("waiting")
        try:
            call(transport)  # type: ignore[operator]
        except Stopped:
            return "stopped"
        return "went on"

    return task


def barriers(group: Participants) -> str:
    """Nobody passes before all have come; who is lost, or has finished, is not waited for."""
    plan = group.open(ring(CLIENTS))
    early = [group.start(i, _pass_barriers()) for i in (0, 1)]
    for worker in early:
        worker.answer()
    time.sleep(0.1)
    late = [group.start(2, _come_late(finishes=True)), group.start(3, _come_late(finishes=False))]
    came = max(worker.answer() for worker in late)
    if min(worker.answer() for worker in early) < came:
        raise Failed("a barrier was passed before everybody had come")
    for worker in late:
        worker.answer()
    plan.mark_gone(3)
    for worker in early:
        worker.answer()
    return "late, finished and lost clients"


def _pass_barriers() -> Task:
    def task(transport: Transport, report: Report) -> str:
        report("waiting")
        transport.barrier(1)
        report(time.monotonic())
        transport.barrier(2)
        return "passed"

    return task


def _come_late(finishes: bool) -> Task:
    def task(transport: Transport, report: Report) -> str:
        report(time.monotonic())
        transport.barrier(1)
        if finishes:
            transport.finish()
        return "passed"

    return task


def reductions(group: Participants) -> str:
    """The weighted mean of everybody's values, the same bits for all."""
    group.open(ring(CLIENTS), 5001)

    def reduce(i: int) -> Task:
        def task(transport: Transport, report: Report) -> int:
            for round in range(3, 3 * ROUNDS, 3):
                mean, clients = transport.all_reduce(full(group, round * (i + 1)), float(i + 1), round)
                if clients != CLIENTS:
                    raise Failed(f"a mean is said to be of {clients} clients, not {CLIENTS}")
                if value_of(mean) != _weighted_mean(round):
                    raise Failed(f"{value_of(mean)} instead of {_weighted_mean(round)} in round {round}")
            return 0

        return task

    group.results(reduce, range(CLIENTS))
    return f"{ROUNDS - 1} reductions among {CLIENTS}"


def _weighted_mean(round: int) -> float:
    total = 0.0
    for k in range(1, CLIENTS + 1):
        total += k * float(round * k)
    return total / sum(range(1, CLIENTS + 1))


def cells_are_atomic(group: Participants) -> str:
    """Pairs average at full speed: no cell is ever torn, and their sum stays what was put in."""
    group.open(ring(CLIENTS), 20_000)
    finals = group.results(lambda i: average(group, i), range(CLIENTS))
    ends = [group.plan.connect(i) for i in range(CLIENTS)]
    total = sum(value_of(transport.load()) for transport in ends)
    for transport in ends:
        transport.close()
    if abs(total - 2.0**20 * CLIENTS) > 1e-3:
        raise Failed(f"the cells' sum is {total}, {2.0**20 * CLIENTS} were put in")
    return f"{sum(finals)} averages among {CLIENTS} clients"


def averages_are_counted(group: Participants) -> str:
    """A client is told how often others have averaged with it."""
    group.open(ring(2))
    asked = group.start(0, _count_answers())
    asked.answer()
    group.start(1, _average_thrice()).answer()
    if (counted := asked.answer()) != 3:
        raise Failed(f"3 averages were counted as {counted}")
    return "3 averages"


def _count_answers() -> Task:
    def task(transport: Transport, report: Report) -> int:
        transport.load()
        report("connected")
        until(lambda: transport.answers > 2, "three averages")
        return transport.answers

    return task


def _average_thrice() -> Task:
    def task(transport: Transport, report: Report) -> None:
        for _ in range(3):
            transport.average_with(0)

    return task


def average(group: Participants, i: int) -> Task:
    def task(transport: Transport, report: Report) -> int:
        transport.add(full(group, 2.0**20), None)
        for turn in range(ROUNDS):
            value_of(transport.average_with(ring(CLIENTS)[i][turn % 2]))
            value_of(transport.load())
            transport.add(full(group, 1.0 if turn % 2 else -1.0), None)
        return ROUNDS

    return task


def cells_start_anew(group: Participants) -> str:
    """A client that goes on from a save starts its cell from that, and neighbours average with it."""
    group.open(ring(2))
    if group.start(0, _set_cell(group, 3.0)).answer() != 3.0:
        raise Failed("a cell that was set holds something else")
    if group.start(1, lambda transport, report: value_of(transport.average_with(0))).answer() != 1.5:
        raise Failed("a neighbour did not average with the cell that was set")
    return "set, then averaged"


def _set_cell(group: Participants, value: float) -> Task:
    def task(transport: Transport, report: Report) -> float:
        transport.set_cell(full(group, value))
        return value_of(transport.load())

    return task


def rejoining(group: Participants) -> str:
    """A client that was lost and comes back is waited for again, from the round that it joins at."""
    plan = group.open(ring(3))
    plan.mark_gone(2)
    plan.rejoin(2, from_round=5)
    others = [group.start(i, _meet_from_fifth(group, i)) for i in (0, 1)]
    for other in others:
        if other.answer() != "not yet":
            raise Failed("a client was waited for before the round that it joins at")
    group.start(2, exchange_once(group, 2, 5, (0, 1))).answer()
    for other in others:
        if other.answer() != 5002.0:
            raise Failed("the client that came back did not take part")
    return "from round 5 on"


def _meet_from_fifth(group: Participants, i: int) -> Task:
    def task(transport: Transport, report: Report) -> float:
        if 2 in transport.lost():
            raise Failed("a client that is back still counts as lost")
        try:
            transport.collect(2, 4, value_of)
        except Lost:
            report("not yet")
        transport.offer(full(group, 5000 + i), 5, (2,))
        return transport.collect(2, 5, value_of)

    return task


def exchange_once(group: Participants, i: int, round: int, partners: tuple[int, ...]) -> Task:
    def task(transport: Transport, report: Report) -> int:
        transport.offer(full(group, 1000 * round + i), round, partners)
        for k in partners:
            transport.collect(k, round, value_of)
        return round

    return task


def cells_survive(group: Participants) -> str:
    """Clients killed while they change cells: the cells stay whole and free."""
    group.need_processes()
    group.open(ring(3), 100_000)
    for attempt in range(8):
        victim = group.start(1, change_for_ever(group))
        victim.answer()
        time.sleep(0.002 * attempt)
        victim.signal(signal.SIGKILL)
        if group.start(0, change_twice(group)).answer() != "whole":
            raise Failed("a cell was torn")
    return "8 killed in mid-change"


def change_for_ever(group: Participants) -> Task:
    def task(transport: Transport, report: Report) -> object:
        one = full(group, 1.0)
        while True:
            transport.add(one, None)
            transport.average_with(0)
            report("again")

    return task


def change_twice(group: Participants) -> Task:
    def task(transport: Transport, report: Report) -> str:
        value_of(transport.load())
        value_of(transport.average_with(1))
        value_of(transport.add(full(group, 1.0), None))
        return "whole"

    return task


CHECKS = (
    rounds_in_order, rounds_with_some, loss_is_noticed, the_finished, stop_wakes, barriers, reductions,
    cells_are_atomic, averages_are_counted, cells_start_anew, rejoining, cells_survive,
)  # fmt: skip
