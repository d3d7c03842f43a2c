"""A table, and the forms in which it is written: plain text, Markdown, HTML, LaTeX, CSV."""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from swiftfl.report.numbers import NOTHING, Cell, written

_NUMBER = re.compile(r"[-+−]?[\d.,]+(e[-+]?\d+)?( ?[%x×])?( ± [\d.e+-]+)?")
_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "%": r"\%", "#": r"\#",
    "_": r"\_", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"$<$", ">": r"$>$",
    "±": r"$\pm$", "−": "$-$", "×": r"$\times$", "–": "--", "—": "---", "…": r"\ldots{}", "·": r"$\cdot$",
    "≤": r"$\leq$", "≥": r"$\geq$", "√": r"$\surd$", "∞": r"$\infty$", "‖": r"$\Vert$", "∇": r"$\nabla$",
    "²": r"$^2$", "σ": r"$\sigma$", "ζ": r"$\zeta$", "γ": r"$\gamma$", "ρ": r"$\rho$", "τ": r"$\tau$",
}  # fmt: skip


@dataclass(frozen=True)
class Table:
    """`name` is the file's, `title` the reader's. A column that gives its unit, as `epoch (s)`, is
    written with the decimals of that unit; CSV holds every digit."""

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            assert len(row) == len(self.columns), f"table {self.name}: {row} does not fit {self.columns}"

    def cells(self) -> list[list[str]]:
        """Every cell as it is read."""
        pairs = [list(zip(row, self.columns, strict=True)) for row in self.rows]
        return [[written(value, column) for value, column in row] for row in pairs]

    def numeric(self) -> list[bool]:
        """Which columns are aligned to the right."""
        columns = list(zip(*self.cells(), strict=True)) or [() for _ in self.columns]
        return [
            any(c != NOTHING for c in column) and all(c == NOTHING or _NUMBER.fullmatch(c) for c in column)
            for column in columns
        ]

    def csv(self) -> str:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(["" if cell is None else cell for cell in row] for row in self.rows)
        return out.getvalue()

    def text(self) -> str:
        cells = self.cells()
        widths = [max(map(len, column)) for column in zip(self.columns, *cells, strict=True)]
        right = self.numeric()

        def line(row: Sequence[str]) -> str:
            parts = zip(row, widths, right, strict=True)
            return "  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in parts).rstrip()

        lines = [self.title, line(self.columns), line(["-" * width for width in widths]), *map(line, cells)]
        return "\n".join([*lines, *([self.note] if self.note else [])]) + "\n"

    def markdown(self) -> str:
        def line(row: Sequence[str]) -> str:
            return "| " + " | ".join(cell.replace("|", r"\|").replace("\n", " ") for cell in row) + " |"

        rule = "|" + "|".join("--:" if right else "---" for right in self.numeric()) + "|"
        return "\n".join([line(self.columns), rule, *map(line, self.cells())]) + "\n"

    def latex(self) -> str:
        """A floating table; the document needs the package booktabs."""
        spec = "".join("r" if right else "l" for right in self.numeric())
        head, *body = (" & ".join(map(escape_latex, row)) + r" \\" for row in [self.columns, *self.cells()])
        note = [rf"\par\smallskip\footnotesize {escape_latex(self.note)}"] if self.note else []
        lines = [
            rf"% {self.name}: needs \usepackage{{booktabs}}",
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{escape_latex(self.title)}}}",
            rf"\label{{tab:{self.name}}}",
            rf"\begin{{tabular}}{{{spec}}}",
            *(r"\toprule", head, r"\midrule", *body, r"\bottomrule"),
            r"\end{tabular}",
            *note,
            r"\end{table}",
        ]
        return "\n".join(lines) + "\n"

    def html(self) -> str:
        """The table in a box of its own that scrolls sideways where it does not fit."""
        right = self.numeric()

        def cell(tag: str, text: str, column: int) -> str:
            scope = "" if tag == "td" else ' scope="col"' if tag == "th" else ' scope="row"'
            kind = ' class="n"' if right[column] else ""
            return f"<{tag[:2]}{scope}{kind}>{_minus(html.escape(text))}</{tag[:2]}>"

        head = "".join(cell("th", column, k) for k, column in enumerate(self.columns))
        body = "".join(
            "<tr>" + "".join(cell("td" if k else "th-row", c, k) for k, c in enumerate(row)) + "</tr>\n"
            for row in self.cells()
        )
        title = html.escape(self.title)
        note = f'<p class="note">{html.escape(self.note)}</p>\n' if self.note else ""
        return (
            f'<div class="scroll" role="region" aria-label="{title}" tabindex="0">\n'
            f"<table>\n<caption>{title}</caption>\n<thead><tr>{head}</tr></thead>\n"
            f"<tbody>\n{body}</tbody>\n</table>\n</div>\n{note}"
        )

    def save(self, folder: Path) -> None:
        """As CSV and LaTeX."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.name}.csv").write_text(self.csv(), encoding="utf-8")
        (folder / f"{self.name}.tex").write_text(self.latex(), encoding="utf-8")


def _minus(text: str) -> str:
    """A hyphen before a number is a minus sign to the eye."""
    return re.sub(r"(?<![\w.)])-(?=\d)", "−", text)


def escape_latex(text: str) -> str:
    """Every character as itself; no text can be a command.

    >>> escape_latex("SWIFT C_0: -34.6 %")
    'SWIFT C\\\\_0: $-$34.6 \\\\%'
    """
    return "".join(_LATEX.get(character, character) for character in _minus(text))
