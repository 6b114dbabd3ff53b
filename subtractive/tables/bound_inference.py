"""Bounds: the numbers that nothing, or hardly anything, of a column is beyond."""

from __future__ import annotations

import math
from typing import NamedTuple, TypeAlias

import numpy as np
import scipy

from subtractive.tables.atom_inference import Distinct
from subtractive.tables.grids import Grid
from subtractive.tables.reading import Floats

# A bound is there if a normal distribution would have put so many rows beyond it: fewer if the
# least value is exactly on it and far from all others, so many times as far as any two of them.
MISSED_ROWS, ALONE = {False: 3.0, True: 0.1}, 5.0
# An end is there if the density does not fall towards it: of the share of rows that is next to
# it, which must be many and have several values, no more may be inside of any place than an even
# distribution allows, by so many standard errors or so much, nor too few in the outermost fifth.
NEAR_SHARE, NEAR_ROWS, NEAR_VALUES = 0.1, 150, 3
EXCESS, LEAST_EXCESS, OUTERMOST = 1.5, 0.05, 0.6
# An end is the roundest number that is not farther from the last value than so many mean gaps,
# fewer on a coarse grid, whose last value is seldom missing. It is no better than a round bound
# that is as near or, if the grid is not coarse, nearer than a share of the range of these rows.
GAPS, GAPS_ON_GRID, NEAR_RANGE = 8.0, 3.0, 0.1
# Zero is an end of positive numbers whose upper half is so many times as wide as the lower one, if
# some are so many spreads from it or nearer; the spread is this share of their range at least.
SKEW, NEAR_ZERO, LEAST_SPREAD = 1.2, 3.0, 0.05
# Numbers on a grid are spread evenly if there are so many of them, with so many rows each, that a
# chi-squared test does not reject it at this level: they end where they do.
FLAT_VALUES, FLAT_ROWS, FLAT_CHANCE = 8, 3.0, 0.01


Rounds: TypeAlias = tuple[tuple[float, ...], tuple[float, ...]]  # below and above


class Bounds(NamedTuple):
    """The support of a column, ``passable`` where only its rows speak for an end."""

    low: float
    high: float
    passable: tuple[bool, bool]


def find_bounds(
    rest: Distinct, grid: Grid | None, declared: tuple[float, float], round_ones: Rounds
) -> Bounds:
    """The support of numbers without atoms, where it is not declared: by round numbers, or ends.

    >>> days = Distinct(np.arange(1.0, 366.0), np.full(365, 4.0), 1e-15)
    >>> find_bounds(days, Grid(1.0), (-math.inf, math.inf), ((0.0,), (0.0, 1.0, 100.0)))
    Bounds(low=1.0, high=365.0, passable=(True, True))
    """
    ends, passable = list(declared), [False, False]
    below = np.cumsum(rest.counts) / rest.counts.sum()
    left, middle, right = np.interp([0.16, 0.5, 0.84], below, rest.values)
    for k, (sign, spread) in enumerate(((-1, middle - left), (1, right - middle))):
        if math.isfinite(declared[k]):
            continue
        mirrored = rest if sign > 0 else _mirrored(rest)
        for bound in round_ones[k]:
            missed = rest.counts.sum() * _tail(sign * (bound - middle), spread)
            is_alone = sign < 0 and _is_alone(bound, rest)
            inside = sign * bound >= mirrored.values[-1]
            if inside and missed >= MISSED_ROWS[is_alone] and not math.isfinite(ends[k]):
                ends[k] = bound
        is_list = grid is not None and bool(grid.levels)  # which nothing is beyond anyway
        missed = rest.counts.sum() * _tail(float(mirrored.values[-1]) - sign * middle, spread)
        has_end = missed >= MISSED_ROWS[False] and not is_list
        end = _end(mirrored, None if grid is None else grid.step) if has_end else None
        if end is not None and abs(sign * ends[k] - end.value) > end.alike:
            ends[k], passable[k] = sign * end.value + 0.0, True
            if grid is not None:
                ends[k] = grid.floor(ends[k]) if sign > 0 else grid.ceil(ends[k])
        is_skewed = not is_list and right - middle > SKEW * (middle - left)
        if sign < 0 and is_skewed and math.isinf(ends[k]) and _is_near_zero(rest, spread):
            ends[k], passable[k] = 0.0, True
        outermost = sign * float(mirrored.values[-1])
        if ends[k] != outermost and grid is not None and _is_flat(rest, grid):
            ends[k], passable[k] = outermost, True
    return Bounds(ends[0], ends[1], (passable[0], passable[1]))


def _is_near_zero(rest: Distinct, spread: float) -> bool:
    """Whether all numbers are positive, but a model without an end might go below zero."""
    first, last = rest.values[[0, -1]]
    return bool(0 <= first <= NEAR_ZERO * max(spread, LEAST_SPREAD * (last - first)))


def _is_flat(rest: Distinct, grid: Grid) -> bool:
    """Whether all places of a grid between the ends have about as many rows, as days of months."""
    number = 1 if grid.levels else round((rest.values[-1] - rest.values[0]) / grid.step) + 1
    rows = float(rest.counts.sum())
    if number < FLAT_VALUES or rows < FLAT_ROWS * number:
        return False
    mean = rows / number
    squares = float(np.square(rest.counts - mean).sum()) + (number - len(rest.values)) * mean**2
    return bool(scipy.special.chdtrc(number - 1, squares / mean) > FLAT_CHANCE)


def _mirrored(rest: Distinct) -> Distinct:
    return Distinct(-rest.values[::-1], rest.counts[::-1], rest.precision)


def _is_alone(bound: float, rest: Distinct) -> bool:
    """Whether the least value is on a bound, and not there by chance as on a coarse grid."""
    gaps = np.diff(rest.values)
    return bool(rest.values[0] == bound and len(gaps) > 1 and gaps[0] >= ALONE * gaps[1:].min())


def _tail(distance: float, spread: float) -> float:
    """The share of a normal distribution of this spread beyond a distance from its centre."""
    return float(scipy.special.ndtr(-distance / spread)) if spread > 1e-9 * abs(distance) else 0.0


class _End(NamedTuple):
    value: float
    alike: float  # how far away a round bound is as good


def _end(rest: Distinct, step: float | None) -> _End | None:
    """The number above which hardly anything is, if the density does not fall towards it."""
    values, counts = rest.values, rest.counts
    above = np.cumsum(counts[::-1])[::-1]  # rows that are not below each value
    near = max(NEAR_ROWS, NEAR_SHARE * float(above[0]))
    if 4 * near > above[0]:
        return None
    first = int(np.searchsorted(-above, -near, side="right")) - 1
    half = 0.0 if step is None else step / 2
    start, last = values[first] - half, values[-1] + half
    if len(values) - first < NEAR_VALUES:
        return None
    places = (values[first:] + half - start) / (last - start)
    if not _is_even(places, counts[first:]):
        return None
    gap = (last - start) / float(above[first])
    if step is not None and gap <= step:
        reach = GAPS_ON_GRID * gap
        return _End(_roundest(float(values[-1]), reach, step), reach)
    value = _roundest(float(values[-1]), GAPS * gap, step or 0.0)
    return _End(value, NEAR_RANGE * float(last - start))


def _is_even(places: Floats, counts: Floats) -> bool:
    """Whether rows at places (v,) between 0 and 1 are not fewer towards 1."""
    rows = float(counts.sum())
    excess = np.cumsum(counts) / rows - places
    allowed = max(EXCESS / math.sqrt(rows), LEAST_EXCESS)
    outermost = float(counts[places > 0.8].sum()) / rows
    return bool(excess.max() <= allowed and outermost >= OUTERMOST * 0.2)


def _roundest(value: float, reach: float, step: float) -> float:
    """The roundest number from a value on, at most so far from it: with the largest unit."""
    digits = math.ceil(math.log10(max(abs(value), reach))) + 1
    for power in range(digits, digits - 18, -1):
        for unit in (5 * 10.0**power, 2 * 10.0**power, 10.0**power):
            number = round(math.ceil(value / unit - 1e-9) * unit, max(0, 1 - power)) + 0.0
            if unit >= step and value <= number <= value + reach:
                return number
    return value
