"""The schema of a table as plain data, for files, and back."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import fields
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd

from subtractive.io.schema import check_facts
from subtractive.tables.columns import Column, Numeric
from subtractive.tables.containers import ArrayContainer, Container, FrameContainer, zone_name
from subtractive.tables.grids import Grid
from subtractive.tables.schema import ERROR, Schema
from subtractive.tables.states import States
from subtractive.tables.transforms import Affine, Logarithm, NormalScores

PARTS: dict[str, Any] = {
    part.__name__: part for part in (Affine, Grid, Logarithm, NormalScores, Numeric, States)
}


def describe_schema(schema: Schema) -> dict[str, Any]:
    """What :func:`schema_from` needs to make the schema again."""
    return {
        "names": [_plain(name) for name in schema.names],
        "container": _describe_container(schema.container, schema.names),
        "variables": [_plain(column) for column in schema.variables],
        "place": [schema.place.get(name) for name in schema.names],
        "constants": [[_plain(n), _plain(value)] for n, value in schema.constants.items()],
        "kinds": [[_plain(name), kind] for name, kind in schema.kinds.items()],
        "reasons": [schema.reasons.get(name, "") for name in schema.names],
        "unknown": schema.unknown,
    }


def schema_from(data: Mapping[str, Any]) -> Schema:
    """The inverse of :func:`describe_schema`; data frames are those of pandas."""
    names = tuple(_hashable(name) for name in data["names"])
    if "look" in data:
        data = _from_version_1(data)
    variables = tuple(_made(entry) for entry in data["variables"])
    if not all(isinstance(column, Column) for column in variables):
        raise ValueError("a variable is described that is no column.")
    place = {n: p for n, p in zip(names, data["place"], strict=True) if p is not None}
    if not all(type(p) is int and 0 <= p < len(variables) for p in place.values()):
        raise ValueError("a column stands for a variable that is not there.")
    constants = {_hashable(name): _hashable(value) for name, value in data["constants"]}
    reasons = dict(zip(names, map(str, data["reasons"]), strict=True))
    kinds = {_hashable(name): str(kind) for name, kind in data.get("kinds", [])}
    container, unknown = _container(data["container"], names), str(data["unknown"])
    return Schema(names, container, variables, place, constants, kinds, reasons, unknown)


def _made(data: Any) -> Any:  # noqa: ANN401 - a column, or a part of one
    """A column, a transform or a grid from its description; other values as they are."""
    if not isinstance(data, Mapping):
        return _hashable(data)
    facts = {name: _made(value) for name, value in data.items() if name != "type"}
    kind = PARTS[data["type"]]
    optional = {"text_format", "digits", "passable"}  # which older files do not have
    if set(facts) | optional != {entry.name for entry in fields(kind)} | optional:
        raise ValueError(f"{kind.__name__} has other facts than {sorted(facts)}.")
    check_facts(kind, facts)
    if "dtype" in facts:
        facts["dtype"] = _number_type(facts["dtype"])
    return kind(**facts)


def _from_version_1(data: Mapping[str, Any]) -> dict[str, Any]:
    """The description of a schema as files of version 1 have it."""
    names, place = data["names"], data["place"]
    pairs = zip(names, data["constants"], place, strict=True)
    return {
        "names": names,
        "container": data["look"],
        "variables": [_column_of_version_1(column) for column in data["variables"]],
        "place": place,
        "constants": [[name, value] for name, value, at in pairs if at is None],
        "reasons": [""] * len(names),
        "unknown": ERROR,
    }


def _column_of_version_1(data: Mapping[str, Any]) -> dict[str, Any]:
    kind, name = data["column"], data["name"]
    if kind == "States":
        return {"type": "States", "name": name, "kind": "categorical", "values": data["values"]}
    if kind == "Tally":
        values = list(range(data["largest"] + 1))
        return {"type": "States", "name": name, "kind": "whole", "values": values}
    low, high = -math.inf, math.inf
    if kind == "HalfLine":
        origin, direction = data["origin"], data["direction"]
        transform: dict[str, Any] = {"type": "Logarithm", "origin": origin, "direction": direction}
        transform |= {"centre": data["centre"], "unit": data["unit"]}
        beside = np.nextafter(np.asarray(origin, dtype=data["dtype"]), direction * np.inf)
        low, high = (float(beside), high) if direction > 0 else (low, float(beside))
    elif kind == "Interval":
        low, high = data["low"], data["high"]
        transform = {"type": "Affine", "centre": low, "unit": high - low, "reach": math.inf}
    else:
        facts = {"centre": data["centre"], "unit": data["unit"], "reach": math.inf}
        transform = {"type": "Affine", **facts}
    grid = {"type": "Grid", "step": 1.0, "origin": 0.0, "levels": []} if data["whole"] else None
    word = "whole" if data["whole"] else "continuous"
    facts = {"low": low, "high": high, "grid": grid, "atoms": []}
    return {"type": "Numeric", "name": name, "kind": word, "transform": transform, **facts}


def _describe_container(container: Container, names: tuple[Hashable, ...]) -> dict[str, Any]:
    if isinstance(container, ArrayContainer):
        return {"array": str(container.dtype)}
    assert isinstance(container, FrameContainer)
    frame = nw.from_native(container.template, eager_only=True)
    if not frame.implementation.is_pandas_like():
        frame = nw.from_native(frame.to_pandas(), eager_only=True)
    native = frame.to_native()
    entries = [_describe_dtype(native[name].dtype) for name in names]
    decimal = [n in container.decimals for n in names]
    return {
        "frame": [e | {"decimal": True} if d else e for e, d in zip(entries, decimal, strict=True)]
    }


def _describe_dtype(dtype: Any) -> dict[str, Any]:  # noqa: ANN401 - any dtype of pandas
    if str(dtype) == "category":
        found = {"ordered": bool(dtype.ordered)}
        if dtype.categories.dtype.kind in "Mm":
            moments = dtype.categories.astype(str).tolist()
            return found | {"categories": moments, "of": _dtype_name(dtype.categories.dtype)}
        return found | {"categories": [_plain(value) for value in dtype.categories.tolist()]}
    return {"dtype": _dtype_name(dtype)}


def _dtype_name(dtype: Any) -> str:  # noqa: ANN401 - any dtype of pandas
    """A dtype as pandas reads it, also one with a time zone that is no name."""
    if isinstance(dtype, pd.DatetimeTZDtype):
        return f"datetime64[{dtype.unit}, {zone_name(dtype.tz)}]"
    return str(dtype)


def _container(data: Mapping[str, Any], names: tuple[Hashable, ...]) -> Container:
    if "array" in data:
        return ArrayContainer(_number_type(data["array"]))
    series = {}
    for name, entry in zip(names, data["frame"], strict=True):
        if "categories" in entry:
            values = (
                pd.Index(entry["categories"]).astype(str(entry["of"]))
                if "of" in entry
                else entry["categories"]
            )
            dtype = pd.CategoricalDtype(values, ordered=bool(entry["ordered"]))
        else:
            dtype = pd.api.types.pandas_dtype(str(entry["dtype"]))
        series[name] = pd.Series([], dtype=dtype)
    decimals = [n for n, e in zip(names, data["frame"], strict=True) if e.get("decimal")]
    return FrameContainer(pd.DataFrame(series), frozenset(decimals))


def _number_type(name: object) -> np.dtype[Any]:
    dtype = np.dtype(str(name))
    if dtype.kind not in "bfiu":
        raise ValueError(f"{dtype} is not a type of numbers.")
    return dtype


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever a table holds
    """A value of a table as JSON has it."""
    if isinstance(value, tuple(PARTS.values())):
        facts = {entry.name: _plain(getattr(value, entry.name)) for entry in fields(value)}  # type: ignore[arg-type]
        return {"type": type(value).__name__, **facts}
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
