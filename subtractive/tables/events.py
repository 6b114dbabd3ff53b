"""Events in users' words, ``{"age": (40, None), "city": ["Oslo", "Bergen"]}``, as boxes."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np

from subtractive.inference.box import Side
from subtractive.tables.columns import Column, Scale, States
from subtractive.tables.reading import read_mapping
from subtractive.tables.schema import Schema


def as_box(schema: Schema, event: Mapping[Any, object]) -> dict[int, Side] | None:
    """The box of an event; ``None`` if constant columns, or copies, exclude it."""
    if not isinstance(event, Mapping) or not event:
        raise ValueError(
            "an event names at least one column and its interval or values, such as "
            f"{{'age': (40, None)}}, got {event!r}."
        )
    schema.check_names(list(event), "the event")
    box: dict[int, Side] = {}
    for name, side in event.items():
        if name in schema.constants:
            if not _holds(schema.constants[name], side, name):
                return None
            continue
        number = schema.place[name]
        one = _side(schema.variables[number], side, name)
        both = one if number not in box else _intersection(box[number], one)
        if both is None:
            return None
        box[number] = both
    return box


def _side(column: Column, side: object, name: Hashable) -> Side:
    if isinstance(column, Scale):
        low, high = as_interval(side, name)
        return _coded_interval(column, low, high)
    states = np.arange(column.family(signed=True).num_states or 0, dtype=np.float64)
    values = column.decode(states)
    if not _is_interval(side):
        chosen = _as_list(side, name)
        if isinstance(column, States):
            for value in chosen:  # refuses what is no category
                column.encode(read_mapping({name: value})[0].values)
        return {int(s) for s, value in zip(states, values, strict=True) if value in chosen}
    if values.dtype == object:
        raise ValueError(
            f"the categories of column {name!r} have no order: ask for a list of them, such as "
            f"{[values[0]]!r}, got {side!r}."
        )
    low, high = as_interval(side, name)
    return {int(s) for s, v in zip(states, values, strict=True) if low <= v <= high}


def _coded_interval(column: Scale, low: float, high: float) -> tuple[float, float]:
    if column.whole:  # what is rounded into the interval
        low = math.ceil(low) - 0.5 if math.isfinite(low) else low
        high = math.floor(high) + 0.5 if math.isfinite(high) else high
    edges = np.clip([low, high], column.low, column.high)
    codes = [e if math.isinf(e) else float(column.encode(np.array([e]))[0]) for e in edges]
    return codes[0], codes[1]


def as_interval(side: object, name: Hashable) -> tuple[float, float]:
    """``(low, high)`` as given by the user; ``None`` is an open end."""
    low = high = math.nan
    if isinstance(side, tuple) and len(side) == 2:
        try:
            low = -math.inf if side[0] is None else float(side[0])
            high = math.inf if side[1] is None else float(side[1])
        except (TypeError, ValueError):
            low = math.nan
    if not low <= high:
        raise ValueError(
            f"column {name!r} needs an interval (low, high) of numbers with low <= high, None "
            f"being an open end, got {side!r}."
        )
    return low, high


def _is_interval(side: object) -> bool:
    """Intervals are tuples; lists, sets and arrays hold values."""
    return isinstance(side, tuple) and len(side) == 2


def _as_list(side: object, name: Hashable) -> list[Any]:
    if isinstance(side, str | bytes) or not isinstance(side, Iterable):
        return [side]
    values = list(side)
    if not values:
        raise ValueError(f"column {name!r} needs at least one value in an event, got none.")
    return values


def _holds(value: float | str, side: object, name: Hashable) -> bool:
    if _is_interval(side) and not isinstance(value, str):
        low, high = as_interval(side, name)
        return bool(low <= value <= high)
    return value in _as_list(side, name)


def _intersection(one: Side, other: Side) -> Side | None:
    if isinstance(one, AbstractSet) and isinstance(other, AbstractSet):
        return (one & other) or None
    assert isinstance(one, tuple)
    assert isinstance(other, tuple)
    low = max(side[0] for side in (one, other) if side[0] is not None)
    high = min(side[1] for side in (one, other) if side[1] is not None)
    return (low, high) if low <= high else None
