"""`swiftfl run --order` and `--broadcast`: how the authors ran the algorithms, from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from swiftfl.cli.main import run_command

pytestmark = pytest.mark.usefixtures("without_pictures")


def summary(folder: Path, *arguments: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    shared = ["--clients", "6", "--epochs", "2", "--seed", "3", "--json", "--out", str(folder)]
    assert run_command(["run", "digits", *arguments, *shared]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_dsgd_in_the_authors_order_is_swift(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases = {
        "swift": ["--algorithm", "swift"],
        "authors": ["--algorithm", "dsgd", "--order", "average_first"],
        "printed": ["--algorithm", "dsgd", "--order", "update_first"],
        "default": ["--algorithm", "dsgd"],
        "late": ["--algorithm", "swift", "--broadcast", "after"],
    }
    loss = {name: summary(tmp_path / name, *case, capsys=capsys)["loss"] for name, case in cases.items()}
    assert loss["authors"] == pytest.approx(loss["swift"], abs=1e-6)
    assert loss["printed"] == loss["default"]
    assert abs(loss["printed"] - loss["swift"]) > 1e-6
    assert abs(loss["late"] - loss["swift"]) > 1e-6


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--algorithm", "swift", "--order", "average_first"], "--order is for dsgd, pasgd, ldsgd"),
        (["--algorithm", "dsgd", "--broadcast", "after"], "--broadcast is for swift, not dsgd"),
        (["--algorithm", "dsgd", "--order", "sideways"], "--order must be one of"),
    ],
)
def test_what_does_not_fit_is_refused(
    arguments: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["run", "digits", *arguments, "--out", str(tmp_path / "run")]) != 0
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
