"""The headlines of an experiment, computed from what was recorded; also where SWIFT does not win."""

from __future__ import annotations

from swiftfl.report.constants import live_times
from swiftfl.report.learning import mean_final_loss, reached
from swiftfl.report.numbers import change, mean, percent
from swiftfl.report.recorded import Recorded
from swiftfl.report.times import REFERENCE, change_in_paper, here, in_paper

SWIFTS = ("swift_c0", "swift_c1")


def findings(recorded: Recorded) -> list[str]:
    """Sentences, the most important first."""
    return [
        *_communication(recorded),
        *_reached(recorded),
        *_not_won(recorded),
        *_adpsgd(recorded),
        *_furthest(recorded),
    ]


def _communication(recorded: Recorded) -> list[str]:
    """SWIFT's communication against D-SGD's: predicted, printed and, if it was, measured."""
    said = []
    for group, label in recorded.groups.items():
        ours, theirs = here(recorded, group, SWIFTS[0]), here(recorded, group, REFERENCE)
        if ours.total is None or theirs.total is None:
            continue
        printed = change_in_paper(recorded.name, group, SWIFTS[0], "comm")
        beside = "" if printed is None else f" (paper: {percent(printed)})"
        said.append(
            f"{label}: SWIFT C_0 communicates {percent(change(ours.communication, theirs.communication))} "
            f"against D-SGD, predicted{beside}; with waiting {percent(change(ours.apart, theirs.apart))}; "
            f"total time {percent(change(ours.total, theirs.total))}."
        )
    measured, reference = live_times(recorded, SWIFTS[0]), live_times(recorded, REFERENCE)
    if measured.apart is not None and reference.apart is not None:
        said.append(
            f"Measured on this machine with {recorded.live['clients']} real processes: SWIFT C_0's "
            "communication plus waiting is "
            f"{percent(change(measured.apart, reference.apart))} against D-SGD's."
        )
    return said


def _reached(recorded: Recorded) -> list[str]:
    """How soon SWIFT C_0 reaches D-SGD's final loss."""
    said = []
    for group, label in recorded.groups.items():
        reach = reached(recorded, group, SWIFTS[0])
        if not reach.seeds:
            continue
        if not reach.ratios:
            said.append(f"{label}: SWIFT C_0 does not reach D-SGD's final test loss.")
            continue
        some = "" if len(reach.ratios) == reach.seeds else f" ({len(reach.ratios)} of {reach.seeds} seeds)"
        ratio = mean(reach.ratios)
        sooner = "sooner" if ratio < 1 else "not sooner"
        said.append(
            f"{label}: SWIFT C_0 reaches D-SGD's final test loss in {ratio:.2f} times D-SGD's time{some}, "
            f"{sooner}."
        )
    return said


def _not_won(recorded: Recorded) -> list[str]:
    """Groups in which another method ends with a lower test loss than both SWIFTs."""
    said = []
    for group, label in recorded.groups.items():
        losses = {
            m: loss for m in recorded.methods if (loss := mean_final_loss(recorded, group, m)) is not None
        }
        swifts = {m: loss for m, loss in losses.items() if m in SWIFTS}
        if not swifts or len(swifts) == len(losses):
            continue
        best, swift = min(losses, key=losses.__getitem__), min(swifts, key=swifts.__getitem__)
        if best not in SWIFTS:
            said.append(
                f"{label}: SWIFT does not win after equal work: {recorded.methods[best]} ends with test loss "
                f"{losses[best]:.3f}, {recorded.methods[swift]} with {losses[swift]:.3f}."
            )
    return said


def _adpsgd(recorded: Recorded) -> list[str]:
    """The number that the paper had to quote."""
    group, method = next(iter(recorded.groups), ""), "adpsgd_c0"
    quoted = change_in_paper(recorded.name, group, method, "epoch")
    ours, theirs = here(recorded, group, method), here(recorded, group, REFERENCE)
    if quoted is None or ours.epoch is None:
        return []
    return [
        f"AD-PSGD: an epoch takes {percent(change(ours.epoch, theirs.epoch))} against D-SGD, with waiting "
        f"{percent(change(ours.total, theirs.total))}, predicted; the paper quotes {percent(quoted)}."
    ]


def _furthest(recorded: Recorded) -> list[str]:
    """Where the prediction of an epoch is furthest from the printed value."""
    apart = {
        (group, method): gap
        for group in recorded.groups
        for method in recorded.methods
        if (gap := change(here(recorded, group, method).epoch, in_paper(recorded.name, group, method).epoch))
        is not None
    }
    if not apart:
        return []
    group, method = max(apart, key=lambda case: abs(apart[case]))
    return [
        f"Predicted epochs are within {max(map(abs, apart.values())):.0f} % of the printed ones; the "
        f"furthest is {recorded.methods[method]}, {recorded.groups[group]} ({percent(apart[group, method])})."
    ]
