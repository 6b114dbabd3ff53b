"""What a column is: the rules by which the values of a table choose how it is modelled."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, final

import numpy as np
import scipy

from subtractive.tables.atom_inference import Distinct, find_atoms
from subtractive.tables.cell_values import Content
from subtractive.tables.column_types import Categories, ColumnType, Continuous, Ignored
from subtractive.tables.columns import Column, Numeric, States
from subtractive.tables.grids import Grid, declared_grid, find_grid, grid_text
from subtractive.tables.normal_scores import normal_scores
from subtractive.tables.reading import Floats, RawColumn, Values, check_finite
from subtractive.tables.text_dates import find_format, parse_dates
from subtractive.tables.transforms import affine

FEW_VALUES, ROWS_PER_VALUE = 10, 4  # numbers of few values that repeat are states,
MANY_VALUES, ROWS_PER_STATE = 128, 100  # and so are more of them if they repeat often
# A column of more texts is taken for an identifier, and so is one of more than so many of which
# most occur once.
MOST_CATEGORIES, FEW_CATEGORIES = 256, 20
# A bound is there if a normal distribution would have put so many rows beyond it: fewer if the
# least value is exactly on it and far from all others, so many times as far as any two of them.
MISSED_ROWS, ALONE = {False: 3.0, True: 0.1}, 5.0
LOWER_BOUNDS, UPPER_BOUNDS = (0.0,), (0.0, 1.0, 100.0)
WORDS = {
    Content.REAL: "continuous",
    Content.WHOLE: "whole",
    Content.DATE: "date",
    Content.DURATION: "duration",
    Content.TIME: "time",
    Content.BOOLEAN: "boolean",
    Content.TEXT: "categorical",
}


@final
@dataclass(frozen=True)
class Constant:
    """A column of one value: a point mass, which no model needs."""

    name: Hashable
    kind: str
    value: Any


@final
@dataclass(frozen=True)
class Aside:
    """A column that is not modelled."""

    name: Hashable


class Found(NamedTuple):
    """What a column is, and why."""

    column: Column | Constant | Aside
    reason: str


@final
@dataclass(frozen=True)
class Rules:
    """What the table as a whole says: weights of its rows, whether columns have types."""

    weights: Floats  # (n,), positive
    by_type: bool  # numbers may have atoms, grids and few values; in an array, two whole numbers

    def distinct(self, raw: RawColumn) -> Distinct:
        """The different numbers of a column; weights that are no counts sum to the rows."""
        there = ~raw.missing
        values, which = np.unique(raw.values[there], return_inverse=True)
        totals = np.bincount(which, weights=self.weights[there]).astype(np.float64)
        if not bool((self.weights == np.round(self.weights)).all()):
            totals = totals * there.sum() / totals.sum()
        return Distinct(values, totals, float(np.finfo(raw.dtype).eps))


def infer_column(raw: RawColumn, declared: ColumnType | None, rules: Rules) -> Found:
    """The way to model a column, of the type that the user says or that its values suggest."""
    check_finite(raw)
    present = raw.values[~raw.missing]
    if isinstance(declared, Ignored):
        return Found(Aside(raw.name), "as declared")
    if raw.content is Content.OTHER:
        return Found(Aside(raw.name), raw.note)
    if raw.choices is not None:
        return Found(Aside(raw.name), "it holds lists")
    if len(present) == 0:
        return Found(Aside(raw.name), "all of its values are missing")
    levels = declared.values if isinstance(declared, Categories) else None
    levels = raw.categories if declared is None else levels
    if bool((present == present[0]).all()) and len(levels or ()) < 2:
        value = present[:1].tolist()[0]
        return Found(Constant(raw.name, WORDS[raw.content], value), "it has one value")
    if isinstance(declared, Categories):
        return Found(_states(raw, present, declared), "as declared")
    if raw.content is Content.TEXT and raw.categories is None:
        fmt = find_format(present.tolist())
        if fmt is not None:
            return _text_date(raw, fmt, declared, rules)
    if raw.content in (Content.TEXT, Content.BOOLEAN) and declared is None:
        return _discrete(raw, present)
    if not raw.content.is_number:
        raise ValueError(
            f"column {raw.name!r} holds text such as {present[0]!r}, which cannot be continuous. "
            "Leave it out of schema, or convert it to numbers."
        )
    return _number(raw, declared, rules)


def _text_date(raw: RawColumn, fmt: str, declared: ColumnType | None, rules: Rules) -> Found:
    """Dates that are held as text, modelled as dates and written back in the same format."""
    dates = replace(raw, values=parse_dates(raw.values, fmt), content=Content.DATE)
    column, reason = _number(dates, declared, rules)
    assert isinstance(column, Numeric | States)
    return Found(replace(column, text_format=fmt), f"dates written as {fmt}; {reason}")


def _discrete(raw: RawColumn, present: Values) -> Found:
    count = len(set(present.tolist()))
    most = min(MOST_CATEGORIES, max(FEW_CATEGORIES, len(present) // 2))
    if raw.content is Content.TEXT and raw.categories is None and count > most:
        kind = "an identifier" if count == len(present) else "free text"
        return Found(Aside(raw.name), f"{count:,} different texts: {kind}?")
    column = _states(raw, present, Categories())
    return Found(column, f"{len(column.values)} different {raw.content.value}")


def _states(raw: RawColumn, present: Values, declared: Categories) -> States:
    found = sorted(set(present.tolist()), key=lambda value: (str(type(value)), value))
    if raw.content is Content.BOOLEAN:
        found = [0.0, 1.0]
    column = States(
        raw.name, WORDS[raw.content], declared.values or raw.categories or tuple(found)
    )
    strange = column.unknown(present)
    if bool(strange.any()):
        raise ValueError(
            f"column {raw.name!r} holds {present[strange].tolist()[0]!r}, which is not among its "
            f"{len(column.values)} declared categories. Correct it, or declare it, too."
        )
    return column


def _number(raw: RawColumn, declared: ColumnType | None, rules: Rules) -> Found:
    distinct = rules.distinct(raw)
    count, rows = len(distinct.values), float(distinct.counts.sum())
    if declared is None and rules.by_type and _is_row_number(raw, distinct):
        return Found(Aside(raw.name), "it numbers the rows")
    if declared is None and (rules.by_type or (raw.content is Content.WHOLE and count == 2)):
        few = count <= min(FEW_VALUES, rows / ROWS_PER_VALUE)
        if few or count <= min(MANY_VALUES, rows / ROWS_PER_STATE):
            column = _states(raw, raw.values[~raw.missing], Categories())
            return Found(column, f"{count} values, each {rows / count:,.0f} times on average")
    wish = declared if isinstance(declared, Continuous) else Continuous()
    is_open = rules.by_type or declared is not None
    grid, why_grid = _grid(raw, distinct, wish, is_open=is_open)
    atoms = wish.atoms if wish.atoms is not None else ()
    if wish.atoms is None and is_open:
        atoms = find_atoms(distinct, grid)
    rest = distinct.without(atoms)
    if len(rest.values) < 2:
        column = _states(raw, raw.values[~raw.missing], Categories())
        return Found(column, "hardly any value occurs only once")
    low, high, why_bounds = _bounds(raw, rest, wish, is_open=is_open)
    numeric, atoms = _numeric(raw, rest, (low, high), grid, atoms)
    shares = {a: distinct.counts[distinct.values == a].sum() / rows for a in atoms}
    whys = [f"{100 * share:.2g} % are {atom:g}" for atom, share in list(shares.items())[:3]]
    whys += [f"{len(atoms) - 3} more values repeat"] if len(atoms) > 3 else []
    reasons = [why for why in (*whys, why_grid, why_bounds) if why]
    return Found(numeric, "; ".join(reasons) or f"{count:,} different numbers")


def _is_row_number(raw: RawColumn, distinct: Distinct) -> bool:
    values = raw.values
    return (
        raw.content is Content.WHOLE
        and len(values) > MOST_CATEGORIES
        and len(distinct.values) == len(values)
        and bool((np.abs(np.diff(values)) == 1).all())
    )


def _grid(
    raw: RawColumn, distinct: Distinct, wish: Continuous, *, is_open: bool
) -> tuple[Grid | None, str]:
    if wish.resolution is not None:
        grid = declared_grid(wish.resolution, *distinct) if wish.resolution > 0 else None
        off = (
            grid is not None
            and np.abs(grid.round(distinct.values) - distinct.values) > 1e-6 * grid.step
        )
        if grid is not None and bool(np.any(off)):
            raise ValueError(
                f"column {raw.name!r} holds {distinct.values[off][0]:g}, which is no multiple of "
                f"its resolution {grid.step:g}. Correct it or the resolution."
            )
        return grid, ""
    if not is_open:
        return (Grid(1.0), "whole numbers") if raw.content is Content.WHOLE else (None, "")
    grid = find_grid(distinct.values, distinct.counts, distinct.precision)
    if grid is None:
        return None, ""
    is_time = raw.content not in (Content.REAL, Content.WHOLE, Content.BOOLEAN)
    return grid, grid_text(grid, distinct.values, distinct.counts, is_time=is_time)


def _bounds(
    raw: RawColumn, rest: Distinct, wish: Continuous, *, is_open: bool
) -> tuple[float, float, str]:
    """The support of a column: as declared, or a round number that nothing is beyond."""
    assert wish.lower is not None
    assert wish.upper is not None
    # In the precision of the column: a float32 of 0.1 is above 0.1.
    lower, upper = (float(np.asarray(end, dtype=raw.dtype)) for end in (wish.lower, wish.upper))
    wrong = (rest.values < lower) | (rest.values > upper)
    if bool(wrong.any()):
        raise ValueError(
            f"column {raw.name!r} holds {rest.values[wrong][0]:g}, which is not inside its bounds "
            f"({wish.lower:g}, {wish.upper:g}). Correct it or the bounds."
        )
    if not is_open or raw.content not in (Content.REAL, Content.WHOLE):
        return lower, upper, ""
    below = np.cumsum(rest.counts) / rest.counts.sum()
    left, middle, right = np.interp([0.16, 0.5, 0.84], below, rest.values)
    rows, low, high, reasons = rest.counts.sum(), lower, upper, []
    for bound in LOWER_BOUNDS if low == -math.inf else ():
        missed = rows * _tail(middle - bound, middle - left)
        if bound <= rest.values[0] and missed >= MISSED_ROWS[_is_alone(bound, rest)]:
            low = bound
            reasons.append(f"nothing below {bound:g}")
    for bound in UPPER_BOUNDS if high == math.inf else ():
        missed = rows * _tail(bound - middle, right - middle)
        if bound >= rest.values[-1] and missed >= MISSED_ROWS[False] and high == math.inf:
            high = bound
            reasons.append(f"nothing above {bound:g}")
    return low, high, ", ".join(reasons)


def _is_alone(bound: float, rest: Distinct) -> bool:
    """Whether the least value is on a bound, and not there by chance as on a coarse grid."""
    gaps = np.diff(rest.values)
    return bool(rest.values[0] == bound and len(gaps) > 1 and gaps[0] >= ALONE * gaps[1:].min())


def _tail(distance: float, spread: float) -> float:
    """The share of a normal distribution of this spread beyond a distance from its centre."""
    return float(scipy.special.ndtr(-distance / spread)) if spread > 1e-9 * abs(distance) else 0.0


def _numeric(
    raw: RawColumn,
    rest: Distinct,
    bounds: tuple[float, float],
    grid: Grid | None,
    atoms: tuple[float, ...],
) -> tuple[Numeric, tuple[float, ...]]:
    """The column between its bounds; numbers on a bound are atoms unless a grid has their cell."""
    ends = list(bounds)
    for k, (bound, sign) in enumerate(zip(bounds, (-1, 1), strict=True)):
        if grid is not None and bound not in atoms and math.isfinite(bound):
            ends[k] = bound + sign * grid.step / 2
        elif bound in rest.values:
            atoms = tuple(sorted((*atoms, bound)))
    rest = rest.without(atoms)
    cells = (rest.values, rest.values) if grid is None else grid.cells(rest.values)
    transform = normal_scores(rest.values, rest.counts, cells, (ends[0], ends[1]))
    for k, sign in enumerate((1, -1)):
        if math.isfinite(ends[k]):
            towards = np.asarray(sign * np.inf, dtype=raw.dtype)
            ends[k] = float(np.nextafter(np.asarray(ends[k], dtype=raw.dtype), towards))
    chosen = transform or affine(rest.values, rest.counts)
    low, high = ends
    return Numeric(raw.name, WORDS[raw.content], chosen, low, high, grid, atoms), atoms
