"""A node that trains with a neighbour on a slow link (`benchmarks/slow_links.py`, which measures it well)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("zenoh")
pytest.importorskip("cryptography")

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))


@pytest.mark.slow
def test_training_does_not_wait_for_a_slow_link() -> None:
    """A model takes 7 seconds, a step a part of one; limits are wide, because others may use the machine."""
    from slow_links import measure

    found = measure(steps=20)
    print(found)
    assert found["models"] >= 1
    assert found["ratio"] < 1.5
    assert found["memory"] - found["memory alone"] < 12 * 45
