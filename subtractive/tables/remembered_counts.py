"""Compact counts of the training table: how many of its rows are in each pair of cells.

A question about one or two columns can be compared with them when the table itself is gone. A
cell is a value that occurs often, or an interval of numbers; no row can be told from the counts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from subtractive.tables.code_sets import CodeSet, Sets, both
from subtractive.tables.columns import Column, Numeric
from subtractive.tables.reading import Floats
from subtractive.tables.receipts import Matches
from subtractive.tables.states import States

# Cells of one column at most, and pairs of cells of all columns.
MOST_CELLS, MOST_PAIRS = 12, 2**16

Cells = tuple[float, ...]  # numbers: where cells end; states: which have a cell of their own


@final
@dataclass(frozen=True)
class RememberedCounts:
    """Counts of pairs of cells (c, c) for each pair of variables, the same one twice included."""

    num_states: tuple[int | None, ...]
    cells: tuple[Cells, ...]
    counts: Mapping[tuple[int, int], Floats]

    @classmethod
    def of(
        cls, columns: Sequence[Column], codes: Floats, weights: Floats
    ) -> RememberedCounts | None:
        """The counts of rows of codes (n, d), NaN where missing; none of very wide tables."""
        most = min(MOST_CELLS, int(math.sqrt(2 * MOST_PAIRS) / len(columns)))
        if most < 2:
            return None
        cells = tuple(
            _cells(column, codes[:, i], weights, most) for i, column in enumerate(columns)
        )
        states = tuple(len(c.values) if isinstance(c, States) else None for c in columns)
        places = [_place(cells[i], states[i], codes[:, i]) for i in range(len(columns))]
        counts = {}
        for i, j in itertools.combinations_with_replacement(range(len(columns)), 2):
            known = (places[i] >= 0) & (places[j] >= 0)
            shape = len(cells[i]) + 1, len(cells[j]) + 1
            flat = places[i][known] * shape[1] + places[j][known]
            found = np.bincount(flat, weights[known], shape[0] * shape[1])
            counts[i, j] = np.rint(found).reshape(shape)
        return cls(states, cells, counts)

    def matches(self, given: Sets | None, event: Sets | None) -> Matches | None:
        """How many rows are in what is given, and the share that is in the event, too.

        ``None`` where more than two columns are asked about, or a point is no cell.
        """
        joined = both(given, event)
        variables = sorted({*(given or {}), *(event or {})})
        if given is None or not 1 <= len(variables) <= 2:
            return None
        first, last = variables[0], variables[-1]
        table = self.counts[first, last]
        numbers, are_exact = [], []
        for sets in (given, joined):
            shares = [
                self._shares(v, None if sets is None else sets.get(v), exists=sets is not None)
                for v in (first, last)
            ]
            if any(share is None for share in shares):
                return None
            left, right = (np.asarray(share) for share in shares)
            right = right if first != last else (right > 0).astype(float)
            numbers.append(float(left @ table @ right))
            least, most = (float(f(left) @ table @ f(right)) for f in (np.floor, np.ceil))
            are_exact.append(least == most)
        rows, hits = numbers
        share = hits / rows if rows else math.nan
        return Matches(rows, share, "the training table", all(are_exact))

    def _shares(self, variable: int, one: CodeSet | None, *, exists: bool) -> Floats | None:
        """The share of each cell of a variable that is in a set, (c,)."""
        cells, count = self.cells[variable], self.num_states[variable]
        if not exists:
            return np.zeros(len(cells) + 1)
        if one is None:
            return np.ones(len(cells) + 1)
        if count is not None:
            chosen = {int(one.point)} if one.point is not None else set(one.states or ())
            others = set(range(count)) - {int(cell) for cell in cells}
            rest = len(others & chosen) / len(others) if others else 0.0
            return np.array([*(float(int(cell) in chosen) for cell in cells), rest])
        ends = np.array([-math.inf, *cells, math.inf])
        if one.point is not None:
            return None
        return np.asarray(sum(_inside(ends, low, high) for low, high in one.intervals))

    def describe(self) -> dict[str, Any]:
        """Plain lists, for a file."""
        return {
            "cells": [list(cells) for cells in self.cells],
            "counts": [table.astype(int).ravel().tolist() for table in self.counts.values()],
        }

    @classmethod
    def from_description(
        cls, data: Mapping[str, Any], columns: Sequence[Column]
    ) -> RememberedCounts:
        """The inverse of :meth:`describe`."""
        states = tuple(len(c.values) if isinstance(c, States) else None for c in columns)
        cells = tuple(tuple(float(end) for end in ends) for ends in data["cells"])
        if len(cells) != len(columns) or any(list(ends) != sorted(set(ends)) for ends in cells):
            raise ValueError("the remembered counts do not fit the columns.")
        for ends, count in zip(cells, states, strict=True):
            if count is not None and not all(e.is_integer() and 0 <= e < count for e in ends):
                raise ValueError("the remembered counts are of states that are not there.")
        pairs = itertools.combinations_with_replacement(range(len(columns)), 2)
        counts = {}
        for (i, j), numbers in zip(pairs, data["counts"], strict=True):
            table = np.array(numbers, dtype=np.float64)
            if not bool((table >= 0).all()):
                raise ValueError("the remembered counts are negative.")
            counts[i, j] = table.reshape(len(cells[i]) + 1, len(cells[j]) + 1)
        return cls(states, cells, counts)


def _cells(column: Column, codes: Floats, weights: Floats, most: int) -> Cells:
    """The states that occur most often; or the ends of intervals, atoms having their own."""
    there = ~np.isnan(codes)
    codes, weights = codes[there], weights[there]
    if isinstance(column, States):
        totals = np.bincount(codes.astype(int), weights, len(column.values))
        return tuple(sorted(np.argsort(-totals, kind="stable")[: most - 1].astype(float).tolist()))
    assert isinstance(column, Numeric)
    often = np.array([weights[codes == code].sum() for code in column.atom_codes])
    atoms = [column.atoms[i] for i in np.argsort(-often, kind="stable")[: (most - 1) // 3]]
    ends = {end for atom in atoms for end in column.window(atom, atom)}
    others = np.sort(codes[~np.isin(codes, column.atom_codes)])
    count = max(1, most - 3 - len(ends))
    if len(others):
        places = (np.arange(1, count + 1) * len(others) // (count + 1)).clip(0, len(others) - 1)
        values = column.decode(others[places])
        ends |= {column.window(-math.inf, value)[1] for value in values.tolist()}
        least, largest = column.decode(others[[0, -1]]).tolist()  # there is nothing beyond them
        ends |= {column.window(least, math.inf)[0], column.window(-math.inf, largest)[1]}
    return tuple(sorted(end for end in ends if math.isfinite(end)))


def _place(cells: Cells, num_states: int | None, codes: Floats) -> npt.NDArray[np.int64]:
    """The number of the cell in which each code (n,) is, -1 if it is missing."""
    missing = np.isnan(codes)
    ends = np.array(cells)
    if num_states is None:
        place = np.searchsorted(ends, codes, side="left")
    else:
        place = np.full(num_states, len(cells))
        place[ends.astype(int)] = np.arange(len(cells))
        place = place[np.nan_to_num(codes).astype(int)]
    return np.asarray(np.where(missing, -1, place))


def _inside(ends: Floats, low: float, high: float) -> Floats:
    """The share of each cell between ends (c + 1,) that is in ``low < x <= high``."""
    lower, upper = ends[:-1], ends[1:]
    overlap = np.minimum(upper, high) - np.maximum(lower, low)
    with np.errstate(invalid="ignore", divide="ignore"):
        part = np.clip(overlap / (upper - lower), 0.0, 1.0)
    is_whole = (lower >= low) & (upper <= high)
    is_out = (upper <= low) | (lower >= high)
    # A part of the outermost cells, which are infinitely wide, is taken for a half.
    part = np.where(np.isfinite(part) & np.isfinite(upper - lower), part, 0.5)
    return np.where(is_whole, 1.0, np.where(is_out, 0.0, part))
