"""Grids: the values to which the numbers of a column were rounded, and their cells."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple, final

import numpy as np
import numpy.typing as npt

from subtractive.tables.reading import Floats

MOST_DECIMALS = 6
MOST_DIGITS = 14  # after the point, of numbers that were rounded when they were written
# Steps are multiples of 1/n for n up to this, if they are no decimal numbers. Where so large a
# share of all numbers is as close to a multiple as writing allows, that says too little, and the
# chance of all values being so close must be below e to the power of minus that.
LARGEST_DENOMINATOR, MOST_CHANCE, SURE = 60, 0.25, 25.0
LEAST_VALUES = 6  # different ones, from which a step is learned that is no power of ten
# A grid this fine, relative to the range of the column, is no grid.
FINEST = 1e-7
# Values that repeat so often, with gaps so much wider than the step, are a list of their own.
ROWS_PER_LEVEL, WIDE_GAPS = 5, 3
# This share of the rows may be off a grid, such as one mistyped number in 10,000. Such a number is
# in the cell of the value that it would be rounded to.
OFF_GRID = 1e-4


@final
@dataclass(frozen=True)
class Grid:
    """Multiples of ``step`` from ``origin`` on, or the ``levels`` listed, if there are any.

    Multiples of a step that is no decimal number, such as 1/12, are written with so many
    ``digits`` after the point, or with all that a number has.

    >>> Grid(1.0, origin=0.5).round(np.array([7.9])), Grid(1 / 3, digits=2).round(np.array([0.7]))
    (array([7.5]), array([0.67]))
    """

    step: float
    origin: float = 0.0
    levels: tuple[float, ...] = ()
    digits: int | None = None

    @cached_property
    def _edges(self) -> Floats:
        """The edges of the cells of the levels, (v + 1,): half way to the neighbours."""
        levels = np.array(self.levels)
        middle = (levels[1:] + levels[:-1]) / 2
        first, last = 2 * levels[0] - middle[0], 2 * levels[-1] - middle[-1]
        return np.concatenate([[first], middle, [last]])

    @cached_property
    def _share(self) -> Fraction | None:
        return _fraction(self.step)

    @cached_property
    def decimals(self) -> int | None:
        """How many decimals the values have, if it is few."""
        if self.digits is not None:
            return self.digits
        for digits in range(MOST_DECIMALS + 4):
            step, origin = round(self.step, digits), round(self.origin, digits)
            # Origins in older files have the rounding errors of a division.
            if math.isclose(step, self.step, rel_tol=1e-12) and (
                abs(origin - self.origin) <= 1e-9 * self.step
            ):
                return digits
        return None

    def round(self, values: Floats) -> Floats:
        """The nearest values of the grid, (n,)."""
        if self.levels:
            place = np.searchsorted(self._edges[1:-1], values, side="left")
            return np.array(self.levels)[place]
        return self._written(self._numbers(values))

    def _numbers(self, values: Floats) -> Floats:
        """How many steps the nearest values of the grid are away from its origin, (n,)."""
        return np.asarray(np.round((values - self.origin) / self.step))

    def _written(self, numbers: Floats) -> Floats:
        """The values so many steps away from the origin, (n,), as they are written."""
        if self.decimals is not None:
            return np.round(self.origin + self.step * numbers, self.decimals) + 0.0
        share = self._share
        if share is None:
            return self.origin + self.step * numbers
        # Quotients of whole numbers: 73 / 12 is not always 73 * (1 / 12) to the last digit.
        start = self.origin * share.denominator
        start = round(start) if abs(start - round(start)) <= 1e-9 else start
        return np.asarray((start + share.numerator * numbers) / share.denominator)

    def ceil(self, value: float) -> float:
        """The smallest value of the grid that is not below a number."""
        return self._beside(value, 1) if math.isfinite(value) else value

    def floor(self, value: float) -> float:
        """The largest value of the grid that is not above a number."""
        return self._beside(value, -1) if math.isfinite(value) else value

    def _beside(self, value: float, sign: int) -> float:
        if self.levels:
            levels = sign * np.array(self.levels)
            above = levels[levels >= sign * value - 1e-9 * self.step]
            return sign * float(above.min()) if len(above) else sign * math.inf
        number = self._numbers(np.array([value]))
        is_there = sign * self._written(number) >= sign * value - 1e-6 * self.step
        return float(self._written(number + np.where(is_there, 0, sign))[0])

    def cells(self, values: Floats) -> tuple[Floats, Floats]:
        """The lower and upper edges (n,) of the cells in which values (n,) are."""
        if self.levels:
            place = np.searchsorted(self._edges[1:-1], values, side="left")
            return self._edges[place], self._edges[place + 1]
        centre = self.origin + self.step * self._numbers(values)
        return centre - self.step / 2, centre + self.step / 2


class Lattice(NamedTuple):
    """Numbers ``(start + k divisor) / scale`` for whole ``k``, and where they are written to."""

    divisor: int
    scale: int
    start: int
    digits: int | None  # ``None`` of decimal steps, and of numbers that are not rounded

    @property
    def step(self) -> float:
        """The distance of neighbours."""
        return self.divisor / self.scale


def _fraction(step: float) -> Fraction | None:
    """A step as a fraction of small whole numbers, if it is one."""
    share = Fraction(step).limit_denominator(LARGEST_DENOMINATOR)
    return share if share and math.isclose(float(share), step, rel_tol=1e-12) else None


def step_text(step: float, *, is_time: bool) -> str:
    """A step in words: ``0.1``, ``1/12``, or of times, whose numbers are microseconds, ``1 day``.

    >>> step_text(0.1, is_time=False), step_text(5 / 12, is_time=False)
    ('0.1', '5/12')
    >>> step_text(86_400e6, is_time=True)
    '1 day'
    """
    if not is_time:
        share = _fraction(step)
        is_decimal = share is None or 10**MOST_DECIMALS % share.denominator == 0
        return f"{step:g}" if is_decimal else str(share)
    units = {"day": 86_400e6, "hour": 3_600e6, "minute": 60e6, "second": 1e6, "millisecond": 1e3}
    unit, size = next(((u, s) for u, s in units.items() if step % s == 0), ("microsecond", 1.0))
    return f"{step / size:g} {unit}{'' if step == size else 's'}"


def grid_text(grid: Grid, values: Floats, counts: Floats, *, is_time: bool) -> str:
    """What a grid is for the different values (v,) of a column, which occur so often.

    >>> grid_text(Grid(0.1), np.array([0.1, 0.2, 0.25]), np.array([6e3, 7e3, 1.0]), is_time=False)
    'multiples of 0.1 but for 1 row'
    >>> grid_text(Grid(1.0, 0.5), np.array([0.5, 3.5]), np.array([4.0, 2.0]), is_time=False)
    'multiples of 1 plus 0.5'
    """
    if grid.levels:
        return f"{len(grid.levels)} values that repeat"
    words = f"multiples of {step_text(grid.step, is_time=is_time)}"
    if abs(grid.origin) > 1e-9 * grid.step:
        words += f" plus {step_text(grid.origin, is_time=is_time)}"
    rows = counts[_are_off(grid, values)].sum()
    return f"{words} but for {rows:,.0f} row{'' if rows == 1 else 's'}" if rows else words


def _are_off(grid: Grid, values: Floats) -> npt.NDArray[np.bool_]:
    return np.asarray(np.abs(grid.round(values) - values) > 1e-3 * grid.step)


def find_grid(values: Floats, counts: Floats, precision: float) -> Grid | None:
    """The grid of the different values (v,) of a column, which occur so often; or none.

    ``precision`` is how much rounding may change a number, relative to its size.

    >>> tenths = np.arange(20_000) / 10
    >>> find_grid(np.sort([*tenths, 7.123]), np.ones(20_001), 1e-15).step
    0.1
    """
    found = _decimal_lattice(values, counts, precision)
    found = _fractional_lattice(values, counts, precision, found) or found
    if found is None:
        return None
    step = found.step
    if step < 1 and step < FINEST * float(values[-1] - values[0]):
        return None
    gaps = np.diff(values)
    rows = counts[1:] + counts[:-1]
    typical = float(np.average(gaps, weights=rows)) if len(gaps) else step
    repeats = counts.sum() >= ROWS_PER_LEVEL * len(values)
    if repeats and len(values) >= 3 and typical >= WIDE_GAPS * step:
        return Grid(step, 0.0, tuple(values.tolist()))
    grid = Grid(step, (found.start % found.divisor) / found.scale, digits=found.digits)
    off = counts[_are_off(grid, values)].sum()
    return grid if off <= OFF_GRID * counts.sum() else None


def declared_grid(step: float, values: Floats, counts: Floats, precision: float) -> Grid:
    """The multiples of a step that a user declares, with as many digits as values (v,) have."""
    grid, digits = Grid(step), _digits(values, counts, precision)
    is_exact = bool((np.abs(grid.round(values) - values) <= 1e-6 * step).all())
    if is_exact or digits is None or 10.0**-digits > MOST_CHANCE * step:
        return grid
    return Grid(step, digits=digits)


def _decimal_lattice(values: Floats, counts: Floats, precision: float) -> Lattice | None:
    """The largest step of which all differences are multiples, if it has few decimals.

    A small share of the rows may be off it.
    """
    tolerance = 4 * precision * np.abs(values)
    for digits in range(MOST_DECIMALS + 1):
        scaled = values * 10.0**digits
        is_coarse = bool((np.abs(scaled) > 2.0**53).any())  # numbers have gaps of more than one
        if is_coarse and (digits > 0 or bool((np.abs(scaled) > 2.0**62).any())):
            return None
        whole = np.round(scaled)
        is_on = np.abs(whole / 10.0**digits - values) <= tolerance
        if counts[~is_on].sum() <= OFF_GRID * counts.sum():
            found = _lattice(whole[is_on], 10**digits, None)
            return None if is_coarse and found.step <= tolerance.max() else found
    return None


def _lattice(whole: Floats, scale: int, digits: int | None) -> Lattice:
    """The coarsest lattice of whole numbers (v,), over ``scale``."""
    # Few differences have a large divisor by chance.
    has_many = len(whole) >= LEAST_VALUES
    divisor = int(np.gcd.reduce(np.diff(whole.astype(np.int64)))) if has_many else 1
    return Lattice(divisor or 1, scale, int(whole[0]), digits)


def _fractional_lattice(
    values: Floats, counts: Floats, precision: float, decimal: Lattice | None
) -> Lattice | None:
    """The multiples of 1/n for the least n that explains the values, if they are no decimals.

    They may be written with few digits, such as 6.0833, but not with so few that values which
    have nothing to do with them would all be on the grid by chance.
    """
    digits = _digits(values, counts, precision)
    tolerance = 4 * precision * np.abs(values)
    width = (0.0 if digits is None else 10.0**-digits) + 2 * float(tolerance.max())
    for n in range(2, LARGEST_DENOMINATOR + 1):
        if width * n > MOST_CHANCE or (decimal and n * decimal.step >= 1):
            return None
        whole = np.round(values * n)
        distances = np.abs(whole / n - values)
        for written in dict.fromkeys((None, digits)):
            if written is not None:
                distances = np.abs(np.round(whole / n, written) - values)
            is_on = distances <= tolerance
            if counts[~is_on].sum() > OFF_GRID * counts.sum():
                continue
            different = len(np.unique(whole[is_on]))
            if different >= LEAST_VALUES and different * -math.log(width * n) >= SURE:
                return _lattice(whole[is_on], n, written)
    return None


def _digits(values: Floats, counts: Floats, precision: float) -> int | None:
    """How many digits after the point numbers (v,) are written with; ``None`` if with all."""
    tolerance = 4 * precision * np.abs(values)
    for digits in range(MOST_DIGITS + 1):
        is_on = np.abs(np.round(values, digits) - values) <= tolerance
        if counts[~is_on].sum() <= OFF_GRID * counts.sum():
            return digits
    return None
