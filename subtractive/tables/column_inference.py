"""What a column is: the rules by which the values of a table choose how it is modelled."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, final

import numpy as np

from subtractive.tables.atom_inference import Distinct, find_atoms
from subtractive.tables.bound_inference import Bounds, find_bounds
from subtractive.tables.cell_values import Content
from subtractive.tables.column_types import Categories, ColumnType, Continuous, Ignored
from subtractive.tables.columns import Column, Numeric
from subtractive.tables.grids import Grid, declared_grid, find_grid, grid_text
from subtractive.tables.normal_scores import Ends, normal_scores
from subtractive.tables.reading import Floats, RawColumn, Values, check_finite
from subtractive.tables.states import States
from subtractive.tables.text_dates import find_format, parse_dates
from subtractive.tables.transforms import Transform, affine
from subtractive.tables.value_text import value_text

FEW_VALUES, ROWS_PER_VALUE = 10, 4  # numbers of few values that repeat are states,
MANY_VALUES, ROWS_PER_STATE = 128, 100  # and so are more of them if they repeat often
# A column of more texts is taken for an identifier, and so is one of more than so many of which
# most occur once.
MOST_CATEGORIES, FEW_CATEGORIES = 256, 20
# Round numbers that may be bounds below and above.
ROUND = {
    Content.REAL: ((0.0,), (0.0, 1.0, 100.0)),
    Content.WHOLE: ((0.0,), (0.0, 1.0, 100.0)),
    Content.DURATION: ((0.0,), (0.0,)),
}
# The years 1 to 9999 in microseconds since 1970, and a code beyond all of samples.
CALENDAR, FARTHEST_CODE = (-62_135_596_800e6, 253_402_300_799e6), 10.0
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
    bounds, why_bounds = _bounds(raw, rest, wish, grid, is_open=is_open)
    numeric, atoms = _numeric(raw, rest, bounds, grid, atoms)
    shares = {a: distinct.counts[distinct.values == a].sum() / rows for a in atoms}
    kind = WORDS[raw.content]
    texts = {atom: value_text(atom, kind) for atom in atoms[:3]}
    whys = [f"{100 * shares[atom]:.2g} % are {text}" for atom, text in texts.items()]
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
    raw: RawColumn, rest: Distinct, wish: Continuous, grid: Grid | None, *, is_open: bool
) -> tuple[Bounds, str]:
    """The support of a column: as declared, or where its rows end."""
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
    if not is_open or raw.content not in ROUND:
        return Bounds(lower, upper, (False, False)), ""
    found = find_bounds(rest, grid, (lower, upper), ROUND[raw.content])
    kind, reasons = WORDS[raw.content], []
    for k, (old, word) in enumerate(((lower, "below"), (upper, "above"))):
        if found[k] != old:
            some = "hardly anything" if found.passable[k] else "nothing"
            reasons.append(f"{some} {word} {value_text(found[k], kind)}")
    return found, ", ".join(reasons)


def _numeric(
    raw: RawColumn,
    rest: Distinct,
    bounds: Bounds,
    grid: Grid | None,
    atoms: tuple[float, ...],
) -> tuple[Numeric, tuple[float, ...]]:
    """The column between its bounds; numbers on a bound are atoms unless a grid has their cell."""
    ends = list(bounds[:2])
    for k, (bound, sign) in enumerate(zip(bounds[:2], (-1, 1), strict=True)):
        if grid is not None and bound not in atoms and math.isfinite(bound):
            ends[k] = bound + sign * grid.step / 2
        elif bound in rest.values and not bounds.passable[k]:
            atoms = tuple(sorted((*atoms, bound)))
    rest = rest.without(atoms)
    cells = (rest.values, rest.values) if grid is None else grid.cells(rest.values)
    low, high = (
        end if is_hard else math.copysign(math.inf, side)
        for end, is_hard, side in zip(ends, np.invert(bounds.passable), (-1, 1), strict=True)
    )
    first, last = (
        end if is_soft else math.copysign(math.inf, side)
        for end, is_soft, side in zip(ends, bounds.passable, (-1, 1), strict=True)
    )
    transform = normal_scores(rest.values, rest.counts, cells, Ends(low, high, first, last))
    for k, sign in enumerate((1, -1)):
        if math.isfinite(ends[k]) and not (bounds.passable[k] and grid is None):
            towards = np.asarray(sign * np.inf, dtype=raw.dtype)
            ends[k] = float(np.nextafter(np.asarray(ends[k], dtype=raw.dtype), towards))
    chosen = transform or affine(rest.values, rest.counts)
    if raw.content is Content.DATE:
        ends = _inside_calendar(chosen, ends)
    column = Numeric(raw.name, WORDS[raw.content], chosen, ends[0], ends[1], grid, atoms)
    return replace(column, passable=bounds.passable), atoms


def _inside_calendar(transform: Transform, ends: list[float]) -> list[float]:
    """Ends of dates, where samples would come to years that no calendar of Python has."""
    first, last = transform.inverse(np.array([-FARTHEST_CODE, FARTHEST_CODE])).tolist()
    return [
        CALENDAR[0] if first < CALENDAR[0] else ends[0],
        CALENDAR[1] if last > CALENDAR[1] else ends[1],
    ]
