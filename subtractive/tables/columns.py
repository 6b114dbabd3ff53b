"""Columns as variables of a model: users' values <-> the numbers, or states, that it works on.

Scores stay in users' units: where a column is scaled by a factor, the density is corrected by the
logarithm of that factor, :meth:`Column.log_abs_det_jacobian`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from subtractive.inputs.base import InputFamily
from subtractive.inputs.binomial import Binomial
from subtractive.inputs.categorical import Categorical
from subtractive.inputs.embedding import Embedding
from subtractive.inputs.gaussian import Gaussian
from subtractive.inputs.spline import Spline
from subtractive.tables.reading import Floats, Values, is_missing

NUM_BASES = 32  # of the splines of a column between two bounds


class Column(ABC):
    """How one column is encoded; a missing value is NaN in codes."""

    name: Hashable

    @property
    @abstractmethod
    def affine(self) -> tuple[float, float] | None:
        """Users' numbers as (a, b) in ``a + b * code``; ``None`` if they are not of that form."""

    @abstractmethod
    def numbers(self, codes: Floats) -> Floats | None:
        """Users' numbers, unrounded; ``None`` if the values are not numbers."""

    @abstractmethod
    def family(self, *, signed: bool) -> InputFamily:
        """The input functions for it, ``signed`` if they may be negative."""

    @abstractmethod
    def encode(self, values: Values) -> Floats:
        """Codes (n,) of values (n,)."""

    @abstractmethod
    def decode(self, codes: Floats) -> Values:
        """Values (n,) of codes (n,), all of them possible."""

    @abstractmethod
    def possible(self, values: Values) -> npt.NDArray[np.bool_]:
        """Where values (n,) may have a density above zero; missing ones may."""

    @abstractmethod
    def log_abs_det_jacobian(self, values: Values) -> Floats:
        """log |d code / d value|, (n,), where a value is there; else zero."""


class Scale(Column):
    """A continuous column: a monotone function of the users' numbers."""

    low: float
    high: float
    whole: bool  # whether users' values are whole numbers

    def decode(self, codes: Floats) -> Values:
        values = self.numbers(codes)
        assert values is not None
        low, high = self.low, self.high
        if self.whole:
            values, low, high = np.round(values), np.ceil(low), np.floor(high)
        return np.clip(values, low, high)

    def possible(self, values: Values) -> npt.NDArray[np.bool_]:
        return np.isnan(values) | ((values >= self.low) & (values <= self.high))


@final
@dataclass(frozen=True)
class Line(Scale):
    """Numbers without bounds, standardised: Gaussians."""

    name: Hashable
    centre: float
    unit: float
    whole: bool
    low: float = -math.inf
    high: float = math.inf

    @property
    def affine(self) -> tuple[float, float]:
        return self.centre, self.unit

    def numbers(self, codes: Floats) -> Floats:
        return self.centre + self.unit * codes

    def family(self, *, signed: bool) -> InputFamily:
        return Gaussian()

    def encode(self, values: Values) -> Floats:
        return np.asarray((values - self.centre) / self.unit)

    def log_abs_det_jacobian(self, values: Values) -> Floats:
        return np.where(np.isnan(values), 0.0, -math.log(self.unit))


@final
@dataclass(frozen=True)
class Interval(Scale):
    """Numbers between two bounds, which become 0 and 1: splines."""

    name: Hashable
    low: float
    high: float
    whole: bool

    @property
    def affine(self) -> tuple[float, float]:
        return self.low, self.high - self.low

    def numbers(self, codes: Floats) -> Floats:
        return self.low + (self.high - self.low) * codes

    def family(self, *, signed: bool) -> InputFamily:
        return Spline(NUM_BASES, domain=(0.0, 1.0), non_negative=not signed)

    def encode(self, values: Values) -> Floats:
        return np.asarray((values - self.low) / (self.high - self.low))

    def log_abs_det_jacobian(self, values: Values) -> Floats:
        return np.where(np.isnan(values), 0.0, -math.log(self.high - self.low))


@final
@dataclass(frozen=True)
class HalfLine(Scale):
    """Numbers beyond one bound: the standardised logarithm of their distance to it.

    ``direction`` is 1 above the ``origin`` and -1 below it.
    """

    name: Hashable
    origin: float
    direction: int
    centre: float  # of the logarithms, as is the unit
    unit: float
    whole: bool
    dtype: np.dtype[Any]

    @property
    def low(self) -> float:  # type: ignore[override]
        """The least number above an origin, in the precision of the column."""
        return self._beside() if self.direction > 0 else -math.inf

    @property
    def high(self) -> float:  # type: ignore[override]
        """The greatest number below an origin."""
        return self._beside() if self.direction < 0 else math.inf

    @property
    def affine(self) -> None:
        return None

    def numbers(self, codes: Floats) -> Floats:
        with np.errstate(over="ignore"):
            return self.origin + self.direction * np.exp(self.centre + self.unit * codes)

    def family(self, *, signed: bool) -> InputFamily:
        return Gaussian()

    def encode(self, values: Values) -> Floats:
        return (self._log_distance(values) - self.centre) / self.unit

    def log_abs_det_jacobian(self, values: Values) -> Floats:
        inside = ~np.isnan(values) & self.possible(values)
        return np.where(inside, -math.log(self.unit) - self._log_distance(values), 0.0)

    def _log_distance(self, values: Values) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.log(self.direction * (values - self.origin)))

    def _beside(self) -> float:
        towards = np.asarray(self.direction * np.inf, dtype=self.dtype)
        return float(np.nextafter(np.asarray(self.origin, dtype=self.dtype), towards))


@final
@dataclass(frozen=True)
class States(Column):
    """One of finitely many values, numbered from zero: tables of states."""

    name: Hashable
    values: tuple[Any, ...]
    unknown: str  # what a value that is not among them means: "error" or "missing"

    @property
    def affine(self) -> tuple[float, float] | None:
        numbers = self.numbers(np.arange(len(self.values), dtype=np.float64))
        if numbers is None or len(set(np.diff(numbers))) != 1:
            return None
        return float(numbers[0]), float(numbers[1] - numbers[0])

    def numbers(self, codes: Floats) -> Floats | None:
        table = np.array(self.values)
        return (
            None if table.dtype.kind not in "bif" else table.astype(np.float64)[codes.astype(int)]
        )

    def family(self, *, signed: bool) -> InputFamily:
        return Embedding(len(self.values)) if signed else Categorical(len(self.values))

    def encode(self, values: Values) -> Floats:
        state = {value: float(number) for number, value in enumerate(self.values)}
        codes = np.array([state.get(value, math.nan) for value in values.tolist()], dtype=float)
        strange = np.isnan(codes) & ~is_missing(values)
        if self.unknown == "error" and bool(strange.any()):
            raise ValueError(
                f"column {self.name!r} holds {values[strange].tolist()[0]!r}, which is not among "
                f"its {len(self.values)} categories {_some(self.values)}. Correct it, declare it "
                "before fitting with columns={...: Categories([...])}, or integrate such values "
                "out with unknown='missing'."
            )
        return codes

    def decode(self, codes: Floats) -> Values:
        table = np.empty(len(self.values), dtype=object)
        table[:] = self.values
        chosen = table[codes.astype(int)]
        is_text = any(isinstance(value, str) for value in self.values)
        return chosen if is_text else np.array(chosen.tolist())

    def possible(self, values: Values) -> npt.NDArray[np.bool_]:
        return np.ones(len(values), dtype=bool)

    def log_abs_det_jacobian(self, values: Values) -> Floats:
        return np.zeros(len(values))


@final
@dataclass(frozen=True)
class Tally(Column):
    """Counts from zero to ``largest``: binomials."""

    name: Hashable
    largest: int

    @property
    def affine(self) -> tuple[float, float]:
        return 0.0, 1.0

    def numbers(self, codes: Floats) -> Floats:
        return codes

    def family(self, *, signed: bool) -> InputFamily:
        return Binomial(self.largest)

    def encode(self, values: Values) -> Floats:
        return np.asarray(values, dtype=np.float64)

    def decode(self, codes: Floats) -> Values:
        return codes

    def possible(self, values: Values) -> npt.NDArray[np.bool_]:
        inside = (values >= 0) & (values <= self.largest) & (values == np.round(values))
        return np.asarray(np.isnan(values) | inside)

    def log_abs_det_jacobian(self, values: Values) -> Floats:
        return np.zeros(len(values))


def _some(values: tuple[Any, ...]) -> str:
    more = ", ..." if len(values) > 5 else ""
    return f"({', '.join(map(repr, values[:5]))}{more})"
