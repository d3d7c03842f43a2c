"""bf16, int8 and top-k between real clients: every transport gives the same bits, and replay does."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from in_process_wire import Hub
from live_worlds import live_setup, stopped_resumed_and_replayed
from mpi_jobs import end, needs_mpi, no_job_is_left, swiftfl
from test_codecs import PAIR, SIZE, in_memory, in_shared_memory, models, read

from swiftfl.algorithms import Swift, dsgd
from swiftfl.cli.main import run_command
from swiftfl.rules import SgdRule
from swiftfl.schedule import every
from swiftfl.transports.codec import Codec, transmitted
from swiftfl.transports.messages.transport import MessageTransport
from swiftfl.transports.messages.wire import MODEL
from swiftfl.transports.registry import make_codec

__all__ = ["no_job_is_left"]

NAMES = ["bf16", "int8", "topk:0.1"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("way", [in_memory, in_shared_memory])
def test_in_one_memory_neighbours_get_what_the_codec_transmits(way: Callable[..., object], name: str) -> None:
    alone = make_codec(name)()
    with way(make_codec(name)) as (sender, reader):  # type: ignore[attr-defined]
        for version, x in enumerate(models(6), start=1):
            expected = transmitted(alone, x)
            sender.publish(x, version)
            assert read(reader, 0, version).tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_by_messages_the_same_bits_arrive_and_no_more_bytes_than_the_code(name: str) -> None:
    """Published one by one, in bursts of which some are superseded, and in rounds."""
    hub, alone = Hub(2), make_codec(name)()
    ends = [MessageTransport(wire, PAIR, np.zeros(SIZE, np.float32), make_codec(name)) for wire in hub.wires]
    try:
        version = 0
        for burst in (1, 1, 1, 4, 1, 9, 1, 1):
            for x in models(burst):
                version += 1
                expected = transmitted(alone, x)
                ends[0].publish(x, version)
            assert read(ends[1], 0, version).tobytes() == expected.tobytes()
        for round, x in enumerate(models(3)):
            ends[0].offer(x, round, (1,))
            expected = transmitted(alone, x)
            assert ends[1].collect(0, round, lambda model: model.tobytes()) == expected.tobytes()
        assert ends[1].refused == 0
        sent = sorted(hub.bytes_sent[MODEL])
        assert sent[0] <= 64 + {"bf16": 2, "int8": 1.05, "topk:0.1": 0.85}[name] * SIZE
    finally:
        for end in ends:
            end.close()


def test_a_neighbour_that_is_slow_costs_bytes_but_no_models() -> None:
    """One of two takes nothing for a while: then everything that changed since is in what it gets."""
    hub, three = Hub(3), [(1, 2), (0,), (0,)]
    alone: Codec = make_codec("topk:0.05")()
    x0 = np.zeros(SIZE, np.float32)
    ends = [MessageTransport(wire, three, x0, make_codec("topk:0.05")) for wire in hub.wires[:2]]
    try:
        for version, x in enumerate(models(12), start=1):
            expected = transmitted(alone, x)
            ends[0].publish(x, version)
            assert read(ends[1], 0, version).tobytes() == expected.tobytes()
        late = MessageTransport(hub.wires[2], three, x0, make_codec("topk:0.05"))
        ends.append(late)
        for version, x in enumerate(models(12), start=13):
            expected = transmitted(alone, x)
            ends[0].publish(x, version)
            time.sleep(0.01)
        assert read(late, 0, 24).tobytes() == expected.tobytes()
        assert read(ends[1], 0, 24).tobytes() == expected.tobytes()
        assert late.refused == ends[1].refused == 0
    finally:
        for end in ends:
            end.close()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rounds", [False, True], ids=["swift", "dsgd"])
def test_a_live_run_stops_goes_on_and_is_replayed(rounds: bool, name: str, tmp_path: Path) -> None:
    algorithm = dsgd() if rounds else Swift(every(1), SgdRule(0.9))
    method = "metropolis" if rounds else "ccs"
    setup = replace(
        live_setup(algorithm, seconds=0.002, method=method, epochs=8, hold=10, dimension=50),
        codec=make_codec(name),
    )
    stopped_resumed_and_replayed(setup, tmp_path / "clients")


@needs_mpi
@pytest.mark.slow
def test_under_mpi_it_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where messages are superseded: what top-k sends then holds what changed since."""
    out = str(tmp_path / "run")
    tiny = ("--clients", "3", "--epochs", "2", "--model", "logistic", "--codec", "topk:0.1", "--out", out)
    done = end(swiftfl(3, "run", "digits", "--engine", "mpi", *tiny, "--json"))
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["refused"] == 0
    assert max(answer["communication"]["bytes"]) < 0.9 * 4 * 650 * 120
    assert run_command(["replay", out]) == 0
    assert "3 of 3 models are the same, bit for bit" in capsys.readouterr().out
