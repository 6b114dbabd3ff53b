"""Atoms: the numbers of a column that occur too often for a density."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy

from subtractive.tables.grids import Grid
from subtractive.tables.reading import Floats

# An atom has this share of the rows, this many of them, and so many times as many as its
# neighbours on the grid. Ties of a fine grid are as frequent with so small a probability only.
ATOM_SHARE, ATOM_ROWS, ATOM_EXCESS, ATOM_CHANCE = 0.003, 5, 5.0, 0.01
MOST_ATOMS, NEIGHBOURS = 32, 4


class Distinct(NamedTuple):
    """The different numbers of a column in order, (v,), and the weight of each."""

    values: Floats
    counts: Floats
    precision: float

    def without(self, values: tuple[float, ...]) -> Distinct:
        """The others."""
        kept = ~np.isin(self.values, values)
        return Distinct(self.values[kept], self.counts[kept], self.precision)


def find_atoms(distinct: Distinct, grid: Grid | None) -> tuple[float, ...]:
    """The values that occur too often for a density."""
    values, counts = distinct.values, distinct.counts
    often = counts >= max(ATOM_ROWS, ATOM_SHARE * counts.sum())
    if grid is not None:
        often &= counts >= ATOM_EXCESS * (_expected(distinct, grid) + 1)
        # Of values that occur at random, λ times on average, λ / 2 occur twice for each one that
        # occurs once: so many ties are to be expected of a value.
        once, twice = ((np.rint(counts) == times).sum() for times in (1, 2))
        rate = 2 * twice / max(once, 1)
        often &= len(values) * scipy.special.pdtrc(counts - 1, rate) < ATOM_CHANCE
    if int((~often).sum()) < 2:
        often &= counts >= 2 * np.median(counts)
    chosen = np.sort(values[often][np.argsort(-counts[often], kind="stable")[:MOST_ATOMS]])
    return tuple(chosen.tolist())


def _expected(distinct: Distinct, grid: Grid) -> Floats:
    """What the neighbours of each value on the grid let expect of it, (v,).

    It is the larger of the mean counts to the left and to the right: a distribution may end at a
    value without that value being an atom.
    """
    values, counts = distinct.values, distinct.counts
    if grid.levels:
        place = np.arange(len(values))
    else:
        place = np.round((values - grid.origin) / grid.step).astype(np.int64)
    below = np.concatenate([[0.0], np.cumsum(counts)])
    sides = []
    for sign in (-1, 1):
        ends = sorted((sign, sign * NEIGHBOURS))
        first = np.searchsorted(place, place + ends[0], side="left")
        last = np.searchsorted(place, place + ends[1], side="right")
        sides.append((below[last] - below[first]) / NEIGHBOURS)
    return np.asarray(np.maximum(*sides))
