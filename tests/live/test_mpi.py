"""Runs under mpiexec with a few ranks: normal, TCP only, no single copies, stopped and killed ranks."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pytest
from mpi_jobs import HERE, needs_mpi, no_job_is_left, under_mpi

from swiftfl.transports.conformance.battery import battery
from swiftfl.transports.registry import TRANSPORTS

__all__ = ["no_job_is_left"]

TCP = ("--mca", "pml", "ob1", "--mca", "btl", "tcp,self")
NO_SINGLE_COPY = ("--mca", "smsc", "^cma")
SURVIVE = ("--with-ft", "ulfm")
MEASURED = "swift,dsgd,adpsgd,adpsgd_background,allreduce"
RIVALS = "fedavg_half,prague,quasi_global,swarm,gossip_async,a2cid2"
ALL = f"{MEASURED},matcha,gossip,{RIVALS},looking,looking_in_rounds"


def run(names: str, mishap: str = "", options: tuple[str, ...] = (), n: int = 3) -> dict[str, dict[str, Any]]:
    """What the recorder tells of each algorithm's run."""
    done = under_mpi(n, [str(HERE / "mpi_program.py"), names, mishap], options)
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert done.returncode == 0, done.stderr
    assert [answer["algorithm"] for answer in answers] == names.split(","), done.stderr
    for answer in answers:
        answer["longest"] = [float(t) for t in re.findall(r"longest step ([\d.]+) s", done.stderr)]
    return {answer["algorithm"]: answer for answer in answers}


def check(answer: dict[str, Any], lost: list[int], n: int = 3) -> None:
    assert answer["lost"] == lost
    assert all(answer["steps"][i] == 150 for i in range(n) if i not in lost)
    assert answer["loss"] < 0.6 * answer["start"]
    assert answer["refused"] == 0


@needs_mpi
@pytest.mark.parametrize(
    ("names", "options"),
    [
        (MEASURED, ()),
        *(pytest.param(ALL, other, marks=pytest.mark.slow) for other in ((), TCP, NO_SINGLE_COPY)),
    ],
    ids=["measured", "normal", "tcp", "no_single_copy"],
)
def test_every_algorithm_runs(names: str, options: tuple[str, ...]) -> None:
    """All in one job, whose start takes longer than their runs.

    Partners change in MATCHA and gossip; the last two look at their inboxes and check what they mix.
    """
    answers = run(names, options=options)
    for answer in answers.values():
        check(answer, lost=[])
    assert answers["swift"]["split"]["waiting"] == 0
    assert answers["dsgd"]["split"]["waiting"] > 0
    for name in MEASURED.split(","):
        check_curve(name, answers[name])
        check_traffic(name, answers[name])


def check_traffic(name: str, answer: dict[str, Any], n: int = 3, steps: int = 150) -> None:
    """A ring of three: two messages a step, and of a ring all-reduce four of a third of the model."""
    size, found = 8 * 20_000, answer["communication"]
    assert found["rounds"] == [steps] * n
    if name.startswith("adpsgd"):  # each asks once a step, and whoever is asked answers
        assert sum(found["messages"]) == 2 * n * steps
        assert found["bytes"] == [size * messages for messages in found["messages"]]
    else:
        messages, share = (4, 1 / n) if name == "allreduce" else (2, 1.0)
        assert found["messages"] == [messages * steps] * n
        assert found["bytes"] == [int(messages * size * share) * steps] * n


def check_curve(name: str, answer: dict[str, Any], n: int = 3) -> None:
    """Models were evaluated while ranks trained, exactly, by a process of low priority."""
    curve = answer["curve"]
    assert len(curve) >= 2, name
    assert all(point["models"] == n and point["nice"] == 19 for point in curve)
    assert all(len(point["epochs"]) == n for point in curve)
    iterations = [point["iteration"] for point in curve]
    assert iterations == sorted(iterations)  # the same twice where ranks got no processor between
    losses = [answer["start"], *(point["loss"] for point in curve), answer["loss"]]
    # It falls, then stays; a client that runs ahead on a busy machine pulls towards its own minimiser.
    rise = 1.5 if name == "adpsgd_background" else 1.05
    assert all(now <= rise * before for before, now in pairwise(losses)), name
    assert losses[-1] < losses[0]


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize("options", [(), TCP], ids=["normal", "tcp"])
def test_ranks_that_cannot_ring_each_other_look_for_themselves(options: tuple[str, ...]) -> None:
    for answer in run("swift,dsgd,adpsgd,allreduce", "deaf", options).values():
        check(answer, lost=[])


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize("options", [(), TCP], ids=["normal", "tcp"])
def test_a_stopped_rank_blocks_nobody(options: tuple[str, ...]) -> None:
    """It is stopped for ever: the others finish, and give it up when they have."""
    answer = run("swift", "stop", options)["swift"]
    check(answer, lost=[1])
    assert answer["renewals"] == 1
    assert max(answer["longest"]) < 2.5, "a step waited for the client that was stopped"


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize("options", [(), TCP], ids=["normal", "tcp"])
def test_another_rank_records_if_the_first_is_stopped(options: tuple[str, ...]) -> None:
    """It is stopped for ever: the others notice its silence, finish, record and end the job."""
    answer = run("swift", "stop0", options)["swift"]
    check(answer, lost=[0])
    assert answer["recorder"] == 1
    assert max(answer["longest"]) < 2.5, "a step waited for the rank that was stopped"


@needs_mpi
@pytest.mark.slow
def test_a_rank_that_was_stopped_goes_on() -> None:
    answer = run("swift", "pause")["swift"]
    check(answer, lost=[])
    assert sorted(answer["longest"])[-2] < 2.5  # all but the one that slept


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize("options", [(), TCP], ids=["normal", "tcp"])
@pytest.mark.parametrize("name", ["swift", "dsgd", "barrier"])
def test_survivors_of_a_killed_rank_go_on(name: str, options: tuple[str, ...]) -> None:
    answer = run(name, "kill", (*SURVIVE, *options))[name]
    check(answer, lost=[1])
    assert answer["recorder"] == 0


@needs_mpi
@pytest.mark.slow
def test_another_rank_records_if_the_first_was_killed() -> None:
    answer = run("swift", "kill0", SURVIVE)["swift"]
    check(answer, lost=[0])
    assert answer["recorder"] == 1


@needs_mpi
def test_the_battery() -> None:
    reports = {report.name: report for report in battery(TRANSPORTS["mpi"])}
    failed = {name: report.detail for name, report in reports.items() if report.passed is False}
    assert not failed
    assert {name for name, report in reports.items() if report.passed is None} == {
        "killed_peers", "small_messages_never_wait", "cells_survive", "rejoining", "observers_see_models",
    }  # fmt: skip
