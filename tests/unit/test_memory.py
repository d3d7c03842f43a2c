"""Federations that no memory here can hold are refused before their models are made."""

from __future__ import annotations

from pathlib import Path

import pytest

from swiftfl import memory
from swiftfl.cli.main import run_command
from swiftfl.errors import UserError
from swiftfl.experiment.build import build
from swiftfl.experiment.config import Config

pytestmark = pytest.mark.usefixtures("without_pictures")

CLIENTS = 16
MODEL = 4 * (64 * 64 + 64 + 64 * 10 + 10)  # bytes of the digits recipe's model


def federation(**changes: object) -> Config:
    named = {key.replace("__", "."): value for key, value in changes.items()}
    return Config().with_changes({"topology.clients": CLIENTS, "model.name": "mlp", **named})


@pytest.mark.parametrize(
    ("engine", "momentum", "models"),
    [("virtual", 0.0, 2), ("sampled", 0.9, 3), ("local", 0.0, 3), ("local", 0.9, 4)],
)
def test_all_clients_are_counted_with_what_the_engine_and_the_rule_keep(
    engine: str, momentum: float, models: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = federation(engine__name=engine, algorithm__momentum=momentum)
    needed = CLIENTS * models * MODEL
    monkeypatch.setattr(memory, "memory_here", lambda: needed)
    assert build(config).setup.n == CLIENTS
    monkeypatch.setattr(memory, "memory_here", lambda: needed - 1)
    with pytest.raises(
        UserError, match=r"^a federation of 16 clients with models of 4810 numbers each needs .* of memory"
    ):
        build(config)


def test_the_command_says_so_in_one_line_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    line = ["run", "synthetic", "--model", "mlp", "--clients", "10000", "--set", "data.options.samples=20000"]
    assert run_command([*line, "--set", "model.options.hidden=100000", "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "10000 clients with models of" in said
    assert not out.exists()


@pytest.mark.parametrize("clients", [99_999_999_999, 2**31])
def test_more_clients_than_a_collector_can_count_are_refused_on_one_line(
    clients: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["run", "digits", "--clients", str(clients), "--out", str(tmp_path / "run")]) == 2
    told = f"swiftfl: {clients} clients are more than the 50000000 that this library allows\n"
    assert capsys.readouterr().err == told
    assert not (tmp_path / "run").exists()
    grid = ["--grid", "lr=0.1", "--seeds", "1", "--out", str(tmp_path / "sweep")]
    assert run_command(["sweep", "digits", "--clients", str(clients), *grid]) != 0
    told = capsys.readouterr().err
    assert "clients are more than the 50000000 that this library allows" in told
    assert "Traceback" not in told
