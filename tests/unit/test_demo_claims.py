"""What the demo is there to show, with its real settings."""

from __future__ import annotations

import contextlib
import io
import json
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

from swiftfl.cli import demo
from swiftfl.cli.main import run_command

README = Path(__file__).parents[2] / "README.md"
ROW = re.compile(r"^ +(?:SWIFT|D-SGD) +\d.*$", re.MULTILINE)


@pytest.fixture(scope="module")
def demos(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, str]]:
    """The demo with a client four times slower, and without: its folder, and what it prints in a pipe."""
    folder = tmp_path_factory.mktemp("demo")
    found = {}
    for name, options in {"slow": [], "even": ["--slowdown", "1"]}.items():
        out, printed = folder / name, io.StringIO()
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
            patch.setenv("COLUMNS", "80")
            assert run_command(["demo", *options, "--out", str(out)]) == 0
        found[name] = out, printed.getvalue()
    return found


@pytest.fixture(scope="module")
def claims(demos: dict[str, tuple[Path, str]]) -> dict[str, dict[str, Any]]:
    """The demo's numbers."""
    read = {name: json.loads((out / "summary.json").read_text()) for name, (out, _) in demos.items()}
    return {name: summary["algorithms"] for name, summary in read.items()}


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


def test_the_readme_shows_what_the_demo_prints(demos: dict[str, tuple[Path, str]]) -> None:
    out, printed = demos["slow"]
    block = README.read_text().split("It prints\n\n")[1].split("\n\nTimes are virtual")[0]
    shown = textwrap.dedent(block).replace("runs/demo-DATE", str(out))
    assert without_learnt(printed) == without_learnt(shown)
    assert learnt(printed) == pytest.approx(learnt(shown), rel=0.03)


def learnt(text: str) -> list[float]:
    """Accuracy, loss and distance of both rows: what the arithmetic of a machine may change a little."""
    return [float(row.split()[k].rstrip("%")) for row in ROW.findall(text) for k in (1, 2, -1)]


def without_learnt(text: str) -> list[str]:
    lines = ROW.sub(lambda row: " ".join(row[0].split()[3:-1]), text).rstrip().splitlines()
    return [line.rstrip() for line in lines]


def test_times_without_training_are_those_of_the_run(claims: dict[str, Any]) -> None:
    """The stream is drawn from them."""
    for name, algorithm in claims["slow"].items():
        times = demo._times_of(demo._config(name, 4.0, 80, 0))
        assert times.seconds_per_epoch == pytest.approx(algorithm["seconds_per_epoch"])


def test_the_stream_says_who_waits(demos: dict[str, tuple[Path, str]]) -> None:
    """With SWIFT nobody waits; with D-SGD everybody but the slow client does, most of the time."""
    for name, (_, printed) in demos.items():
        rows = re.findall(r"^ *(\d+)(?: slow)?   ([█▒·]+)   ([█▒·]+)$", printed, re.MULTILINE)
        assert [int(client) for client, _, _ in rows] == list(range(16))
        assert {swift for _, swift, _ in rows} == {"█" * 34}
        waiting = [dsgd.count("·") / len(dsgd) for _, _, dsgd in rows]
        assert waiting[5] == 0
        others = waiting[:5] + waiting[6:]
        assert min(others) > 0.6 if name == "slow" else max(others) == 0
    assert "only client 5 still trains" in demos["slow"][1]
    assert "still trains" not in demos["even"][1]
