"""The schema of a table in a file, checked: what it says of columns must hold together."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from subtractive.densities.base import Density
from subtractive.io.files import FileFormatError
from subtractive.io.schema import is_scalar
from subtractive.tables.columns import Column
from subtractive.tables.schema import Schema
from subtractive.tables.schema_description import schema_from
from subtractive.tables.validation import read_table

_LARGEST = 1e300  # beyond it a number has no density
_ROUNDING = 1e-6  # relative, of codes that become values and codes again


@contextmanager
def describing_a_table(path: str | os.PathLike[str]) -> Iterator[None]:
    """Refuse a file if what it describes cannot be built."""
    try:
        # What overflows, or is no category, is refused, not warned of.
        with np.errstate(all="ignore"), warnings.catch_warnings(action="error"):
            yield
    except (
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        ArithmeticError,
        Warning,
        NotImplementedError,  # for types that pandas knows and cannot make
    ) as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        raise FileFormatError(
            f"{os.fspath(path)} does not describe the model of a table ({reason})."
        ) from None


def read_schema(data: Mapping[str, Any], density: Density) -> Schema:
    """The schema of the columns of a density, from its description."""
    schema = schema_from(data)
    families = [column.family(signed=True) for column in schema.variables]
    if [f.num_states for f in families] != [f.num_states for f in density.families]:
        raise ValueError("the columns do not fit the variables of the density.")
    _check_names(schema)
    for column in schema.variables:
        _check_column(column)
    _check_table(schema)
    return schema


def _check_names(schema: Schema) -> None:
    """Every column has a name of its own, every variable a column, every constant a value."""
    names, texts = schema.names, [isinstance(name, str) for name in schema.names]
    if len(set(names)) < len(names) or any(texts) != all(texts) or not all(map(is_scalar, names)):
        raise ValueError("columns need different names, all of them texts or all of them numbers.")
    if set(schema.place.values()) != set(range(len(schema.variables))):
        raise ValueError("a variable belongs to no column.")
    if any(schema.place.get(c.name) != i for i, c in enumerate(schema.variables)):
        raise ValueError("a variable is named after a column that is not its own.")
    if not set(schema.constants) <= set(names) - set(schema.place):
        raise ValueError("a constant is named that is no column, or one of a variable.")
    if not all(map(is_scalar, schema.constants.values())):
        raise ValueError("a constant column has no value.")


def _check_column(column: Column) -> None:
    """Codes must become values, and these the same codes or, where they are rounded, values."""
    is_discrete = column.family(signed=True).num_states is not None
    codes = _codes(column) if is_discrete else np.array([-1.0, 0.0, 1.0])
    values = column.decode(codes)
    there, back = codes, column.encode(values)
    if not is_discrete:
        there, back = np.asarray(values), np.asarray(column.decode(back))
    inside = column.possible(values) & np.isfinite(column.log_abs_det_jacobian(values))
    close = np.abs(there - back) <= _ROUNDING * np.abs(there).max()
    if not np.all(inside & close & (np.abs(there) < _LARGEST)):
        raise ValueError(f"the facts about column {column.name!r} contradict each other.")


def _check_table(schema: Schema) -> None:
    """What is decoded must be a table of the users' kind that can be encoded."""
    codes = [_codes(column) for column in schema.variables]
    rows = max(map(len, codes))
    x = np.stack([np.resize(code, rows) for code in codes], axis=1)
    table = schema.build(schema.decode(torch.from_numpy(x)))
    encoded = schema.encode_table(read_table(table))
    if encoded.impossible or not bool(encoded.x.isfinite().all()):
        raise ValueError("its values are not those of the types of its columns.")


def _codes(column: Column) -> np.ndarray[Any, np.dtype[np.float64]]:
    """All states of a discrete column, or the code zero of a continuous one."""
    return np.arange(column.family(signed=True).num_states or 1, dtype=np.float64)
