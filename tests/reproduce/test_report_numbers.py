"""Numbers of the report against hand values and against what the paper printed itself."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from swiftfl.report.numbers import change, deviation, spread, written
from swiftfl.reproduce.printed import printed
from swiftfl.reproduce.report.learning import time_to_loss
from swiftfl.reproduce.report.recorded import RecordedExperiment
from swiftfl.reproduce.report.times import change_in_paper, here, in_paper, printed_row, time_tables

CURVE = [
    {"time": 0.0, "epoch": 0.0, "loss": 2.0},
    {"time": 10.0, "epoch": 1.0, "loss": 1.0},
    {"time": 20.0, "epoch": 2.0, "loss": 1.2},
    {"time": 40.0, "epoch": 3.0, "loss": 0.4},
]


@pytest.mark.parametrize(
    ("target", "seconds"),
    [
        (3.0, 0.0),  # reached before it began
        (2.0, 0.0),
        (1.5, 5.0),  # half way down the first piece
        (1.0, 10.0),
        (1.1, 9.0),  # the first time counts, though the loss rises again
        (0.8, 30.0),  # half way from 1.2 to 0.4
        (0.4, 40.0),
        (0.39, None),
    ],
)
def test_time_to_loss_against_hand_values(target: float, seconds: float | None) -> None:
    assert time_to_loss(CURVE, target) == pytest.approx(seconds)


def test_time_to_loss_over_epochs_and_of_nothing() -> None:
    assert time_to_loss(CURVE, 0.8, "epoch") == pytest.approx(2.5)
    assert time_to_loss([], 1.0) is None


ROWS = printed()["baseline_ring16_resnet18"]
SAID = [
    (method, what)
    for method, row in ROWS.items()
    for what in ("epoch", "comm")
    if f"{what}_change_pct" in row and what in row
]


@pytest.mark.parametrize(("method", "what"), SAID)
def test_changes_follow_from_the_printed_seconds(method: str, what: str) -> None:
    """The paper's own columns: -34.60 follows from 1.019 and 1.558. (Seconds have three decimals.)"""
    from_seconds = change(ROWS[method][what], ROWS["dsgd_c0"][what])
    assert from_seconds == pytest.approx(ROWS[method][f"{what}_change_pct"], abs=0.1)


def test_printed_changes_are_preferred_to_computed_ones() -> None:
    assert len(SAID) == 8
    assert change_in_paper("baseline", "ring16", "swift_c0", "epoch") == -34.60
    assert change_in_paper("baseline", "ring16", "adpsgd_c0", "epoch") == -15.86
    assert change_in_paper("baseline", "ring16", "adpsgd_c0", "comm") is None
    assert change_in_paper("baseline", "ring16", "dsgd_c0", "epoch") is None
    assert change_in_paper("clients", "8", "swift_c0", "comm") == pytest.approx(100 * (0.172 / 0.525 - 1))


@pytest.mark.parametrize(
    ("experiment", "group"),
    [("slowdown", "16x"), ("slowdown", "link"), ("clients", "64"), ("clients", "256"), ("noniid", "cyclic")],
)
def test_additions_have_no_printed_numbers(experiment: str, group: str) -> None:
    assert printed_row(experiment, group, "dsgd_c0") == {}


@pytest.mark.parametrize(
    ("experiment", "group", "epoch", "total"),
    [
        ("noniid", "25", 2.116, None),
        ("noniid", "90", 2.116, None),
        ("slowdown", "4x", 1.666, 6.137),
        ("clients", "2", 7.62, None),
        ("topologies", "roc4c", 2.813, None),
    ],
)
def test_printed_rows_are_found(experiment: str, group: str, epoch: float, total: float | None) -> None:
    row = in_paper(experiment, group, "dsgd_c0")
    assert (row.epoch, row.total) == (epoch, total)


def test_parts_of_time_add_up() -> None:
    recorded = RecordedExperiment(Path(), {"name": "baseline"})
    parts = {"compute": 0.9, "communication": 0.6, "waiting": 0.3}
    recorded.__dict__["predicted"] = {"ring16": {"dsgd_c0": parts}}
    times = here(recorded, "ring16", "dsgd_c0")
    assert times.epoch == pytest.approx(1.5)
    assert times.overhead == pytest.approx(0.9)
    assert times.total == pytest.approx(1.8)
    assert times.compute == pytest.approx(0.9)
    assert here(recorded, "ring16", "swift_c0").total is None


def test_slowdown_totals_are_compared_as_ratios() -> None:
    """6.137 over 3.110 in the paper; (1 + 1 + 4) over (1 + 1 + 1) here."""
    recorded = RecordedExperiment(
        Path(),
        {"name": "slowdown", "groups": {"1x": "none", "4x": "four"}, "methods": {"dsgd_c0": "D-SGD"}},
    )
    recorded.__dict__["predicted"] = {
        "1x": {"dsgd_c0": {"compute": 1.0, "communication": 1.0, "waiting": 1.0}},
        "4x": {"dsgd_c0": {"compute": 1.0, "communication": 1.0, "waiting": 4.0}},
    }
    table = time_tables(recorded)[-1]
    assert table.name == "slowdown-ratios"
    assert table.rows == [
        ["four", "D-SGD", pytest.approx(6.137 / 3.110), 2.0, pytest.approx(2 - 6.137 / 3.110)]
    ]


def test_mean_and_deviation() -> None:
    assert deviation([1.0, 2.0, 3.0, 4.0]) == pytest.approx(math.sqrt(5 / 3))
    assert deviation([1.0]) is None
    assert spread([80.0, 82.0], 1) == "81.0 ± 1.4"


@pytest.mark.parametrize(
    ("value", "column", "text"),
    [
        (-2.2e-16, "difference (s)", "0.000"),
        (0.00005, "send (s)", "5e-05"),
        (float("nan"), "loss", "not finite"),
        ("not reached", "÷ D-SGD's time", "not reached"),
    ],
)
def test_cells_as_written(value: float | str, column: str, text: str) -> None:
    assert written(value, column) == text
