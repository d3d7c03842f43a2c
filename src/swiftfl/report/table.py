"""A table, and the files in which it is written: CSV, LaTeX and Markdown. (`report/page.py` has its HTML.)"""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from swiftfl.files import plain_name, write_atomically
from swiftfl.report.numbers import NOTHING, Cell, written

GROUP = "group"
"""A first column of this name becomes headings between the rows on a page."""
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
    """`name` names its files, `title` is for readers. A column that gives its unit, as `epoch (s)`, is
    shown with the decimals of that unit; CSV holds every digit."""

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
        """Which columns are aligned to the right: those that hold more numbers than words."""
        columns = list(zip(*self.cells(), strict=True)) or [() for _ in self.columns]
        found = [[bool(_NUMBER.fullmatch(cell)) for cell in column if cell != NOTHING] for column in columns]
        return [2 * sum(numbers) > len(numbers) for numbers in found]

    def csv(self) -> str:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(["" if cell is None else cell for cell in row] for row in self.rows)
        return out.getvalue()

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

    def markdown(self) -> str:
        """Title, table and note, as READMEs and web sites show them."""
        rule = ["--:" if right else "---" for right in self.numeric()]
        rows = [[_in_markdown(cell) for cell in row] for row in [self.columns, *self.cells()]]
        lines = [f"| {' | '.join(row)} |" for row in rows]
        lines.insert(1, f"|{'|'.join(rule)}|")
        return "\n".join([f"*{self.title}*", "", *lines, *(["", self.note] if self.note else [])]) + "\n"

    def save(self, folder: Path) -> None:
        """As CSV, LaTeX and Markdown."""
        name = plain_name(self.name)
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / f"{name}.csv", self.csv())
        write_atomically(folder / f"{name}.tex", self.latex())
        write_atomically(folder / f"{name}.md", self.markdown())


def _in_markdown(cell: str) -> str:
    """One line that neither ends the cell nor is taken for HTML."""
    return html.escape(" ".join(cell.split("\n")), quote=False).replace("|", r"\|")


def with_minus(text: str) -> str:
    """With a minus sign in place of a hyphen before a number."""
    return re.sub(r"(?<![\w.)])-(?=\d)", "−", text)


def escape_latex(text: str) -> str:
    """Every character as itself; no text can be a command.

    >>> escape_latex("SWIFT C_0: -34.6 %")
    'SWIFT C$_0$: $-$34.6 \\\\%'
    """
    plain = "".join(_LATEX.get(character, character) for character in with_minus(text))
    return re.sub(r"\bC\\_(\d)", r"C$_\1$", plain)
