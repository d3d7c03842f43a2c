"""A fresh Python imports from where this one does, and from nowhere else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from swiftfl.fresh import fresh_python

PROGRAM = """
import json, queue, sys
if __name__ == "__main__":
    print(json.dumps([sys.path, sys.argv, __spec__.name, queue.__file__]))
"""


def test_a_fresh_python_has_the_places_of_this_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = tmp_path / "here", tmp_path / "it's \\ \N{LATIN SMALL LETTER E WITH ACUTE}"
    here.mkdir()
    there.mkdir()
    (here / "queue.py").write_text("raise RuntimeError('not the one of the library')")
    (there / "shown.py").write_text(PROGRAM)
    monkeypatch.chdir(here)
    monkeypatch.syspath_prepend(there)
    monkeypatch.setattr(sys, "path", [*sys.path, there])  # which Python passes over, as it is no text
    done = subprocess.run(fresh_python("shown", "a", "--b"), capture_output=True, text=True, check=True)
    path, arguments, name, queue = json.loads(done.stdout)
    assert path[: len(sys.path) - 1] == sys.path[:-1]
    assert arguments == [str(there / "shown.py"), "a", "--b"]
    assert name == "shown"
    assert not queue.startswith(str(here))


def test_a_place_that_is_gone_is_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """swiftfl's own, last: whatever lies beside it must not come before Python's own."""
    ours = str(Path(sys.modules["swiftfl"].__file__ or "").parents[1])
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place != ours])
    command = fresh_python("swiftfl", "--version")
    assert command[2].index(repr(ours)) > max(command[2].index(repr(place)) for place in sys.path)
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.startswith("swiftfl ")
