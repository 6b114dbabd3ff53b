"""What plots show of a column: its marginal distribution, and its values in a table."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from subtractive.tables import summaries
from subtractive.tables.code_sets import CodeSet
from subtractive.tables.columns import Column, Numeric
from subtractive.tables.conditions import given_sets
from subtractive.tables.containers import AnyTable
from subtractive.tables.queries import encode
from subtractive.tables.reading import Floats, Table
from subtractive.tables.states import States
from subtractive.tables.table_density import TableQueries
from subtractive.tables.view import View

MOST_BINS = 40


@final
@dataclass(frozen=True)
class Marginal:
    """The exact distribution of a column: a density at points, probabilities of values."""

    column: Column
    points: Floats  # (q,), in order; none of states
    density: Floats  # (q,)
    values: tuple[Any, ...]  # states, or atoms
    probabilities: Floats  # (v,)

    @property
    def is_states(self) -> bool:
        """Whether the column has states and no density."""
        return isinstance(self.column, States)


def marginals(model: TableQueries, given: Mapping[Any, object] | None) -> dict[Hashable, Marginal]:
    """The marginal distributions of all columns that are not known, in one pass."""
    view = model._view().given(given)
    told, found = summaries.marginals(view), {}
    for name, part in told.groupby("column", sort=False):
        column = view.schema.column(name)
        density = part["density"].to_numpy(dtype=np.float64)
        is_point = ~np.isnan(density)
        points = part["value"][is_point].to_numpy(dtype=np.float64)
        order = np.argsort(points)
        found[name] = Marginal(
            column,
            points[order],
            density[is_point][order],
            column.values if isinstance(column, States) else _atoms(column),
            part["probability"].to_numpy(dtype=np.float64)[~is_point],
        )
    return found


def check_column(model: TableQueries, name: Hashable, what: str) -> Column:
    """The column of a plot, or why there is none."""
    view = model._view()
    view.schema.check_names([name], what)
    if name not in view.variables:
        raise ValueError(f"the value of column {name!r} is known: {what} has nothing to draw.")
    return view.schema.column(name)


def matching(
    model: TableQueries, data: AnyTable, given: Mapping[Any, object] | None
) -> Table | None:
    """The rows of a table in which what is given holds; ``None`` without a table."""
    if data is None:
        return None
    view = model._view()
    table = view.schema.dated(model._read(data))
    if not given:
        return table
    codes = encode(view, table).x.numpy()
    sets = given_sets(view.schema, given)
    inside = np.full(len(codes), sets is not None)
    for variable, one in (sets or {}).items():
        inside &= _holds(codes[:, variable], one)
    return table.rows(inside)


def numbers_of(view: View, table: Table, name: Hashable) -> Floats:
    """The values (n,) of a column of numbers that are present."""
    raw = table.columns[view.names.index(name)]
    return np.asarray(raw.values[~raw.missing], dtype=np.float64)


def codes_of(view: View, table: Table, name: Hashable) -> Floats:
    """Values of numbers, or the numbers of states, (n,), NaN where there is none."""
    raw, column = table.columns[view.names.index(name)], view.schema.column(name)
    return np.asarray(
        column.encode(raw.values) if isinstance(column, States) else raw.values, float
    )


def edges_between(low: float, high: float, column: Column, most: int = MOST_BINS) -> Floats:
    """The edges of the bars of a histogram; on a grid all bars hold as many of its values."""
    grid = column.grid if isinstance(column, Numeric) else None
    if grid is None or grid.levels or (high - low) / most < grid.step / 1000:
        return np.linspace(low, high, most + 1)
    width = grid.step * math.ceil((high - low) / most / grid.step)
    first = grid.round(np.array([low]))[0] - grid.step / 2
    return np.asarray(np.arange(first, high + width, width))


def heights_of(values: Floats, edges: Floats, column: Column) -> Floats:
    """Heights of the bars of values (n,), with the area that atoms and what is outside leave."""
    atoms = column.atoms if isinstance(column, Numeric) else ()
    counts, _ = np.histogram(values[~np.isin(values, atoms)], edges)
    return np.asarray(counts / max(len(values), 1) / np.diff(edges))


def _atoms(column: Column) -> tuple[float, ...]:
    return column.atoms if isinstance(column, Numeric) else ()


def _holds(codes: Floats, one: CodeSet) -> npt.NDArray[np.bool_]:
    return np.array([not math.isnan(code) and one.holds(code) for code in codes], dtype=bool)
