"""The columns of a table together: variables, constants, copies, and what is set aside."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from subtractive.tables.cell_values import Content
from subtractive.tables.column_inference import Constant, Rules, infer_column
from subtractive.tables.column_types import ColumnType, DataWarning, Ignored, as_column_type
from subtractive.tables.columns import Column
from subtractive.tables.containers import ArrayContainer
from subtractive.tables.reading import Floats, RawColumn, Table, Values, is_missing
from subtractive.tables.value_text import value_text

# A copy has so many values, or this share of them, that differ from the commonest one.
LEAST_RARE, SHARE_RARE = 10, 0.1


class Parts(NamedTuple):
    """What a schema is made of."""

    variables: tuple[Column, ...]
    place: Mapping[Hashable, int]  # of a column among the variables
    constants: Mapping[Hashable, Any]
    kinds: Mapping[Hashable, str]  # of constants
    reasons: Mapping[Hashable, str]


def infer_parts(table: Table, weights: Floats, given: object) -> Parts:
    """What the columns of a table are whose rows have positive weights."""
    if table.num_rows == 0:
        raise ValueError("a schema needs at least one row of positive weight, got none.")
    declared = _declared(given, table.names)
    # Columns of an array have no types of their own: all are numbers alike.
    rules = Rules(weights, by_type=not isinstance(table.container, ArrayContainer))
    found = {raw.name: infer_column(raw, declared.get(raw.name), rules) for raw in table.columns}
    fixed = {n: f.column for n, f in found.items() if isinstance(f.column, Constant)}
    if not any(isinstance(f.column, Column) for f in found.values()):
        raise ValueError(
            f"every column is constant or set aside ({listed(list(found))}): with n_samples="
            f"{table.num_rows} there is nothing to model. Pass rows that differ."
        )
    variables: list[Column] = []
    place: dict[Hashable, int] = {}
    copies = _copies(table.columns, declared)
    for name, (column, _) in found.items():
        if isinstance(column, Column):
            if name not in copies:
                variables.append(column)
            place[name] = place.get(copies.get(name), len(variables) - 1)
    reasons = {name: reason for name, (_, reason) in found.items()}
    reasons |= {name: f"equals {first!r} in every row" for name, first in copies.items()}
    constants = {name: column.value for name, column in fixed.items()}
    kinds = {name: column.kind for name, column in fixed.items()}
    parts = Parts(tuple(variables), place, constants, kinds, reasons)
    _warn(table.names, parts, copies, declared)
    return parts


def _declared(schema: object, names: Sequence[Hashable]) -> dict[Hashable, ColumnType]:
    if schema is None:
        return {}
    if not isinstance(schema, Mapping):
        raise ValueError(
            "schema must map names of columns to their types, such as {'age': 'continuous'}, or "
            f"be a Schema; got {type(schema).__name__}."
        )
    strange = [name for name in schema if name not in names]
    if strange:
        raise ValueError(f"schema names {listed(strange)}, but there are {listed(names)}.")
    return {name: as_column_type(given, name) for name, given in schema.items()}


def _copies(
    columns: Sequence[RawColumn], declared: Mapping[Hashable, ColumnType]
) -> dict[Hashable, Hashable]:
    """The columns that equal an earlier one in every row, not by chance, with its name."""
    copies: dict[Hashable, Hashable] = {}
    firsts: dict[Hashable, list[RawColumn]] = {}
    for raw in columns:
        if raw.content is Content.OTHER or raw.choices is not None or bool(raw.missing.all()):
            continue
        key = (raw.content, declared.get(raw.name), raw.categories, repr(raw.values[:8].tolist()))
        same = [first for first in firsts.get(key, []) if _equal(first.values, raw.values)]
        if same and _varies(raw):
            copies[raw.name] = same[0].name
        else:
            firsts.setdefault(key, []).append(raw)
    return copies


def _varies(raw: RawColumn) -> bool:
    """Whether enough values differ from the commonest: columns of rare ones agree by chance."""
    (_, count), *_ = Counter(raw.values[~raw.missing].tolist()).most_common(1)
    num_present = int((~raw.missing).sum())
    return num_present - count >= min(LEAST_RARE, SHARE_RARE * num_present)


def _equal(left: Values, right: Values) -> bool:
    missing = is_missing(left)
    return bool((missing == is_missing(right)).all()) and bool(
        (left[~missing] == right[~missing]).all()
    )


def _warn(
    names: Sequence[Hashable],
    parts: Parts,
    copies: Mapping[Hashable, Hashable],
    declared: Mapping[Hashable, ColumnType],
) -> None:
    known = (*parts.place, *parts.constants)
    aside = [n for n in names if n not in known and not isinstance(declared.get(n), Ignored)]
    if aside:
        told = "; ".join(f"{name!r} ({parts.reasons[name]})" for name in aside[:10])
        more = f"; and {len(aside) - 10} more" if len(aside) > 10 else ""
        warnings.warn(
            f"columns were set aside, and will be missing in samples: {told}{more}. Declare "
            "them in schema={...}, as 'ignored' to accept this.",
            DataWarning,
            stacklevel=5,
        )
    for name, value in parts.constants.items():
        warnings.warn(
            f"column {name!r} is constant: it is modelled as a point mass at "
            f"{value_text(value, parts.kinds[name])}, and rows "
            "with another value will score -inf. Drop it, or fit on rows in which it varies.",
            DataWarning,
            stacklevel=5,
        )
    for name, first in copies.items():
        if name in parts.place:
            warnings.warn(
                f"column {name!r} equals column {first!r} in every row: it is modelled as a copy, "
                "and rows in which they differ will score -inf. Drop one of them.",
                DataWarning,
                stacklevel=5,
            )


def listed(names: Sequence[Hashable]) -> str:
    """The first names of columns."""
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return ", ".join(map(repr, names[:10])) + more
