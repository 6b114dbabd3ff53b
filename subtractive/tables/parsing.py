"""Words on the command line, ``age>40`` or ``city=Oslo``, as values and events of a table."""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Sequence
from typing import Any

from subtractive.io.table_reading import MISSING
from subtractive.tables.column_types import NAMES, ColumnType, Continuous
from subtractive.tables.columns import Numeric, States
from subtractive.tables.schema import Schema

_BETWEEN = re.compile(r"^\s*([^<>=]+?)\s*(<=?)(.+?)(<=?)\s*([^<>=]+?)\s*$")
TRUTH = {"true": "1", "yes": "1", "false": "0", "no": "0"}
_COMPARED = re.compile(r"^(.+?)(<=|>=|<|>)([^<>=]+)$")


def parse_given(phrases: Sequence[str], schema: Schema) -> dict[Hashable, Any]:
    """Evidence ``NAME=VALUE``, each in the type of its column."""
    given: dict[Hashable, Any] = {}
    for phrase in phrases:
        name, text = _split(phrase, "evidence", schema)
        if name in given:
            raise ValueError(f"column {name!r} is given twice: leave one out.")
        given[name] = parse_value(text, name, schema)
    return given


def parse_events(phrases: Sequence[str], schema: Schema) -> dict[Hashable, Any] | None:
    """Events ``NAME>NUMBER``, ``NUMBER<NAME<=NUMBER`` or ``NAME=VALUE,VALUE``, all together.

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
    if name in schema.constants:
        return _among(text, [schema.constants[name]], name)
    column = schema.variables[schema.place[name]]
    if isinstance(column, States):
        return _among(text, column.values, name)
    value = _number(text, f"{name}={text}")
    whole = isinstance(column, Numeric) and column.kind == "whole"
    return int(value) if whole and value.is_integer() else value


def find_column(text: str, schema: Schema) -> Hashable:
    """The column of this name; those of arrays are numbers."""
    for name in schema.names:
        if str(name) == text.strip():
            return name
    known = ", ".join(str(name) for name in schema.names[:20])
    raise ValueError(f"there is no column {text.strip()!r}. The model has: {known}.")


def _parse_event(phrase: str, schema: Schema) -> tuple[Hashable, Any]:
    if found := _BETWEEN.match(phrase):
        low, left, text, right, high = found.groups()
        name = find_column(text, schema)
        step = _step(name, schema)
        return name, (_above(low, left, phrase, step), _below(high, right, phrase, step))
    if found := _COMPARED.match(phrase):
        text, sign, number = found.groups()
        name = find_column(text, schema)
        step = _step(name, schema)
        if sign.startswith(">"):
            return name, (_above(number, sign.replace(">", "<"), phrase, step), math.inf)
        return name, (-math.inf, _below(number, sign, phrase, step))
    name, text = _split(phrase, "an event", schema)
    return name, [parse_value(part, name, schema) for part in text.split(",")]


def _split(phrase: str, what: str, schema: Schema) -> tuple[Hashable, str]:
    """A column and what stands after the equals sign, of which its name may hold some, too."""
    if "=" not in phrase:
        raise ValueError(
            f"cannot read {phrase!r} as {what}: expected NAME=VALUE"
            + (', "NAME>NUMBER" or "NUMBER<NAME<NUMBER".' if what == "an event" else ".")
        )
    words = phrase.split("=")
    for count in range(len(words) - 1, 0, -1):
        text = "=".join(words[:count])
        if count == 1 or any(str(name) == text.strip() for name in schema.names):
            break
    return find_column(text, schema), "=".join(words[count:]).strip()


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


def _step(name: Hashable, schema: Schema) -> float:
    """The distance between two values of a column on a grid, zero of other ones."""
    column = schema.column(name) if name in schema.place else None
    return column.grid.step if isinstance(column, Numeric) and column.grid else 0.0


def _above(text: str, sign: str, phrase: str, step: float) -> float:
    number = _number(text, phrase)
    return number if sign == "<=" else max(number + step / 4, math.nextafter(number, math.inf))


def _below(text: str, sign: str, phrase: str, step: float) -> float:
    number = _number(text, phrase)
    return number if sign == "<=" else min(number - step / 4, math.nextafter(number, -math.inf))


def _number(text: str, phrase: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise ValueError(f"cannot read {phrase!r}: {text.strip()!r} is not a number.")
    return number


def _among(text: str, values: Sequence[Any], name: Hashable) -> Any:  # noqa: ANN401 - any type
    """The category that is written like this; 1 and 1.0, true and 1 are alike."""
    for value in values:
        if str(value) == text:
            return value
    number = TRUTH.get(text.strip().lower(), text)
    for value in values:
        if not isinstance(value, str) and _is_number(number) and float(number) == value:
            return value
    some = ", ".join(str(value) for value in values[:8]) + (", ..." if len(values) > 8 else "")
    raise ValueError(f"column {name!r} has no value {text!r}; it has {some}.")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
