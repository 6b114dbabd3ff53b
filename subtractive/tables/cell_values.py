"""Plain objects in the cells of a table: what they are, and what numbers they stand for."""

from __future__ import annotations

import datetime
from enum import Enum
from numbers import Number
from typing import Any

import numpy as np


class Content(Enum):
    """What a column holds."""

    REAL = "numbers"
    WHOLE = "whole numbers"
    BOOLEAN = "booleans"
    TEXT = "categories"
    DATE = "dates"  # in microseconds since 1970, as are
    DURATION = "durations"
    TIME = "times of the day"  # since midnight
    OTHER = "other objects"

    @property
    def is_number(self) -> bool:
        """Whether values of it are kept as numbers."""
        return self not in (Content.TEXT, Content.OTHER)


def number_of(value: Any) -> float:  # noqa: ANN401 - whatever a table holds
    """A number, or what a date, a time or a duration is in microseconds."""
    if isinstance(value, np.datetime64 | np.timedelta64):
        return float(value.astype(f"{value.dtype.kind}8[us]").astype(np.int64))
    if isinstance(value, datetime.time):
        seconds = 3600 * value.hour + 60 * value.minute + value.second
        return float(seconds * 10**6 + value.microsecond)
    if isinstance(value, datetime.timedelta):
        return float(value // datetime.timedelta(microseconds=1))
    if isinstance(value, datetime.date):
        moment = value if isinstance(value, datetime.datetime) else None
        moment = moment or datetime.datetime.combine(value, datetime.time())
        aware = moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
        return number_of(aware - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC))
    return float(value)


def content_of(value: object) -> Content:
    """What a plain object is."""
    kinds: tuple[tuple[Any, Content], ...] = (
        (bool | np.bool_, Content.BOOLEAN),
        (str, Content.TEXT),
        (datetime.timedelta | np.timedelta64, Content.DURATION),
        (datetime.date | np.datetime64, Content.DATE),
        (datetime.time, Content.TIME),
        (int | np.integer, Content.WHOLE),
        (complex | np.complexfloating, Content.OTHER),
        (Number, Content.REAL),
    )
    return next((content for kind, content in kinds if isinstance(value, kind)), Content.OTHER)


def is_gone(value: object) -> bool:
    """Whether a plain object stands for nothing: None, NaN, or a library's own sign for it."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and bool(np.isnan(value))
