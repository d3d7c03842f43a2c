"""Numbers of the report against hand values and against what the paper printed itself."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest

from swiftfl.report.numbers import change, deviation, percent, spread, written
from swiftfl.reproduce.laboratory.plan import time_to_loss
from swiftfl.reproduce.printed import printed
from swiftfl.reproduce.report.findings import findings
from swiftfl.reproduce.report.recorded import RecordedExperiment
from swiftfl.reproduce.report.times import (
    change_in_paper,
    here,
    in_paper,
    live_table,
    predicted_change,
    printed_row,
    time_tables,
)

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


def predicted_times(name: str, group: str, method: str, **about: Any) -> RecordedExperiment:
    """One method that computes for 1 s and communicates for 0.5 s."""
    recorded = RecordedExperiment(
        Path(), {"name": name, "groups": {group: group}, "methods": {method: method}, **about}
    )
    parts = {"compute": 1.0, "communication": 0.5, "waiting": 0.0}
    recorded.__dict__["predicted"] = {group: {method: parts}}
    return recorded


def test_errors_are_relative_to_the_print() -> None:
    recorded = predicted_times("clients", "8", "dsgd_c0")
    table = time_tables(recorded)[0]
    assert table.columns[2:] == (
        "epoch, paper (s)", "epoch, here (s)", "epoch, error (%)",
        "communication, paper (s)", "communication, here (s)", "communication, error (%)",
    )  # fmt: skip
    epoch, communication = 100 * (1.5 / 2.459 - 1), 100 * (0.5 / 0.525 - 1)
    assert table.rows[0][2:] == [2.459, 1.5, pytest.approx(epoch), 0.525, 0.5, pytest.approx(communication)]
    assert findings(recorded)[-2:] == [
        f"Predicted {name}: half of 1 are within {abs(error):.0f} % of the printed ones; furthest off is "
        f"dsgd_c0, 8 ({percent(error)}). Calibrated ones are not counted."
        for name, error in (("epochs", epoch), ("communication", communication))
    ]


@pytest.mark.parametrize(
    ("case", "cells"),
    [
        (("baseline", "ring16", "dsgd_c0"), ("calibrated", "calibrated")),
        (("clients", "16", "swift_c0"), ("calibrated", "calibrated")),
        (("topologies", "ring", "dsgd_c0"), ("calibrated", pytest.approx(100 * (0.5 / 0.962 - 1)))),
    ],
)
def test_what_the_calibration_fixes_is_no_prediction(
    case: tuple[str, str, str], cells: tuple[Any, Any]
) -> None:
    recorded = predicted_times(*case)
    row = time_tables(recorded)[0].rows[0]
    assert (row[4], row[7]) == cells
    said = sum("Calibrated ones are not counted" in sentence for sentence in findings(recorded))
    assert said == sum(cell != "calibrated" for cell in cells)
    elsewhere = time_tables(predicted_times(*case, hardware="measured"))[0].rows[0]
    assert all(isinstance(elsewhere[k], float) for k in (4, 7))


@pytest.mark.parametrize(("group", "fixed"), [("16", True), ("8", False)])
def test_a_change_between_calibrated_numbers_is_no_prediction(group: str, fixed: bool) -> None:
    recorded = predicted_times("clients", group, "swift_c0")
    parts = {"compute": 1.0, "communication": 2.0, "waiting": 0.0}
    recorded.about["methods"]["dsgd_c0"] = "D-SGD"
    recorded.predicted[group]["dsgd_c0"] = parts
    row = time_tables(recorded)[1].rows[0]
    expected = ("calibrated", "calibrated") if fixed else (pytest.approx(-50.0), pytest.approx(-75.0))
    assert (row[3], row[5]) == expected
    assert ("calibrated on it" in findings(recorded)[0]) == fixed
    recorded.predicted.clear()
    assert predicted_change(recorded, group, "swift_c0", "comm") is None


def test_measured_changes_are_told_without_and_with_waiting() -> None:
    """0.024 of 0.066 s is -63.6 %; 0.024 of 0.291 s is -91.8 %."""
    recorded = predicted_times("baseline", "ring16", "swift_c0")
    parts = {"compute": 1.3, "communication": 0.024, "waiting": 0.0}
    reference = {"compute": 1.3, "communication": 0.066, "waiting": 0.225}
    recorded.__dict__["live"] = {
        "clients": 16, "steps_per_epoch": 32, "gradient_seconds": 0.04,
        "methods": {"swift_c0": parts, "dsgd_c0": reference},
    }  # fmt: skip
    sentence = next(s for s in findings(recorded) if s.startswith("Measured"))
    assert "-63.6 % against D-SGD's without waiting" in sentence.replace("\N{MINUS SIGN}", "-")
    assert "-91.8 % with waiting" in sentence.replace("\N{MINUS SIGN}", "-")
    table = live_table(recorded)
    assert table is not None
    assert [table.rows[0][k] for k in (4, 7)] == [
        pytest.approx(-63.636, abs=0.01),
        pytest.approx(-91.753, abs=0.01),
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


def test_tables_of_the_documentation_are_as_the_report_writes_them() -> None:
    """Headings of today; errors with their sign; and whose seconds they are."""
    text = (Path(__file__).parents[2] / "docs" / "reproduce.md").read_text()
    for table in time_tables(predicted_times("clients", "8", "dsgd_c0")):
        assert f"| {' | '.join(table.columns)} |" in text
    rows = re.findall(r"^\| group \| method \| epoch, paper.*\n.*\n((?:\|.*\n)+)", text, re.MULTILINE)
    cells = [row.strip("| ").split(" | ")[k] for row in "".join(rows).splitlines() for k in (4, 7)]
    assert len(cells) > 100
    assert all(re.fullmatch(r"[+-]\d+\.\d|0\.0|–|calibrated", cell) for cell in cells)
    assert "wall clock" not in text
