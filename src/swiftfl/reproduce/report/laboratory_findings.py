"""What the laboratory's experiments found, in sentences computed from the results, and their pictures."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from swiftfl.report.figures import WIDTH, Picture, legend_below, look, markers_every, panel
from swiftfl.report.numbers import half_width, mean
from swiftfl.reproduce.laboratory.plan import STEPS, TIME
from swiftfl.reproduce.laboratory.shift import SHIFTED_AT
from swiftfl.reproduce.laboratory.trials import CARRIED
from swiftfl.reproduce.report.laboratory import BUDGETS, MODELS, SWIFTS, leaders, mean_since
from swiftfl.reproduce.report.measured import REFERENCE, MeasuredInquiry, finite_rows
from swiftfl.reproduce.report.recorded import number

Values = npt.NDArray[np.float64]
ONE_SEED = "One seed: differences have no intervals, and what follows does not tell who is better."
_POINTS = 40
_BANDS = 4
"""Up to so many curves have bands around them."""
_MANY = 6
"""More curves than these cannot be told apart in one panel."""
_COLUMNS = 3


def laboratory_findings(found: MeasuredInquiry) -> list[str]:
    """Sentences, the most important first."""
    said = _FINDINGS[found.name](found)
    return said if found.seeds > 1 else [ONE_SEED, *said]


def _rivals(found: MeasuredInquiry) -> list[str]:
    return [*_first(found), *_leaders(found), *_against(found)]


def _better(found: MeasuredInquiry) -> list[str]:
    return [*_leaders(found), *_against(found), *_one_step_size(found)]


def _leaders(found: MeasuredInquiry) -> list[str]:
    said = []
    told = "the first, and whoever these seeds cannot tell from it" if found.seeds > 1 else "of one seed"
    for budget, words in BUDGETS.items():
        best = [
            f"{label}: {', '.join(found.methods[m] for m in leaders(found, group, budget, 'accuracy'))}"
            for group, label in found.groups.items()
        ]
        said.append(f"Most accurate at {words} (consensus; {told}): {'; '.join(best)}.")
    return said


def _against(found: MeasuredInquiry) -> list[str]:
    """In how many groups a SWIFT is ahead of, even with, or behind D-SGD; one seed does not tell."""
    said: list[str] = []
    if found.seeds == 1:
        return said
    for method in (m for m in SWIFTS if m in found.methods):
        parts = []
        for budget, words in BUDGETS.items():
            for what, models in MODELS.items():
                count = {"ahead": 0, "even": 0, "behind": 0}
                for group in found.groups:
                    count[standing(found.differences(group, method, budget, what))] += 1
                counted = ", ".join(f"{where} in {groups}" for where, groups in count.items())
                parts.append(f"{words}, {models}: {counted}")
        said.append(
            f"{found.methods[method]} against D-SGD in {len(found.groups)} groups. {'; '.join(parts)}."
        )
    return said


def standing(differences: list[float]) -> str:
    """By the 95 % interval of the mean difference.

    >>> standing([1.0, 1.2, 0.9]), standing([1.0, -2.0, 0.9]), standing([-1.0, -1.2, -0.9])
    ('ahead', 'even', 'behind')
    """
    width = half_width(differences) or 0.0
    middle = mean(differences) if differences else 0.0
    if abs(middle) <= width or middle == 0.0:
        return "even"
    return "ahead" if middle > 0 else "behind"


def _first(found: MeasuredInquiry) -> list[str]:
    """Who reaches the loss first."""
    said = []
    for group, label in found.groups.items():
        reached = {
            m: mean([t for t in times if t is not None])
            for m in found.methods
            if (times := found.times(group, m)) and None not in times
        }
        if reached:
            order = sorted(reached, key=lambda m: reached[m])[:3]
            said.append(f"{label}: " + ", ".join(f"{found.methods[m]} {reached[m]:.2f} s" for m in order))
    return [f"First to the loss (all seeds reach it): {'; '.join(said)}."] if said else []


def _one_step_size(found: MeasuredInquiry) -> list[str]:
    """What a step size that is carried over from lockstep costs, over all groups."""
    said = []
    for method in ("swift", "corrected", REFERENCE):
        ratios = []
        for group in found.groups:
            carried, tuned = (found.finals(group, method, c, "loss") for c in (CARRIED, STEPS))
            if all(map(number, [*carried, *tuned])):
                ratios.append(mean(carried) / mean(tuned))
        if ratios:
            said.append(f"{found.methods[method]} {max(ratios):.2f} (at worst), {mean(ratios):.2f} (mean)")
    return [
        "Test loss with the step size of lockstep, over that with the one tuned in the network: "
        f"{'; '.join(said)}."
    ]


def _influence(found: MeasuredInquiry) -> list[str]:
    said = []
    for group, label in found.groups.items():
        losses = {m: mean(found.finals(group, m, STEPS, "loss")) for m in found.methods}
        order = sorted(losses, key=lambda m: losses[m])
        said.append(f"{label}: " + ", ".join(f"{found.methods[m]} {losses[m]:.4f}" for m in order))
    return [f"Loss at the end, the lowest first: {'; '.join(said)}."]


def _shift(found: MeasuredInquiry) -> list[str]:
    said = []
    for group, label in found.groups.items():
        end = found.seconds(group)
        means = {
            m: mean(
                [
                    mean_since(finite_rows(r["rows"]), SHIFTED_AT * end, end)
                    for r in found.runs(group, m, TIME)
                ]
            )
            for m in found.methods
        }
        order = sorted(means, key=lambda m: -means[m])
        said.append(f"{label}: " + ", ".join(f"{found.methods[m]} {100 * means[m]:.1f} %" for m in order))
    return [f"Mean accuracy from the shift to the end. {'; '.join(said)}."]


_FINDINGS: dict[str, Callable[[MeasuredInquiry], list[str]]] = {
    "rivals": _rivals,
    "better": _better,
    "influence": _influence,
    "shift": _shift,
}


# --- pictures ---------------------------------------------------------------------------------------------


def laboratory_pictures(found: MeasuredInquiry) -> list[Picture]:
    """One picture per group: what the consensus model has learnt over time, mean over seeds."""
    few = len(found.methods) <= _BANDS
    what, words = ("loss", "f − f*") if found.name == "influence" else ("accuracy", "accuracy")
    bands = ", and between the lowest and the highest" if few and found.seeds > 1 else ""
    draw = _one_by_one if len(found.methods) > _MANY else _together
    return [
        Picture(
            f"{found.name}-{what}-{group}",
            f"{label}: {words} of the consensus model over time, each method with its step size for equal "
            f"time; mean over seeds{bands}.",
            partial(draw, found, group, what, words),
        )
        for group, label in found.groups.items()
    ]


def _order(found: MeasuredInquiry) -> list[str]:
    """SWIFT and D-SGD first: their colours are theirs everywhere."""
    first = [method for method in ("swift", REFERENCE) if method in found.methods]
    return [*first, *(method for method in found.methods if method not in first)]


def _curves(found: MeasuredInquiry, group: str, method: str, what: str) -> list[Values]:
    """One per seed that used up its budget, over `_POINTS` times."""
    runs = [finite_rows(run["rows"]) for run in found.runs(group, method, TIME)]
    return [
        np.interp(_times(found, group), [row["time"] for row in rows], [row[what] for row in rows])
        for rows in runs
        if rows and rows[-1]["time"] >= found.seconds(group) * 0.99
    ]


def _times(found: MeasuredInquiry, group: str) -> Values:
    return np.linspace(0.0, found.seconds(group), _POINTS)


def _together(found: MeasuredInquiry, group: str, what: str, words: str) -> Figure:
    """All methods in one panel."""
    figure, axes = panel("virtual seconds", words, found.groups[group], height=4.4)
    times = _times(found, group)
    for k, method in enumerate(_order(found)):
        curves = _curves(found, group, method, what)
        if curves:
            style = look("", k)
            label = found.methods[method]
            axes.plot(times, np.mean(curves, axis=0), label=label, markevery=markers_every(_POINTS), **style)
            if len(found.methods) <= _BANDS:
                low, high = np.min(curves, axis=0), np.max(curves, axis=0)
                axes.fill_between(times, low, high, color=style["color"], alpha=0.12, lw=0)
    if what == "loss":
        axes.set_yscale("log")
    axes.set_xlim(left=0)
    legend_below(figure, axes)
    return figure


def _one_by_one(found: MeasuredInquiry, group: str, what: str, words: str) -> Figure:
    """A small panel for each method, beside SWIFT and D-SGD."""
    known, others = _order(found)[:2], _order(found)[2:]
    rows = math.ceil(len(others) / _COLUMNS)
    figure = Figure(figsize=(WIDTH, 1.2 + 1.4 * rows), layout="constrained")
    places = figure.subplots(rows, _COLUMNS, sharex=True, sharey=True, squeeze=False).ravel().tolist()
    times = _times(found, group)
    for axes, method in zip(places, others, strict=False):
        for k, shown in enumerate((*known, method)):
            curves = _curves(found, group, shown, what)
            if curves:
                label = found.methods[shown] if shown in known else "the method above the panel"
                every = markers_every(_POINTS) * 2
                axes.plot(times, np.mean(curves, axis=0), label=label, markevery=every, **look("", k))
        axes.set_title(found.methods[method], loc="left", fontsize=7.5)
        axes.tick_params(labelsize=7.5, labelbottom=True)
        axes.set_xlim(left=0)
    for axes in places[len(others) :]:
        axes.set_visible(False)
    figure.suptitle(f"{found.groups[group]}: {words} over virtual seconds", x=0.02, ha="left", fontsize=10)
    legend_below(figure, places[0])
    return figure
