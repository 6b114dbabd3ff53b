"""The rows of a table that a selection leaves, counted in the bars of the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from subtractive.explorer.columns import ShownColumn
from subtractive.explorer.selection import Condition, Selection
from subtractive.tables.reading import Floats, Table, Values

# No row has exactly a number that was picked: those are taken that are so near, as a share of
# the axis.
NEAR = 0.025
OUTSIDE = -1


@final
@dataclass(frozen=True)
class ColumnRows:
    """One column of a table: its values, the bar of each row, and which atom or state it is."""

    shown: ShownColumn
    values: Values  # (n,)
    present: npt.NDArray[np.bool_]  # (n,)
    bars: npt.NDArray[np.int64]  # (n,): a bar of the histogram, or OUTSIDE
    places: npt.NDArray[np.int64]  # (n,): a state or an atom, or OUTSIDE

    @classmethod
    def of(cls, shown: ShownColumn, values: Values, missing: npt.NDArray[np.bool_]) -> ColumnRows:
        """Sort the values of a column into its bars."""
        outside = np.full(len(values), OUTSIDE)
        if shown.states:
            codes = shown.column.encode(values)
            places = np.where(np.isnan(codes), OUTSIDE, np.nan_to_num(codes)).astype(np.int64)
            return cls(shown, values, ~missing, outside, places)
        places = outside.copy()
        for place, atom in enumerate(shown.atoms):
            places[values == atom] = place
        with np.errstate(invalid="ignore"):
            bars = np.searchsorted(shown.edges, values, "right") - 1
            off = (values < shown.edges[0]) | (values >= shown.edges[-1]) | missing | (places >= 0)
        return cls(shown, values, ~missing, np.where(off, OUTSIDE, bars), places)

    def matches(self, condition: Condition) -> npt.NDArray[np.bool_]:
        """The rows in which a condition holds, (n,); missing values are none of them."""
        side = condition.side
        if isinstance(side, list):
            listed = self.shown.states or self.shown.atoms
            return np.isin(self.places, [listed.index(value) for value in side])
        with np.errstate(invalid="ignore"):
            if isinstance(side, tuple):
                low, high = side
                above = self.present if low is None else self.values >= low
                return np.asarray(above & (self.present if high is None else self.values <= high))
            return np.asarray(np.abs(self.values - side) <= reach(self.shown))

    def count(self, rows: npt.NDArray[np.bool_]) -> dict[str, list[float]]:
        """Heights of the bars, and shares of states and atoms, among some rows."""
        total = max(int((rows & self.present).sum()), 1)
        places = self.places[rows]
        labels = len(self.shown.states or self.shown.atoms)
        shares = np.bincount(places[places >= 0], minlength=labels) / total
        if self.shown.states:
            return {"shares": shares.tolist()}
        bars = self.bars[rows]
        counts = np.bincount(bars[bars >= 0], minlength=len(self.shown.edges) - 1)
        heights = counts / total / np.diff(self.shown.edges)
        return {"shares": shares.tolist(), "heights": heights.tolist()}


@final
@dataclass(frozen=True)
class Subset:
    """The columns of a table that the page shows."""

    columns: tuple[ColumnRows, ...]
    num_rows: int

    @classmethod
    def of(cls, columns: Sequence[ShownColumn], table: Table) -> Subset:
        """Take what is shown of a table."""
        raws = {raw.name: raw for raw in table.columns}
        rows = [
            ColumnRows.of(c, raws[c.name].values, np.asarray(raws[c.name].missing))
            for c in columns
        ]
        return cls(tuple(rows), table.num_rows)

    def rows(self, selection: Selection) -> npt.NDArray[np.bool_]:
        """The rows that are selected, (n,)."""
        by_key = {column.shown.key: column for column in self.columns}
        chosen = np.ones(self.num_rows, dtype=bool)
        for condition in selection.conditions:
            chosen &= by_key[condition.shown.key].matches(condition)
        return chosen

    def count(self, selection: Selection, columns: Sequence[ShownColumn]) -> dict[str, Any]:
        """How many rows are selected, and their bars in some columns."""
        rows, keys = self.rows(selection), {shown.key for shown in columns}
        bars = {c.shown.key: c.count(rows) for c in self.columns if c.shown.key in keys}
        return {
            "rows": int(rows.sum()),
            "of": self.num_rows,
            "reach": {c.shown.key: reach(c.shown) for c in selection.conditions if c.is_point},
            "columns": bars,
        }

    def dots(self, selection: Selection, pair: Sequence[ShownColumn], most: int) -> list[Floats]:
        """Some of the selected rows, evenly spaced: numbers, or states by their number."""
        by_key = {column.shown.key: column for column in self.columns}
        chosen = [by_key[shown.key] for shown in pair]
        known = self.rows(selection)
        for column in chosen:
            known = known & column.present
        rows = np.flatnonzero(known)
        rows = rows[np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(int)]
        return [
            np.asarray(c.places[rows] if c.shown.states else c.values[rows], dtype=np.float64)
            for c in chosen
        ]


def reach(shown: ShownColumn) -> float:
    """How far from a number rows still count as having it."""
    return NEAR * (shown.high - shown.low)
