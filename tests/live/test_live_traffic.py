"""Rounds, messages and bytes of live runs: those of the virtual engine, and the same after a resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from live_worlds import live_setup, resumed, running, under_way, until
from test_codecs import HalfWithFeedback

import swiftfl
from swiftfl.algorithms import AdPsgd, AllReduceSgd, FedAvg, Gossip, Swift, dsgd
from swiftfl.engines import Setup, Virtual
from swiftfl.engines.live.local.engine import Local
from swiftfl.schedule import every
from worlds import run_to_end

ALGORITHMS = {
    "swift": Swift(every(1)),
    "dsgd": dsgd(),
    "gossip": Gossip(swiftfl.ring(4)),
    "allreduce": AllReduceSgd(),
    "fedavg": FedAvg(every(1)),
    "adpsgd": AdPsgd(),
}


def setup_of(name: str, **options: Any) -> Setup:
    method = "ccs" if name == "swift" else "metropolis"
    return live_setup(ALGORITHMS[name], 4, method=method, **{"epochs": 2, "seconds": 0.0, **options})


def counted(engine: Local) -> Any:
    until(lambda: engine.wait(0.05), "the end")
    return engine.figures()["communication"]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_live_run_counts_as_the_virtual_one(name: str) -> None:
    """Who begins and who answers is drawn, so that pairs, too, are the same."""
    expected = run_to_end(Virtual(setup_of(name))).figures()["communication"]
    with running(setup_of(name)) as engine:
        assert counted(engine) == expected
    assert sum(expected["messages"]) > 0


@pytest.mark.parametrize("name", ["swift", "dsgd"])
def test_bytes_are_those_that_the_codec_leaves(name: str) -> None:
    """Two bytes a number instead of eight, the same messages."""
    plain, coded = setup_of(name), setup_of(name, codec=HalfWithFeedback)
    expected = run_to_end(Virtual(coded)).figures()["communication"]
    with running(coded) as engine:
        assert counted(engine) == expected
    whole = run_to_end(Virtual(plain)).figures()["communication"]
    assert [4 * size for size in expected["bytes"]] == whole["bytes"]


@pytest.mark.parametrize("name", ["swift", "dsgd"])
def test_a_resumed_run_counts_on(name: str, tmp_path: Path) -> None:
    setup = setup_of(name, epochs=12, seconds=0.01)
    with running(setup, tmp_path) as engine:
        under_way(engine, 5)
        engine.stop()
        counted(engine)
        assert engine.stopped
    with resumed(setup, tmp_path) as engine:
        assert counted(engine) == run_to_end(Virtual(setup)).figures()["communication"]
