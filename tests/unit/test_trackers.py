"""Trackers against the real libraries: what they have written is read back."""

from __future__ import annotations

import importlib.util
import json
import os
import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from test_experiment import small

from swiftfl.cli.main import run_command
from swiftfl.errors import UserError
from swiftfl.experiment.config import parse
from swiftfl.experiment.run import run
from swiftfl.record import RunFolder
from swiftfl.trackers.base import Callback, Row
from swiftfl.trackers.registry import TRACKERS

SECRET = "5ecre7" * 7
"""A key that must not appear anywhere."""


def needs(library: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        importlib.util.find_spec(library) is None,
        reason=f"{library} is not installed (make install-trackers)",
    )


STOPPED_AND_RESUMED = """
import sys
from pathlib import Path
from test_experiment import StopAt, small
from swiftfl.experiment.run import RunStopped, resume, run

out = Path("mine")
try:
    run(small(trackers=[sys.argv[1]], evaluation__metrics=["f1_macro"]), out, StopAt(3))
except RunStopped:
    resume(out)
"""


def stopped_and_resumed(tracker: str, place: Path, environment: Mapping[str, str]) -> RunFolder:
    """The folder of a run of two sessions, in a process of its own: some of these libraries leave threads."""
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", STOPPED_AND_RESUMED, tracker],
        cwd=place,
        env={**os.environ, "HOME": str(place), "PYTHONPATH": path, "SWIFTFL_LOG": "debug", **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "left out" not in done.stderr
    for text in (
        done.stdout,
        done.stderr,
        *(file.read_bytes() for file in place.rglob("*") if file.is_file()),
    ):
        assert (SECRET if isinstance(text, str) else SECRET.encode()) not in text
    return RunFolder.open(place / "mine")


def curve(folder: RunFolder, name: str) -> list[tuple[int, float]]:
    rows = folder.read_rows("metrics.jsonl")
    assert len(rows) > 4
    return [(row["iteration"], {**row, **row["metrics"]}[name]) for row in rows]


@needs("tensorboard")
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of what tensorboard imports
def test_tensorboard_has_the_rows_of_the_run(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = stopped_and_resumed("tensorboard", tmp_path, {"WANDB_API_KEY": SECRET})
    events = EventAccumulator(str(folder.path / "tensorboard"))
    events.Reload()
    for tag, name in (("loss", "loss"), ("metrics/f1_macro", "f1_macro"), ("epoch", "epoch")):
        found = [(event.step, event.value) for event in events.Scalars(tag)]
        assert found == [(step, pytest.approx(value, rel=1e-6)) for step, value in curve(folder, name)]
    told = [json.loads(event.tensor_proto.string_val[0]) for event in events.Tensors("summary/text_summary")]
    assert told == [folder.read_json("summary.json")]
    told = [json.loads(event.tensor_proto.string_val[0]) for event in events.Tensors("events/text_summary")]
    assert [row["event"] for row in told] == ["start", "checkpoint", "resume"]


@needs("mlflow")
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_mlflow_has_the_rows_of_the_run(tmp_path: Path) -> None:
    from mlflow.tracking import MlflowClient

    uri = f"sqlite:///{tmp_path}/mlflow.db"
    folder = stopped_and_resumed(
        "mlflow", tmp_path, {"MLFLOW_TRACKING_URI": uri, "MLFLOW_TRACKING_TOKEN": SECRET}
    )
    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("swiftfl")
    assert experiment is not None
    [found] = client.search_runs([experiment.experiment_id])
    assert (found.info.run_name, found.info.status) == ("mine", "FINISHED")
    assert found.data.params["algorithm.name"] == "swift"
    assert found.data.params["topology.clients"] == "6"
    for name in ("loss", "metrics/f1_macro"):
        history = sorted((m.step, m.value) for m in client.get_metric_history(found.info.run_id, name))
        assert history == [(step, pytest.approx(v)) for step, v in curve(folder, name.rpartition("/")[2])]
    assert found.data.metrics["summary/loss"] == pytest.approx(folder.read_json("summary.json")["loss"])


@needs("wandb")
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_wandb_has_the_rows_of_the_run_without_a_network(tmp_path: Path) -> None:
    folder = stopped_and_resumed("wandb", tmp_path, {"WANDB_MODE": "offline", "WANDB_API_KEY": SECRET})
    sessions = sorted(folder.path.glob("wandb/offline-run-*/run-*.wandb"))
    assert len(sessions) == 2
    identity = folder.read_json("trackers.json")["wandb"]
    assert {file.name for file in sessions} == {f"run-{identity}.wandb"}
    rows: list[dict[str, Any]] = []
    summary: dict[str, Any] = {}
    for record in (record for file in sessions for record in wandb_records(file)):
        if record.HasField("history"):
            items = record.history.item
            rows.append({i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in items})
        for item in record.summary.update if record.HasField("summary") else ():
            summary["/".join(item.nested_key) or item.key] = json.loads(item.value_json)
    for name in ("loss", "metrics/f1_macro"):
        assert sorted((row["iteration"], row[name]) for row in rows) == [
            (step, pytest.approx(v)) for step, v in curve(folder, name.rpartition("/")[2])
        ]
    assert summary["loss"] == pytest.approx(folder.read_json("summary.json")["loss"])


def wandb_records(file: Path) -> list[Any]:
    """What wandb wrote: seven bytes, then records in blocks of 32 KiB, as the log of LevelDB has them."""
    from wandb.proto import wandb_internal_pb2

    data, at, records, message = file.read_bytes(), 7, [], b""
    assert data.startswith(b":W&B")
    while at + 7 <= len(data):
        room = 2**15 - at % 2**15
        if room < 7:  # the end of a block holds no header
            at += room
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        message += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            record = wandb_internal_pb2.Record()
            record.ParseFromString(message)
            records.append(record)
            message = b""
    return records


# --- without any library -------------------------------------------------------------------------


def test_a_library_that_is_missing_is_said_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for name in ("tensorboard", "mlflow", "wandb"):
        with pytest.raises(UserError) as error:
            run(small(trackers=[name]), tmp_path / "run")
        assert str(error.value) == (
            f"tracker {name} needs {name}, which is not installed: pip install 'swiftfl[{name}]'"
        )
    assert list(tmp_path.iterdir()) == []


def test_trackers_by_name_need_a_folder() -> None:
    with pytest.raises(UserError, match=r"^tracker tensorboard needs a run folder: give out$"):
        run(small(trackers=["tensorboard"]))


def test_an_unknown_tracker_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["run", "digits", "--track", "tensorbord"]) == 2
    said = capsys.readouterr().err
    assert "there is no tracker 'tensorbord': did you mean tensorboard?" in said


def test_a_failing_tracker_neither_stops_the_run_nor_shows_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", SECRET)

    class Refused(Callback):
        def on_evaluation(self, row: Row) -> None:
            raise OSError(f"401 for {SECRET} at https://me:pass@host/api")

    monkeypatch.setitem(TRACKERS._entries, "refused", Refused)
    result = run(small(trackers=["refused"]), tmp_path / "run")
    assert result.summary["loss"] is not None
    assert capsys.readouterr().err == (
        "swiftfl: warning: callback Refused is left out, since on_evaluation failed "
        "(OSError: 401 for *** at https://***@host/api); the run goes on\n"
    )
    recorded = RunFolder.open(tmp_path / "run").read_json("config.json")
    assert parse(recorded).trackers == ("refused",)
