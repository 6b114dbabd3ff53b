"""Columns of finitely many values: categories, and numbers that repeat."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
import numpy.typing as npt

from subtractive.inputs.base import InputFamily
from subtractive.inputs.categorical import Categorical
from subtractive.inputs.embedding import Embedding
from subtractive.tables.code_sets import CodeSet
from subtractive.tables.columns import Column
from subtractive.tables.reading import Floats, Values, is_missing

# Numbers that differ by this share of them are the same state.
ROUNDING = 1e-6


@final
@dataclass(frozen=True)
class States(Column):
    """One of finitely many values, numbered from zero: tables of states."""

    name: Hashable
    kind: str
    values: tuple[Any, ...]
    text_format: str = ""  # of dates that are held as text

    @cached_property
    def _state(self) -> dict[Any, float]:
        return {value: float(number) for number, value in enumerate(self.values)}

    def numbers(self, codes: Floats) -> Floats | None:
        table = np.array(self.values)
        return (
            None if table.dtype.kind not in "bif" else table.astype(np.float64)[codes.astype(int)]
        )

    def family(self, *, signed: bool) -> InputFamily:
        return Embedding(len(self.values)) if signed else Categorical(len(self.values))

    def encode(self, values: Values) -> Floats:
        state = self._state
        codes = np.array([state.get(value, math.nan) for value in values.tolist()], dtype=float)
        unknown = np.isnan(codes)
        if self.kind == "continuous" and values.dtype.kind == "f" and bool(unknown.any()):
            codes[unknown] = self._nearly(values[unknown])
        return codes

    def _nearly(self, values: Values) -> Floats:
        """Codes (n,) of numbers that are a state but for rounding, such as to single precision."""
        numbers = np.array(self.values, dtype=np.float64)
        nearest = np.abs(values[:, None] - numbers).argmin(1)
        error = np.abs(values - numbers[nearest])
        return np.where(error <= ROUNDING * np.abs(numbers[nearest]), nearest, math.nan)

    def unknown(self, values: Values) -> npt.NDArray[np.bool_]:
        """Where values (n,) are none of the states."""
        return np.asarray(np.isnan(self.encode(values)) & ~is_missing(values))

    def beside(self, value: float, side: int) -> float:
        return math.nextafter(value, side * math.inf)

    def between(self, low: float, high: float) -> CodeSet:
        numbers = self.numbers(np.arange(len(self.values), dtype=np.float64))
        if numbers is None:
            raise ValueError(f"the categories of column {self.name!r} have no order.")
        inside = np.flatnonzero((numbers >= low) & (numbers <= high))
        return CodeSet(states=frozenset(inside.tolist()))

    def among(self, values: Values) -> CodeSet:
        codes = self.encode(values)
        return CodeSet(states=frozenset(codes[~np.isnan(codes)].astype(int).tolist()))

    def dither(self, codes: Floats, uniform: Floats) -> Floats:
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
