"""Tables and findings of the laboratory's experiments."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from swiftfl.report.numbers import Cell, half_width, interval, mean
from swiftfl.report.table import GROUP, Table
from swiftfl.reproduce.laboratory.plan import STEPS, TARGET, TIME, Row, at
from swiftfl.reproduce.laboratory.shift import SHIFTED_AT
from swiftfl.reproduce.laboratory.trials import CARRIED
from swiftfl.reproduce.report.learning import DIVERGED, NOT_REACHED
from swiftfl.reproduce.report.measured import REFERENCE, MeasuredInquiry, finite_rows
from swiftfl.reproduce.report.recorded import number

BUDGETS = {STEPS: "equal steps", TIME: "equal time"}
MODELS = {"accuracy": "consensus", "client_accuracy": "clients' own"}
OURS = "look_ahead"
"""The SWIFT that the map compares with D-SGD."""
SWIFTS = ("swift", "corrected", "look_ahead", "both")
_SHIFT_TIMES = (1 / 6, 1 / 3, 5 / 12, 1 / 2, 7 / 12, 2 / 3, 5 / 6, 1.0)


def tables(found: MeasuredInquiry) -> list[Table]:
    return _TABLES[found.name](found)


def rule(found: MeasuredInquiry) -> str:
    """How step sizes were chosen and what intervals are, for the reader."""
    r = found.results
    factor = round(r["grid"][1] / r["grid"][0])
    grid = f"{min(r['grid']):g} to {max(r['grid']):g} by factors of {factor}"
    seeds = "seed" if len(r["tuning_seeds"]) == 1 else "seeds"
    widths = " ± is the half-width of a 95 % confidence interval (Student's t)." if found.seeds > 1 else ""
    return (
        f"Step sizes are on a grid ({grid}). The same rule chooses for every method, in every group and for "
        "each budget: from the middle of the grid to smaller ones until two in a row give no lower loss of "
        "the consensus model on test data at the end of the budget than the best so far, then to larger ones "
        f"in the same way; mean over tuning {seeds} {', '.join(map(str, r['tuning_seeds']))}. Results are of "
        f"{found.seeds} other seed{'s' * (found.seeds > 1)}. Equal steps: {r['steps']} client steps of all. "
        f"Equal time: that in which SWIFT takes these steps.{widths}"
    )


# --- cells --------------------------------------------------------------------------------------------


def _percent(found: MeasuredInquiry, group: str, method: str, choice: str, what: str = "accuracy") -> Cell:
    values = found.percents(group, method, choice, what)
    return f"{interval(values, 1)}{_some(len(values), found.seeds)}" if values else DIVERGED


def _time(found: MeasuredInquiry, group: str, method: str) -> Cell:
    times = found.times(group, method)
    there = [time for time in times if time is not None]
    return f"{interval(there, 2)}{_some(len(there), len(times))}" if there else NOT_REACHED


def _some(there: int, of: int) -> str:
    """How many seeds a number is of, if not of all: the others diverged, or did not get there."""
    return "" if there == of else f" ({there} of {of})"


def _step_size(found: MeasuredInquiry, group: str, method: str, choice: str) -> str:
    return f"{found.step_size(group, method, choice):g}"


# --- rivals -------------------------------------------------------------------------------------------


def _rivals(found: MeasuredInquiry) -> list[Table]:
    rows: list[list[Cell]] = []
    for group, label in found.groups.items():
        for method, name in found.methods.items():
            rows.append(
                [
                    label,
                    name,
                    f"{found.mean_of(group, method, 'models'):.2f}",
                    f"{100 * found.mean_of(group, method, 'waiting'):.0f}",
                    *_learnt(found, group, method),
                ]
            )
    columns = (
        GROUP, "method", "models sent per step", "waiting (% of time)", "γ, equal steps",
        "accuracy, equal steps (%)", "clients' own (%)", "γ, equal time", "accuracy, equal time (%)",
        "clients' own, equal time (%)", f"seconds to a loss of {found.target(next(iter(found.groups))):g}",
    )  # fmt: skip
    note = (
        "Slow clients: a quarter of them four times as slow. Slow links: a quarter of the clients behind "
        "links that are twenty times slower, over which a message takes two steps. " + rule(found)
    )
    return [Table("rivals", found.title, columns, rows, note)]


def _learnt(found: MeasuredInquiry, group: str, method: str) -> list[Cell]:
    cells: list[Cell] = []
    for budget in BUDGETS:
        cells.append(_step_size(found, group, method, budget))
        cells += [_percent(found, group, method, budget, what) for what in MODELS]
    return [*cells, _time(found, group, method)]


# --- a better SWIFT -----------------------------------------------------------------------------------


def _better(found: MeasuredInquiry) -> list[Table]:
    return [
        the_map(found),
        *(_accuracies(found, budget, what) for budget in BUDGETS for what in MODELS),
        *(_against_reference(found, budget, what) for budget in BUDGETS for what in MODELS),
        _by_group(found, "times", "seconds to a loss", lambda g, m: _time(found, g, m), _targets(found)),
        _carried(found),
        _law(found),
        _by_group(
            found, "step-sizes", "step sizes for equal steps / equal time",
            lambda g, m: " / ".join(_step_size(found, g, m, b) for b in BUDGETS), "",
        ),
    ]  # fmt: skip


def _by_group(
    found: MeasuredInquiry,
    name: str,
    title: str,
    cell: Callable[[str, str], Cell],
    note: str,
    methods: Sequence[str] | None = None,
) -> Table:
    """Groups down, methods across."""
    shown = list(methods or found.methods)
    rows: list[list[Cell]] = [[label, *(cell(g, m) for m in shown)] for g, label in found.groups.items()]
    columns = ("data, network", *(found.methods[m] for m in shown))
    return Table(f"{found.name}-{name}", f"{found.title}: {title}", columns, rows, note)


def _accuracies(found: MeasuredInquiry, budget: str, what: str) -> Table:
    suffix = f"{'steps' if budget == STEPS else 'time'}{'' if what == 'accuracy' else '-own'}"
    title = f"accuracy at {BUDGETS[budget]}, {MODELS[what]} (%)"
    note = "Step sizes and seeds are those of the map."
    return _by_group(found, suffix, title, lambda g, m: _percent(found, g, m, budget, what), note)


def _against_reference(found: MeasuredInquiry, budget: str, what: str) -> Table:
    suffix = f"{'steps' if budget == STEPS else 'time'}{'' if what == 'accuracy' else '-own'}-dsgd"
    title = f"accuracy against D-SGD's with the same seed, {BUDGETS[budget]}, {MODELS[what]} (points)"
    others = [method for method in found.methods if method != REFERENCE]
    return _by_group(
        found,
        suffix,
        title,
        lambda g, m: interval(found.differences(g, m, budget, what), 1, sign="+"),
        "The mean over pairs of runs of one seed" + _with_interval(found),
        others,
    )


def _with_interval(found: MeasuredInquiry) -> str:
    return ", with its 95 % confidence interval." if found.seeds > 1 else "."


def _targets(found: MeasuredInquiry) -> str:
    said = ", ".join(f"{label} {found.target(group):g}" for group, label in found.groups.items())
    one = {found.target(group) for group in found.groups}
    said = f"{one.pop():g}" if len(one) == 1 else said
    return f"The loss of the consensus model on test data: {said}. With the step sizes for equal time."


def _carried(found: MeasuredInquiry) -> Table:
    def cell(group: str, method: str) -> Cell:
        here, carried = (
            [value for value in found.finals(group, method, choice, "loss") if number(value)]
            for choice in (STEPS, CARRIED)
        )
        return f"{mean(carried):.3f} ({mean(here):.3f})" if carried and here else DIVERGED

    note = (
        "Test loss at equal steps with the step size that is best in lockstep with the same data, and in "
        "brackets with the one that is tuned there. Means over seeds."
    )
    return _by_group(found, "one-step-size", "one step size for every network", cell, note)


def _law(found: MeasuredInquiry) -> Table:
    keys = ("age", "measured_age", "factor", "measured_factor", "corrected")
    rows: list[list[Cell]] = [[r["label"], *(f"{r[k]:.3f}" for k in keys)] for r in found.results["law"]]
    columns = (
        "regime", "age, predicted", "measured", "γ_eff / γ, predicted", "γ_eff / γ, measured", "corrected",
    )  # fmt: skip
    note = "Gradients that never change, 16 clients in a ring; the mean model's way per step."
    return Table("better-law", "How far SWIFT steps", columns, rows, note)


# --- the map ------------------------------------------------------------------------------------------


def the_map(found: MeasuredInquiry) -> Table:
    """Per group and budget: who is best, and how SWIFT with look-ahead stands against D-SGD."""
    rows: list[list[Cell]] = []
    for group, label in found.groups.items():
        for budget, words in BUDGETS.items():
            cells: list[Cell] = []
            for what in MODELS:
                best = leaders(found, group, budget, what)
                gain = interval(found.differences(group, OURS, budget, what), 1, sign="+")
                cells += [", ".join(found.methods[m] for m in best), gain]
            rows.append([label, words, *cells])
    columns = (
        "data, network", "at", "most accurate, consensus", "SWIFT look-ahead against D-SGD (points)",
        "most accurate, clients' own", "SWIFT look-ahead against D-SGD, clients' own (points)",
    )  # fmt: skip
    several = (
        "Most accurate: the best mean, and whoever is behind it by less than the 95 % interval of the "
        "difference over pairs of runs of one seed. "
    )
    note = (several if found.seeds > 1 else "Most accurate: the best of one seed. ") + rule(found)
    return Table(f"{found.name}-map", f"{found.title}: what to use when", columns, rows, note)


def _mean(found: MeasuredInquiry, group: str, method: str, budget: str, what: str) -> float:
    values = found.finals(group, method, budget, what)
    return mean(values) if all(map(number, values)) else -1.0


def leaders(found: MeasuredInquiry, group: str, budget: str, what: str) -> list[str]:
    """The method of the best mean, and those that these seeds cannot tell from it; the best first."""
    means = {m: _mean(found, group, m, budget, what) for m in found.methods}
    order = sorted(means, key=lambda m: -means[m])
    best = found.finals(group, order[0], budget, what)
    kept = [order[0]]
    for method in order[1:]:
        behind = [b - v for b, v in zip(best, found.finals(group, method, budget, what), strict=True)]
        if means[method] >= 0 and not _beyond(behind):
            kept.append(method)
    return kept


def _beyond(differences: Sequence[float]) -> bool:
    """Whether a mean is further from zero than its interval; one seed tells nothing but its sign."""
    width = half_width(differences)
    return abs(mean(differences)) > (0.0 if width is None else width)


# --- influence and shift ------------------------------------------------------------------------------


def _influence(found: MeasuredInquiry) -> list[Table]:
    rows: list[list[Cell]] = []
    for group, label in found.groups.items():
        for method, name in found.methods.items():
            world = found.cell(group, method)["world"]
            losses = [value for value in found.finals(group, method, STEPS, "loss") if number(value)]
            rows.append(
                [
                    label,
                    name,
                    f"{world['influence'][0]:.3f}",
                    f"{world['predicted']:.3f}",
                    _step_size(found, group, method, STEPS),
                    interval(losses, 4) if losses else DIVERGED,
                    f"{found.target(group):g}",
                    _step_size(found, group, method, TARGET),
                    _time(found, group, method),
                ]
            )
    columns = (
        GROUP, "p", "p of client 0", "predicted level", "γ", "f − f* at the end", "loss to reach",
        "γ for it", "seconds to it",
    )  # fmt: skip
    note = (
        "Eight clients; client 0 is four times as slow and holds four times as much data. f is weighted by "
        "data. The predicted level is of its averaged squared gradient norm (swiftfl graph "
        "--optimise-influence); the step size for it is the one with the shortest time to the loss. "
        + rule(found)
    )
    return [Table("influence", found.title, columns, rows, note)]


def _shift(found: MeasuredInquiry) -> list[Table]:
    rows: list[list[Cell]] = []
    for group, label in found.groups.items():
        for method, name in found.methods.items():
            runs = [finite_rows(run["rows"]) for run in found.runs(group, method, TIME)]
            cells = [_accuracy_then(found, group, runs, share) for share in _SHIFT_TIMES]
            after = interval([100 * mean_since(rows, SHIFTED_AT * found.seconds(group), found.seconds(group))
                              for rows in runs], 1)  # fmt: skip
            rows.append([label, name, _step_size(found, group, method, TIME), *cells, after])
    columns = (
        *(GROUP, "method", "γ"),
        *(f"{share:.2g}" for share in _SHIFT_TIMES),
        "mean after the shift (%)",
    )
    note = (
        "Accuracy (%) of the consensus model on test data as they are at that moment, at shares of the time "
        f"in which SWIFT takes {found.results['steps']} steps; data change when a client has passed a third "
        "of the epochs that are planned for it. Data IID, 20 % spread. " + rule(found)
    )
    return [Table("shift", found.title, columns, rows, note)]


def _accuracy_then(found: MeasuredInquiry, group: str, runs: Sequence[list[Row]], share: float) -> Cell:
    values = [100 * at(rows, TIME, share * found.seconds(group), "accuracy") for rows in runs]
    return f"{mean(values):.1f}"


def mean_since(rows: Sequence[Row], start: float, end: float) -> float:
    """The mean accuracy over a span of time, linear between measurements.

    >>> rows = [{"time": 0.0, "loss": 1.0, "accuracy": 0.0}, {"time": 2.0, "loss": 1.0, "accuracy": 1.0}]
    >>> mean_since(rows, 1.0, 2.0)
    0.75
    """
    inside = [float(row["time"]) for row in rows if start < row["time"] < end]
    times = [start, *inside, end]
    values = [at(rows, TIME, time, "accuracy") for time in times]
    area = math.fsum(
        (b - a) * (u + v) / 2 for a, b, u, v in zip(times, times[1:], values, values[1:], strict=False)
    )
    return area / (end - start)


_TABLES: dict[str, Callable[[MeasuredInquiry], list[Table]]] = {
    "rivals": _rivals,
    "better": _better,
    "influence": _influence,
    "shift": _shift,
}
