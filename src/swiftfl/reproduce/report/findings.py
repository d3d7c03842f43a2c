"""The headlines of an experiment, computed from what was recorded; also where SWIFT does not win."""

from __future__ import annotations

import contextlib
from statistics import median

from swiftfl.errors import UserError
from swiftfl.report.numbers import Cell, change, deviation, mean, percent, spread
from swiftfl.report.table import GROUP, Table
from swiftfl.reproduce.report.learning import NOT_REACHED, final, ratios_to_common_loss, reached
from swiftfl.reproduce.report.recorded import RecordedExperiment
from swiftfl.reproduce.report.times import (
    REFERENCE,
    change_in_paper,
    change_is_calibrated,
    here,
    live_times,
    merged,
    predicted_change,
    prediction_error,
)

SWIFT = "swift_c0"


def overview(found: list[RecordedExperiment]) -> Table | None:
    """SWIFT against D-SGD in every group of every experiment."""
    rows: list[list[Cell]] = []
    for recorded in found:
        with contextlib.suppress(UserError):  # runs that cannot be read: the experiment's section says why
            rows += _overview_rows(recorded)
    if not rows:
        return None
    columns = (
        GROUP, "SWIFT C_0 against D-SGD", "communication change, paper (%)",
        "communication change, predicted (%)", "time per epoch change, predicted (%)",
        "time to the same loss ÷ D-SGD's", "test loss of SWIFT", "test loss of D-SGD",
    )  # fmt: skip
    note = (
        "Times are virtual and include waiting. The same loss is the lowest test loss that both come to: "
        "below 1.00, SWIFT has it sooner. Test losses are at the end of the runs. – is what was not printed "
        "or not run."
    )
    return Table("overview", "SWIFT against D-SGD at a glance", columns, rows, note)


def _overview_rows(recorded: RecordedExperiment) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for group, label in recorded.groups.items():
        for method in _kinds(recorded):
            row = _glance(recorded, group, method)
            if any(cell is not None for cell in row):
                more = recorded.methods[method].removeprefix(recorded.methods.get(SWIFT, ""))
                rows.append([recorded.title, f"{label}{more}", *row])
    return rows


def _glance(recorded: RecordedExperiment, group: str, method: str) -> list[Cell]:
    ours, theirs = here(recorded, group, method), here(recorded, group, REFERENCE)
    losses = [spread(final(recorded.of(group, m), "loss")) for m in (method, REFERENCE)]
    return [
        change_in_paper(recorded.name, group, method, "comm"),
        predicted_change(recorded, group, method, "comm"),
        change(ours.total, theirs.total),
        spread(ratios_to_common_loss(recorded, group, method), 2),
        *(losses if losses[0] is not None else [None, None]),
    ]


def _kinds(recorded: RecordedExperiment) -> list[str]:
    """The variants of SWIFT with C_0: the paper's and ours."""
    return [method for method in recorded.methods if _is_swift(method) and method != "swift_c1"]


def findings(recorded: RecordedExperiment) -> list[str]:
    """Sentences, the most important first."""
    return [
        *_communication(recorded),
        *_measured(recorded),
        *_reached(recorded),
        *_lowest(recorded),
        *_adpsgd(recorded),
        *_furthest(recorded),
    ]


def _communication(recorded: RecordedExperiment) -> list[str]:
    """SWIFT's communication against D-SGD's, predicted and printed."""
    said = []
    for group, label in merged(recorded).items():
        ours, theirs = here(recorded, group, SWIFT), here(recorded, group, REFERENCE)
        if ours.total is not None and theirs.total is not None:
            printed = change_in_paper(recorded.name, group, SWIFT, "comm")
            fixed = ", calibrated on it" if change_is_calibrated(recorded, group, SWIFT, "comm") else ""
            said.append(
                f"{label} {percent(change(ours.communication, theirs.communication))}"
                + ("" if printed is None else f" (paper {percent(printed)}{fixed})")
                + f", with waiting {percent(change(ours.overhead, theirs.overhead))}"
            )
    return [f"SWIFT C_0's predicted communication against D-SGD's: {'; '.join(said)}."] if said else []


def _measured(recorded: RecordedExperiment) -> list[str]:
    ours, theirs = live_times(recorded, SWIFT), live_times(recorded, REFERENCE)
    if ours.overhead is None or theirs.overhead is None:
        return []
    return [
        f"Measured on this machine with {recorded.live['clients']} real processes, SWIFT C_0's communication "
        f"is {percent(change(ours.communication, theirs.communication))} against D-SGD's without waiting, as "
        f"the paper counts it, and {percent(change(ours.overhead, theirs.overhead))} with waiting."
    ]


def _reached(recorded: RecordedExperiment) -> list[str]:
    """How soon each kind of SWIFT C_0 reaches D-SGD's final loss."""
    return [sentence for method in _kinds(recorded) if (sentence := _reached_by(recorded, method))]


def _reached_by(recorded: RecordedExperiment, method: str) -> str:
    said = []
    for group, label in recorded.groups.items():
        reach = reached(recorded, group, method)
        if reach.ratios:
            missed = reach.seeds - len(reach.ratios)
            some = f" ({NOT_REACHED} by {missed} of {reach.seeds} seeds)" if missed else ""
            said.append(f"{label} {mean(reach.ratios):.2f}{some}")
        elif reach.seeds:
            said.append(f"{label} {NOT_REACHED}")
    if not said:
        return ""
    name = recorded.methods[method]
    return f"Time until {name} has D-SGD's final test loss, over D-SGD's time: {'; '.join(said)}."


def _is_swift(method: str) -> bool:
    return method.startswith("swift")


def _equal_work(recorded: RecordedExperiment, group: str) -> dict[str, list[float]]:
    """Final test losses of the methods that took as many steps as D-SGD."""
    taken = {m: final(recorded.of(group, m), "iteration") for m in recorded.methods}
    reference = taken.get(REFERENCE) or next((t for t in taken.values() if t), [])
    return {
        m: losses
        for m, steps in taken.items()
        if steps
        and abs(mean(steps) / mean(reference) - 1) < 0.01
        and (losses := final(recorded.of(group, m), "loss"))
    }


def _lowest(recorded: RecordedExperiment) -> list[str]:
    """Who ends with the lowest test loss after equal work: a SWIFT or not."""
    won, lost = [], []
    for group, label in recorded.groups.items():
        losses = _equal_work(recorded, group)
        swifts = [m for m in losses if _is_swift(m)]
        if not swifts or len(swifts) == len(losses):
            continue
        best, swift = (min(among, key=lambda m: mean(losses[m])) for among in (losses, swifts))
        if _is_swift(best):
            won.append(label)
        else:
            lost.append(
                f"{label}: {recorded.methods[best]} {mean(losses[best]):.3f}, {recorded.methods[swift]} "
                f"{mean(losses[swift]):.3f}{_within(losses[best], losses[swift])}"
            )
    said = [f"After equal work a SWIFT has the lowest test loss in: {', '.join(won)}."] if won else []
    if lost:
        said.append(f"After equal work SWIFT does not have the lowest test loss in: {'; '.join(lost)}.")
    return said


def _within(one: list[float], other: list[float]) -> str:
    """Whether two means are closer than seeds scatter."""
    widest = max((d for d in (deviation(one), deviation(other)) if d is not None), default=None)
    if widest is None:
        return " (one seed)"
    return " (within one standard deviation)" if abs(mean(one) - mean(other)) <= widest else ""


def _adpsgd(recorded: RecordedExperiment) -> list[str]:
    """The number that the paper had to quote."""
    group, method = next(iter(recorded.groups), ""), "adpsgd_c0"
    quoted = change_in_paper(recorded.name, group, method, "epoch")
    ours, theirs = here(recorded, group, method), here(recorded, group, REFERENCE)
    if quoted is None or ours.epoch is None:
        return []
    return [
        f"AD-PSGD's predicted epoch is {percent(change(ours.epoch, theirs.epoch))} against D-SGD's, with "
        f"waiting {percent(change(ours.total, theirs.total))}; the paper quotes {percent(quoted)}."
    ]


def _furthest(recorded: RecordedExperiment) -> list[str]:
    """How far predictions are from the printed values, without those that the calibration fixes."""
    said = []
    for what, name in (("epoch", "epochs"), ("comm", "communication")):
        apart = {
            (label, method): error
            for group, label in merged(recorded).items()
            for method in recorded.methods
            if (error := prediction_error(recorded, group, method, what)) is not None
        }
        if apart:
            label, method = max(apart, key=lambda case: abs(apart[case]))
            typical = median(abs(error) for error in apart.values())
            said.append(
                f"Predicted {name}: half of {len(apart)} are within {typical:.0f} % of the printed ones; "
                f"furthest off is {recorded.methods[method]}, {label} ({percent(apart[label, method])}). "
                "Calibrated ones are not counted."
            )
    return said
