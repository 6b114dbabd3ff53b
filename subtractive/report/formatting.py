"""Numbers and values as the page shows them: never with sixteen digits."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

import numpy as np

from subtractive.plots.labels import short
from subtractive.tables.cell_values import Content
from subtractive.tables.reading import RawColumn

MINUS, INFINITY, NOTHING = "\u2212", "\u221e", "\u2013"  # typographic, as prose has them


def count(number: int) -> str:
    """A whole number in groups of three digits: 12,345."""
    return f"{number:,}"


def number_of(size: int, one: str, many: str | None) -> str:
    """So many things, in one or in several.

    >>> number_of(1, "row", None), number_of(2, "row", None)
    ('1 row', '2 rows')
    """
    return f"{count(size)} {one if size == 1 else many or one + 's'}"


def number(value: float, digits: int = 4) -> str:
    """A number in a few digits, without an exponent where it can be read without.

    >>> number(0.1 + 0.2), number(-12345.678), number(1e-9), number(float("-inf"))
    ('0.3', '−12346', '1e−09', '−∞')
    """
    if math.isnan(value):
        return NOTHING
    if math.isinf(value):
        return INFINITY if value > 0 else MINUS + INFINITY
    size = abs(value)
    if size >= 1e15 or 0 < size < 1e-4:
        text = f"{value:.{digits - 1}g}"
    elif float(value).is_integer() or size >= 10 ** (digits - 1):
        text = f"{value:.0f}"
    else:
        text = f"{value:.{digits}g}"
    return text.replace("-", MINUS)


def measured(value: float, error: float) -> str:
    """A number with its standard error, the error in two digits.

    >>> measured(-18.2083, 0.0683), measured(1234.5, 20.0), measured(0.052, 0.0012)
    ('−18.208 ± 0.068', '1234 ± 20', '0.0520 ± 0.0012')
    """
    if not (math.isfinite(value) and math.isfinite(error)) or error <= 0:
        return number(value, 5)
    decimals = max(0, 1 - math.floor(math.log10(error)))
    if decimals > 9:
        return number(value, 5)
    return f"{value:.{decimals}f} ± {error:.{decimals}f}".replace("-", MINUS)


def percent(share: float) -> str:
    """A share in per cent; one that is not zero does not become it.

    >>> percent(0.0314), percent(0.0), percent(0.00001), percent(0.999999)
    ('3.1 %', '0 %', 'below 0.1 %', 'above 99.9 %')
    """
    if share in (0.0, 1.0):
        return f"{share:.0%}".replace("%", " %")
    if share < 0.001:
        return "below 0.1 %"
    if share > 0.999:
        return "above 99.9 %"
    return f"{100 * share:.1f} %"


def state(value: object) -> str:
    """One value of a column as text."""
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, int | np.integer):
        return str(int(value)).replace("-", MINUS)
    if isinstance(value, float | np.floating):
        return number(float(value))
    return short(value)


def cell(raw: RawColumn, row: int) -> str:
    """The value of a column in one row, empty if it is missing."""
    if bool(raw.missing[row]):
        return ""
    value = raw.values[row]
    return state(bool(value) if raw.content is Content.BOOLEAN else value)


def same_decimals(entries: Sequence[str]) -> list[str]:
    """The numbers of a column with equally many decimals, if four digits are enough for all.

    >>> same_decimals(["34", "39.7", ""]), same_decimals(["1235", "0.25"])
    (['34.0', '39.7', ''], ['1235', '0.25'])
    """
    parts = [entry.lstrip(MINUS).split(".") for entry in entries if entry]
    if not all(len(part) <= 2 and all(map(str.isdecimal, part)) for part in parts):
        return list(entries)
    decimals = max((len(part[1]) for part in parts if len(part) == 2), default=0)
    if decimals == 0 or any(len(part[0]) + decimals > 4 for part in parts):
        return list(entries)
    padded = [entry if "." in entry or not entry else entry + "." for entry in entries]
    return [
        entry + "0" * (decimals - len(entry.partition(".")[2])) if entry else ""
        for entry in padded
    ]


def listed(names: Sequence[Hashable], most: int = 6) -> str:
    """A few names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(short(name) for name in names[:most]) + more
