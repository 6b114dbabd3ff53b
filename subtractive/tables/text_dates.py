"""Dates that are held as text: recognised by one format of all values, and written back by it."""

from __future__ import annotations

import datetime
import itertools
import re
from collections.abc import Iterable

import numpy as np

from subtractive.tables.cell_values import number_of
from subtractive.tables.reading import Floats, Values, is_missing

_DAYS = ("%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y")
_WORDED = ("%d %b %Y", "%d %B %Y", "%d-%b-%Y", "%b %d %Y", "%b %d, %Y", "%B %d, %Y", "%Y-%m")
_TIMES = ("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", "T%H:%M", "T%H:%M:%S", "T%H:%M:%S.%f")
FORMATS = tuple(map("".join, itertools.product((*_DAYS, *_WORDED), _TIMES)))
# Zones are part of the format: all values must have the same.
_ZONE = re.compile(r"(?:Z|[+-]\d\d:?\d\d)$")
FIRST = 20  # values that tell which formats are worth trying on all


def find_format(texts: Iterable[str]) -> str | None:
    """The one format in which all texts are dates, exactly as they are written.

    ``None`` if there is none, or if several fit and say different days, as with 03/04/2020.

    >>> find_format(["2020-01-31", "2020-02-01"]), find_format(["31/01/2020", "02/01/2020"])
    ('%Y-%m-%d', '%d/%m/%Y')
    >>> find_format(["01/02/2020", "03/04/2020"]), find_format(["2020-01-31", "soon"])
    (None, None)
    """
    listed = list(dict.fromkeys(texts))
    if len(listed) < 2 or not all(text[:1].isalnum() and text[-1:].isalnum() for text in listed):
        return None
    zone = _ZONE.search(listed[0]) if ":" in listed[0] else None
    suffix = zone[0] if zone else ""
    fitting = [fmt + suffix for fmt in FORMATS]
    for some in (listed[:FIRST], listed):
        fitting = [fmt for fmt in fitting if all(_is_written(text, fmt) for text in some)]
    return fitting[0] if len(fitting) == 1 else None


def parse_dates(texts: Values, fmt: str) -> Floats:
    """Texts (n,) in microseconds since 1970; NaN where one is missing or not of the format."""
    numbers = {text: _number(text, fmt) for text in set(texts[~is_missing(texts)].tolist())}
    return np.array([numbers.get(text, np.nan) for text in texts.tolist()], dtype=np.float64)


def format_dates(numbers: Floats, fmt: str) -> Values:
    """Microseconds (n,) as texts; ``None`` where one is missing."""
    texts = np.empty(len(numbers), dtype=object)
    for row, number in enumerate(np.asarray(numbers, dtype=np.float64).tolist()):
        if number == number:
            passed = datetime.timedelta(microseconds=round(number))
            texts[row] = _written(datetime.datetime(1970, 1, 1) + passed, fmt)
    return texts


def _number(text: str, fmt: str) -> float:
    moment = _moment(text, fmt)
    return np.nan if moment is None else number_of(moment)


def _is_written(text: str, fmt: str) -> bool:
    moment = _moment(text, fmt)
    return moment is not None and _written(moment, fmt) == text


def _written(moment: datetime.datetime, fmt: str) -> str:
    """A moment in a format, years with four digits on every system."""
    return moment.strftime(fmt.replace("%Y", f"{moment.year:04d}"))


def _moment(text: str, fmt: str) -> datetime.datetime | None:
    try:
        return datetime.datetime.strptime(text, fmt)
    except (TypeError, ValueError):
        return None
