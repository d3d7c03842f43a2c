"""How the predictions hang on the constants that were chosen, and what this machine measured."""

from __future__ import annotations

from functools import partial
from typing import Any

from matplotlib.figure import Figure

from swiftfl.report.figures import Picture, legend_below, look, panel
from swiftfl.report.numbers import Cell, change
from swiftfl.report.table import GROUP, Table
from swiftfl.reproduce.report.recorded import RecordedExperiment
from swiftfl.reproduce.report.times import REFERENCE, EpochTimes, change_in_paper, here

_QUANTITIES = {"communication": "communication per epoch (s)", "epoch": "epoch (s)"}
_MOVED = ("communication", "waiting", "epoch")


def sensitivity_pictures(recorded: RecordedExperiment) -> list[Picture]:
    """A pair per constant: how predicted communication and epoch move with it."""
    return [
        Picture(
            f"{recorded.name}-sensitivity-{constant}-{quantity}",
            f"Predicted {quantity} time if {constant} were otherwise.",
            partial(_sensitivity, recorded, constant, moved, quantity),
        )
        for constant, moved in recorded.sensitivity.items()
        for quantity in _QUANTITIES
    ]


def _sensitivity(recorded: RecordedExperiment, constant: str, moved: dict[str, Any], quantity: str) -> Figure:
    unit = "" if constant == "spread" else " (s)"
    figure, axes = panel(f"{constant}{unit}", _QUANTITIES[quantity])
    for method, label in recorded.methods.items():
        if method in moved:
            axes.plot(moved["values"], moved[method][quantity], label=label, **look(method))
    values = [value for value in moved["values"] if value > 0]
    if values and max(values) / min(values) > 20:
        axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    legend_below(figure, axes)
    return figure


def sensitivity_table(recorded: RecordedExperiment) -> Table | None:
    rows: list[list[Cell]] = []
    for constant, moved in recorded.sensitivity.items():
        for method, label in recorded.methods.items():
            if method in moved:
                values = moved["values"]
                cells = [_range(moved[method].get(quantity)) for quantity in _MOVED]
                rows.append([constant, label, f"{values[0]:.3g} to {values[-1]:.3g}", *cells])
    if not rows:
        return None
    columns = (GROUP, "method", "moved over", *(f"{name} (s)" for name in _MOVED))
    note = (
        "Predicted seconds per epoch at the smallest and the largest value of what the calibration leaves "
        "free. For seconds per message (send, mix, latency) the bandwidth is calibrated anew, so that D-SGD "
        "keeps its row; spread is the variation of compute times, of which the paper does not tell."
    )
    return Table(
        f"{recorded.name}-sensitivity",
        "Predictions at the ends of each constant's range",
        columns,
        rows,
        note,
    )


def _range(values: list[float] | None) -> str | None:
    if not values:
        return None
    return f"{values[0]:.3f} to {values[-1]:.3f}"


def live_times(recorded: RecordedExperiment, method: str) -> EpochTimes:
    """What was measured on this machine."""
    parts = recorded.live.get("methods", {}).get(method)
    if not parts:
        return EpochTimes()
    epoch = parts["compute"] + parts["communication"]
    return EpochTimes(epoch, parts["communication"], parts["waiting"], epoch + parts["waiting"])


def live_table(recorded: RecordedExperiment) -> Table | None:
    """Real processes, beside the prediction and the paper: communication and waiting against D-SGD's."""
    live, group = recorded.live, next(iter(recorded.groups), "")
    rows: list[list[Cell]] = []
    for method, label in recorded.methods.items():
        measured, predicted = live_times(recorded, method), here(recorded, group, method)
        if measured.total is not None:
            reference = live_times(recorded, REFERENCE), here(recorded, group, REFERENCE)
            other = method != REFERENCE
            rows.append(
                [
                    label, measured.compute, measured.communication, measured.waiting,
                    change(measured.apart, reference[0].apart) if other else None,
                    change(predicted.apart, reference[1].apart) if other else None,
                    change_in_paper(recorded.name, group, method, "comm"),
                ]
            )  # fmt: skip
    if not rows:
        return None
    columns = (
        "method", "compute (s)", "communication (s)", "waiting (s)",
        "communication + waiting change, measured (%)", "predicted (%)", "communication, paper (%)",
    )  # fmt: skip
    note = (
        f"Measured on this machine: {live['clients']} processes that share memory, "
        f"{live['steps_per_epoch']} steps an epoch, each gradient emulated by {live['gradient_seconds']:g} "
        "s of sleep. Changes are against D-SGD; the paper's communication excludes waiting."
    )
    return Table(f"{recorded.name}-live", "Measured with real processes", columns, rows, note)
