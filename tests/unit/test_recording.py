"""Facts as runs write them: against the engines' own clocks, over churn, resume and a full disk."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from swiftfl.cli.main import run_command
from swiftfl.errors import UserError
from swiftfl.experiment.config import Config
from swiftfl.experiment.recipes import digits
from swiftfl.experiment.run import RunStopped, resume, run
from swiftfl.record import RunFolder
from swiftfl.record.checkpoints import Checkpoints
from swiftfl.record.facts import ClientState, FactsReader, Layout
from swiftfl.record.facts.joining import duration

TIMES = ("compute", "waiting", "communication")


def small(**changes: Any) -> Config:
    given = {key.replace("__", "."): value for key, value in changes.items()}
    few = {"engine.epochs": 2, "topology.clients": 4, "evaluation.clients": 0, "evaluation.every_epochs": 2}
    slow = {"engine.costs.slowdowns": [{"client": 1, "factor": 3.0}], "engine.costs.spread": 0.3}
    return digits().with_changes({**few, **slow, **given})


def recorded(path: Path) -> tuple[Layout, NDArray[np.void], NDArray[np.void]]:
    """Layout, rows by client and step, and how clients stand."""
    reader = FactsReader(path)
    layout = reader.layout
    assert layout is not None
    rows = np.sort(reader.rows(), order=["client", "start"])
    return layout, rows, reader.clients()


@pytest.mark.parametrize("algorithm", ["swift", "dsgd", "adpsgd", "allreduce"])
def test_rows_are_the_clients_time_without_a_gap(tmp_path: Path, algorithm: str) -> None:
    result = run(small(algorithm__name=algorithm), tmp_path / "run")
    layout, rows, clients = recorded(tmp_path / "run")
    assert (layout.engine, layout.clock, layout.total) == ("virtual", "virtual", len(rows))
    assert len(rows) == result.summary["iterations"]
    for name in TIMES:
        spent = np.bincount(rows["client"], rows[name].astype(float), 4)
        assert spent == pytest.approx(clients[name], rel=1e-5, abs=1e-9)
        each = result.summary[f"{name}_seconds_per_epoch"]
        assert clients[name].mean() / 2 == pytest.approx(each)  # of two epochs
    for i in range(4):
        own = rows[rows["client"] == i]
        assert own["c"].tolist() == list(range(1, len(own) + 1))
        assert own["start"][0] == 0
        assert own["start"][1:] == pytest.approx((own["start"] + duration(own))[:-1], rel=1e-5)
    assert clients["state"].tolist() == [ClientState.FINISHED] * 4
    assert np.all(np.isfinite(rows["loss"]))
    assert (rows["waiting"].sum() > 0) == (algorithm != "swift")


def test_edges_have_the_neighbours_last_models(tmp_path: Path) -> None:
    run(small(), tmp_path / "run")
    reader = FactsReader(tmp_path / "run")
    layout, edges, clients = reader.layout, reader.edges(), reader.clients()
    assert layout is not None
    assert layout.neighbours(0) == (1, 3)
    assert edges["version"].tolist() == [int(clients["c"][k]) - (k == 1) for k in layout.indices]  # 1 is last
    assert np.all(edges["since"] <= clients["time"][0])


def test_where_nothing_takes_time_steps_are_counted(tmp_path: Path) -> None:
    result = run(small(engine__name="sampled"), tmp_path / "run")
    layout, rows, clients = recorded(tmp_path / "run")
    assert layout.clock == "iterations"
    assert np.sort(rows["start"]).tolist() == list(range(result.summary["iterations"]))
    assert rows["compute"].tolist() == [1.0] * len(rows)
    assert clients["steps"].sum() == len(rows)


def test_mean_ages_are_in_every_summary(tmp_path: Path) -> None:
    lockstep = {"engine__costs__slowdowns": [], "engine__costs__spread": 0.0}
    ages = run(small(**lockstep)).summary["mean_age_of_clients"]
    assert ages == pytest.approx([1.0] * 4, abs=0.03)  # but for what sending and averaging take
    assert run(small(algorithm__name="dsgd")).summary["mean_age_of_clients"] == [1.0] * 4
    assert run(small(algorithm__name="allreduce")).summary["mean_age"] is None
    late = run(small(**lockstep, engine__costs__latency=0.025)).summary["mean_age"]
    assert late == pytest.approx(
        3.0, abs=0.1
    )  # a step takes 0.01, and those of two steps before have arrived


def test_clients_that_are_lost_and_come_back(tmp_path: Path) -> None:
    changes = [
        {"time": 0.1, "event": "crash", "client": 0},
        {"time": 0.2, "event": "return", "client": 0},
        {"time": 0.15, "event": "crash", "client": 2},
        {"time": 0.2, "event": "leave", "client": 3},
    ]
    network = {"notice": 0.02, "renewal": 0.01, "changes": changes}
    run(small(engine__network=network, engine__iterations=60), tmp_path / "run")
    _, rows, clients = recorded(tmp_path / "run")
    states = [ClientState(code) for code in clients["state"]]
    assert states[2:] == [ClientState.LOST, ClientState.STOPPED]
    own = rows[rows["client"] == 0]
    gap = (own["start"][1:] - (own["start"] + duration(own))[:-1]).max()
    assert 0.08 < gap < 0.15
    assert clients["renewals"][0] > 0


def test_the_facts_of_a_resumed_run_are_those_of_a_run_without_pause(tmp_path: Path) -> None:
    config = small(engine__epochs=3, evaluation__every_epochs=0.2)
    run(config, tmp_path / "whole")

    def stop_in_the_middle(done: int, total: int, last: object) -> None:
        if done > total / 2:
            raise KeyboardInterrupt

    with pytest.raises(RunStopped):
        run(config, tmp_path / "paused", stop_in_the_middle)
    assert recorded(tmp_path / "paused")[2]["state"].tolist() == [ClientState.STOPPED] * 4
    reader = FactsReader(tmp_path / "paused")
    before = reader.poll().rows
    resume(tmp_path / "paused")
    assert reader.poll().restarted
    (layout, rows, clients), (_, expected, stand) = (
        recorded(tmp_path / "paused"),
        recorded(tmp_path / "whole"),
    )
    assert layout.session == 2
    assert 0 < len(before) < len(rows)
    for name in rows.dtype.names or ():
        assert rows[name] == pytest.approx(expected[name], rel=1e-4, abs=1e-6, nan_ok=True)
    assert clients["age"] == pytest.approx(stand["age"])


def test_facts_can_be_switched_off_and_change_no_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["run", "digits", "--epochs", "1", "--clients", "3", "--json", "--out"]
    assert run_command([*line, str(tmp_path / "off"), "--facts", "off"]) == 0
    off = json.loads(capsys.readouterr().out)
    assert not (tmp_path / "off" / "facts").exists()
    assert run_command([*line, str(tmp_path / "on"), "--facts", "on"]) == 0
    on = json.loads(capsys.readouterr().out)
    assert on["loss"] == off["loss"]
    models = [(tmp_path / name / "models.safetensors").read_bytes() for name in ("on", "off")]
    assert models[0] == models[1]
    assert run_command([*line, str(tmp_path / "x"), "--facts", "maybe"]) == 2
    assert "--facts maybe: it must be on or off" in capsys.readouterr().err


def test_a_full_disk_costs_facts_and_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = os.pwrite

    def full(handle: int, data: bytes, offset: int) -> int:
        return real(handle, data[: len(data) // 2], offset)

    monkeypatch.setattr(os, "pwrite", full)
    result = run(small(), tmp_path / "run")
    assert result.summary["iterations"] > 0
    assert (tmp_path / "run" / "summary.json").is_file()
    assert capsys.readouterr().err.count("No space left on device") == 1


@pytest.mark.parametrize("reason", [os.strerror(errno.ENOSPC), os.strerror(errno.EACCES)])
def test_a_checkpoint_that_has_no_room_takes_that_of_the_facts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], reason: str
) -> None:
    """And the run writes no more facts."""
    real, refused, written = Checkpoints.write, [], []

    def full(checkpoints: Checkpoints, *more: Any) -> None:
        if (tmp_path / "run" / "facts").is_dir():
            refused.append(more)
            raise UserError(f"cannot write a checkpoint: {reason}")
        written.append(more)
        real(checkpoints, *more)

    monkeypatch.setattr(Checkpoints, "write", full)
    result = run(small(evaluation__every_epochs=0.5), tmp_path / "run", checkpoint_every=0.0)
    shown = capsys.readouterr().err
    assert (tmp_path / "run" / "summary.json").is_file()
    if reason == os.strerror(errno.ENOSPC):
        assert len(refused) == 1
        assert written
        assert shown.count("the facts were removed, to have room for a checkpoint") == 1
        assert not (tmp_path / "run" / "facts").exists()
        events = [event["event"] for event in RunFolder.open(tmp_path / "run").read_rows("events.jsonl")]
        assert events.count("checkpoint") == len(written)
    else:  # facts are in nobody's way
        assert not written
        assert (tmp_path / "run" / "facts").is_dir()
    assert result.summary["iterations"] > 0


@pytest.mark.parametrize("reason", [os.strerror(errno.ENOSPC), os.strerror(errno.EACCES)])
def test_a_result_that_has_no_room_takes_that_of_the_facts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], reason: str
) -> None:
    real = RunFolder.write_json

    def full(folder: RunFolder, name: str, value: object) -> None:
        if name == "summary.json" and (folder.path / "facts").is_dir():
            raise UserError(f"cannot write {folder.path / name}: {reason}")
        real(folder, name, value)

    monkeypatch.setattr(RunFolder, "write_json", full)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    result = run(small(), tmp_path / "run")
    shown = capsys.readouterr().err
    if reason == os.strerror(errno.ENOSPC):
        assert result.folder == tmp_path / "run"
        assert not (tmp_path / "run" / "facts").exists()
        assert "the facts were removed" in shown
        events = RunFolder.open(tmp_path / "run").read_rows("events.jsonl")
        assert [event["event"] for event in events].count("end") == 1
    else:  # facts are in nobody's way
        assert result.folder != tmp_path / "run"
        assert (tmp_path / "run" / "facts").is_dir()
