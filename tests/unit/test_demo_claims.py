"""What the demo is there to show, with its real settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from swiftfl.cli.main import run_command


@pytest.fixture(scope="module")
def claims(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The demo's numbers with a client four times slower, and without."""
    folder = tmp_path_factory.mktemp("demo")
    found = {}
    for name, options in {"slow": [], "even": ["--slowdown", "1"]}.items():
        assert run_command(["demo", *options, "--out", str(folder / name)]) == 0
        found[name] = json.loads(Path(folder, name, "summary.json").read_text())["algorithms"]
    return found


def test_a_slow_client_hardly_slows_swift(claims: dict[str, Any]) -> None:
    factor = claims["slow"]["swift"]["seconds_per_epoch"] / claims["even"]["swift"]["seconds_per_epoch"]
    assert 1.0 < factor < 1.25
    assert claims["slow"]["swift"]["waiting_seconds_per_epoch"] == 0


def test_it_slows_everybody_in_dsgd(claims: dict[str, Any]) -> None:
    factor = claims["slow"]["dsgd"]["seconds_per_epoch"] / claims["even"]["dsgd"]["seconds_per_epoch"]
    assert 3.0 < factor <= 4.0
    assert claims["slow"]["dsgd"]["waiting_seconds_per_epoch"] > 0


@pytest.mark.parametrize("algorithm", ["swift", "dsgd"])
@pytest.mark.parametrize("clients", ["slow", "even"])
def test_the_consensus_model_learns(claims: dict[str, Any], clients: str, algorithm: str) -> None:
    assert claims[clients][algorithm]["accuracy"] > 0.93
