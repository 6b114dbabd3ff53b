"""How values of columns are written, and what their values may be."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from subtractive.tables.columns import Numeric
from subtractive.tables.containers import number_text
from subtractive.tables.grids import step_text

TEMPORAL = ("date", "duration", "time")  # kinds whose numbers are microseconds


def written(value: object, kind: str) -> str:
    """One value as a person writes it; dates and times are kept in microseconds.

    >>> from subtractive.tables.written import written
    >>> written(1325376000000000.0, "date"), written(3.0, "continuous"), written(True, "boolean")
    ('2012-01-01', '3', 'true')
    """
    if kind == "date" and isinstance(value, float | int):
        moment = pd.Timestamp(round(value), unit="us")
        return str(moment.date() if moment == moment.normalize() else moment)
    if kind in ("duration", "time") and isinstance(value, float | int):
        return str(pd.Timedelta(round(value), unit="us"))
    if isinstance(value, bool | np.bool_):
        return str(bool(value)).lower()
    if isinstance(value, float | np.floating):
        return f"{float(value):.6g}"
    return str(value)


def describe_numbers(column: Numeric) -> dict[str, str]:
    """Support, resolution and atoms of a column of numbers."""
    low, high = column.low, column.high
    if column.grid is not None:  # the first and the last value that it may have
        low, high = column.grid.ceil(low), column.grid.floor(high)
    low, high = min((low, *column.atoms)), max((high, *column.atoms))
    is_time = column.kind in TEMPORAL
    ends = [number_text(end, column.kind) for end in (low, high)]
    support = "the line" if math.isinf(low) and math.isinf(high) else " to ".join(ends)
    resolution = "" if column.grid is None else step_text(column.grid.step, is_time=is_time)
    if column.grid is not None and column.grid.levels:
        resolution = f"{len(column.grid.levels)} values"
    return {
        "support": support,
        "resolution": resolution,
        "atoms": ", ".join(number_text(atom, column.kind) for atom in column.atoms),
    }
