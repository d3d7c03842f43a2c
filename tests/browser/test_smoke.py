"""`swiftfl reproduce all --scale smoke`, as a user types it, and its page in a real browser."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXPERIMENTS = ("baseline", "noniid", "slowdown", "clients", "topologies", "convergence")
LIMIT = 1800.0
"""Seconds; on two quiet cores it takes a few minutes."""
BROKEN = """() => [...document.querySelectorAll("figure img")]
  .filter(image => !image.complete || image.naturalWidth < 50).length"""


@pytest.mark.slow
@pytest.mark.usefixtures("unmeasured")
def test_all_experiments_at_scale_smoke(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "swiftfl", "reproduce", "all", "--scale", "smoke", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    report = out / "report.html"
    assert f"Report: {report}" in done.stdout
    text = report.read_text()
    for name in EXPERIMENTS:
        assert f'<section id="{name}">' in text
        assert list((out / name / "tables").glob("*.csv"))
        assert list((out / name / "tables").glob("*.tex"))
        drawn = {file.stem for file in (out / name / "figures").glob("*.svg")}
        assert drawn
        assert drawn == {file.stem for file in (out / name / "figures").glob("*.png")}
    assert "is missing" not in text
    assert "have not finished" not in text
    assert "could not be made" not in text
    assert list(out.rglob(".*")) == []  # no lock, no temporary file stays

    open_page = request.getfixturevalue("open_page")  # from here on a browser is needed
    for width in (390, 1280):
        opened = open_page(report, width)
        assert opened.complaints == []
        assert opened.page.evaluate("() => document.documentElement.scrollWidth") <= width
        assert opened.page.evaluate(BROKEN) == 0
