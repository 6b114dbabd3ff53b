"""Probability integral transforms: where values are in the distribution that a model expects."""

from __future__ import annotations

import numpy as np
import pandas as pd

from subtractive.tables.columns import Column, Numeric
from subtractive.tables.expectations import heights as heights_at
from subtractive.tables.quantiles import cumulative
from subtractive.tables.reading import Floats, Table, Values
from subtractive.tables.states import States
from subtractive.tables.view import View

MOST_ROWS = 2000


def pit_values(view: View, table: Table, seed: int = 0) -> pd.DataFrame:
    r"""The probability integral transforms of at most 2000 rows, NaN where values are missing.

    .. math:: u = P(X < x) + v P(X = x), \quad v \sim U(0, 1)

    They are uniform if the model is right about a column. Grids, atoms and states have the
    second term.
    """
    random = np.random.default_rng(seed)
    if table.num_rows > MOST_ROWS:
        table = table.rows(np.sort(random.choice(table.num_rows, MOST_ROWS, replace=False)))
    ends: dict[int, tuple[Floats, Floats]] = {}
    present = {}
    for name, place in view.variables.items():
        raw = table.columns[view.names.index(name)]
        present[name] = ~raw.missing & view.schema.variables[place].possible(raw.values)
        if isinstance(view.schema.variables[place], Numeric):
            ends[place] = _ends(view.schema.variables[place], raw.values[present[name]])
    points = {place: np.concatenate(pair) for place, pair in ends.items()}
    heights = cumulative(view.density, view.evidence, points) if points else {}
    states = _state_probabilities(view)
    found = {}
    for name, place in view.variables.items():
        raw = table.columns[view.names.index(name)]
        column, rows = view.schema.variables[place], present[name]
        if place in heights:
            below, upto = np.split(heights[place], 2)
        else:
            codes = column.encode(raw.values[rows])
            below, upto = _state_ends(states[place], codes)
        at = np.full(table.num_rows, np.nan)
        at[rows] = below + random.random(len(below)) * (upto - below)
        found[name] = at
    return pd.DataFrame(found)


def ks_distance(uniform: Floats) -> float:
    """The Kolmogorov-Smirnov distance of numbers from the uniform distribution.

    >>> ks_distance(np.array([0.25, 0.75]))
    0.25
    """
    known = np.sort(uniform[~np.isnan(uniform)])
    size = len(known)
    if size == 0:
        return 0.0
    steps = np.arange(size + 1) / size
    return float(max((steps[1:] - known).max(), (known - steps[:-1]).max()))


def _ends(column: Column, values: Values) -> tuple[Floats, Floats]:
    """The codes below and up to which values are, (n,) each: the ends of their cells."""
    assert isinstance(column, Numeric)
    distinct, places = np.unique(values, return_inverse=True)
    if column.grid is None:
        codes = column.encode(distinct)
        is_atom = np.isin(distinct, column.atoms)
        below = np.where(is_atom, np.nextafter(codes, -np.inf), codes)
        return below[places], codes[places]
    windows = np.array([column.window(value, value) for value in distinct]).reshape(-1, 2)
    return windows[places, 0], windows[places, 1]


def _state_probabilities(view: View) -> dict[int, Floats]:
    """The probabilities of the states of each variable that has states, in one pass."""
    columns = view.schema.variables
    points = {
        place: np.arange(len(column.values), dtype=np.float64)
        for place in view.variables.values()
        if isinstance(column := columns[place], States)
    }
    return heights_at(view.density, view.evidence, points) if points else {}


def _state_ends(probabilities: Floats, codes: Floats) -> tuple[Floats, Floats]:
    """P(earlier states) and P(these or earlier ones), (n,) each."""
    total = np.append(0.0, np.cumsum(probabilities))
    known = np.nan_to_num(codes).astype(int)
    return total[known], total[known + 1]
