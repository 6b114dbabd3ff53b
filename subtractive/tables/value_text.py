"""How values of columns are written, and what their values may be."""

from __future__ import annotations

import math

import numpy as np

from subtractive.tables.columns import Numeric
from subtractive.tables.containers import TEMPORAL, as_objects
from subtractive.tables.grids import step_text

_TINY = 1e-30  # a bound is just beside what it excludes


def value_text(value: object, kind: str, *, digits: int = 6) -> str:
    """One value as a person writes it; dates, times and durations are in microseconds.

    >>> from subtractive.tables.value_text import value_text
    >>> value_text(1325376000000000.0, "date"), value_text(37800e6, "time")
    ('2012-01-01', '10:30:00')
    >>> value_text(1 / 3, "continuous"), value_text(True, "boolean"), value_text("a", "")
    ('0.333333', 'true', 'a')
    """
    if isinstance(value, bool | np.bool_) or (kind == "boolean" and value in (0, 1)):
        return str(bool(value)).lower()
    if not isinstance(value, float | int | np.floating | np.integer):
        return str(value)
    number = float(value)
    if kind in TEMPORAL and math.isfinite(number):
        return str(as_objects(np.array([number]), kind)[0])
    if isinstance(value, int | np.integer):
        return str(value)
    return "0" if abs(number) < _TINY else f"{number:.{digits}g}"


def describe_numbers(column: Numeric) -> dict[str, str]:
    """Support, resolution and atoms of a column of numbers."""
    low, high = column.low, column.high
    if column.grid is not None:  # the first and the last value that it may have
        low, high = column.grid.ceil(low), column.grid.floor(high)
    low, high = min((low, *column.atoms)), max((high, *column.atoms))
    ends = [value_text(end, column.kind) for end in (low, high)]
    support = "the line" if math.isinf(low) and math.isinf(high) else " to ".join(ends)
    resolution = ""
    if column.grid is not None and column.grid.levels:
        resolution = f"{len(column.grid.levels)} values"
    elif column.grid is not None:
        resolution = step_text(column.grid.step, is_time=column.kind in TEMPORAL)
    atoms = ", ".join(value_text(atom, column.kind) for atom in column.atoms)
    return {"support": support, "resolution": resolution, "atoms": atoms}
