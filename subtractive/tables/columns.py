"""Columns as variables of a model: users' values <-> the numbers, or states, that it works on.

Scores stay in users' units: the base measure of a column of numbers is Lebesgue measure plus a
count at its atoms, that of a column of states a count alone.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
import numpy.typing as npt

from subtractive.inputs.atoms import WithAtoms
from subtractive.inputs.base import InputFamily
from subtractive.inputs.gaussian import Gaussian
from subtractive.tables.code_sets import CodeSet
from subtractive.tables.grids import Grid
from subtractive.tables.reading import Floats, RawColumn, Values
from subtractive.tables.transforms import NormalScores, Transform

# Where the code of an atom is if it is at a bound, beyond all codes of other values.
BEYOND = 40.0
_FARTHEST = 1e6
# Numbers are far from those of training if their codes are so large, or if they are outside the
# range of training by this share of it.
FAR, FAR_BEYOND = 5.0, 0.5
# No Gaussian of a column is narrower than this share of the column's spread.
LEAST_SCALE = 0.01


class Column(ABC):
    """How one column is encoded; a missing value is NaN in codes."""

    name: Hashable
    kind: str  # in one word: continuous, whole, date, categorical, ...
    text_format: str

    @abstractmethod
    def numbers(self, codes: Floats) -> Floats | None:
        """Users' numbers, unrounded; ``None`` if the values are not numbers."""

    @abstractmethod
    def family(self, *, signed: bool) -> InputFamily:
        """The input functions for it, ``signed`` if they may be negative."""

    @abstractmethod
    def encode(self, values: Values) -> Floats:
        """Codes (n,) of values (n,), NaN for what the column does not know."""

    @abstractmethod
    def dither(self, codes: Floats, uniform: Floats) -> Floats:
        """Codes (n,) spread over the cells of a grid by uniform numbers (n,)."""

    @abstractmethod
    def decode(self, codes: Floats) -> Values:
        """Values (n,) of codes (n,), all of them possible."""

    @abstractmethod
    def possible(self, values: Values) -> npt.NDArray[np.bool_]:
        """Where values (n,) may have a density above zero; missing ones may."""

    @abstractmethod
    def beside(self, value: float, side: int) -> float:
        """The end of an interval that begins (1) or stops (-1) there, without the value itself."""

    @abstractmethod
    def between(self, low: float, high: float) -> CodeSet:
        """The codes of numbers from ``low`` to ``high``, both included."""

    @abstractmethod
    def among(self, values: Values) -> CodeSet:
        """The codes of some values (q,); those that the column does not know are left out."""

    @abstractmethod
    def log_abs_det_jacobian(self, values: Values) -> Floats:
        """log |d code / d value|, (n,), where a value is there; else, and at atoms, zero."""


@final
@dataclass(frozen=True)
class Numeric(Column):
    """Numbers: a monotone transform, and Gaussians of what it gives, with atoms beside them.

    ``low`` and ``high`` are the smallest and the largest number that samples and answers have.
    Rows may have numbers beyond those of them that are ``passable``: they are just unlikely.
    """

    name: Hashable
    kind: str
    transform: Transform
    low: float = -math.inf
    high: float = math.inf
    grid: Grid | None = None
    atoms: tuple[float, ...] = ()
    text_format: str = ""  # of dates that are held as text
    passable: tuple[bool, bool] = (False, False)

    @cached_property
    def atom_codes(self) -> Floats:
        """The codes of the atoms, (a,), in their order."""
        with np.errstate(all="ignore"):
            codes = self.transform.forward(np.array(self.atoms, dtype=np.float64))
        order = np.arange(len(codes), dtype=np.float64)
        codes = np.where(codes < -BEYOND, order - len(codes) - BEYOND, codes)
        return np.where(codes > BEYOND, BEYOND + 1 + order, codes)

    @cached_property
    def least_scale(self) -> float:
        """No Gaussian may be narrower: a share of the spread, and what rounding hides."""
        if self.grid is None:
            return LEAST_SCALE
        points = self.transform.inverse(np.linspace(-1.5, 1.5, 31))
        lower, upper = self.grid.cells(points)
        width = np.median(self._inside(upper) - self._inside(lower))
        return float(np.clip(width / math.sqrt(12), LEAST_SCALE, 0.5))

    @cached_property
    def nearby(self) -> tuple[float, float]:
        """The codes of numbers that are not far from all those of training."""
        codes = np.array([-FAR, FAR])
        seen = self.transform.breaks if isinstance(self.transform, NormalScores) else codes / 2
        first, last = self.transform.inverse(seen[[0, -1]])
        beyond = np.array([first, last]) + FAR_BEYOND * (last - first) * np.array([-1.0, 1.0])
        low, high = self._inside(beyond)
        return max(float(low), -FAR), min(float(high), FAR)

    def numbers(self, codes: Floats) -> Floats:
        low, high = self.low, self.high
        if self.grid is not None and self.grid.levels:
            low, high = max(low, self.grid.levels[0]), min(high, self.grid.levels[-1])
        values = np.clip(self.transform.inverse(codes), low, high)
        for atom, code in zip(self.atoms, self.atom_codes, strict=True):
            values = np.where(codes == code, atom, values)
        return values

    def family(self, *, signed: bool) -> InputFamily:
        if not self.atoms:
            return Gaussian()
        return WithAtoms(Gaussian(), tuple(self.atom_codes.tolist()), non_negative=not signed)

    def encode(self, values: Values) -> Floats:
        with np.errstate(all="ignore"):
            codes = self.transform.forward(self._off_bounds(values))
        codes = np.clip(codes, -_FARTHEST, _FARTHEST)
        for atom, code in zip(self.atoms, self.atom_codes, strict=True):
            codes = np.where(codes == code, np.nextafter(codes, np.inf), codes)
            codes = np.where(values == atom, code, codes)
        return codes

    def dither(self, codes: Floats, uniform: Floats) -> Floats:
        if self.grid is None:
            return codes
        lower, upper = self.grid.cells(self.transform.inverse(codes))
        spread = self._inside(lower + uniform * (upper - lower))
        return np.where(np.isnan(codes) | self._are_atoms(codes), codes, spread)

    def decode(self, codes: Floats) -> Values:
        values = self.numbers(codes)
        return np.where(self._are_atoms(codes), values, self.rounded(values))

    def rounded(self, values: Floats) -> Floats:
        """Numbers (n,) brought to the grid and into the bounds."""
        if self.grid is None:
            return np.clip(values, self.low, self.high)
        low, high = self._ends()
        return np.clip(self.grid.round(values), self.grid.ceil(low), self.grid.floor(high))

    def possible(self, values: Values) -> npt.NDArray[np.bool_]:
        below, above = self.passable
        first, last = self._bounds
        inside = ((values >= first) | below) & ((values <= last) | above)
        return np.asarray(np.isnan(values) | inside | np.isin(values, self.atoms))

    def log_abs_det_jacobian(self, values: Values) -> Floats:
        counts = ~np.isnan(values) & ~np.isin(values, self.atoms) & self.possible(values)
        with np.errstate(all="ignore"):
            logs = self.transform.log_abs_det_jacobian(self._off_bounds(values))
        return np.where(counts, logs, 0.0)

    def window(self, low: float, high: float) -> tuple[float, float]:
        """The codes ``a < x <= b`` of all values from ``low`` to ``high``, both included.

        On a grid these are the cells of its values in between, atoms or not.
        """
        least, largest = self.low, self.high
        if self.grid is not None:
            low, high = self.grid.ceil(low), self.grid.floor(high)
            least, largest = self.grid.ceil(least), self.grid.floor(largest)
        least, largest = min((least, *self.atoms)), max((largest, *self.atoms))
        if low > high or low > largest or high < least or math.inf in (low, -high):
            return math.inf, -math.inf
        lower = -math.inf if low <= least else self._edge(low, 0)
        upper = math.inf if high >= largest else self._edge(high, 1)
        return lower, upper

    def cell(self, value: float) -> tuple[float, float] | None:
        """The codes ``a < x <= b`` of numbers that are rounded to the same one as a value."""
        if self.grid is None:
            return None
        at = np.array([value])
        lower, upper = (float(edge[0]) for edge in self.grid.cells(at))
        nearest = float(self.grid.round(at)[0])
        window = self.window(nearest, nearest)
        return window if lower <= value <= upper and window[0] < window[1] else None

    def beside(self, value: float, side: int) -> float:
        step = 0.0 if self.grid is None else self.grid.step
        return side * max(side * value + step / 4, side * math.nextafter(value, side * math.inf))

    def between(self, low: float, high: float) -> CodeSet:
        window = self.window(low, high)
        return CodeSet(intervals=(window,) if window[0] < window[1] else ())

    def among(self, values: Values) -> CodeSet:
        windows = [self.window(value, value) for value in np.unique(values).tolist()]
        return CodeSet(intervals=tuple(w for w in windows if w[0] < w[1]))

    @property
    def _bounds(self) -> tuple[float, float]:
        """The bounds themselves, which ``low`` and ``high`` are just inside of."""
        ends = np.array([self.low, self.high], dtype=np.float32)
        first, last = np.nextafter(ends, np.array([-np.inf, np.inf], dtype=np.float32)).tolist()
        return min(first, self.low), max(last, self.high)

    def _off_bounds(self, values: Values) -> Floats:
        """Numbers (n,) of which those on a bound, where codes are infinite, are beside it.

        They are where codes are by one beyond those of training.
        """
        x = np.asarray(values, dtype=np.float64)
        if self.grid is not None or not isinstance(self.transform, NormalScores):
            return x
        first, last = self.transform.inverse(
            self.transform.breaks[[0, -1]] + np.array([-1.0, 1.0])
        )
        x = np.where((x <= self.low) & (x >= self._bounds[0]), first, x)
        return np.where((x >= self.high) & (x <= self._bounds[1]), last, x)

    def _edge(self, value: float, end: int) -> float:
        """The code at which the cell of a value begins (0) or ends (1), with its atom in it."""
        at = np.array([value])
        code = float(self._inside(at if self.grid is None else self.grid.cells(at)[end])[0])
        if value not in self.atoms:
            return code
        atom = float(self.atom_codes[self.atoms.index(value)])
        return min(math.nextafter(atom, -math.inf), code) if end == 0 else max(atom, code)

    def _are_atoms(self, codes: Floats) -> npt.NDArray[np.bool_]:
        return np.isin(codes, self.atom_codes)

    def _inside(self, values: Floats) -> Floats:
        """Codes of numbers that were brought into the bounds, so that they are finite."""
        low, high = self._ends()
        with np.errstate(all="ignore"):
            codes = self.transform.forward(np.clip(values, low, high))
        return np.clip(codes, -BEYOND, BEYOND)

    def _ends(self) -> tuple[float, float]:
        """The bounds as finite numbers."""
        largest = np.finfo(np.float64).max ** 0.5
        return max(self.low, -largest), min(self.high, largest)


def sets_of_cells(column: Column, raw: RawColumn) -> dict[int, CodeSet]:
    """The codes in which each censored cell of a column is, by row."""
    sets = {}
    for row in np.flatnonzero(raw.censored).tolist():
        assert raw.intervals is not None
        low, high, low_is_open, high_is_open = raw.intervals[row].tolist()
        low = column.beside(low, 1) if low_is_open else low
        sets[row] = column.between(low, column.beside(high, -1) if high_is_open else high)
    for row, values in enumerate([] if raw.choices is None else raw.choices):
        if values is not None:
            sets[row] = column.among(values)
    return sets
