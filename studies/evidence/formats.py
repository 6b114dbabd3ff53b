"""How numbers are written on pages: with a true minus, and as many digits as they deserve."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from studies.grid.experiment import Record
from studies.grid.outputs import markdown


def number(value: float, digits: int = 2) -> str:
    """A number with a true minus.

    >>> number(-38.4204), number(0.05, 3)
    ('−38.42', '0.050')
    """
    return f"{value:.{digits}f}".replace("-", "−")


def spread(values: Sequence[float], digits: int = 2) -> str:
    """The median of runs, with the least and the largest if there are several.

    >>> spread([-1.0, -3.0, -2.0], 1), spread([-1.25])
    ('−2.0 (−3.0 .. −1.0)', '−1.25')
    """
    middle = number(median(values), digits)
    if len(values) == 1:
        return middle
    return f"{middle} ({number(min(values), digits)} .. {number(max(values), digits)})"


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table in Markdown of cells that are texts already."""
    return markdown(columns, rows)


def tests(records: Sequence[Record]) -> list[float]:
    """The test scores of runs."""
    return [float(record.result["test"]) for record in records]


def seconds(records: Sequence[Record]) -> str:
    """The median seconds of runs."""
    return f"{median(record.seconds for record in records):,.0f}"
