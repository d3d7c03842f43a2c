"""How numbers are written in tables and sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence

Cell = str | float | None
"""What a table holds: words, a number, or nothing (unknown, not printed, not measured)."""

NOTHING = "–"


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def deviation(values: Sequence[float]) -> float | None:
    """The sample standard deviation; one value has none."""
    if len(values) < 2:
        return None
    middle = mean(values)
    return math.sqrt(sum((value - middle) ** 2 for value in values) / (len(values) - 1))


def spread(values: Sequence[float], digits: int = 3) -> str | None:
    """Mean ± standard deviation, or the value alone if there is only one.

    >>> spread([1.0, 2.0, 3.0]), spread([2.0]), spread([])
    ('2.000 ± 1.000', '2.000', None)
    """
    if not values:
        return None
    around = deviation(values)
    middle = f"{mean(values):.{digits}f}"
    return middle if around is None else f"{middle} ± {around:.{digits}f}"


_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""The 97.5 % quantile of Student's t with 1, 2, ... degrees of freedom."""


def half_width(values: Sequence[float]) -> float | None:
    """Of the 95 % confidence interval of the mean; one value has none.

    >>> round(half_width([1.0, 2.0, 3.0]), 3)
    2.484
    """
    around = deviation(values)
    if around is None:
        return None
    freedom = len(values) - 1
    # From eleven on by the first terms of its expansion, which is right to three digits.
    t = _STUDENT[freedom - 1] if freedom <= len(_STUDENT) else 1.96 + 2.3723 / freedom + 2.82 / freedom**2
    return t * around / math.sqrt(len(values))


def interval(values: Sequence[float], digits: int = 3, sign: str = "") -> str | None:
    """Mean ± half of the 95 % confidence interval, or the value alone if there is only one.

    >>> interval([1.0, 2.0, 3.0], 1), interval([2.0], 1, sign="+"), interval([])
    ('2.0 ± 2.5', '+2.0', None)
    """
    if not values:
        return None
    around = half_width(values)
    middle = f"{mean(values):{sign}.{digits}f}"
    return middle if around is None else f"{middle} ± {around:.{digits}f}"


def change(value: float | None, reference: float | None) -> float | None:
    """In percent of the reference.

    >>> round(change(1.019, 1.558), 2)
    -34.6
    """
    if value is None or not reference:
        return None
    return 100.0 * (value / reference - 1.0)


def difference(here: float | None, paper: float | None) -> float | None:
    return None if here is None or paper is None else here - paper


def percent(value: float | None) -> str:
    """A change as text.

    >>> percent(-34.6), percent(3.25), percent(None)
    ('-34.6 %', '+3.2 %', '–')
    """
    return NOTHING if value is None else f"{value:+.1f} %"


def written(value: Cell, column: str = "") -> str:
    """A cell as it is printed, by the unit in the heading of its column.

    >>> written(1.0194, "epoch (s)"), written(-34.6, "change (%)"), written(81.25, "accuracy (%)")
    ('1.019', '-34.6', '81.2')
    >>> written(1.3, "total ÷ 1x")
    '1.30'
    >>> written(5.7, "error (%)"), written(0.04, "error (%)")
    ('+5.7', '0.0')
    >>> written(0.25, "difference (s)"), written(16), written(0.00012345), written(None)
    ('+0.250', '16', '0.000123', '–')
    """
    if value is None:
        return NOTHING
    if isinstance(value, str):
        return value
    if not math.isfinite(value):
        return "not finite"
    sign = "+" if any(word in column for word in ("change", "difference", "error")) else ""
    text = f"{value:{sign}{_form(value, column)}}"
    return text if float(text) else text.lstrip("+-")


def _form(value: float, column: str) -> str:
    """The decimals that the unit of a column asks for; three digits where it has none."""
    if "%" in column:
        return ".1f"
    if "÷" in column:
        return ".2f"
    if "(s)" in column and not 1e-9 < abs(value) < 0.0005:
        return ".3f"
    return "d" if isinstance(value, int) else ".3g"
