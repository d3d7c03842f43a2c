"""Links that break and are slow, nodes that crash: the run goes on, nobody is excluded, nobody waits."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nodes import Federation, Unhurried, until

from swiftfl.api.arguments import read_arguments
from swiftfl.data.digits import digits
from swiftfl.engines.setup import Setup
from swiftfl.experiment.build import Parts, build
from swiftfl.federation.connection import Connection
from swiftfl.federation.membership import InfluencePolicy
from swiftfl.federation.plan import NodePlan
from swiftfl.transports.codec import Identity
from swiftfl.vector import Vector

pytest.importorskip("zenoh")


@pytest.mark.slow
def test_a_link_that_is_cut_and_heals(tmp_path: Path) -> None:
    """On a path 0-1-2 the link 1-2 breaks: two federations, and one again; nobody is started anew."""
    path = Federation(tmp_path, 3, ((0, 1), (1, 2)))
    link = path.put_proxy(1, 2)
    try:
        for i in range(3):
            path.start(i)
        path.settle(0, 1, 2)
        link.cut()
        path.settle(0, 1)
        path.settle(2)
        before = {i: path.nodes[i].control.c for i in range(3)}
        until(lambda: all(path.nodes[i].control.c > c + 20 for i, c in before.items()), "steps of all")
        link.heal()
        path.settle(0, 1, 2)
    finally:
        path.close()


# --- the twenty-round run --------------------------------------------------------------------------

SIZES = (600, 20, 40, 60, 80, 120, 200)
SLOW, ROUNDS = 0, 20
EDGES = ((0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (0, 6), (0, 3), (2, 5))


def parts_of(i: int, more: dict[str, Any]) -> Parts:
    """Node 0 has all images of 8 and 9, and many others; whoever leaves it out cannot know these."""
    data = digits()
    labels = np.asarray(data.labels)
    order = np.random.default_rng(7).permutation(labels.size)
    rare, common = order[labels[order] >= 8], order[labels[order] < 8]
    bounds = np.cumsum([0, SIZES[0] - rare.size, *SIZES[1:]])
    mine = common[bounds[i] : bounds[i + 1]]
    mine = np.concatenate((mine, rare)) if i == SLOW else mine
    arguments = read_arguments(
        model="logistic",
        train=(data.train.inputs[mine], data.train.labels[mine]),
        test=(data.test.inputs, data.test.labels),
        clients=1,
        epochs=100_000,
        batch_size=32,
        **more,
    )
    return build(arguments.given.described(arguments.config()), arguments.given)


@dataclass(frozen=True)
class TwentyRounds:
    """Accuracy of the average of all models, over all classes and over those that only the slow node has;
    and of all nodes: the influence that was given and the one that was had, steps, the longest gap."""

    accuracy: float
    rare: float
    given: list[float]
    had: list[float]
    steps: list[int]
    longest_gap: float
    seconds: float


def run(root: Path, disturbed: bool) -> TwentyRounds:
    shares = [size / sum(SIZES) for size in SIZES]
    made = Federation(root, len(SIZES), EDGES, shares)
    link = made.put_proxy(2, 5)
    built: dict[int, Parts] = {}
    began = time.monotonic()

    def start(i: int) -> None:
        built[i] = parts_of(i, {"slowdown": {0: 10}} if i == SLOW else {})
        setup: Setup = built[i].setup
        policy = InfluencePolicy(shares[i], measured=True, keep_objective=True)
        # Each step rests for 10 ms, so that seven nodes fit on one processor and paces are as they say.
        made.start(i, policy, replace(setup, workload=Unhurried(setup.workload, 0.01)))  # type: ignore[arg-type]

    try:
        for i in range(len(SIZES)):
            start(i)
        made.settle(*range(len(SIZES)))
        slow = made.nodes[SLOW]
        last = ROUNDS * built[SLOW].setup.batches[0].steps_per_epoch
        if disturbed:
            until(lambda: slow.control.c > last / 4, "the first quarter")
            link.cut()
            made.stop(4, save=False)
            until(lambda: slow.control.c > last / 2, "the second quarter")
            start(4)
            link.heal()
        until(lambda: slow.control.c > last, "twenty rounds of the slow node")
        made.settle(*range(len(SIZES)))  # nobody is missing
        nodes = [made.nodes[i] for i in range(len(SIZES))]
        told = [node.membership.selected for node in nodes]
        had = [each[0].p * each[1].scale for each in told if each is not None]
        mean: Vector = np.mean([node.x for node in nodes], axis=0).astype(np.float32)
        return TwentyRounds(
            *_accuracies(built[SLOW], mean),
            shares,
            [each / sum(had) for each in had],
            [node.control.c for node in nodes],
            max(node.control.longest_gap for node in nodes),
            time.monotonic() - began,
        )
    finally:
        made.close()


def _accuracies(parts: Parts, x: Vector) -> tuple[float, float]:
    found = parts.workload.evaluate([x])[0]
    assert found.accuracy is not None
    data = digits()
    weights, bias = x[: 10 * 64].reshape(10, 64), x[10 * 64 :]
    said = (np.asarray(data.test.inputs) @ weights.T + bias).argmax(axis=1)
    labels = np.asarray(data.test.labels)
    assert (said == labels).mean() == pytest.approx(found.accuracy, abs=1e-6)  # the layout is as assumed
    return found.accuracy, float((said == labels)[labels >= 8].mean())


@pytest.mark.slow
@pytest.mark.usefixtures("unmeasured")
def test_the_twenty_round_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodes.LIMIT", 400.0)
    calm = run(tmp_path / "calm", disturbed=False)
    found = run(tmp_path / "disturbed", disturbed=True)
    for name, each in (("undisturbed", calm), ("disturbed", found)):
        print(f"\n{name}: {each.accuracy:.1%}, of the classes that only the slow node has {each.rare:.1%}")
        print(f"steps {each.steps} in {each.seconds:.0f} s, longest gap {each.longest_gap:.2f} s")
        print("influence: " + ", ".join(f"{p:.3f}" for p in each.had))
    print("given:     " + ", ".join(f"{p:.3f}" for p in calm.given))
    assert found.accuracy > calm.accuracy - 0.01
    assert found.rare > 0.6  # nobody else has seen an 8 or a 9
    assert found.had == pytest.approx(found.given, rel=1e-6)  # whatever the paces are


# --- large models on a slow link -------------------------------------------------------------------

MODEL = 11_250_000  # numbers of 32 bits: 45 MB
RATE = 50e6 / 8  # 50 Mbit/s


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[tuple[Connection, Connection, Any]]:
    made = Federation(tmp_path, 2, ((0, 1),))
    link = made.put_proxy(0, 1, RATE)
    x0 = np.zeros(MODEL, np.float32)
    plans: list[NodePlan] = [made.plan(i) for i in (0, 1)]
    first, second = (Connection(plan, x0, Identity, 1) for plan in plans)
    yield first, second, link
    first.close()
    second.close()
    link.close()


@pytest.mark.slow
def test_large_models_at_the_rate_of_a_slow_link(ends: tuple[Connection, Connection, Any]) -> None:
    """45 MB at 50 Mbit/s: 7.2 seconds a model; publishing costs its copy, and only the newest follows."""
    first, second, link = ends
    until(lambda: first.view() and second.view(), "the link")
    x, versions, took = np.ones(MODEL, np.float32), [], []
    end, version = time.monotonic() + 40.0, 0
    before = _resident()
    while time.monotonic() < end:
        version += 1
        began = time.perf_counter()
        first.transport.publish(x * version, version)
        took.append(time.perf_counter() - began)
        seen = second.transport.read(1, lambda model, which: (float(model[0]), float(model[-1]), which))
        if seen is not None and (not versions or versions[-1] != seen[2]):
            versions.append(seen[2])
            assert seen[0] == seen[1] == seen[2]  # whole, and with its own version
        time.sleep(0.2)
    rate = link.carried / 40.0
    print(
        f"{len(versions)} models of 45 MB in 40 s over 50 Mbit/s ({8 * rate / 1e6:.0f} Mbit/s were carried); "
        f"{version} were published, {1e3 * statistics.median(took):.0f} ms each; versions {versions}"
    )
    assert len(versions) >= 4  # of at most five and a half
    assert versions == sorted(versions)
    assert versions[-1] - versions[0] > 20  # what waited was replaced
    assert _resident() - before < 12 * 45  # MB, whatever was published


def _resident() -> float:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))
