"""Figures and tables of runs for papers: SVG and PDF at the width of a column, LaTeX with booktabs."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from swiftfl.errors import UserError
from swiftfl.files import plain_name, write_atomically
from swiftfl.palette import BLACK, EDGE, SERIES, SHADES, SOFT, STATES, STYLE
from swiftfl.report.comparison import loss_of_all, time_to_loss
from swiftfl.report.figures import named
from swiftfl.report.numbers import Cell
from swiftfl.report.stream_figure import stream_figure
from swiftfl.report.stream_text import Span
from swiftfl.report.table import Table
from swiftfl.views.comparing import differences, without_folders
from swiftfl.views.run import RunView
from swiftfl.views.stream import STATES as PARTS
from swiftfl.views.stream import decoded
from swiftfl.views.tables import Reply

COLUMN, TEXT = 3.25, 6.75
"""Inches: one of two columns, and both."""
PAPER: Any = {
    **STYLE,
    "font.family": "serif",
    "font.serif": ["STIXGeneral", "Times New Roman", "DejaVu Serif"],
    "mathtext.fontset": "stix",
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "axes.linewidth": 0.6,
    "grid.linewidth": 0.4,
    "text.color": BLACK,
    "axes.labelcolor": BLACK,
    "xtick.labelcolor": BLACK,
    "ytick.labelcolor": BLACK,
    "pdf.fonttype": 42,  # fonts as they are, which publishers ask for
}
"""Small serif type, thin lines."""
_LINES = ("-", "--", "-.", ":")
_OF_CLIENTS: dict[str, Any] = {"linewidth": 0.6, "alpha": 0.7, "linestyle": (0, (2, 2))}
_BINS = 600
_MOST_SPANS = 60_000  # of a stream
_TALLEST = 2.4  # inches of a stream's rows
_CLOCKS = {"virtual": "virtual", "sampled": "iterations"}  # of engines, for runs without facts
_QUANTITIES = {
    "loss": ("test loss", 1.0),
    "accuracy": ("test accuracy (%)", 100.0),
    "consensus_distance": ("consensus distance", 1.0),
}
_HIDDEN = ("time", "iteration", "epoch", "models_in_memory", "evaluation_seconds")
_MOST_DRAWN = 2000  # clients of a graph


def write_figures(folder: Path, runs: Sequence[RunView], paper: bool) -> list[str]:
    """Draw everything that there is to draw of these runs; the names of the files without their endings."""
    style = PAPER if paper else STYLE
    curves = {run.name: run.curves() for run in runs}
    if not any(found["columns"] for found in curves.values()):
        raise UserError("nothing has been measured yet: there is no figure to draw")
    figures: dict[str, Callable[[], Figure | None]] = {}
    clocks = {run.name: _clock(run) for run in runs}
    timeless = "iterations" in clocks.values()  # then there is no time over which all can be drawn
    over, label = ("iteration", "client steps") if timeless else ("time", _time_label(clocks.values()))
    for quantity in _measured(curves.values()):
        figures[quantity.removeprefix("metrics.")] = partial(_curves, curves, quantity, over, label)
    timed = [run for run in runs if clocks[run.name] != "iterations"]
    figures["rates"] = partial(_rates, {run.name: curves[run.name] for run in timed or runs}, clocks)
    figures["stream"] = partial(_streams, timed or runs, clocks, style, paper)
    if 0 < len(timed) < len(runs):
        figures["stream-iterations"] = partial(
            _streams, [run for run in runs if run not in timed], clocks, style, paper
        )
    for run in runs:
        figures["graph" if len(runs) == 1 else f"graph-{run.name}"] = partial(_graph, run)
    written: list[str] = []
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in figures.items():
        with mpl.rc_context(style):
            figure = draw()
            if figure is not None:
                written.append(_save(figure, folder, _file_name(name, written)))
    for table in _tables(runs, curves):
        table.save(folder)
        written.append(table.name)
    return written


def _clock(run: RunView) -> str:
    """virtual, wall, or iterations where nothing takes time."""
    layout = run.layout()
    return str(layout["clock"]) if layout is not None else _CLOCKS.get(str(run.card()["engine"]), "wall")


def _time_label(clocks: Iterable[str]) -> str:
    """Of the axis of runs by these clocks.

    >>> _time_label(["virtual", "virtual"]), _time_label(["virtual", "wall"]), _time_label(["iterations"])
    ('virtual time (s)', 'virtual or real time (s)', 'iterations')
    """
    words = {"virtual": "virtual time (s)", "wall": "time (s)", "iterations": "iterations"}
    found = set(clocks)
    return words[found.pop()] if len(found) == 1 else "virtual or real time (s)"


def _file_name(name: str, taken: Sequence[str]) -> str:
    """Without what a file's name should not hold: labels of runs and names of metrics are users' own.

    >>> _file_name("graph-SWIFT C_0", []), _file_name("a/b", ["a-b"])
    ('graph-SWIFT-C_0', 'a-b-2')
    """
    plain = re.sub(r"[^\w.+=-]", "-", name)[:80].lstrip(".-+=") or "figure"
    found, number = plain, 1
    while found in taken:
        number += 1
        found = f"{plain}-{number}"
    return plain_name(found)


def _save(figure: Figure, folder: Path, name: str) -> str:
    """As SVG and PDF, the same bytes every time."""
    for suffix, undated in (("svg", {"Date": None}), ("pdf", {"CreationDate": None})):
        out = io.BytesIO()
        figure.savefig(out, format=suffix, metadata=undated)
        write_atomically(folder / f"{name}.{suffix}", out.getvalue())
    return name


def _measured(curves: Any) -> list[str]:
    names = dict.fromkeys(name for found in curves for name in found["columns"])
    return [
        name
        for name in names
        if name not in _HIDDEN and not name.startswith("mean_client_") and name != "train_loss"
    ]


def _panel(xlabel: str, ylabel: str, height: float = 2.1) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(COLUMN, height), layout="constrained")
    axes = figure.add_subplot()
    axes.set(xlabel=xlabel, ylabel=ylabel)
    return figure, axes


def _curves(curves: Mapping[str, Reply], quantity: str, over: str, label: str) -> Figure:
    """One curve per run; dashed, thin: the mean of the clients' own models, where it was measured."""
    words, scale = _QUANTITIES.get(quantity, (quantity.removeprefix("metrics."), 1.0))
    figure, axes = _panel(label, words)
    lowest, of_clients = math.inf, False
    for (name, found), k in zip(curves.items(), range(len(curves)), strict=True):
        look: dict[str, Any] = {"color": SERIES[k % len(SERIES)].light, "linestyle": _LINES[k % 4]}
        x, y = _pairs(found["columns"], over, quantity, scale)
        lowest = min([lowest, *y])
        axes.plot(x, y, linewidth=1.2, label=named(name), marker="o" if len(x) == 1 else "", **look)
        x, y = _pairs(found["columns"], over, f"mean_client_{quantity}", scale)
        if x:
            axes.plot(x, y, color=look["color"], **_OF_CLIENTS)
            of_clients = True
    if of_clients:
        axes.plot([], [], color=SOFT.light, label="mean of the clients' own", **_OF_CLIENTS)
    if "loss" in quantity and 0 < lowest < math.inf:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "25" else "")
        axes.tick_params(axis="y", which="minor", labelsize=mpl.rcParams["ytick.labelsize"])
    if len(curves) > 1 or of_clients:
        axes.legend(frameon=False, handlelength=2.2)
    return figure


def _pairs(columns: Reply, over: str, quantity: str, scale: float) -> tuple[list[float], list[float]]:
    there = [
        (x, scale * y)
        for x, y in zip(columns.get(over, []), columns.get(quantity, []), strict=False)
        if x is not None and y is not None
    ]
    return [x for x, _ in there], [y for _, y in there]


def _rates(curves: Mapping[str, Reply], clocks: Mapping[str, str]) -> Figure | None:
    """Steps per second (or iteration) of a client: the mean, and the 10th to 90th percentile as a band."""
    there = {name: found["clients"] for name, found in curves.items() if found["clients"] is not None}
    if not there:
        return None
    label = _time_label(clocks[name] for name in there)
    over, unit = ("iteration", "iteration") if label == "iterations" else ("time", "second")
    figure, axes = _panel(label, f"steps per {unit} of a client")
    for (name, found), k in zip(there.items(), range(len(there)), strict=True):
        time, mean, low, high = (
            np.array(found[key], dtype=np.float64) for key in (over, "rate", "rate_low", "rate_high")
        )
        colour = SERIES[k % len(SERIES)].light
        axes.fill_between(time, low, high, color=colour, alpha=0.2, linewidth=0)
        axes.plot(time, mean, color=colour, linestyle=_LINES[k % 4], linewidth=1.2, label=named(name))
    axes.set_ylim(bottom=0)
    if len(there) > 1:
        axes.legend(frameon=False, handlelength=2.2)
    return figure


def _streams(runs: Sequence[RunView], clocks: Mapping[str, str], style: Any, paper: bool) -> Figure | None:
    """What clients did with their time, in all runs over the same time."""
    bins = {run.name: _MOST_SPANS // max(1, run.card()["clients"] or 1) for run in runs}
    replies = {run.name: run.stream(bins=min(_BINS, max(50, bins[run.name]))) for run in runs}
    there = {name: reply for name, reply in replies.items() if reply is not None and reply["end"] > 0}
    if not there:
        return None
    end = max(reply["end"] for reply in there.values())
    rows = max(reply["rows"] for reply in there.values())
    return stream_figure(
        {name: spans_of(reply) for name, reply in there.items()},
        (0.0, end),
        _time_label(clocks[name] for name in there),
        width=TEXT if paper else 8.0,
        row=min(0.13, _TALLEST / rows),
        style=style,
        most=_MOST_SPANS,
    )


def spans_of(reply: Reply) -> list[Span]:
    """The bins of a stream, neighbours of one state joined."""
    states, _ = decoded(reply)
    width = (reply["to"] - reply["from"]) / reply["bins"]
    spans: list[Span] = []
    for row, line in enumerate(states):
        client = reply["first"] + row * reply["per_row"]
        edges = np.flatnonzero(np.diff(line, prepend=-1, append=-1))
        for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            if line[begin]:
                start, stop = reply["from"] + begin * width, reply["from"] + end * width
                spans.append((client, PARTS[line[begin] - 1], start, stop))
    return spans


def _graph(run: RunView) -> Figure | None:
    """Clients by how stale their neighbours' models are, or were on average; edges by their weight."""
    about, now = run.about(), run.now()
    graph = about["graph"]
    if graph is None or now is None or len(graph["x"]) > _MOST_DRAWN:
        return None
    figure = Figure(figsize=(COLUMN, COLUMN), layout="constrained")
    axes = figure.add_subplot()
    axes.set_axis_off()
    axes.set_aspect("equal")
    places = np.column_stack([graph["x"], graph["y"]])
    weights = np.array([w or 0.0 for w in graph["weights"] or [1.0] * len(graph["edges"])])
    heaviest = max(float(weights.max(initial=0.0)), 1e-12)
    pairs = np.array(graph["edges"], dtype=np.int64).reshape(-1, 2)
    axes.add_collection(
        LineCollection(
            places[pairs].tolist(), linewidths=2.0 * weights / heaviest, colors=EDGE.light, zorder=1
        )
    )
    name, label = "stale", "steps behind its neighbours"
    if all(value is None for value in now["columns"][name]):  # of live runs it is not known
        name, label = "age", "mean age of averaged models (steps)"
    stale = np.array([math.nan if v is None else float(v) for v in now["columns"][name]])
    lost = np.array([state == "lost" for state in now["columns"]["state"]])
    size = min(160.0, 3000.0 / len(places))
    shades = LinearSegmentedColormap.from_list("shades", [colour.light for colour in SHADES])
    shown = axes.scatter(
        places[~lost, 0], places[~lost, 1], c=stale[~lost], s=size, cmap=shades, edgecolors=SOFT.light,
        linewidths=0.5, vmin=0, vmax=max(1.0, float(np.nanmax(stale, initial=1.0))), plotnonfinite=True,
        zorder=2,
    )  # fmt: skip
    if lost.any():
        axes.scatter(
            places[lost, 0],
            places[lost, 1],
            color=STATES["lost"].light,
            s=size,
            marker="X",
            linewidths=0,
            zorder=3,
        )
        handle = Line2D([], [], color=STATES["lost"].light, marker="X", linestyle="", label="lost")
        axes.legend(handles=[handle], frameon=False, loc="upper right")
    bar = figure.colorbar(shown, ax=axes, shrink=0.6, label=label)
    bar.outline.set_linewidth(0.4)
    return figure


def _tables(runs: Sequence[RunView], curves: Mapping[str, Reply]) -> list[Table]:
    tables = [_results(runs, curves)]
    found = differences([without_folders(run.about_files()["config"]) for run in runs])
    if found:
        rows: list[list[Cell]] = [[one["key"], *map(_said, one["values"])] for one in found]
        tables.append(Table("differences", "Settings that differ", ["setting", *curves], rows))
    return tables


def _results(runs: Sequence[RunView], curves: Mapping[str, Reply]) -> Table:
    """The numbers at the end of each run, and when it reached a loss that all have reached."""
    rows_of = {name: _rows(found["columns"]) for name, found in curves.items()}
    loss = loss_of_all(rows_of.values()) if len(runs) > 1 else None
    columns = ["run", "test loss", "accuracy (%)", "time (s)", "waiting (%)"]
    body: list[list[Cell]] = []
    for run in runs:
        rows = rows_of[run.name]
        timeless = _clock(run) == "iterations"
        last = rows[-1] if rows else {"loss": None, "accuracy": None, "time": None}
        accuracy = None if last["accuracy"] is None else 100 * last["accuracy"]
        body.append([run.name, last["loss"], accuracy, None if timeless else last["time"], _waiting(run)])
        if loss is not None:
            body[-1].append(None if timeless else time_to_loss(rows, loss))
    columns += [] if loss is None else [f"to loss {loss:g} (s)"]
    return Table(
        "results", "At the end of the runs", columns, body, "Test loss and accuracy of the average model."
    )


def _rows(columns: Reply) -> list[dict[str, Any]]:
    names = ("time", "loss", "accuracy")
    longest = max((len(values) for values in columns.values()), default=0)
    lists = [columns.get(name) or [None] * longest for name in names]
    return [dict(zip(names, values, strict=True)) for values in zip(*lists, strict=True)]


def _waiting(run: RunView) -> float | None:
    """Of all clients' time together, in percent."""
    now = run.now()
    if now is None or _clock(run) == "iterations":
        return None
    parts = [sum(value or 0.0 for value in now["columns"][name]) for name in PARTS]
    return 100.0 * parts[PARTS.index("waiting")] / sum(parts) if sum(parts) > 0 else None


def _said(value: object) -> str:
    return "–" if value is None else str(value)
