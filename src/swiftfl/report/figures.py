"""One style for every figure: the same method has the same colour, line and marker everywhere.

Figures are single panels about as wide as a telephone's screen, so that a page can set them beside
each other or below each other and they stay readable.
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from swiftfl.report.curves import COLOURS, STYLE
from swiftfl.report.table import marked

_LOOKS = {
    "swift_c0": (COLOURS[0], "-", "o"),
    "swift_c1": (COLOURS[5], "--", "s"),
    "dsgd_c0": (COLOURS[1], "-", "^"),
    "pasgd_c1": (COLOURS[2], "-.", "D"),
    "ldsgd_c1": (COLOURS[3], ":", "v"),
    "adpsgd_c0": (COLOURS[4], (0, (5, 1, 1, 1)), "P"),
    "swift_rates": (COLOURS[6], (0, (4, 1)), "X"),
    "swift_half": ("#666666", (0, (1, 1)), "*"),
}
PARTS = {"compute": "#0072B2", "communication": "#E69F00", "waiting": "#bbbbbb"}
"""What a client does with its time, each in its colour."""
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
    """So that a curve has about eight markers, however many points."""
    return max(1, points // 8)


def save(figure: Figure, folder: Path, name: str) -> tuple[Path, Path]:
    """As SVG, the same bytes every time, and as PNG."""
    folder.mkdir(parents=True, exist_ok=True)
    svg, png = folder / f"{name}.svg", folder / f"{name}.png"
    with mpl.rc_context(STYLE):
        figure.savefig(svg, metadata={"Date": None})
        figure.set_layout_engine("none")  # it has its places now
        figure.savefig(png, dpi=150, metadata={"Software": None})
    return svg, png


def drawn(pictures: Sequence[Picture], folder: Path) -> list[str]:
    """Draw into the folder, in the one style; each as HTML that holds the picture itself."""
    parts = []
    for picture in pictures:
        with mpl.rc_context(STYLE):
            svg, _ = save(picture.draw(), folder, picture.name)
        parts.append(embedded(svg, picture.caption, picture.wide))
    return parts


def embedded(svg: Path, caption: str, wide: bool = False) -> str:
    """An SVG file inside the page: nothing is fetched, and names inside do not meet."""
    data = base64.b64encode(svg.read_bytes()).decode("ascii")
    words = html.escape(caption)  # an attribute has no markup
    kind = ' class="wide"' if wide else ""
    return (
        f'<figure{kind}><img alt="{words}" src="data:image/svg+xml;base64,{data}">'
        f"<figcaption>{marked(caption)}</figcaption></figure>"
    )
