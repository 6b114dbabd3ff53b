"""The schema of a table as plain data, for files, and back."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import fields
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd

from subtractive.io.schema import check_facts
from subtractive.tables.columns import Column, HalfLine, Interval, Line, States, Tally
from subtractive.tables.containers import ArrayContainer, Container, FrameContainer
from subtractive.tables.schema import Schema

COLUMNS: dict[str, type[Column]] = {
    column.__name__: column for column in (HalfLine, Interval, Line, States, Tally)
}


def describe_schema(schema: Schema) -> dict[str, Any]:
    """What :func:`schema_from` needs to make the schema again."""
    return {
        "names": [_plain(name) for name in schema.names],
        "look": _describe_container(schema.container, schema.names),
        "variables": [_describe_column(column) for column in schema.variables],
        "place": [schema.place.get(name) for name in schema.names],
        "constants": [_plain(schema.constants.get(name)) for name in schema.names],
    }


def schema_from(data: Mapping[str, Any]) -> Schema:
    """The inverse of :func:`describe_schema`; data frames are those of pandas."""
    names = tuple(_hashable(name) for name in data["names"])
    variables = tuple(_column(entry) for entry in data["variables"])
    place = {n: p for n, p in zip(names, data["place"], strict=True) if p is not None}
    if not all(type(p) is int and 0 <= p < len(variables) for p in place.values()):
        raise ValueError("a column stands for a variable that is not there.")
    pairs = zip(names, data["constants"], strict=True)
    constants = {name: _hashable(value) for name, value in pairs if name not in place}
    return Schema(names, _container(data["look"], names), variables, place, constants)


def _describe_column(column: Column) -> dict[str, Any]:
    facts = {entry.name: _plain(getattr(column, entry.name)) for entry in fields(column)}  # type: ignore[arg-type]
    return {"column": type(column).__name__, **facts}


def _column(data: Mapping[str, Any]) -> Column:
    facts = {name: _hashable(value) for name, value in data.items()}
    kind = COLUMNS[facts.pop("column")]
    if set(facts) != {entry.name for entry in fields(kind)}:  # type: ignore[arg-type]
        raise ValueError(f"{kind.__name__} has other facts than {sorted(facts)}.")
    check_facts(kind, facts)
    if "dtype" in facts:
        facts["dtype"] = _number_type(facts["dtype"])
    return kind(**facts)


def _describe_container(container: Container, names: tuple[Hashable, ...]) -> dict[str, Any]:
    if isinstance(container, ArrayContainer):
        return {"array": str(container.dtype)}
    assert isinstance(container, FrameContainer)
    frame = nw.from_native(container.template, eager_only=True)
    if not frame.implementation.is_pandas_like():
        frame = nw.from_native(frame.to_pandas(), eager_only=True)
    native = frame.to_native()
    return {"frame": [_describe_dtype(native[name].dtype) for name in names]}


def _describe_dtype(dtype: Any) -> dict[str, Any]:  # noqa: ANN401 - any dtype of pandas
    if str(dtype) == "category":
        values = [_plain(value) for value in dtype.categories.tolist()]
        return {"categories": values, "ordered": bool(dtype.ordered)}
    return {"dtype": str(dtype)}


def _container(data: Mapping[str, Any], names: tuple[Hashable, ...]) -> Container:
    if "array" in data:
        return ArrayContainer(_number_type(data["array"]))
    series = {}
    for name, entry in zip(names, data["frame"], strict=True):
        if "categories" in entry:
            dtype = pd.CategoricalDtype(entry["categories"], ordered=bool(entry["ordered"]))
        else:
            dtype = pd.api.types.pandas_dtype(str(entry["dtype"]))
        series[name] = pd.Series([], dtype=dtype)
    return FrameContainer(pd.DataFrame(series))


def _number_type(name: object) -> np.dtype[Any]:
    dtype = np.dtype(str(name))
    if dtype.kind not in "bfiu":
        raise ValueError(f"{dtype} is not a type of numbers.")
    return dtype


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever a table holds
    """A value of a table as JSON has it."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.dtype):
        return str(value)
    if isinstance(value, tuple | list):
        return [_plain(entry) for entry in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(
        f"a model file holds numbers, texts and truth values, but the table has {value!r} of type "
        f"{type(value).__name__}. Convert that column to text before fitting, or pickle the model."
    )


def _hashable(value: Any) -> Any:  # noqa: ANN401 - whatever JSON holds
    return tuple(_hashable(entry) for entry in value) if isinstance(value, list) else value
