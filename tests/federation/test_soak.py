"""The soak of `benchmarks/soak.py`, for half a minute; what it promises is checked there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("zenoh")
pytest.importorskip("cryptography")

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "soak.py"


@pytest.mark.slow
@pytest.mark.usefixtures("unmeasured")
def test_a_short_soak() -> None:
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), "--minutes", "0.5", "--seed", "3"],
        capture_output=True,
        text=True,
        timeout=900,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "conditions (a)-(d) held" in done.stdout
