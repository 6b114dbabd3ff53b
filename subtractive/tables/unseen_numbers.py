"""Numbers that no row of training had, of columns that are modelled as few numbers (docs/tables).

As evidence the nearest number that was there stands for them. In rows that are scored they are
rarer than all of those, whatever else the row holds.
"""

from __future__ import annotations

import math

import numpy as np

from subtractive.tables.columns import FAR_BEYOND, Column
from subtractive.tables.reading import Floats, Values
from subtractive.tables.states import States


def numbers_of(column: Column) -> Floats | None:
    """The values (v,) of a column of states if they are numbers that have an order."""
    if not isinstance(column, States) or column.kind == "boolean":
        return None
    return column.numbers(np.arange(len(column.values), dtype=np.float64))


def nearest_states(column: Column, values: Values) -> Floats:
    """The codes of the numbers nearest to values (n,); NaN where they need none.

    >>> from subtractive.tables.states import States
    >>> nearest_states(States("age", "whole", (17, 18, 20)), np.array([18.0, 19.6, np.nan]))
    array([nan,  2., nan])
    """
    codes = np.full(len(values), math.nan)
    numbers = numbers_of(column)
    if numbers is None or values.dtype == object:
        return codes
    unseen = np.isfinite(values) & np.isnan(column.encode(values))
    codes[unseen] = np.abs(values[unseen, None] - numbers).argmin(1)
    return codes


def is_far(column: Column, value: float) -> bool:
    """Whether a number is outside the range of a column's numbers by a large share of it."""
    numbers = numbers_of(column)
    if numbers is None:
        return False
    beyond = FAR_BEYOND * (numbers.max() - numbers.min())
    return not numbers.min() - beyond <= value <= numbers.max() + beyond
