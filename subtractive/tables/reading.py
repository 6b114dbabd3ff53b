"""Tables as users have them: arrays of numbers, and any data frame that narwhals can read."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import narwhals.stable.v2 as nw
import numpy as np
import numpy.typing as npt

from subtractive.tables.cell_values import Content, content_of, is_gone, number_of
from subtractive.tables.containers import (
    AnyTable,
    ArrayContainer,
    Container,
    FrameContainer,
    as_universal_times,
    is_decimal,
)

Floats: TypeAlias = npt.NDArray[np.float64]
RandomState: TypeAlias = Any  # an int, a numpy RandomState or None, as in scikit-learn
Index: TypeAlias = slice | npt.NDArray[Any]
Values: TypeAlias = npt.NDArray[Any]  # (n,): float64 with NaN, or objects with None, if missing

# float64 cannot tell larger whole numbers apart.
LARGEST_WHOLE = 2**53
# Beyond it powers of numbers overflow.
_LARGEST_NUMBER = 1e300
TOO_LARGE = "its whole numbers are beyond 2**53, where double precision cannot tell them apart"


@dataclass(frozen=True)
class RawColumn:
    """The values of a column and what its type says about them."""

    name: Hashable
    values: Values
    content: Content
    categories: tuple[Hashable, ...] | None = None  # those that a categorical dtype declares
    dtype: np.dtype[Any] = np.dtype(np.float64)  # of numbers: the precision they have
    note: str = ""  # why a column of other objects cannot be modelled
    # Of censored cells: both ends, and whether they are open, (n, 4); NaN of other cells.
    intervals: Floats | None = None
    # Lists of values one of which it is, (n,); None of other cells.
    choices: Values | None = None

    @property
    def missing(self) -> npt.NDArray[np.bool_]:
        """Where there is no value, (n,)."""
        return is_missing(self.values)

    @property
    def censored(self) -> npt.NDArray[np.bool_]:
        """Where only an interval of numbers is known, (n,)."""
        if self.intervals is None:
            return np.zeros(len(self.values), dtype=bool)
        return ~np.isnan(self.intervals[:, 0])

    def rows(self, rows: Index) -> RawColumn:
        """Some of the rows."""
        intervals = None if self.intervals is None else self.intervals[rows]
        choices = None if self.choices is None else self.choices[rows]
        return replace(self, values=self.values[rows], intervals=intervals, choices=choices)


class Table(NamedTuple):
    """The columns of a table, and how a table like it is built."""

    columns: tuple[RawColumn, ...]
    container: Container
    num_rows: int

    @property
    def names(self) -> tuple[Hashable, ...]:
        """The names of the columns, or their numbers."""
        return tuple(column.name for column in self.columns)

    def rows(self, rows: Index) -> Table:
        """Some of the rows."""
        columns = tuple(column.rows(rows) for column in self.columns)
        count = len(columns[0].values) if columns else 0
        return Table(columns, self.container, count)


def is_missing(values: Values) -> npt.NDArray[np.bool_]:
    """Where values (n,) are NaN, or None among objects."""
    if values.dtype == object:
        return np.equal(values, None).astype(bool)  # type: ignore[call-overload, no-any-return]
    return np.isnan(values)


def is_frame(table: object) -> bool:
    """Whether a table brings names and types of its columns along."""
    return nw.dependencies.is_into_dataframe(table)


def read_array(array: npt.NDArray[Any], dtype: np.dtype[Any]) -> Table:
    """An array (n, d) of numbers that came with ``dtype``; columns are named by numbers."""
    content = {"b": Content.BOOLEAN, "i": Content.WHOLE, "u": Content.WHOLE}
    precision = dtype if dtype.kind == "f" else np.dtype(np.float64)
    columns = tuple(
        RawColumn(number, column, content.get(dtype.kind, Content.REAL), None, precision)
        for number, column in enumerate(np.asarray(array, dtype=np.float64).T)
    )
    return Table(columns, ArrayContainer(dtype), len(array))


def read_frame(native: AnyTable) -> Table:
    """A data frame of any library."""
    labels = list(native.columns)
    repeated = {label for label in labels if labels.count(label) > 1}
    if repeated:
        raise ValueError(
            f"a data frame needs different names for its columns, got {sorted(map(str, repeated))}"
            " more than once. Rename them."
        )
    frame = nw.from_native(native, eager_only=True)
    columns = tuple(_read_series(frame.get_column(name), name) for name in frame.columns)
    objects = [name for name in frame.columns if frame.schema[name] == nw.Object]
    decimals = [n for n in objects if is_decimal(frame.get_column(n).to_list())]
    # Arrow, through which files know types, has no whole numbers of 128 bits.
    wide = [name for name in frame.columns if frame.schema[name] in (nw.Int128, nw.UInt128)]
    template = frame.head(0).with_columns(nw.col(*wide).cast(nw.Int64)) if wide else frame.head(0)
    container = FrameContainer(template.to_native(), frozenset(decimals))
    return Table(columns, container, len(frame))


def read_mapping(values: Mapping[Any, object]) -> tuple[RawColumn, ...]:
    """Single values by column, as columns of one row; types are as in a data frame."""
    return tuple(read_objects([value], name) for name, value in values.items())


def _read_series(series: nw.Series[Any], name: Hashable) -> RawColumn:
    dtype = series.dtype
    if dtype.is_numeric() or dtype == nw.Boolean:
        return _read_numbers(series, name)
    if dtype in (nw.Datetime, nw.Date, nw.Duration):
        content = Content.DURATION if dtype == nw.Duration else Content.DATE
        return RawColumn(name, _microseconds(series), content)
    if dtype == nw.Time:
        return read_objects(series.to_list(), name)
    if dtype in (nw.Categorical, nw.Enum):
        raw = read_objects(_listed(series), name)
        if not hasattr(series.to_native(), "cat") and series.implementation.is_pandas_like():
            return raw  # a dictionary of Arrow, whose categories pandas does not show
        declared = tuple(series.cat.get_categories().to_list())
        # The categories of a dtype may be anything that has a name of its own.
        return replace(raw, categories=declared) if raw.content is Content.TEXT else raw
    if dtype in (nw.String, nw.Object):
        return read_objects(_listed(series), name)
    native = series.to_native()
    instants = as_universal_times(series)
    if instants is not None:
        return _read_series(instants, name)
    if hasattr(native, "sparse"):
        return _read_series(nw.from_native(native.sparse.to_dense(), series_only=True), name)
    listed = _listed(series)
    raw = read_objects(listed, name)
    is_known = raw.intervals is not None or raw.choices is not None
    return raw if is_known else _other(listed, name, f"its type is {dtype}")


def _read_numbers(series: nw.Series[Any], name: Hashable) -> RawColumn:
    dtype = series.dtype
    whole = dtype.is_integer()
    ends = (series.min(), series.max()) if whole else ()
    if any(not is_gone(end) and abs(int(end)) > LARGEST_WHOLE for end in ends):
        return _other(_listed(series), name, TOO_LARGE)
    values = np.asarray(series.cast(nw.Float64).to_numpy(), dtype=np.float64)
    if dtype == nw.Boolean:
        return RawColumn(name, values, Content.BOOLEAN)
    precision = np.dtype(np.float32 if dtype == nw.Float32 else np.float64)
    return RawColumn(name, values, Content.WHOLE if whole else Content.REAL, None, precision)


def _microseconds(series: nw.Series[Any]) -> Floats:
    if series.dtype == nw.Duration:
        whole = series.dt.total_microseconds()
    else:
        whole = series.cast(nw.Datetime) if series.dtype == nw.Date else series
        whole = whole.dt.timestamp("us")
    missing = series.is_null().to_numpy()
    values = np.asarray(whole.fill_null(0).to_numpy(), dtype=np.float64)
    return np.where(missing, np.nan, values)


def _listed(series: nw.Series[Any]) -> list[object]:
    missing = series.is_null().to_numpy()
    return [None if gone else v for v, gone in zip(series.to_list(), missing, strict=True)]


def read_objects(values: Sequence[object], name: Hashable) -> RawColumn:
    """A column of plain Python objects, which must be alike to be modelled."""
    if (censored := _read_intervals(values, name) or _read_choices(values, name)) is not None:
        return censored
    present = [value for value in values if not is_gone(value)]
    contents = {content_of(value) for value in present}
    if contents == {Content.REAL, Content.WHOLE}:
        contents = {Content.REAL}
    if not contents:
        return RawColumn(name, np.full(len(values), np.nan), Content.REAL)
    if len(contents) > 1 or contents == {Content.OTHER}:
        types = ", ".join(sorted({type(value).__name__ for value in present}))
        return _other(values, name, f"it holds objects of type {types}")
    content = contents.pop()
    if content is Content.WHOLE and any(map(is_large_whole, present)):
        return _other(values, name, TOO_LARGE)
    if content is Content.TEXT:
        return RawColumn(name, _objects(values), content)
    numbers = [np.nan if is_gone(value) else number_of(value) for value in values]
    return RawColumn(name, np.array(numbers, dtype=np.float64), content)


def _read_intervals(values: Sequence[object], name: Hashable) -> RawColumn | None:
    """A column of numbers some of which are intervals; ``None`` if it is something else.

    Cells are ``pandas.Interval``, or tuples ``(low, high)`` beside numbers or with an open end.
    """
    ends = [_ends(value) for value in values]
    if not any(ends):
        return None
    rest = [None if end else value for value, end in zip(values, ends, strict=True)]
    pairs = [value for value in values if isinstance(value, tuple)]
    if len(pairs) == len(values) and not any(None in pair for pair in pairs):
        return None  # pairs of numbers may be anything
    sides = [
        side for value, end in zip(values, ends, strict=True) if end for side in _sides(value)
    ]
    numbers = read_objects([*rest, *sides], name)
    if not numbers.content.is_number or numbers.content is Content.BOOLEAN:
        return None
    intervals = np.array([end or [np.nan] * 4 for end in ends])
    return replace(numbers, values=numbers.values[: len(values)], intervals=intervals)


def _read_choices(values: Sequence[object], name: Hashable) -> RawColumn | None:
    """A column some cells of which are lists or sets of values; ``None`` if none are."""
    lists = [value if isinstance(value, list | set | frozenset) else None for value in values]
    if not any(lists):
        return None
    rest = [None if one is not None else value for value, one in zip(values, lists, strict=True)]
    listed = [entry for one in lists for entry in one or ()]
    if any(isinstance(entry, list | set | frozenset | tuple) for entry in listed):
        return None
    raw = read_objects([*rest, *listed], name)
    if raw.content is Content.OTHER or raw.intervals is not None:
        return None
    choices, start = np.empty(len(values), dtype=object), len(values)
    for row, one in enumerate(lists):
        if one:
            choices[row] = raw.values[start : start + len(one)]
            start += len(one)
    return replace(raw, values=raw.values[: len(values)], choices=choices)


def _sides(value: Any) -> tuple[Any, Any]:  # noqa: ANN401 - an interval
    return value if isinstance(value, tuple) else (value.left, value.right)


def _ends(value: Any) -> list[float] | None:  # noqa: ANN401 - any cell
    """The ends of an interval, and whether they are open."""
    is_interval = type(value).__name__ == "Interval" and hasattr(value, "closed")
    if not is_interval and not (isinstance(value, tuple) and len(value) == 2):
        return None
    low, high = _sides(value)
    try:
        low = -np.inf if low is None else number_of(low)
        high = np.inf if high is None else number_of(high)
    except (TypeError, ValueError):
        return None
    are_open = [float(value.open_left), float(value.open_right)] if is_interval else [0.0, 0.0]
    return [low, high, *are_open] if low <= high else None


def is_large_whole(value: object) -> bool:
    """Whether a cell is a whole number that double precision may not tell from others."""
    return isinstance(value, int | np.integer) and abs(int(value)) > LARGEST_WHOLE


def _objects(values: Sequence[object]) -> Values:
    array = np.empty(len(values), dtype=object)
    array[:] = [None if is_gone(value) else value for value in values]
    return array


def _other(values: Sequence[object], name: Hashable, note: str) -> RawColumn:
    return RawColumn(name, _objects(values), Content.OTHER, note=note)


def check_finite(raw: RawColumn) -> None:
    """Infinities, and numbers near the end of what a double can hold, have no density."""
    if not raw.content.is_number:
        return
    with np.errstate(invalid="ignore"):
        wrong = np.abs(raw.values) > _LARGEST_NUMBER
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0][0])
        raise ValueError(
            f"column {raw.name!r} holds {raw.values[row]} in row {row}: infinity, or a number "
            "beyond 1e300, has no density. Replace it, or mark it as missing with NaN."
        )
