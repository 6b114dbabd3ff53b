"""Tables as users have them: arrays of numbers, and any data frame that narwhals can read."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from numbers import Number
from typing import Any, NamedTuple, TypeAlias

import narwhals.stable.v2 as nw
import numpy as np
import numpy.typing as npt

from subtractive.tables.containers import AnyTable, ArrayContainer, Container, FrameContainer

Floats: TypeAlias = npt.NDArray[np.float64]
RandomState: TypeAlias = Any  # an int, a numpy RandomState or None, as in scikit-learn
Index: TypeAlias = slice | npt.NDArray[Any]
Values: TypeAlias = npt.NDArray[Any]  # (n,): float64 with NaN, or objects with None, if missing

# float64 cannot tell larger whole numbers apart.
_LARGEST_WHOLE = 2.0**53


class Content(Enum):
    """What a column holds."""

    REAL = "numbers"
    WHOLE = "whole numbers"
    BOOLEAN = "booleans"
    TEXT = "categories"


@dataclass(frozen=True)
class RawColumn:
    """The values of a column and what its type says about them."""

    name: Hashable
    values: Values
    content: Content
    categories: tuple[Hashable, ...] | None = None  # those that a categorical dtype declares
    dtype: np.dtype[Any] = np.dtype(np.float64)  # of numbers: the precision they have

    @property
    def missing(self) -> npt.NDArray[np.bool_]:
        """Where there is no value, (n,)."""
        return is_missing(self.values)


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
        columns = tuple(
            RawColumn(c.name, c.values[rows], c.content, c.categories, c.dtype)
            for c in self.columns
        )
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
    return Table(columns, FrameContainer(frame.head(0).to_native()), len(frame))


def read_mapping(values: Mapping[Any, object]) -> tuple[RawColumn, ...]:
    """Single values by column, as columns of one row; types are as in a data frame."""
    columns = []
    for name, value in values.items():
        content = _content_of([value], name)
        columns.append(RawColumn(name, _as_values([value], content), content))
    return tuple(columns)


def _read_series(series: nw.Series[Any], name: Hashable) -> RawColumn:
    dtype = series.dtype
    if dtype.is_numeric():
        whole = dtype.is_integer()
        values = np.asarray(series.cast(nw.Float64).to_numpy(), dtype=np.float64)
        if whole and bool((np.abs(values) > _LARGEST_WHOLE).any()):
            raise _too_large(name)
        precision = np.dtype(np.float32 if dtype == nw.Float32 else np.float64)
        return RawColumn(name, values, Content.WHOLE if whole else Content.REAL, None, precision)
    if dtype == nw.Boolean:
        values = np.asarray(series.cast(nw.Float64).to_numpy(), dtype=np.float64)
        return RawColumn(name, values, Content.BOOLEAN)
    if dtype in (nw.String, nw.Object, nw.Categorical, nw.Enum):
        listed: list[object] = series.to_list()
        missing = series.is_null().to_numpy()
        listed = [None if gone else value for value, gone in zip(listed, missing, strict=True)]
        declared = None
        if dtype in (nw.Categorical, nw.Enum):
            declared = tuple(series.cat.get_categories().to_list())
        content = Content.TEXT if dtype != nw.Object else _content_of(listed, name)
        return RawColumn(name, _as_values(listed, content), content, declared)
    raise ValueError(
        f"column {name!r} has type {dtype}, which is neither numbers, booleans, text nor "
        "categories. Convert it, for example dates to days since a date, or drop it."
    )


def _content_of(values: Sequence[object], name: Hashable) -> Content:
    """What plain Python objects are, all of them alike."""
    present = [value for value in values if not _is_gone(value)]
    kinds = {_content_of_one(value, name) for value in present}
    if kinds == {Content.REAL, Content.WHOLE}:
        return Content.REAL
    if len(kinds) > 1:
        examples = sorted({type(value).__name__ for value in present})
        raise ValueError(
            f"column {name!r} mixes values of different types ({', '.join(examples)}). Make them "
            "all numbers or all text, for example with astype(str)."
        )
    return kinds.pop() if kinds else Content.REAL


def _content_of_one(value: object, name: Hashable) -> Content:
    if isinstance(value, bool | np.bool_):
        return Content.BOOLEAN
    if isinstance(value, str):
        return Content.TEXT
    if isinstance(value, int | np.integer):
        if abs(int(value)) > _LARGEST_WHOLE:
            raise _too_large(name)
        return Content.WHOLE
    if isinstance(value, Number) and not isinstance(value, complex | np.complexfloating):
        return Content.REAL
    raise ValueError(
        f"column {name!r} holds {value!r} of type {type(value).__name__}, which is neither a "
        "number, a boolean nor text. Convert it, or drop the column."
    )


def _too_large(name: Hashable) -> ValueError:
    return ValueError(
        f"column {name!r} holds whole numbers beyond 2**53, which cannot be told apart in double "
        "precision. Rescale it, drop it if it is an identifier, or make it text."
    )


def _is_gone(value: object) -> bool:
    """Whether a plain object stands for nothing: None, NaN, or a library's own sign for it."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


def _as_values(values: Sequence[object], content: Content) -> Values:
    if content is Content.TEXT:
        texts = np.empty(len(values), dtype=object)
        texts[:] = [None if _is_gone(value) else value for value in values]
        return texts
    return np.array([np.nan if _is_gone(v) else float(v) for v in values])  # type: ignore[arg-type]
