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
    Say,
    Task,
    full,
    newest,
    ring,
    until,
    value_of,
)

ROUNDS = 150
CLIENTS = 4


def rounds_in_order(crew: Participants) -> str:
    """A ring of four in lock step: everybody gets exactly its neighbours' models of the round."""
    crew.open(ring(CLIENTS), 5000)
    crew.results(lambda i: exchange(crew, i, lambda round: ring(CLIENTS)[i]), range(CLIENTS))
    return f"{ROUNDS} rounds of {CLIENTS} clients"


def rounds_with_some(crew: Participants) -> str:
    """Partners change from round to round (MATCHA, gossip), and one client dawdles."""
    crew.open(ring(CLIENTS), 5000)

    def partners(i: int, round: int) -> list[int]:
        return [
            k for k in ring(CLIENTS)[i] if random.Random(round * 100 + min(i, k) + max(i, k)).random() < 0.4
        ]

    crew.results(lambda i: exchange(crew, i, lambda round: partners(i, round), dawdle=i == 2), range(CLIENTS))
    return f"{ROUNDS} rounds, a random 40 % of the links in each"


def exchange(crew: Participants, i: int, partners: object, dawdle: bool = False) -> Task:
    def task(wire: Transport, say: Say) -> int:
        for round in range(1, ROUNDS + 1):
            those = partners(round)  # type: ignore[operator]
            if dawdle and round % 10 == 0:
                time.sleep(0.005)
            if those:
                wire.offer(full(crew, 1000 * round + i), round, those)
            for k in those:
                got = wire.collect(k, round, value_of)
                if got != 1000 * round + k:
                    raise Failed(f"client {i} got {got:g} from client {k} in round {round}")
        return ROUNDS

    return task


def loss_is_noticed(crew: Participants) -> str:
    """Whoever waits for a client that dies is told, in rounds, reductions and cells."""
    plan = crew.open(ring(3))
    waiters = [crew.start(0, wait_for_one()), crew.start(1, wait_for_all(crew))]
    for waiter in waiters:
        waiter.hear()
    time.sleep(0.05)
    began = time.perf_counter()
    plan.mark_gone(2)
    if waiters[0].hear() != "lost":
        raise Failed("collect from a client that was lost did not raise Lost")
    seconds = time.perf_counter() - began
    if waiters[1].hear() != 1.5:
        raise Failed("a reduction did not go on with the living clients")
    return f"noticed {seconds * 1e3:.0f} ms after it was known"


def wait_for_one() -> Task:
    def task(wire: Transport, say: Say) -> str:
        say("waiting")
        try:
            wire.collect(2, 1, value_of)
        except Lost:
            until(lambda: 2 in wire.lost(), "lost() names the client")
            try:
                wire.average_with(2)
            except Lost:
                wire.all_reduce(np.full(1000, 1.0), 1.0, 1)
                return "lost"
        return "not lost"

    return task


def wait_for_all(crew: Participants) -> Task:
    def task(wire: Transport, say: Say) -> float:
        say("waiting")
        return value_of(wire.all_reduce(full(crew, 2.0), 1.0, 1))

    return task


def the_finished(crew: Participants) -> str:
    """A client that has finished is not waited for, and its last model stays."""
    crew.open(ring(2))
    waiter = crew.start(0, wait_for_the_finished())
    waiter.hear()
    crew.start(1, leave(crew)).hear()
    if waiter.hear() != [5.0, 5]:
        raise Failed("the last model of a client that has finished is not there")
    return "the last model stays"


def leave(crew: Participants) -> Task:
    def task(wire: Transport, say: Say) -> object:
        wire.publish(full(crew, 5), 5)
        wire.finish()
        return None

    return task


def wait_for_the_finished() -> Task:
    def task(wire: Transport, say: Say) -> object:
        say("waiting")
        try:
            wire.collect(1, 3, value_of)
        except Finished:
            return newest(wire, 1)
        return None

    return task


def stop_wakes(crew: Participants) -> str:
    """Every call that waits raises Stopped when the run is stopped."""
    plan = crew.open(ring(3))
    calls = {
        "collect": lambda wire: wire.collect(1, 9, value_of),
        "all_reduce": lambda wire: wire.all_reduce(full(crew, 1), 1.0, 1),
        "offer": lambda wire: [wire.offer(full(crew, 1), round, (0,)) for round in (1, 2, 3)],
    }
    workers = {name: crew.start(i, until_stopped(call)) for i, (name, call) in enumerate(calls.items())}
    for worker in workers.values():
        worker.hear()
    time.sleep(0.05)
    plan.stop()
    for name, worker in workers.items():
        if worker.hear() != "stopped":
            raise Failed(f"{name} did not wait, or was not stopped")
    return ", ".join(calls)


def until_stopped(call: object) -> Task:
    def task(wire: Transport, say: Say) -> str:
        say("waiting")
        try:
            call(wire)  # type: ignore[operator]
        except Stopped:
            return "stopped"
        return "went on"

    return task


def reductions(crew: Participants) -> str:
    """The weighted mean of everybody's values, the same bits for all."""
    crew.open(ring(CLIENTS), 5001)

    def reduce(i: int) -> Task:
        def task(wire: Transport, say: Say) -> int:
            for round in range(3, 3 * ROUNDS, 3):
                mean = wire.all_reduce(full(crew, round * (i + 1)), float(i + 1), round)
                if value_of(mean) != _weighted_mean(round):
                    raise Failed(f"{value_of(mean)} instead of {_weighted_mean(round)} in round {round}")
            return 0

        return task

    crew.results(reduce, range(CLIENTS))
    return f"{ROUNDS - 1} reductions among {CLIENTS}"


def _weighted_mean(round: int) -> float:
    total = 0.0
    for k in range(1, CLIENTS + 1):
        total += k * float(round * k)
    return total / sum(range(1, CLIENTS + 1))


def cells_are_atomic(crew: Participants) -> str:
    """Pairs average at full speed: no cell is ever torn, and their sum stays what was put in."""
    crew.open(ring(CLIENTS), 20_000)
    finals = crew.results(lambda i: average(crew, i), range(CLIENTS))
    observers = [crew.plan.connect(i) for i in range(CLIENTS)]
    total = sum(value_of(wire.load()) for wire in observers)
    for wire in observers:
        wire.close()
    if abs(total - 2.0**20 * CLIENTS) > 1e-3:
        raise Failed(f"the cells' sum is {total}, {2.0**20 * CLIENTS} were put in")
    return f"{sum(finals)} averages among {CLIENTS} clients"


def average(crew: Participants, i: int) -> Task:
    def task(wire: Transport, say: Say) -> int:
        wire.add(full(crew, 2.0**20), None)
        for turn in range(ROUNDS):
            value_of(wire.average_with(ring(CLIENTS)[i][turn % 2]))
            value_of(wire.load())
            wire.add(full(crew, 1.0 if turn % 2 else -1.0), None)
        return ROUNDS

    return task


def cells_survive(crew: Participants) -> str:
    """Clients killed while they change cells: the cells stay whole and free."""
    crew.need_processes()
    crew.open(ring(3), 100_000)
    for attempt in range(8):
        victim = crew.start(1, change_for_ever(crew))
        victim.hear()
        time.sleep(0.002 * attempt)
        victim.signal(signal.SIGKILL)
        if crew.start(0, change_twice(crew)).hear() != "whole":
            raise Failed("a cell was torn")
    return "8 killed in mid-change"


def change_for_ever(crew: Participants) -> Task:
    def task(wire: Transport, say: Say) -> object:
        one = full(crew, 1.0)
        while True:
            wire.add(one, None)
            wire.average_with(0)
            say("again")

    return task


def change_twice(crew: Participants) -> Task:
    def task(wire: Transport, say: Say) -> str:
        value_of(wire.load())
        value_of(wire.average_with(1))
        value_of(wire.add(full(crew, 1.0), None))
        return "whole"

    return task


CHECKS = (
    rounds_in_order, rounds_with_some, loss_is_noticed, the_finished, stop_wakes, reductions,
    cells_are_atomic, cells_survive,
)  # fmt: skip
