"""The colours of everything that is drawn, in light and in dark: pictures, pages, terminals.

Ten colours tell things apart: the eight of Okabe and Ito, which colour-blind readers can distinguish, their
black softened to that of text, and two more. Every colour has a partner for a dark ground. Pictures are drawn
in the light ones; a page replaces them by CSS variables (`themed`), so that they follow the reader's setting.
A page takes the variables of its own style from `css`; a canvas reads them with getComputedStyle.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple


class Colour(NamedTuple):
    light: str
    dark: str


GROUND = Colour("#ffffff", "#0f1317")
CARD = Colour("#f6f8fa", "#181d23")
"""What stands out a little from the ground: heads of tables, code, tiles."""
TEXT = Colour("#1b1f24", "#e6edf3")
SOFT = Colour("#57606a", "#9aa4af")
"""Captions, axes, whatever is less important than text."""
LINE = Colour("#d0d7de", "#343b43")
"""Borders of boxes, and the grid of a picture."""
LINK = Colour("#0b5cad", "#79b8ff")
WARNING = Colour("#d98e04", "#d99a26")

BLUE = Colour("#0072b2", "#4a9fe8")
VERMILION = Colour("#d55e00", "#e8743b")
GREEN = Colour("#009e73", "#1fae74")
PURPLE = Colour("#cc79a7", "#de9cc4")
ORANGE = Colour("#e69f00", "#eba424")
SKY = Colour("#56b4e9", "#9ad5f7")
YELLOW = Colour("#f0e442", "#f5ee7a")
WINE = Colour("#882255", "#a63a74")
SILVER = Colour("#b4bbc3", "#808a95")

SERIES = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, TEXT, YELLOW, WINE, SILVER)
"""Curves, methods, labels of data: the first is SWIFT's, the second D-SGD's."""

PARTS = {"compute": BLUE, "communication": ORANGE, "waiting": Colour("#dde2e7", "#2d343c")}
"""What a client does with its time. Waiting is nearly the ground: a row that waits looks empty."""

STATES = {
    "starting": SKY,
    "running": BLUE,
    "stopped": SILVER,
    "lost": Colour("#b3123b", "#f0284a"),
    "back": PURPLE,
    "finished": GREEN,
}
"""How a client is."""

SHADES = (
    Colour("#eaf1f8", "#16202b"),
    Colour("#c3daee", "#1b3550"),
    Colour("#94c0e2", "#205079"),
    Colour("#5ba1d2", "#2b73ab"),
    Colour("#2380bd", "#4a9fe8"),
    Colour("#005a94", "#8fc6f5"),
    Colour("#00325c", "#d5ebff"),
)
"""From little to much, away from the ground."""

BLACK = "#000000"
"""Text in print."""
EDGE = Colour("#8b98a5", "#66717c")
"""Edges of a graph."""

_NAMED: dict[str, Colour] = {
    "ground": GROUND,
    "card": CARD,
    "text": TEXT,
    "soft": SOFT,
    "line": LINE,
    "link": LINK,
    "warning": WARNING,
    "edge": EDGE,
    **PARTS,
    **STATES,
    **{f"series-{k}": colour for k, colour in enumerate(SERIES)},
    **{f"shade-{k}": colour for k, colour in enumerate(SHADES)},
}
"""Names of the CSS variables, without their two dashes."""

STYLE: Any = {
    "font.size": 10,
    "text.color": TEXT.light,
    "axes.edgecolor": SOFT.light,
    "axes.labelcolor": TEXT.light,
    "axes.titlecolor": TEXT.light,
    "xtick.color": SOFT.light,
    "ytick.color": SOFT.light,
    "xtick.labelcolor": TEXT.light,
    "ytick.labelcolor": TEXT.light,
    "figure.facecolor": GROUND.light,
    "axes.facecolor": GROUND.light,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LINE.light,
    "grid.linewidth": 0.6,
    "hatch.color": GROUND.light,
    "svg.hashsalt": "swiftfl",  # the same picture is the same file
}
"""The settings of matplotlib for every picture."""


def css() -> str:
    """The variables for a page. The reader's setting decides, unless the root has a data-theme, light or
    dark."""
    light, dark = (
        " ".join(f"--{name}: {colour[k]};" for name, colour in _NAMED.items()) for k in range(len(GROUND))
    )
    return (
        f":root {{ color-scheme: light dark; {light} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root:not([data-theme=light]) {{ {dark} }} }}\n"
        f":root[data-theme=light] {{ color-scheme: light; }}\n"
        f":root[data-theme=dark] {{ color-scheme: dark; {dark} }}\n"
    )


def themed(svg: str) -> str:
    """An SVG picture whose colours follow the reader's setting: those of the palette become variables.

    For pages only: browsers know variables, other programs that open SVG files may not.
    """
    partners = {colour.light: colour.dark for colour in _NAMED.values()}
    used = sorted(partners.keys() & set(re.findall(r"#[0-9a-f]{6}\b", svg)))
    for colour in used:
        svg = re.sub(rf"{colour}\b", f"var(--{colour[1:]})", svg)
    light, dark = (
        " ".join(f"--{key[1:]}: {value};" for key, value in shown.items())
        for shown in ({key: key for key in used}, {key: partners[key] for key in used})
    )
    style = f"<style>:root {{ {light} }} @media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}</style>"
    return re.sub(r"(<svg\b[^>]*>)", lambda found: found[1] + style, svg, count=1)
