"""pandas tables and columns as arrays; pandas itself is never imported here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from swiftfl.errors import UserError
from swiftfl.registry import suggestion

Array = npt.NDArray[np.generic]
_LABEL_COLUMNS = ("labels", "label")


def library_of(value: object) -> str:
    """The library that a value's class comes from."""
    return type(value).__module__.partition(".")[0]


def is_frame(value: object) -> bool:
    return library_of(value) == "pandas" and type(value).__name__ == "DataFrame"


def table(
    frame: object,
    what: str,
    label: str | None,
    inputs: str | Sequence[str] | None,
    groups: str | None,
) -> tuple[tuple[Array, Array], Sequence[object] | None]:
    """(inputs, labels) and groups of a table: its columns are inputs, one label, perhaps one of groups."""
    columns = cast(Any, frame)
    names = [str(name) for name in columns.columns]
    if len(set(names)) < len(names):
        raise UserError(f"{what}: two columns of the table have the same name")
    label = label or next((name for name in _LABEL_COLUMNS if name in names), None)
    if label is None:
        raise UserError(
            f"{what} is a table, and none of its columns is called label: "
            "name one (label='...'), or give (inputs, labels)"
        )
    wanted = [name for name in names if name not in (label, groups)]
    if inputs is not None:
        wanted = [inputs] if isinstance(inputs, str) else list(inputs)
    asked = [*wanted, label, *([groups] if groups is not None else [])]
    for name in asked:
        if name not in names:
            raise UserError(f"{what} has no column {name!r}: {suggestion(name, names)}")
    by_name = dict(zip(names, columns.columns, strict=True))
    matrix = frame_array(columns[[by_name[name] for name in wanted]], what)
    grouped = None if groups is None else list(columns[by_name[groups]])
    return (matrix, column_array(columns[by_name[label]], what)), grouped


def frame_array(frame: object, what: str) -> Array:
    """(rows, columns) floating numbers; a table of whole numbers too, for they are measurements."""
    columns = cast(Any, frame)
    if not len(columns.columns):
        raise UserError(f"{what}: the table has no columns for inputs")
    arrays = [column_array(columns[name], what) for name in columns.columns]
    common = np.result_type(*(array.dtype for array in arrays))
    return np.stack(arrays, axis=1).astype(common if common.kind == "f" else np.float64)


def column_array(column: object, what: str) -> Array:
    """One column of numbers."""
    series = cast(Any, column)
    named = f"{what}, column {series.name!r}" if series.name is not None else what
    if series.dtype.kind not in "biuf":
        raise UserError(f"{named}: holds {series.dtype}, not numbers; encode it as numbers first")
    if bool(series.isna().any()):
        raise UserError(f"{named}: values are missing; fill them in or leave such rows out")
    return np.array(series.to_numpy(dtype=getattr(series.dtype, "numpy_dtype", series.dtype)))
