"""Sets of values in users' words, ``{"age": (40, None), "city": ["Oslo", "Bergen"]}``.

A column may be a value, an interval ``(low, high)`` with ``None`` for an open end, or a list of
values. Sets become boxes over the model's variables: rows of evidence that exclude each other.
"""

from __future__ import annotations

import datetime
import itertools
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch

from subtractive.inference.evidence import Evidence
from subtractive.tables.cell_values import is_gone, number_of
from subtractive.tables.code_sets import CodeSet, Sets, both
from subtractive.tables.columns import Column, Numeric
from subtractive.tables.reading import read_mapping
from subtractive.tables.schema import ERROR, Schema
from subtractive.tables.states import States
from subtractive.tables.text_dates import parse_dates
from subtractive.tables.unseen_numbers import nearest_states, numbers_of
from subtractive.tables.value_text import value_text

MOST_BOXES = 10_000
READERS = {  # of what users give for dates, durations and times
    "date": pd.Timestamp,
    "duration": pd.Timedelta,
    "time": lambda value: datetime.time.fromisoformat(value) if isinstance(value, str) else value,
}


def event_sets(schema: Schema, event: Mapping[Any, object]) -> Sets | None:
    """The sets of an event; ``None`` if constant columns, or copies, exclude it."""
    if not isinstance(event, Mapping) or not event:
        raise ValueError(
            "an event names at least one column and its interval or values, such as "
            f"{{'age': (40, None)}}, got {event!r}."
        )
    return _sets(schema, event, "the event", are_points=False)


def given_sets(schema: Schema, given: Mapping[Any, object]) -> Sets | None:
    """The sets of what is given, single values being points, or on a grid their cells."""
    if not isinstance(given, Mapping):
        raise ValueError(f"given needs values by column, such as {{'age': 40}}, got {given!r}.")
    return _sets(schema, given, "given", are_points=True)


def known_values(schema: Schema, given: Mapping[Any, object]) -> dict[Any, object]:
    """What is given, with the nearest number of a column of few for those that none of it has."""
    result = dict(given)
    for name, side in given.items():
        column = schema.column(name) if name in schema.place else None
        numbers = None if column is None else numbers_of(column)
        if column is None or numbers is None or schema.unknown == ERROR:
            continue
        if is_interval(side):
            low, high = as_interval(side, name, column)
            if not bool(((numbers >= low) & (numbers <= high)).any()):
                end = low if math.isfinite(low) else high
                result[name] = [_known_value(column, end, name)]
        elif _is_single(side):
            result[name] = _known_value(column, side, name)
        else:
            values = _as_list(side, name)
            known = [_known_value(column, value, name) for value in values]
            if any(one is not other for one, other in zip(values, known, strict=True)):
                result[name] = known
    return result


def end_numbers(column: Column, side: object) -> list[float]:
    """The numbers that a set names: its values, or the ends of an interval."""
    if is_interval(side):
        ends = as_interval(side, column.name, column)
        return [end for end in ends if math.isfinite(end)]
    return [number(value, column, column.name) for value in _as_list(side, column.name)]


def _known_value(column: Column, value: object, name: Hashable) -> object:
    """A value that some row of training had: itself, or the number next to it."""
    if is_gone(value):
        return value
    code = nearest_states(column, np.array([number(value, column, name)]))[0]
    return value if math.isnan(code) else column.decode(np.array([code])).tolist()[0]


def as_evidence(sets: Sets, num_states: Sequence[int | None]) -> Evidence:
    """Boxes (m, d) that together are the sets, and exclude each other."""
    count = len(num_states)
    x, observed = torch.zeros(1, count, dtype=torch.float64), torch.zeros(1, count).bool()
    states, unions = {}, {}
    for variable, one in sets.items():
        if one.cell is not None:
            unions[variable] = [one.cell]
        elif one.point is not None:
            x[0, variable], observed[0, variable] = one.point, True
        elif one.states is not None:
            mask = torch.zeros(num_states[variable] or 0, dtype=torch.bool)
            mask[list(one.states)] = True
            states[variable] = mask
        else:
            unions[variable] = _joined(one.intervals)
    if not states and not unions:
        return Evidence(x, observed)
    boxes = math.prod(len(union) for union in unions.values())
    if boxes > MOST_BOXES:
        raise ValueError(
            f"these lists of values combine to {boxes:,} boxes, more than {MOST_BOXES:,}. Use "
            "intervals, or shorter lists."
        )
    lower = torch.full((boxes, count), -math.inf, dtype=torch.float64)
    upper = torch.full((boxes, count), math.inf, dtype=torch.float64)
    for row, ends in enumerate(itertools.product(*unions.values())):
        for variable, (low, high) in zip(unions, ends, strict=True):
            lower[row, variable], upper[row, variable] = low, high
    return Evidence(x.expand(boxes, -1), observed.expand(boxes, -1), lower, upper, states)


def number(value: object, column: Column, name: Hashable) -> float:
    """A value of a column of numbers as the column has it."""
    try:
        if isinstance(value, str) and column.text_format:
            written = parse_dates(np.array([value], dtype=object), column.text_format)[0]
            value = written if written == written else value
        if column.kind in READERS and not isinstance(value, float):
            value = READERS[column.kind](value)
        return number_of(value)
    except (TypeError, ValueError):
        raise ValueError(
            f"column {name!r} was numbers when the schema was made, but is compared with "
            f"{value!r}. Give a number, or for dates a date."
        ) from None


def plain_sides(sides: Mapping[Any, object]) -> dict[Any, object]:
    """The same with numbers and lists in place of tensors, and of arrays of one number."""
    return {name: plain(side) for name, side in sides.items()}


def plain(side: object) -> object:
    """A tensor as a number or a list, an array without axes as its only entry."""
    if isinstance(side, torch.Tensor):
        return side.detach().tolist()
    if isinstance(side, np.ndarray) and side.ndim == 0:
        return side[()]
    if isinstance(side, list | tuple) and any(isinstance(one, torch.Tensor) for one in side):
        return type(side)(plain(one) for one in side)
    return side


def _sets(
    schema: Schema, sides: Mapping[Any, object], what: str, *, are_points: bool
) -> Sets | None:
    schema.check_names(list(sides), what)
    found: Sets | None = {}
    for name, side in plain_sides(sides).items():
        if name in schema.constants:
            if not _holds(schema.constant(name), side):
                found = None
            continue
        column = schema.column(name)
        if are_points and _is_single(side):
            one = _point(column, side, name)
        else:
            one = _code_set(column, side, name)
        found = both(found, {schema.place[name]: one}) if not one.is_empty else None
    return found


def _point(column: Column, value: object, name: Hashable) -> CodeSet:
    raw = read_mapping({name: value})[0]
    if bool(raw.missing.any()):
        raise ValueError(f"the given value of column {name!r} is missing: leave it out.")
    if isinstance(column, States):
        return CodeSet(float(_state(column, value, name)))
    at = np.array([number(value, column, name)])
    if not math.isfinite(at[0]):
        raise ValueError(f"column {name!r} holds {at[0]}: infinity has no density.")
    if not column.possible(at)[0]:
        return CodeSet()
    assert isinstance(column, Numeric)
    cell = column.cell(float(at[0]))
    at = at if cell is None or column.grid is None else column.grid.round(at)
    return CodeSet(float(column.encode(at)[0]), cell=cell)


def _code_set(column: Column, side: object, name: Hashable) -> CodeSet:
    if isinstance(column, States):
        return CodeSet(states=frozenset(_state_set(column, side, name)))
    assert isinstance(column, Numeric)
    if is_interval(side):
        low, high = as_interval(side, name, column)
        windows = [column.window(low, high)]
    else:
        values = [number(value, column, name) for value in _as_list(side, name)]
        windows = [column.window(value, value) for value in values]
    return CodeSet(intervals=tuple(window for window in windows if window[0] < window[1]))


def _state_set(column: States, side: object, name: Hashable) -> set[int]:
    if not is_interval(side):
        return {_state(column, value, name) for value in _as_list(side, name)}
    if any(isinstance(value, str) for value in column.values):
        raise ValueError(
            f"the categories of column {name!r} have no order: ask for a list of them, such as "
            f"{[column.values[0]]!r}, got {side!r}."
        )
    low, high = as_interval(side, name, column)
    return {state for state, value in enumerate(column.values) if low <= value <= high}


def _state(column: States, value: object, name: Hashable) -> int:
    if column.kind in READERS:
        value = number(value, column, name)
    raw = read_mapping({name: value})[0]
    code = column.encode(raw.values)[0]
    if math.isnan(code):
        some = ", ".join(
            repr(value) if isinstance(value, str) else value_text(value, column.kind)
            for value in column.values[:5]
        ) + (", ..." if len(column.values) > 5 else "")
        raise ValueError(
            f"column {name!r} holds {value!r}, which is not among its {len(column.values)} "
            f"categories ({some})."
        )
    return int(code)


def as_interval(side: object, name: Hashable, column: Column) -> tuple[float, float]:
    """``(low, high)`` as given by the user; ``None`` is an open end."""
    low = high = math.nan
    if isinstance(side, pd.Interval):
        low, high = number(side.left, column, name), number(side.right, column, name)
        low = column.beside(low, 1) if side.open_left else low
        high = column.beside(high, -1) if side.open_right else high
    elif isinstance(side, tuple) and len(side) == 2:
        try:
            low = -math.inf if side[0] is None else number(side[0], column, name)
            high = math.inf if side[1] is None else number(side[1], column, name)
        except ValueError:
            low = math.nan
    if not low <= high:
        raise ValueError(
            f"column {name!r} needs an interval (low, high) of numbers with low <= high, None "
            f"being an open end, got {side!r}."
        )
    return low, high


def is_interval(side: object) -> bool:
    """Intervals are tuples, or those of pandas; lists, sets and arrays hold values."""
    return isinstance(side, pd.Interval) or (isinstance(side, tuple) and len(side) == 2)


def _is_single(side: object) -> bool:
    is_one = isinstance(side, str | bytes) or not isinstance(side, Iterable)
    return is_one and not isinstance(side, pd.Interval)


def _as_list(side: object, name: Hashable) -> list[Any]:
    if _is_single(side):
        return [side]
    values: list[Any] = list(side)  # type: ignore[call-overload]
    if not values:
        raise ValueError(f"column {name!r} needs at least one value in an event, got none.")
    return values


def _holds(constant: States, side: object) -> bool:
    """Whether the value of a constant column is in a set."""
    name, (value,) = constant.name, constant.values
    if isinstance(value, str):
        return value in _as_list(side, name)
    if is_interval(side):
        low, high = as_interval(side, name, constant)
        return bool(low <= value <= high)
    return value in [number(one, constant, name) for one in _as_list(side, name)]


def _joined(intervals: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The same union, of intervals that do not touch."""
    joined: list[tuple[float, float]] = []
    for low, high in sorted(intervals):
        if joined and low <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        else:
            joined.append((low, high))
    return joined
