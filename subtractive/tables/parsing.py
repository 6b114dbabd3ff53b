"""Words on the command line, ``age>40`` or ``city=Oslo``, as values and events of a table.

Events and evidence are written alike: ``NAME=VALUE``, ``NAME=VALUE,VALUE`` or ``VALUE or VALUE``,
``NAME=LOW..HIGH`` with either end left open, ``NAME>NUMBER``, and ``NUMBER<NAME<=NUMBER``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from subtractive.io.table_reading import MISSING
from subtractive.tables.column_types import NAMES, ColumnType, Continuous
from subtractive.tables.columns import Column, Numeric
from subtractive.tables.conditions import number
from subtractive.tables.containers import TEMPORAL
from subtractive.tables.question_text import shown
from subtractive.tables.schema import Schema
from subtractive.tables.states import States
from subtractive.tables.unseen_numbers import numbers_of
from subtractive.tables.value_text import value_text

_BETWEEN = re.compile(r"^\s*([^<>=]+?)\s*(<=?)(.+?)(<=?)\s*([^<>=]+?)\s*$")
TRUTH = {"true": "1", "yes": "1", "false": "0", "no": "0"}
_SIGN = re.compile(r"[<>=]+")
_LISTED = re.compile(r",|\s+or\s+")
_COMPARED = re.compile(r"^(.+?)(<=|>=|<|>)([^<>=]+)$")


def parse_given(phrases: Sequence[str], schema: Schema) -> dict[Hashable, Any]:
    """Evidence, each value in the type of its column; a single value is a point."""
    given = parse_events(phrases, schema)
    if given is None:
        raise ValueError(
            f"what is given contradicts itself, so that nothing follows from it: {list(phrases)}."
        )
    return {n: s[0] if isinstance(s, list) and len(s) == 1 else s for n, s in given.items()}


def parse_events(phrases: Sequence[str], schema: Schema) -> dict[Hashable, Any] | None:
    """Intervals and lists of values by column, all phrases together.

    ``None`` if they contradict each other.
    """
    event: dict[Hashable, Any] = {}
    for phrase in phrases:
        name, side = _parse_event(phrase, schema)
        event[name] = side if name not in event else _joined(event[name], side, phrase)
    is_possible = all(s[0] <= s[1] if isinstance(s, tuple) else s for s in event.values())
    return event if is_possible else None


def parse_missing(words: str | None) -> Sequence[str]:
    """The words that stand for missing values: the usual ones if none are named."""
    return MISSING if words is None else [word.strip() for word in words.split(",")]


def parse_columns(phrases: Sequence[str]) -> dict[str, ColumnType]:
    """Kinds of columns, ``NAME=categorical`` or bounds ``NAME=0:1``."""
    kinds: dict[str, ColumnType] = {}
    for phrase in phrases:
        name, _, word = phrase.rpartition("=")
        low, colon, high = word.partition(":")
        if not name or (word not in NAMES and not colon):
            raise ValueError(
                f"cannot read {phrase!r}: expected NAME=continuous, NAME=categorical, NAME=count "
                "or bounds such as NAME=0:1 or NAME=0:."
            )
        if colon:
            bounds = [_number(end, phrase) if end.strip() else None for end in (low, high)]
            kinds[name] = Continuous(bounds[0], bounds[1])
        else:
            kinds[name] = NAMES[word]
    return kinds


def parse_value(text: str, name: Hashable, schema: Schema) -> Any:  # noqa: ANN401 - any type
    """A value in the type of its column."""
    text = shown(text)
    column = schema.constant(name) if name in schema.constants else schema.column(name)
    if isinstance(column, States) and column.kind not in TEMPORAL:
        if numbers_of(column) is not None and _is_number(text) and math.isfinite(float(text)):
            return float(text)  # whether it is among the values shows where it is used
        return _among(text, column, name)
    value = _number(text, f"{name}={text}", column)
    return int(value) if column.kind == "whole" and value.is_integer() else value


def find_column(text: str, schema: Schema) -> Hashable:
    """The column of this name; those of arrays are numbers."""
    text = shown(text.strip())
    for name in schema.names:
        if str(name) == text:
            return name
    known = ", ".join(str(name) for name in schema.names[:20])
    raise ValueError(f"there is no column {text!r}. The model has: {known}.")


def _parse_event(phrase: str, schema: Schema) -> tuple[Hashable, Any]:
    names = {str(name): name for name in schema.names}
    low: tuple[str, str] | None = None
    high: tuple[str, str] | None = None
    if (found := _BETWEEN.match(phrase)) and shown(found[3].strip()) in names:
        low, text, high = (found[1], found[2]), found[3], (found[5], found[4])
    elif (found := _COMPARED.match(phrase)) and shown(found[1].strip()) in names:
        text, end = found[1], (found[3], found[2])
        low, high = (end, None) if end[1].startswith(">") else (None, end)
    else:
        name, text = _split(phrase, schema)
        schema.check_names([name], "the question")
        return name, _parse_side(text, name, schema)
    name = names[shown(text.strip())]
    schema.check_names([name], "the question")
    column = _column(name, schema)
    return name, (
        -math.inf if low is None else _end(*low, 1, phrase, column),
        math.inf if high is None else _end(*high, -1, phrase, column),
    )


def _parse_side(text: str, name: Hashable, schema: Schema) -> Any:  # noqa: ANN401 - or a list
    """An interval ``LOW..HIGH``, or a list of values; a value may hold dots and commas itself."""
    parts, column = _LISTED.split(text), _column(name, schema)
    low, dots, high = text.partition("..")
    try:
        return [parse_value(text, name, schema)]
    except ValueError:
        if dots and column is not None and _has_order(column):
            return (
                _number(low, text, column) if low.strip() else -math.inf,
                _number(high, text, column) if high.strip() else math.inf,
            )
        if len(parts) == 1:
            raise
    return [parse_value(part.strip(), name, schema) for part in parts]


def _column(name: Hashable, schema: Schema) -> Column | None:
    """The variable of a column, if it is not constant."""
    return schema.column(name) if name in schema.place else None


def _has_order(column: Column) -> bool:
    return isinstance(column, Numeric) or column.numbers(np.zeros(1)) is not None


def _split(phrase: str, schema: Schema) -> tuple[Hashable, str]:
    """A column and what stands after the equals sign, of which both may hold some.

    Names are tried from the longest to the shortest.
    """
    if not _SIGN.search(phrase):
        raise ValueError(
            f"cannot read {shown(phrase)!r}: expected NAME=VALUE, NAME=VALUE or VALUE, "
            'NAME=LOW..HIGH, "NAME>NUMBER" or "NUMBER<NAME<NUMBER".'
        )
    names = {str(name): name for name in schema.names}
    words = phrase.split("=")
    for count in range(len(words) - 1, 0, -1):
        text = shown("=".join(words[:count]).strip())
        if text in names:
            return names[text], "=".join(words[count:]).strip()
    between = _BETWEEN.match(phrase)
    return find_column(between[3] if between else _SIGN.split(phrase)[0], schema), ""


def _joined(one: Any, other: Any, phrase: str) -> Any:  # noqa: ANN401 - intervals or lists
    """What is in two intervals or lists of values of a column."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return max(one[0], other[0]), min(one[1], other[1])
    if isinstance(one, list) and isinstance(other, list):
        return [value for value in one if value in other]
    interval, values = (one, other) if isinstance(one, tuple) else (other, one)
    if any(isinstance(value, str) for value in values):
        raise ValueError(f"{phrase!r} compares values that have no order.")
    return [value for value in values if interval[0] <= value <= interval[1]]


def _end(text: str, sign: str, side: int, phrase: str, column: Column | None) -> float:
    """The end of an interval that begins (1) or stops (-1) there, left out by ``<`` and ``>``."""
    end = _number(text, phrase, column)
    if "=" in sign:
        return end
    return math.nextafter(end, side * math.inf) if column is None else column.beside(end, side)


def _number(text: str, phrase: str, column: Column | None = None) -> float:
    """A number; of a column of dates, times or durations one in microseconds."""
    text, phrase = shown(text), shown(phrase)
    try:
        if column is not None and column.kind in TEMPORAL:
            return number(text.strip(), column, column.name)
        found = float(text)
    except ValueError:
        found = math.nan
    if math.isnan(found):
        what = "number" if column is None or column.kind not in TEMPORAL else column.kind
        raise ValueError(f"cannot read {phrase!r}: {text.strip()!r} is not a {what}.")
    return found


def _among(text: str, column: States, name: Hashable) -> Any:  # noqa: ANN401 - any type
    """The category that is written like this; 1 and 1.0, true and 1 are alike."""
    values = column.values
    for value in values:
        if str(value) == text:
            return value
    number = TRUTH.get(text.strip().lower(), text)
    for value in values:
        if not isinstance(value, str) and _is_number(number) and float(number) == value:
            return value
    some = ", ".join(value_text(value, column.kind) for value in values[:8])
    some += ", ..." if len(values) > 8 else ""
    raise ValueError(f"column {name!r} has no value {text!r}; it has {some}.")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
