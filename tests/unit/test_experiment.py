"""A configuration that is run, recorded, stopped and resumed."""

from __future__ import annotations

import csv
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from swiftfl.errors import UserError
from swiftfl.experiment.build import build, resolve
from swiftfl.experiment.config import Config, parse
from swiftfl.experiment.measure import Measurement
from swiftfl.experiment.run import RunResult, RunStopped, resume, run
from swiftfl.record import RunFolder

SMALL: dict[str, Any] = {
    "data.dataset": "synthetic",
    "data.options": {"samples": 120, "shape": 6, "classes": 3},
    "data.batch_size": 4,
    "model.name": "logistic",
    "topology.clients": 6,
    "engine.epochs": 3,
    "engine.costs.spread": 0.3,
    "engine.costs.slowdowns": [{"client": 2, "factor": 3.0}],
    "evaluation.every_epochs": 0.5,
    "seed": 5,
}


def small(**changes: Any) -> Config:
    return Config().with_changes({**SMALL, **{key.replace("__", "."): v for key, v in changes.items()}})


def plain(curve: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows without the one thing that the wall clock measures."""
    return [{key: value for key, value in row.items() if key != "evaluation_seconds"} for row in curve]


def same(one: RunResult, other: RunResult) -> None:
    assert plain(one.curve) == plain(other.curve)
    assert one.summary == other.summary
    for x, y in zip(one.models, other.models, strict=True):
        assert (x == y).all()


class StopAt:
    """A progress display in front of which the user presses Ctrl-C."""

    def __init__(self, evaluation: int, by_signal: bool = False) -> None:
        self.left = evaluation
        self.by_signal = by_signal

    def __call__(self, done: int, total: int, last: Measurement) -> None:
        self.left -= 1
        if self.left == 0 and self.by_signal:
            os.kill(os.getpid(), signal.SIGINT)
        elif self.left == 0:
            raise KeyboardInterrupt


def test_the_same_seed_gives_the_same_run() -> None:
    same(run(small()), run(small()))
    assert run(small(seed=6)).summary != run(small()).summary


def test_a_run_leaves_its_folder(tmp_path: Path) -> None:
    result = run(small(), tmp_path / "run")
    names = {file.name for file in (tmp_path / "run").iterdir()}
    assert names == {
        "config.json",
        "model.json",
        "partition.json",
        "versions.json",
        "facts",
        "metrics.csv",
        "metrics.jsonl",
        "events.jsonl",
        "summary.json",
        "models.safetensors",
    }
    folder = RunFolder.open(tmp_path / "run")
    assert parse(folder.read_json("config.json")) == resolve(small())
    assert folder.read_json("summary.json") == result.summary
    assert folder.read_rows("metrics.jsonl") == result.curve
    assert [event["event"] for event in folder.read_rows("events.jsonl")] == ["start", "end"]
    assert folder.read_models()["models"].shape == (6, result.summary["parameters"])
    again = run(parse(folder.read_json("config.json")))
    same(result, again)


@pytest.mark.parametrize("algorithm", ["swift", "dsgd", "adpsgd", "fedavg"])
@pytest.mark.parametrize("engine", ["virtual", "sampled"])
def test_times_add_up(algorithm: str, engine: str) -> None:
    summary = run(small(algorithm__name=algorithm, engine__name=engine)).summary
    parts = [summary[f"{part}_seconds_per_epoch"] for part in ("compute", "communication", "waiting")]
    assert summary["seconds_per_epoch"] == pytest.approx(sum(parts), rel=1e-12)
    assert min(parts) >= 0
    if algorithm == "swift":
        assert summary["waiting_seconds_per_epoch"] == 0


@pytest.mark.parametrize("algorithm", ["swift", "dsgd", "adpsgd"])
@pytest.mark.parametrize("engine", ["virtual", "sampled"])
@pytest.mark.parametrize("evaluation", [1, 4])
def test_a_stopped_run_goes_on_as_if_it_had_not_been(
    tmp_path: Path, algorithm: str, engine: str, evaluation: int
) -> None:
    config = small(algorithm__name=algorithm, engine__name=engine)
    whole = run(config)
    out = tmp_path / "run"
    with pytest.raises(RunStopped, match="swiftfl resume"):
        run(config, out, StopAt(evaluation))
    assert (out / "checkpoint").is_dir()
    assert not (out / "summary.json").exists()
    same(resume(out), whole)
    assert not (out / "checkpoint").exists()
    assert plain(RunFolder.open(out).read_rows("metrics.jsonl")) == plain(whole.curve)


def test_a_run_may_be_stopped_again_and_again(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(RunStopped):
        run(small(), out, StopAt(1))
    for _ in range(3):
        with pytest.raises(RunStopped):
            resume(out, StopAt(1))
    same(resume(out), run(small()))
    names = [event["event"] for event in RunFolder.open(out).read_rows("events.jsonl")]
    assert names == ["start", "checkpoint", *["resume", "checkpoint"] * 3, "resume", "end"]


def test_control_c_is_answered_between_two_events(tmp_path: Path) -> None:
    """A real signal, on the way between two evaluations, then a resumed run."""
    config = small(evaluation__every_epochs=1.0)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(RunStopped):
        run(config, tmp_path / "run", StopAt(1, by_signal=True))
    assert signal.getsignal(signal.SIGINT) is before
    same(resume(tmp_path / "run"), run(config))


def test_control_c_between_two_evaluations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal comes in the middle of an epoch: the checkpoint is in the middle too."""
    from swiftfl.engines.simulation.virtual import VirtualEngine

    config = small(evaluation__every_epochs=1.0)
    advance, calls = VirtualEngine.advance, []

    def interrupted(engine: VirtualEngine, iterations: int, seconds: float) -> None:
        calls.append(iterations)
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        advance(engine, iterations, seconds)

    monkeypatch.setattr(VirtualEngine, "advance", interrupted)
    with pytest.raises(RunStopped):
        run(config, tmp_path / "run")
    monkeypatch.undo()
    saved = RunFolder.open(tmp_path / "run").checkpoints.read()
    assert saved is not None
    assert saved.tree["iteration"] % 30
    same(resume(tmp_path / "run"), run(config))


def test_a_run_that_is_not_recorded_just_stops() -> None:
    with pytest.raises(KeyboardInterrupt) as stop:
        run(small(), progress=StopAt(2))
    assert not isinstance(stop.value, RunStopped)


def test_without_a_checkpoint_resuming_starts_over(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(RunStopped):
        run(small(), out, StopAt(3))
    RunFolder.open(out).checkpoints.remove()
    same(resume(out), run(small()))


def test_rows_after_the_checkpoint_and_a_torn_line_are_dropped(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(RunStopped):
        run(small(), out, StopAt(2))
    folder = RunFolder.open(out)
    folder.append("metrics.jsonl", {"iteration": 10**6})
    for name in ("metrics.jsonl", "events.jsonl"):
        with (out / name).open("a") as file:
            file.write('{"iterat')
    same(resume(out), run(small()))
    assert [event["event"] for event in folder.read_rows("events.jsonl")][-2:] == ["resume", "end"]


def table(out: Path) -> list[dict[str, Any]]:
    """metrics.csv as a spreadsheet reads it, with the types and the nesting of metrics.jsonl."""
    with (out / "metrics.csv").open(newline="") as file:
        read = list(csv.DictReader(file))
    rows = []
    for row in read:
        values = {name: json.loads(cell or "null") for name, cell in row.items()}
        metrics = {
            name.removeprefix("metrics."): values.pop(name) for name in row if name.startswith("metrics.")
        }
        rows.append({**values, "metrics": metrics})
    return rows


def test_the_table_holds_the_same_rows_in_a_resumed_run_too(tmp_path: Path) -> None:
    out, config = tmp_path / "run", small(evaluation__metrics=["f1_macro"])
    with pytest.raises(RunStopped):
        run(config, out, StopAt(2))
    assert table(out) == RunFolder.open(out).read_rows("metrics.jsonl")
    RunFolder.open(out).append("metrics.jsonl", {"iteration": 10**6})
    with (out / "metrics.csv").open("a") as file:
        file.write("1000000,7")  # torn, as when a process is killed
    result = resume(out)
    assert len(result.curve) > 3
    assert table(out) == result.curve == RunFolder.open(out).read_rows("metrics.jsonl")


def test_checkpoints_on_the_way_change_nothing(tmp_path: Path) -> None:
    same(run(small(), tmp_path / "run", checkpoint_every=0.0), run(small()))
    assert not (tmp_path / "run" / "checkpoint").exists()


def test_a_finished_run_is_not_resumed(tmp_path: Path) -> None:
    run(small(), tmp_path / "run")
    with pytest.raises(UserError, match="has finished"):
        resume(tmp_path / "run")


def test_a_changed_configuration_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(RunStopped):
        run(small(), out, StopAt(2))
    config = json.loads((out / "config.json").read_text())
    config["topology"]["clients"] = 5
    (out / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=r"topology\.clients was 6 and is 5"):
        resume(out)


WRONG = [
    ({"nope": 1}, "nope: there is no such setting"),
    ({"engine": {"nope": 1, "epochs": 1}}, "engine.nope: there is no such setting"),
    ({"engine": {}}, "a run needs an end"),
    ({"engine": {"epochs": 0}}, "engine.epochs"),
    ({"engine": {"epochs": 1, "costs": {"loss": 1.0}}}, "engine.costs.loss"),
    ({"algorithm": {"name": "swiff"}}, "no algorithm 'swiff': did you mean swift?"),
    ({"algorithm": {"step_size": {"initial": float("nan")}}}, "algorithm.step_size.initial"),
    ({"model": {"batching": "sometimes"}}, "model.batching must be one of"),
    ({"influence": [0.5, "x"]}, "influence.1 must be a number"),
    ({"objective": "as_given"}, "objective as_given needs influence measured"),
    ({"topology": 5}, "topology"),
    ({"seed": -1}, "seed"),
]


@pytest.mark.parametrize(("tree", "told"), WRONG)
def test_a_wrong_configuration_is_one_line(tree: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError) as error:
        parse(tree)
    assert told in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("device", ["nope", "meta"])
def test_a_device_that_does_not_work_is_one_line(device: str) -> None:
    with pytest.raises(UserError, match=f"device '{device}' cannot be used here") as error:
        run(small(model__device=device))
    assert "\n" not in str(error.value)


def test_what_is_recorded_needs_no_other_file(tmp_path: Path) -> None:
    """The edges of a file are in the record, so that the run can be repeated when the file is gone."""
    edges = tmp_path / "edges.txt"
    edges.write_text("0 1\n1 2\n2 3\n")
    given = small().with_changes({"topology.edges": str(edges)})
    first = run(given, tmp_path / "run")
    edges.unlink()
    recorded = parse(RunFolder.open(tmp_path / "run").read_json("config.json"))
    assert recorded.topology.clients == 4
    assert recorded.topology.edges == [(0, 1), (1, 2), (2, 3)]
    assert recorded.algorithm.weights == "ccs"
    assert run(recorded).summary == first.summary


def test_the_seed_reaches_random_topologies() -> None:
    def graph(seed: int) -> Any:
        changes = {"topology.name": "random_regular", "topology.clients": 12, "seed": seed}
        return build(small().with_changes({**changes, "topology.options": {"degree": 3}})).topology

    assert graph(1) == graph(1)
    assert graph(1) != graph(2)


def test_ctrl_c_right_after_an_evaluation_records_no_row_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal arrives while a checkpoint is written, after the evaluation and before the next step."""
    from swiftfl.experiment import run as loop

    config = small(evaluation__every_epochs=1)
    loop.run(config, tmp_path / "whole")
    save, saves = loop._Loop._save, []

    def interrupted(self: Any) -> str | None:
        saves.append(1)
        if len(saves) == 1:
            signal.raise_signal(signal.SIGINT)
        return save(self)

    monkeypatch.setattr(loop._Loop, "_save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        loop.run(config, tmp_path / "stopped", checkpoint_every=0.0)
    loop.resume(tmp_path / "stopped")
    epochs = [
        [row["epoch"] for row in RunFolder(tmp_path / name).read_rows("metrics.jsonl")]
        for name in ("whole", "stopped")
    ]
    assert epochs[0] == epochs[1]
    assert len(epochs[0]) == len(set(epochs[0])) >= 4


def test_a_change_by_no_name_is_refused() -> None:
    with pytest.raises(UserError, match=r"a setting is changed by its name, as in .*, not by 5"):
        Config().with_changes({5: 1})  # type: ignore[dict-item]
