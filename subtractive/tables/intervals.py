"""Intervals that hold a column with a given probability."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import pandas as pd

from subtractive.tables.columns import Column, Numeric
from subtractive.tables.quantiles import check_levels, quantile_codes, snapped, state_quantiles
from subtractive.tables.queries import probability
from subtractive.tables.reading import Floats
from subtractive.tables.summaries import distribution_of, state_probabilities
from subtractive.tables.view import View

_ROUNDING = 1e-12  # of distribution functions


def interval(view: View, name: Hashable, level: float) -> pd.Series:
    """The ends of an interval, both included, that holds at least this probability.

    As much is outside on either side where the column has a density. On grids and at atoms
    neither end can be moved inside without losing the level: what the lower end leaves unused of
    its tail is given to the upper one, and what that leaves unused to the lower one.
    """
    (level,) = check_levels(level)
    tail = (1 - level) / 2
    place, column = distribution_of(view, name, "interval")
    ends = _quantiles(view, place, column, [tail, tail + level])
    if not isinstance(column, Numeric) or column.grid is not None or column.atoms:
        below = 1 - probability(view, {name: (ends[0], None)})
        ends[1] = _quantiles(view, place, column, [below + level - _ROUNDING])[0]
        spare = probability(view, {name: (None, ends[1])}) - level
        if spare > below:
            ends[0] = _quantiles(view, place, column, [spare + _ROUNDING])[0]
    values = view.schema.build_series({name: ends})[name]
    return pd.Series(values, index=["low", "high"], name=name)


def _quantiles(view: View, place: int, column: Column, levels: list[float]) -> Floats:
    """The smallest numbers (q,) of a column at which its distribution function has levels (q,)."""
    if not isinstance(column, Numeric):
        probabilities = state_probabilities(view, place, column)
        return state_quantiles(column, probabilities, np.array(levels))
    codes = quantile_codes(view.density, view.evidence, [place], np.array(levels))[place]
    return np.asarray(column.decode(snapped(column, codes)), dtype=np.float64)
