"""Interval-censored cells: numbers of which only an interval is known.

A model is trained on them by stochastic EM: cells are drawn from the model given their row and
their interval, and the model is fitted to the completed table, in turns. At a fixed point the
mass of each interval is what is maximised, by Fisher's identity

    ∇ log P(x_seen, x_censored in I) = E[∇ log p(x) | x_seen, x_censored in I].
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch

from subtractive.inference.evidence import Evidence
from subtractive.tables.code_sets import Sets
from subtractive.tables.grids import find_grid
from subtractive.tables.queries import draw, encode, row_sets
from subtractive.tables.reading import Floats, RawColumn, Table
from subtractive.tables.view import View

ROUNDS = 3  # of drawing and fitting


def is_censored(table: Table) -> bool:
    """Whether some cell of a table is an interval."""
    return any(raw.intervals is not None for raw in table.columns)


def start_table(table: Table, random: np.random.Generator) -> Table:
    """A table whose censored cells are drawn from the numbers of their columns."""
    return table._replace(columns=tuple(_started(raw, random) for raw in table.columns))


def _started(raw: RawColumn, random: np.random.Generator) -> RawColumn:
    if raw.intervals is None:
        return raw
    values, seen = raw.values.copy(), np.sort(raw.values[~raw.missing])
    ends = raw.intervals[:, :2]
    ends = np.append(seen, ends[np.isfinite(ends)])
    spread = float(np.std(ends)) or 1.0
    distinct, counts = np.unique(seen, return_counts=True)
    grid = find_grid(distinct, counts.astype(float), 1e-15) if len(distinct) > 1 else None
    rows = np.flatnonzero(raw.censored)
    _, which, alike = np.unique(
        raw.intervals[rows, :2], axis=0, return_inverse=True, return_counts=True
    )
    for row, cells in zip(rows, alike[which.ravel()], strict=True):
        low, high = raw.intervals[row, :2].tolist()
        first, last = np.searchsorted(seen, [low, high], side="left")
        # Few numbers that stand for many cells would look like atoms.
        if last - first >= cells:
            values[row] = seen[random.integers(first, last)]
            continue
        drawn = _between(low, high, spread, random)
        on_grid = drawn if grid is None else float(grid.round(np.array([drawn]))[0])
        values[row] = on_grid if low <= on_grid <= high else drawn
    return replace(raw, values=values, intervals=None)


def _between(low: float, high: float, spread: float, random: np.random.Generator) -> float:
    """A number of an interval: any of a bounded one, one near the end of another."""
    if math.isfinite(low) and math.isfinite(high):
        return float(random.uniform(low, high))
    if math.isfinite(low):
        return float(low + random.exponential(spread / 2))
    return float(high - random.exponential(spread / 2))


def redrawn_table(view: View, table: Table, generator: torch.Generator) -> Table:
    """A table whose censored cells are drawn from a model, given their rows and intervals."""
    rows = encode(view, table)
    x = rows.x.clone()
    numbers = sorted(rows.censored)
    boxed = [n for n in numbers if _is_one_box(rows.censored[n])]
    lower = torch.full_like(x[boxed], -math.inf)
    upper = torch.full_like(x[boxed], math.inf)
    for place, number in enumerate(boxed):
        for variable, one in rows.censored[number].items():
            lower[place, variable], upper[place, variable] = one.intervals[0]
    seen = ~x[boxed].isnan()
    evidence = Evidence(x[boxed].nan_to_num(0.0), seen, lower, upper)
    if boxed:
        with torch.no_grad():
            x[boxed] = view.density.sample_given(evidence, generator)
    for number in sorted(set(numbers) - set(boxed)):
        sets = row_sets(view, rows, number)
        assert sets is not None
        x[number] = draw(replace(view, sets=sets), 1, generator)[0]
    return table._replace(columns=tuple(_filled(view, raw, x.numpy()) for raw in table.columns))


def _is_one_box(sets: Sets) -> bool:
    return all(len(one.intervals) == 1 for one in sets.values())


def _filled(view: View, raw: RawColumn, codes: Floats) -> RawColumn:
    if raw.intervals is None or raw.name not in view.schema.place:
        return raw
    place = view.schema.place[raw.name]
    values = raw.values.copy()
    chosen = raw.censored
    values[chosen] = view.schema.variables[place].decode(codes[chosen, place])
    return replace(raw, values=values, intervals=None)
