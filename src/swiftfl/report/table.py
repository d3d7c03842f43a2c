"""A table, and the forms in which it is written: plain text, Markdown, HTML, LaTeX, CSV."""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path

from swiftfl.report.numbers import NOTHING, Cell, written

GROUP = "group"
"""A first column of this name makes headings between the rows of a page."""
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
        grouped = self.columns[0] == GROUP
        right = self.numeric()[grouped:]

        def line(row: Sequence[str], tags: Iterator[str]) -> str:
            kinds = [' class="n"' if r else "" for r in right]
            cells = [
                f"<{tag}{kind}>{marked(text)}</{tag[:2]}>"
                for tag, kind, text in zip(tags, kinds, row[grouped:], strict=False)
            ]
            return f"<tr>{''.join(cells)}</tr>\n"

        body = []
        cells, before = self.cells(), None
        for row in cells:
            if grouped and row[0] != before:
                before = row[0]
                wide = f'<th scope="rowgroup" colspan="{len(right)}"><span>{marked(before)}</span></th>'
                body.append(f'<tr class="group">{wide}</tr>\n')
            body.append(line(row, chain(['th scope="row"'], repeat("td"))))
        head = line(self.columns, repeat('th scope="col"'))
        note = f'<p class="note">{marked(self.note)}</p>\n' if self.note else ""
        return (
            f'<div class="scroll" role="region" aria-label="{html.escape(self.title)}" tabindex="0">\n'
            f"<table>\n<caption><span>{marked(self.title)}</span></caption>\n<thead>{head}</thead>\n"
            f"<tbody>\n{''.join(body)}</tbody>\n</table>\n</div>\n{note}"
        )

    def save(self, folder: Path) -> None:
        """As CSV and LaTeX."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.name}.csv").write_text(self.csv(), encoding="utf-8")
        (folder / f"{self.name}.tex").write_text(self.latex(), encoding="utf-8")


def _minus(text: str) -> str:
    """A hyphen before a number is a minus sign to the eye."""
    return re.sub(r"(?<![\w.)])-(?=\d)", "−", text)


def marked(text: str) -> str:
    """Words as HTML: escaped, with a minus sign before numbers and the index of C_0 below the line; a
    number and its % stay on one line.

    >>> marked("SWIFT C_0 < -3")
    'SWIFT C<sub>0</sub> &lt; −3'
    """
    together = re.sub(r"(?<=\d) %", "\u00a0%", _minus(html.escape(text)))
    return re.sub(r"\bC_(\d)", r"C<sub>\1</sub>", together)


def escape_latex(text: str) -> str:
    """Every character as itself; no text can be a command.

    >>> escape_latex("SWIFT C_0: -34.6 %")
    'SWIFT C$_0$: $-$34.6 \\\\%'
    """
    plain = "".join(_LATEX.get(character, character) for character in _minus(text))
    return re.sub(r"\bC\\_(\d)", r"C$_\1$", plain)
