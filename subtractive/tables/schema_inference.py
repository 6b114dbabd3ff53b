"""What a column is: the rules by which the values of a table choose how it is modelled."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from subtractive.tables.column_types import Categories, Continuous, Counts, Kind
from subtractive.tables.columns import Column, HalfLine, Interval, Line, States, Tally
from subtractive.tables.reading import Content, Floats, RawColumn, Values

FEW_VALUES = 10  # numbers that take at most so many values,
ROWS_PER_VALUE = 4  # and each of them so often on average, are categories
LARGEST_COUNT = 255  # whole numbers from zero to this are counts
MOST_CATEGORIES = 256  # a column of more texts is taken for an identifier
_LARGEST_NUMBER = 1e300


@final
@dataclass(frozen=True)
class Constant:
    """A column of one value: a point mass, which no model needs."""

    name: Hashable
    value: Any


@final
@dataclass(frozen=True)
class Rules:
    """What the table as a whole says: weights of its rows, whether columns have types."""

    weights: Floats  # (n,), positive
    by_type: bool  # numbers may be categories or counts; in an array all are continuous
    unknown: str

    @property
    def num_rows(self) -> float:
        """The number of rows; one of weight two is two, if the weights are whole numbers."""
        whole = bool((self.weights == np.round(self.weights)).all())
        return float(self.weights.sum()) if whole else float(len(self.weights))


def infer_column(raw: RawColumn, kind: Kind | None, rules: Rules) -> Column | Constant:
    """The way to model a column, of the kind that the user says or that its values suggest."""
    check_finite(raw)
    present = raw.values[~raw.missing]
    if len(present) == 0:
        raise ValueError(
            f"column {raw.name!r} holds no values: all of them are missing. Drop the column."
        )
    if bool((present == present[0]).all()) and not _declares_more(kind):
        return Constant(raw.name, present[:1].tolist()[0])
    chosen = kind or _kind_of(raw, present, rules)
    if isinstance(chosen, Categories):
        return _states(raw, present, chosen, rules)
    if raw.content is Content.TEXT:
        raise ValueError(
            f"column {raw.name!r} holds text such as {present[0]!r}, which cannot be "
            f"{'counted' if isinstance(chosen, Counts) else 'continuous'}. Leave it out of "
            "columns, or convert it to numbers."
        )
    if isinstance(chosen, Counts):
        return _tally(raw, present, chosen)
    return _scale(raw, chosen, rules)


def check_finite(raw: RawColumn) -> None:
    """Infinities, and numbers near the end of what a double can hold, have no density."""
    if raw.content is Content.TEXT:
        return
    with np.errstate(invalid="ignore"):
        wrong = np.abs(raw.values) > _LARGEST_NUMBER
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0][0])
        raise ValueError(
            f"column {raw.name!r} holds {raw.values[row]} in row {row}: infinity, or a number "
            "beyond 1e300, has no density. Replace it, or mark it as missing with NaN."
        )


def _declares_more(kind: Kind | None) -> bool:
    """Whether the user has said which values are possible, although only one is there."""
    if isinstance(kind, Categories):
        return kind.values is not None
    return isinstance(kind, Counts) and kind.largest is not None


def _kind_of(raw: RawColumn, present: Values, rules: Rules) -> Kind:
    if raw.content in (Content.TEXT, Content.BOOLEAN):
        return Categories()
    if not rules.by_type:
        return Continuous()
    values = np.unique(present)
    rows = rules.num_rows * len(present) / len(raw.values)
    if len(values) <= min(FEW_VALUES, rows / ROWS_PER_VALUE):
        return Categories()
    if raw.content is Content.WHOLE and values[0] >= 0 and values[-1] <= LARGEST_COUNT:
        return Counts()
    return Continuous()


def _states(raw: RawColumn, present: Values, kind: Categories, rules: Rules) -> Column:
    found = sorted(set(present.tolist()), key=lambda value: (str(type(value)), value))
    if raw.content is Content.BOOLEAN:
        found = [0.0, 1.0]
    values = kind.values or raw.categories or tuple(found)
    if kind == Categories() and raw.categories is None and len(found) > MOST_CATEGORIES:
        raise ValueError(
            f"column {raw.name!r} has {len(found)} different values, too many for categories: an "
            "identifier or free text? Drop it, or list them with columns={...: Categories([...])}."
        )
    states = States(raw.name, values, rules.unknown)
    States(raw.name, values, "error").encode(present)  # refuses what is not declared
    return states


def _tally(raw: RawColumn, present: Values, kind: Counts) -> Column:
    largest = kind.largest or 2 * int(present.max())
    tally = Tally(raw.name, largest)
    wrong = ~tally.possible(present)
    if bool(wrong.any()):
        raise ValueError(
            f"column {raw.name!r} holds {present[wrong][0]:g}, which is no count from 0 to "
            f"{largest}. Correct it, or declare the column continuous or categorical."
        )
    return tally


def _scale(raw: RawColumn, kind: Continuous, rules: Rules) -> Column:
    # Bounds in the precision of the column: a float32 of 0.1 is above 0.1.
    low, high = (float(np.asarray(bound, dtype=raw.dtype)) for bound in _bounds(raw, kind))
    whole = raw.content is not Content.REAL
    if math.isfinite(low) and math.isfinite(high):
        interval = Interval(raw.name, low, high, whole)
        _check_inside(raw, interval.possible(raw.values), low, high)
        return interval
    if low == -math.inf and high == math.inf:
        return Line(raw.name, *_location_and_spread(raw.values, rules.weights), whole)
    origin, direction = (low, 1) if math.isfinite(low) else (high, -1)
    _check_inside(raw, ~(direction * (raw.values - origin) <= 0), low, high)
    logs = np.log(direction * (raw.values - origin))
    centre, unit = _location_and_spread(logs, rules.weights)
    return HalfLine(raw.name, origin, direction, centre, unit or 1.0, whole, raw.dtype)


def _bounds(raw: RawColumn, kind: Continuous) -> tuple[float, float]:
    low, high = kind.bounds
    assert low is not None
    assert high is not None
    # Whole numbers are rounded ones: those that are rounded to a bound are inside.
    half = 0.5 if raw.content is Content.WHOLE else 0.0
    return low - half, high + half


def _check_inside(raw: RawColumn, possible: Values, low: float, high: float) -> None:
    if bool((~possible).any()):
        raise ValueError(
            f"column {raw.name!r} holds {raw.values[~possible][0]:g}, which is not inside its "
            f"bounds ({low:g}, {high:g}). Correct it or the bounds; a single bound is itself "
            "outside, so that a column with zeros needs one a little below zero."
        )


def _location_and_spread(values: Floats, weights: Floats) -> tuple[float, float]:
    """Weighted mean and standard deviation, NaN left out, without overflow or underflow."""
    there = ~np.isnan(values)
    # Equal values are counted, so that neither the order of rows nor repeating them matters.
    values, which = np.unique(values[there], return_inverse=True)
    totals = np.bincount(which, weights=weights[there])
    shares = totals / totals.sum()
    largest = float(np.abs(values).max()) or 1.0
    centre = largest * float(shares @ (values / largest))
    deviations = values - centre
    reach = float(np.abs(deviations).max())
    return centre, reach * math.sqrt(float(shares @ np.square(deviations / (reach or 1.0))))
