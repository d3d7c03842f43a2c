"""One style for every figure: the same method has the same colour, line and marker everywhere.

Figures are single panels about as wide as a telephone's screen: a page can set them beside each other
or below each other, and they stay readable. The colours are those of `swiftfl.palette`.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from swiftfl.files import plain_name, write_atomically
from swiftfl.palette import SERIES, SOFT, STYLE
from swiftfl.report import page

COLOURS = tuple(colour.light for colour in SERIES)
_LOOKS = {
    "swift_c0": (COLOURS[0], "-", "o"),
    "swift_c1": (COLOURS[5], "--", "s"),
    "dsgd_c0": (COLOURS[1], "-", "^"),
    "pasgd_c1": (COLOURS[2], "-.", "D"),
    "ldsgd_c1": (COLOURS[3], ":", "v"),
    "adpsgd_c0": (COLOURS[4], (0, (5, 1, 1, 1)), "P"),
    "swift_rates": (COLOURS[6], (0, (4, 1)), "X"),
    "swift_half": (SOFT.light, (0, (1, 1)), "*"),
}
WIDTH, HEIGHT = 4.8, 3.4
_LINE = 50
"""Characters of a legend that are as wide as the figure, less its lines."""


@dataclass(frozen=True)
class Picture:
    """A figure of the report: the name of its files, what it shows, and how it is drawn."""

    name: str
    caption: str
    draw: Callable[[], Figure]
    wide: bool = False


def look(key: str, position: int = 0) -> dict[str, Any]:
    """Colour, line style and marker of a method; of anything else, by its position."""
    colour, line, marker = _LOOKS.get(key) or (
        COLOURS[position % len(COLOURS)],
        ("-", "--", "-.", ":")[position % 4],
        "os^DvPX*"[position % 8],
    )
    return {"color": colour, "linestyle": line, "marker": marker, "markersize": 4, "linewidth": 1.6}


def named(label: str) -> str:
    """A method's name with the index of C_0 below the line, as matplotlib writes it."""
    return re.sub(r"\bC_(\d)", r"$\\mathregular{C_\1}$", label)


def panel(xlabel: str, ylabel: str, title: str = "", height: float = HEIGHT) -> tuple[Figure, Axes]:
    """An empty figure of one panel."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.add_subplot()
    axes.set(xlabel=xlabel, ylabel=ylabel)
    if title:
        axes.set_title(title, loc="left", fontsize=10)
    return figure, axes


def legend_below(figure: Figure, axes: Axes, columns: int = 3) -> None:
    """The legend under the panel, where it hides no curve; in fewer columns if names are long."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        columns = min(columns, max(1, _LINE // max(map(len, labels))))
        figure.legend(
            handles, list(map(named, labels)), loc="outside lower center", ncols=columns, frameon=False,
            fontsize=8.5, columnspacing=1.2, handlelength=2.6,
        )  # fmt: skip


def markers_every(points: int) -> int:
    """The distance of markers that gives a curve about eight, however many points it has."""
    return max(1, points // 8)


def save(figure: Figure, folder: Path, name: str) -> Path:
    """Write NAME.svg, the same bytes every time, and NAME.png; the path of the SVG file."""
    folder.mkdir(parents=True, exist_ok=True)
    svg = folder / f"{plain_name(name)}.svg"
    with mpl.rc_context(STYLE):
        write_atomically(svg, _encoded(figure, format="svg", metadata={"Date": None}))
        figure.set_layout_engine("none")  # the layout of the SVG is kept
        write_atomically(
            svg.with_suffix(".png"), _encoded(figure, format="png", dpi=150, metadata={"Software": None})
        )
    return svg


def _encoded(figure: Figure, **options: Any) -> bytes:
    out = io.BytesIO()
    figure.savefig(out, **options)
    return out.getvalue()


def drawn(pictures: Sequence[Picture], folder: Path) -> list[Markup]:
    """Draw into the folder, all in one style; each as HTML that holds the picture itself."""
    blocks = []
    for picture in pictures:
        with mpl.rc_context(STYLE):
            svg = save(picture.draw(), folder, picture.name)
        blocks.append(page.figure(svg, picture.caption, picture.wide))
    return blocks
