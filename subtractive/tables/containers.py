"""What a table comes in, so that answers come back as the same kind of table."""

from __future__ import annotations

import datetime
import decimal
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import narwhals.stable.v2 as nw
import numpy as np
import numpy.typing as npt

AnyTable: TypeAlias = Any  # an array, or a data frame of any library
Arrays: TypeAlias = Mapping[Hashable, npt.NDArray[Any]]  # by column, (n,) each

TEMPORAL = ("date", "time", "duration")  # kinds whose numbers are microseconds
DAY = 86_400_000_000  # in microseconds
_TEMPORAL = (nw.Datetime, nw.Date, nw.Duration, nw.Time)


class Container(ABC):
    """What kind of table to build from columns of values."""

    @abstractmethod
    def build(self, columns: Arrays, like: AnyTable = None) -> AnyTable:
        """A table of these columns, with their types.

        Its rows are named as those of the table ``like``. Values are numbers and texts; dates,
        times and durations are microseconds. A column of nothing but ``None`` is taken over from
        ``like``, or missing.
        """

    @abstractmethod
    def fitting(self, like: AnyTable) -> Container:
        """The container to build tables of the library that the table ``like`` is of, if any."""

    @abstractmethod
    def holds_objects(self, name: Hashable) -> bool:
        """Whether a column holds objects of Python, whose type the table does not say."""


@final
@dataclass(frozen=True)
class ArrayContainer(Container):
    """An array of one dtype; its columns are numbered."""

    dtype: np.dtype[Any]

    def fitting(self, like: AnyTable) -> Container:
        return self

    def holds_objects(self, name: Hashable) -> bool:
        return False

    def build(self, columns: Arrays, like: AnyTable = None) -> AnyTable:
        numbers = [np.asarray(values, dtype=np.float64) for values in columns.values()]
        return np.column_stack(numbers).astype(self.dtype)


@final
@dataclass(frozen=True)
class FrameContainer(Container):
    """A data frame with the columns' types of ``template``, which has no rows."""

    template: Any
    decimals: frozenset[Hashable] = frozenset()  # columns of Python's decimal numbers

    def fitting(self, like: AnyTable) -> Container:
        if not nw.dependencies.is_into_dataframe(like):
            return self
        # The template of a model that was loaded is one of pandas, whatever it was fitted on.
        own, other = nw.from_native(self.template), nw.from_native(like, eager_only=True)
        if own.implementation is other.implementation:
            return self
        return FrameContainer(other.head(0).to_native(), self.decimals)

    def holds_objects(self, name: Hashable) -> bool:
        frame = nw.from_native(self.template, eager_only=True)
        return bool(frame.implementation.is_pandas_like() and self.template[name].dtype == object)

    def build(self, columns: Arrays, like: AnyTable = None) -> AnyTable:
        empty = nw.from_native(self.template, eager_only=True)
        if empty.implementation.is_pandas_like():
            return self._build_pandas(columns, like)
        given = None if like is None else nw.from_native(like, eager_only=True)
        parts = []
        for name, values in columns.items():
            dtype = empty.schema[str(name)]
            if _is_empty(values) and given is not None:
                series = given.get_column(str(name))
            else:
                listed = [None if v is None or v != v else v for v in values.tolist()]
                if dtype in _TEMPORAL:
                    series = _temporal(listed, str(name), dtype, empty.implementation)
                else:
                    series = nw.new_series(str(name), listed, backend=empty.implementation)
                    # A column of nothing at all has a type that narwhals does not know.
                    series = series if dtype == nw.Unknown else series.cast(dtype)
            parts.append(series.to_frame())
        return nw.concat(parts, how="horizontal").to_native()

    def _build_pandas(self, columns: Arrays, like: AnyTable) -> AnyTable:
        """Types of pandas know more than their names: categories, and what missing looks like."""
        module = nw.get_native_namespace(self.template)
        index = None if like is None else like.index
        series = {}
        for name, values in columns.items():
            if _is_empty(values) and like is not None:
                series[name] = like[name]
                continue
            if name in self.decimals:
                values = _as_decimals(values)
            series[name] = _as_pandas(module, values, self.template[name].dtype, index)
        frame = module.DataFrame(series, index=index)
        frame.columns = self.template.columns[[self.template.columns.get_loc(n) for n in columns]]
        return frame


def as_objects(values: npt.NDArray[Any], kind: str) -> npt.NDArray[Any]:
    """Dates, times, durations and booleans as objects of Python; others as they are."""
    if kind == "boolean" and values.dtype != object:
        flags: npt.NDArray[Any] = np.not_equal(values, 0).astype(object)
        flags[np.isnan(values)] = None
        return flags
    if kind not in TEMPORAL or values.dtype == object:
        return values
    objects = np.empty(len(values), dtype=object)
    whole_days = bool((values[~np.isnan(values)] % DAY == 0).all())
    for number, value in enumerate(values.tolist()):
        if value != value:
            continue
        passed = datetime.timedelta(microseconds=round(value))
        moment = datetime.datetime(1970, 1, 1) + passed
        if kind == "date":
            objects[number] = moment.date() if whole_days else moment
        else:
            objects[number] = passed if kind == "duration" else moment.time()
    return objects


def is_decimal(values: list[Any]) -> bool:
    """Whether objects are decimal numbers, where they are anything."""
    found = {type(value) for value in values if value is not None and value == value}
    return found == {decimal.Decimal}


def _as_decimals(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    listed = [None if v is None or v != v else decimal.Decimal(str(v)) for v in values.tolist()]
    objects = np.empty(len(listed), dtype=object)
    objects[:] = listed
    return objects


def _is_empty(values: npt.NDArray[Any]) -> bool:
    return values.dtype == object and all(value is None for value in values)


def _temporal(
    values: list[Any],
    name: str,
    dtype: nw.dtypes.DType,
    backend: Any,  # noqa: ANN401 - narwhals' name of a library
) -> nw.Series[Any]:
    """Dates, times and durations from microseconds."""
    whole = [None if value is None else round(value) for value in values]
    series = nw.new_series(name, whole, nw.Int64, backend=backend)
    if dtype == nw.Duration:
        return series.cast(nw.Duration("us")).cast(dtype)
    if dtype == nw.Time:
        return series.cast(nw.Datetime("us")).cast(dtype)
    zone = getattr(dtype, "time_zone", None)
    moments = series.cast(nw.Datetime("us"))
    return (moments if zone is None else moments.dt.replace_time_zone("UTC")).cast(dtype)


def _as_pandas(module: Any, values: npt.NDArray[Any], dtype: Any, index: Any) -> Any:  # noqa: ANN401 - a series
    kind = getattr(dtype, "kind", "O")
    if _is_empty(values):
        missing = module.Series([None] * len(values), index=index, dtype=object)
        keeps_gaps = kind in "OfMm" and "interval" not in str(dtype)
        return missing.astype(dtype) if keeps_gaps else missing
    if str(dtype) == "category" and dtype.categories.dtype.kind in "Mm":
        moments = _as_pandas(module, values, dtype.categories.dtype, index)
        if not moments.isin(dtype.categories).all():
            return moments  # a mean is no category
        values = moments.array
    if str(dtype) == "category" and len(dtype.categories) == 0:
        dtype = "category"  # of a library whose types do not say their categories
    is_temporal = kind in "Mm"
    if is_temporal or _is_arrow_time(dtype):
        gaps = np.isnan(values)
        whole = np.where(gaps, 0, np.round(values)).astype(np.int64)
        unit = "timedelta64[us]" if kind == "m" else "datetime64[us]"
        moments = module.Series(whole.astype(unit), index=index).where(~gaps)
        if getattr(dtype, "tz", None) is not None:
            moments = moments.dt.tz_localize("UTC")
        return moments.astype(dtype)
    if "interval" in str(dtype):
        return module.Series(values, index=index)  # cells that are known are numbers
    if "time64" in str(dtype) or "time32" in str(dtype):
        values = as_objects(values, "time")
    return module.Series(values, index=index).astype(dtype)


def _is_arrow_time(dtype: Any) -> bool:  # noqa: ANN401 - a dtype of pandas
    return any(word in str(dtype) for word in ("timestamp[", "date32", "date64", "duration["))
