"""Columns that others determine: codes and their names, totals and what they are sums of."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from subtractive.tables.cell_values import Content
from subtractive.tables.containers import AnyTable
from subtractive.tables.reading import Floats, RawColumn, Table, is_missing
from subtractive.tables.validation import read_table

# A rule needs so many rows that could have broken it.
LEAST_ROWS = 30
# So many rows are looked at for candidates, which all rows must then confirm.
FIRST_ROWS = 2000
MOST_TERMS = 8  # of a sum
ROUNDING = 1e-6  # relative to the spread of a total
Codes = npt.NDArray[np.int64]


@final
@dataclass(frozen=True)
class FunctionalDependency:
    """A column whose value follows from those of other columns, in every row of a table.

    >>> str(FunctionalDependency("total", ("a", "b"), (1, -1)))
    'total = a - b'
    """

    column: Hashable
    determined_by: tuple[Hashable, ...]
    signs: tuple[int, ...] = ()  # of a sum: +1 or -1 for each column; empty for other rules

    def __str__(self) -> str:
        if not self.signs:
            return f"{self.determined_by[0]} determines {self.column}"
        terms = zip(self.signs, self.determined_by, strict=True)
        text = " ".join(f"{'+' if sign > 0 else '-'} {name}" for sign, name in terms)
        return f"{self.column} = {text.removeprefix('+ ')}"


def functional_dependencies(table: AnyTable) -> tuple[FunctionalDependency, ...]:
    """Which columns of a table others determine.

    A column of values that repeat determines another one if each of its values goes with one value
    of the other; a number is a sum if it is that of other columns, added or subtracted, up to
    rounding. Every row without a gap in these columns must agree, and at least 30 rows must be
    able to disagree. Models learn such rules only approximately: leave out the column that
    follows from others, and compute it from samples.

    >>> table = {"town": ["Oslo", "Bergen"] * 30, "code": [3, 46] * 30, "x": range(60)}
    >>> import pandas as pd
    >>> for rule in sub.tables.functional_dependencies(pd.DataFrame(table)):
    ...     print(rule)
    town determines code
    code determines town
    """
    return dependencies_of(read_table(table))


def dependencies_of(table: Table) -> tuple[FunctionalDependency, ...]:
    """Which columns of a table, as it was read, others determine."""
    return (*_by_values(table), *_by_sums(table))


def _by_values(table: Table) -> Iterator[FunctionalDependency]:
    codes = [_codes(column) for column in table.columns]
    for i, first in enumerate(table.columns):
        if not _may_determine(codes[i]):
            continue
        for j, second in enumerate(table.columns):
            if i != j and codes[j].max(initial=-1) > 0 and _determines(codes[i], codes[j]):
                yield FunctionalDependency(second.name, (first.name,))


def _codes(column: RawColumn) -> Codes:
    """The values as whole numbers from zero on, (n,), -1 where there is none."""
    there = ~(is_missing(column.values) | column.censored)
    codes = np.full(len(column.values), -1)
    present = column.values[there]
    if present.dtype == object:
        numbers: dict[Hashable, int] = {}
        codes[there] = [numbers.setdefault(value, len(numbers)) for value in present.tolist()]
    else:
        codes[there] = np.unique(present, return_inverse=True)[1]
    return codes


def _may_determine(codes: Codes) -> bool:
    """Whether values repeat so often that a rule about them says something."""
    present = codes[codes >= 0]
    num_repeated = len(present) - (int(present.max(initial=-1)) + 1)
    return num_repeated >= max(LEAST_ROWS, len(present) / 2)


def _determines(first: Codes, second: Codes) -> bool:
    for rows in (slice(FIRST_ROWS), slice(None)):
        known = (first[rows] >= 0) & (second[rows] >= 0)
        own, other = first[rows][known], second[rows][known]
        seen, places, pairs = np.unique(own, return_index=True, return_inverse=True)
        if not bool((other[places][pairs] == other).all()):
            return False
    return len(own) - len(seen) >= LEAST_ROWS and len(np.unique(other)) > 1


def _by_sums(table: Table) -> Iterator[FunctionalDependency]:
    kinds = (Content.REAL, Content.WHOLE)
    columns = [c for c in table.columns if c.content in kinds and not c.censored.any()]
    if len(columns) < 3:
        return
    values = np.stack([column.values.astype(np.float64) for column in columns], axis=1)
    values = values[np.isfinite(values).all(1)]
    spread = values.std(0) if len(values) else np.zeros(len(columns))
    kept = np.flatnonzero(spread > 0)
    values, names = values[:, kept], [columns[k].name for k in kept]
    if len(values) < LEAST_ROWS + len(names):
        return
    found: set[frozenset[int]] = set()
    # Totals first: the column of the largest spread is the sum of the others rather than a term.
    for total in np.argsort(-spread[kept], kind="stable").tolist():
        signs = _signs(values, total)
        members = frozenset([total, *np.flatnonzero(signs).tolist()])
        if signs.any() and members not in found:
            found.add(members)
            terms = np.flatnonzero(signs)
            yield FunctionalDependency(
                names[total],
                tuple(names[k] for k in terms),
                tuple(int(signs[k]) for k in terms),
            )


def _signs(values: Floats, total: int) -> Floats:
    """+1 or -1 for each column whose sum is the column ``total``, (d,); zeros if there is none."""
    others = np.delete(np.arange(values.shape[1]), total)
    first = values[:FIRST_ROWS]
    scale = first.std(0) + 1e-300
    design = np.column_stack([(first[:, others] - first[:, others].mean(0)) / scale[others]])
    goal = first[:, total] - first[:, total].mean()
    solution = np.linalg.lstsq(design, goal, rcond=None)[0] / scale[others]
    signs = np.zeros(values.shape[1])
    signs[others] = np.rint(solution)
    is_sum = 2 <= np.count_nonzero(signs) <= MOST_TERMS and np.abs(signs).max() == 1
    error = np.abs(values @ signs - values[:, total]).max()
    return signs if is_sum and error <= ROUNDING * values[:, total].std() else 0 * signs
