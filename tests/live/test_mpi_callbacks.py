"""Under MPI the rank that records calls the callbacks, and no other does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mpi_jobs import end, needs_mpi, no_job_is_left, swiftfl

from swiftfl.record import RunFolder

__all__ = ["no_job_is_left"]

LISTENER = """
import json, os
from pathlib import Path
import swiftfl
from swiftfl.trackers.registry import TRACKERS

class Listener(swiftfl.Callback):
    def tell(self, kind, what):
        with Path(__file__).with_name(f"told-{os.getpid()}.jsonl").open("a") as file:
            file.write(json.dumps([kind, what]) + "\\n")

    def on_start(self, run):
        self.tell("start", run.clients)

    def on_evaluation(self, row):
        self.tell("evaluation", row)

    def on_end(self, summary):
        self.tell("end", summary)

TRACKERS.register("listener", Listener)
"""


@needs_mpi
@pytest.mark.slow
def test_one_rank_tells_what_is_recorded(tmp_path: Path) -> None:
    own, out = tmp_path / "listener.py", tmp_path / "run"
    own.write_text(LISTENER)
    options = ("--import", str(own), "--track", "listener", "--epochs", "2", "--out", str(out), "--json")
    done = end(swiftfl(2, "run", "digits", "--engine", "mpi", *options))
    assert done.returncode == 0, done.stderr
    [file] = tmp_path.glob("told-*.jsonl")
    calls = [json.loads(line) for line in file.read_text().splitlines()]
    folder = RunFolder.open(out)
    assert calls[0] == ["start", 2]
    assert calls[-1] == ["end", folder.read_json("summary.json")]
    assert [what for kind, what in calls if kind == "evaluation"] == folder.read_rows("metrics.jsonl")
