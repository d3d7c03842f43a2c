"""`make federation-demo`: what it prints is true, and fits a terminal of 80 columns."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("zenoh")

DEMO = Path(__file__).parents[2] / "examples" / "federation" / "demo.py"
HOSPITALS = ("aarhus", "basel", "cordoba", "dublin", "evora")


@pytest.mark.slow
@pytest.mark.usefixtures("unmeasured")
def test_the_demo_and_its_claims(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(DEMO)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    text = done.stdout
    assert done.returncode == 0, text + done.stderr
    assert max(map(len, text.splitlines())) <= 80
    said = " ".join(text.split())
    for claim in (
        "the four reach each other, though the ring has a gap",
        "cordoba is killed, at step",
        "cordoba is gone; its weight is this node's own",
        "cordoba: starts from",
        "evora: starts from the model of",
        "the stranger is refused: it reaches nobody, and trains alone",
        "the five reach each other",
        "a consensus, asked for at dublin",
    ):
        assert claim in said, text
    table = {
        row[0]: [float(value) for value in row[1:]]
        for row in re.findall(r"^(\w+) +([\d.]+)% +[\d.]+ +([\d.]+)% +[\d.]+ +([\d.]+)% +[\d.]+$", text, re.M)
    }
    assert tuple(table) == HOSPITALS
    consensus = {values[2] for values in table.values()}
    assert len(consensus) == 1  # it is the same everywhere
    for alone, node, _ in table.values():
        assert max(alone, node) < min(consensus)
    steps = [int(steps) for steps in re.findall(r"(\d+) steps \(", said)]
    assert min(steps) > 0  # nobody waited for the one that was killed
    assert "PRIVATE" not in text
    logs = [file for file in tmp_path.rglob("*") if file.is_file() and b"PRIVATE KEY" in file.read_bytes()]
    assert {file.name for file in logs} <= {"key.pem", "authority.key"}
    assert all(file.stat().st_mode & 0o077 == 0 for file in logs)
