"""The convergence experiment's figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from swiftfl.palette import SOFT
from swiftfl.report.figures import legend_below, look, panel


def _mean(curves: Sequence[Sequence[float]]) -> Any:
    return np.mean(np.asarray(curves, dtype=np.float64), axis=0)


def _readable(axes: Axes, x: Sequence[int] = (), names: Sequence[str] = ()) -> None:
    """Plain numbers at 1, 2, 5 of each decade upwards; to the right, ticks at the values themselves."""
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    if len(x):
        axes.set_xticks(x, names)
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.tick_params(axis="x", which="minor", bottom=False)


def rate_figure(results: dict[str, Any], problem: str, label: str) -> Figure:
    """Averaged squared gradient norm against T; the grey line falls with 1/sqrt(T)."""
    figure, axes = panel("iterations T", "averaged squared gradient norm", label)
    rows = [row for row in results["rate"] if row["problem"] == problem]
    for k, row in enumerate(rows):
        words = {"iid": "IID", "noniid": "non-IID"}[row["data"]]
        axes.loglog(row["T"], _mean(row["averaged"]), label=f"{words}, p {row['influence']}", **look("", k))
        if row["exact"]:
            axes.loglog(row["T"], row["exact"]["averaged"], "x", color=look("", k)["color"], markersize=6)
    T = np.asarray(rows[0]["T"], dtype=np.float64)
    top = 1.6 * max(_mean(row["averaged"])[-1] for row in rows) * np.sqrt(T[-1] / T)
    axes.loglog(T, top, color=SOFT.light, linewidth=1, label="slope -1/2")
    shown = rows[0]["T"][::2]
    _readable(axes, shown, [f"$2^{{{int(t).bit_length() - 1}}}$" for t in shown])
    legend_below(figure, axes, 2)
    return figure


def delay_figure(results: dict[str, Any], problem: str, data: str, methods: Mapping[str, str]) -> Figure:
    """Iterations to the level against how much slower one client is, where every seed reached it."""
    figure, axes = panel("slowdown of one client", "iterations to the level")
    for k, (method, label) in enumerate(methods.items()):
        rows = [
            row
            for row in results["delay"]
            if (row["problem"], row["data"], row["method"]) == (problem, data, method)
        ]
        reached = [(row["factor"], row["first_below_by_rate"]) for row in rows]
        there = [(factor, np.mean(values)) for factor, values in reached if None not in values]
        axes.loglog([f for f, _ in there], [v for _, v in there], label=label, **look("", k))
    factors = sorted({row["factor"] for row in results["delay"]})
    _readable(axes, factors, [f"{factor}x" for factor in factors])
    legend_below(figure, axes, 3)
    return figure


def lemma_figure(results: dict[str, Any], names: Mapping[str, str]) -> Figure:
    """Both errors and the right-hand side over t."""
    figure, axes = panel("iteration t + 1", "squared error")
    rows = [row for row in results["lemma"] if row["influence"] == "uniform"]
    for k, row in enumerate(rows):
        t = np.asarray(row["t"]) + 1
        for style, (name, words) in zip(
            ("-", "--"), (("printed", "as printed"), ("needed", "as needed")), strict=True
        ):
            shown = {**look("", k), "linestyle": style}
            error = np.asarray(row[name]["worst_client"])
            axes.loglog(t[error > 0], error[error > 0], label=f"{names[row['data']]}, {words}", **shown)
        axes.loglog(t, row["right_hand_side"], color=look("", k)["color"], linestyle=":", linewidth=1.6,
                    label=f"{names[row['data']]}, right-hand side")  # fmt: skip
    legend_below(figure, axes, 2)
    return figure


def clients_figure(row: dict[str, Any]) -> Figure:
    """Iterations to each level against n, where every seed reached it."""
    figure, axes = panel("clients n", "iterations to the level", row["graph"])
    for k, level in enumerate(row["gradient"]):
        n = level["fitted_n"]
        values = [np.mean(level["iterations"][str(number)]) for number in n]
        axes.loglog(n, values, label=f"level {level['level']:g}", **look("", k))
    _readable(axes, row["numbers"], [str(n) for n in row["numbers"]])
    legend_below(figure, axes, 4)
    return figure
