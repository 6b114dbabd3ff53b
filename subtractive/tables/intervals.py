"""Intervals that hold a column with a given probability."""

from __future__ import annotations

from collections.abc import Hashable
from typing import final

import numpy as np
import pandas as pd

from subtractive.tables.columns import Column, Numeric
from subtractive.tables.conditions import event_sets
from subtractive.tables.quantiles import Distributions, check_levels, snapped, state_quantiles
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
    line: _Numbers | _States
    if isinstance(column, Numeric):
        line = _Numbers(view, place, column)
    else:
        line = _States(view, place, column)
    ends = line.quantiles([tail, tail + level])
    if not isinstance(column, Numeric) or column.grid is not None or column.atoms:
        below = 1 - line.share(ends[0], None)
        ends[1] = line.quantiles([below + level - _ROUNDING])[0]
        spare = line.share(None, ends[1]) - level
        if spare > below:
            ends[0] = line.quantiles([spare + _ROUNDING])[0]
    values = view.schema.build_series({name: ends})[name]
    return pd.Series(values, index=["low", "high"], name=name)


@final
class _Numbers:
    """A column of numbers: its distribution function is prepared once."""

    def __init__(self, view: View, place: int, column: Numeric) -> None:
        self.schema, self.place, self.column = view.schema, place, column
        self.distributions = Distributions(view.density, view.evidence)

    def quantiles(self, levels: list[float]) -> Floats:
        """The smallest numbers (q,) at which the distribution function has levels (q,)."""
        codes = self.distributions.quantile_codes([self.place], np.array(levels))[self.place]
        return np.asarray(self.column.decode(snapped(self.column, codes)), dtype=np.float64)

    def share(self, low: float | None, high: float | None) -> float:
        """The probability of the numbers from low to high, both included."""
        sets = event_sets(self.schema, {self.column.name: (low, high)})
        assert sets is not None
        ends = np.array(sets[self.place].intervals)  # (k, 2)
        heights = self.distributions.cumulative({self.place: ends.flatten()})[self.place]
        return float(heights.reshape(-1, 2) @ [-1.0, 1.0] @ np.ones(len(ends)))


@final
class _States:
    """A column of few numbers, with the probability of each."""

    def __init__(self, view: View, place: int, column: Column) -> None:
        self.column, self.probabilities = column, state_probabilities(view, place, column)

    def quantiles(self, levels: list[float]) -> Floats:
        """The smallest numbers (q,) at which the distribution function has levels (q,)."""
        return state_quantiles(self.column, self.probabilities, np.array(levels))

    def share(self, low: float | None, high: float | None) -> float:
        """The probability of the numbers from low to high, both included."""
        values = self.column.numbers(np.arange(len(self.probabilities), dtype=np.float64))
        assert values is not None
        inside = (values >= (-np.inf if low is None else low)) & (
            values <= (np.inf if high is None else high)
        )
        return float(self.probabilities[inside].sum() / self.probabilities.sum())
