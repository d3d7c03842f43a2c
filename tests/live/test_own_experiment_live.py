"""An experiment of one's own with real processes: local and mpi; resumed and replayed, bit for bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mpi_jobs import end, needs_mpi, no_job_is_left, swiftfl

from own_experiment import EXPERIMENT
from swiftfl.api.own_experiment import objects_of
from swiftfl.cli.configuration import configuration
from swiftfl.cli.main import run_command
from swiftfl.experiment.run import RunStopped, run

__all__ = ["no_job_is_left"]


def test_local_is_stopped_resumed_and_replayed(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(EXPERIMENT)
    live = {"engine.name": "local", "engine.live.save_steps": 5, "engine.live.evaluate_seconds": 0.1}
    config = configuration("mine.py:experiment").with_changes({**live, "engine.epochs": 400})

    asked: list[int] = []

    def stop(done: int, total: int, last: Any) -> None:
        if done > 30 and not asked:  # a second time would not wait until clients have saved
            asked.append(done)
            raise KeyboardInterrupt

    with pytest.raises(RunStopped, match="to go on: swiftfl resume run"):
        run(config, Path("run"), stop, given=objects_of(config))
    assert run_command(["resume", "run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["iterations"] == 3 * 4 * 400
    assert run_command(["replay", "run"]) == 0
    assert "3 of 3 models are the same" in capsys.readouterr().out
    Path("mine.py").write_text(EXPERIMENT + "\n# changed\n")
    assert run_command(["replay", "run"]) == 2
    assert "mine.py was changed after the run began" in capsys.readouterr().err


@needs_mpi
@pytest.mark.slow
def test_every_rank_loads_it(tmp_path: Path, capsys: Any) -> None:
    file, out = tmp_path / "mine.py", tmp_path / "run"
    file.write_text(EXPERIMENT)
    done = end(swiftfl(2, "run", f"{file}:experiment", "--engine", "mpi", "--out", str(out), "--json"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["lost"] == []
    assert json.loads((out / "config.json").read_text())["algorithm"]["name"] == "given:Often"
    assert run_command(["replay", str(out)]) == 0
    assert "2 of 2 models are the same" in capsys.readouterr().out
