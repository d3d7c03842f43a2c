"""Rounds, messages and bytes of live runs: those of the virtual engine, and the same after a resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from live_worlds import live_setup, resumed, running, under_way, until
from test_codecs import HalfWithFeedback

import swiftfl
from makers import MAKERS
from swiftfl.engines import Setup, VirtualEngine
from swiftfl.engines.live.local.engine import LocalEngine
from swiftfl.rules import SgdRule
from worlds import run_to_end

NAMES = (
    "swift C_2", "dsgd", "gossip", "allreduce", "fedavg", "adpsgd", "fedavg, half", "prague", "quasi_global",
    "swarm", "gossip_async",
)  # fmt: skip


def setup_of(name: str, **options: Any) -> Setup:
    method = "ccs" if name.startswith("swift C_2") else "metropolis"
    algorithm = MAKERS[name](swiftfl.ring(4), SgdRule())
    return live_setup(algorithm, 4, method=method, **{"epochs": 2, "seconds": 0.0, **options})


def counted(engine: LocalEngine) -> Any:
    until(lambda: engine.wait(0.05), "the end")
    return engine.figures()["communication"]


@pytest.mark.parametrize("name", NAMES)
def test_a_live_run_counts_as_the_virtual_one(name: str) -> None:
    """Who begins and who answers is drawn, so that pairs, too, are the same."""
    expected = run_to_end(VirtualEngine(setup_of(name))).figures()["communication"]
    with running(setup_of(name)) as engine:
        assert counted(engine) == expected
    assert sum(expected["messages"]) > 0


@pytest.mark.parametrize("name", ["swift C_2", "dsgd"])
def test_bytes_are_those_that_the_codec_leaves(name: str) -> None:
    """Two bytes a number instead of eight, the same messages."""
    plain, coded = setup_of(name), setup_of(name, codec=HalfWithFeedback)
    expected = run_to_end(VirtualEngine(coded)).figures()["communication"]
    with running(coded) as engine:
        assert counted(engine) == expected
    whole = run_to_end(VirtualEngine(plain)).figures()["communication"]
    assert [4 * size for size in expected["bytes"]] == whole["bytes"]


@pytest.mark.parametrize("name", ["swift C_2", "dsgd"])
def test_a_resumed_run_counts_on(name: str, tmp_path: Path) -> None:
    setup = setup_of(name, epochs=12, seconds=0.01, hold=10)
    with running(setup, tmp_path) as engine:
        under_way(engine, 5)
        engine.stop()
        counted(engine)
        assert engine.stopped
    with resumed(setup, tmp_path) as engine:
        assert counted(engine) == run_to_end(VirtualEngine(setup)).figures()["communication"]
