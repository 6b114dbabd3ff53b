"""The schema of a table: which variable of a model each column is, and how to go both ways."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from subtractive.tables.column_types import DataWarning, Kind, as_kind
from subtractive.tables.columns import Column, States
from subtractive.tables.containers import AnyTable, ArrayContainer, Container
from subtractive.tables.reading import Content, Floats, RawColumn, Table, Values, is_missing
from subtractive.tables.schema_inference import Constant, Rules, check_finite, infer_column
from subtractive.tables.validation import check_weights, read_table


class Encoded(NamedTuple):
    """A table as a model sees it."""

    x: Tensor  # (n, d) in float64, NaN where missing
    log_abs_det_jacobian: Floats  # (n,): what to add to log-densities of x for those of the table
    impossible: Mapping[Hashable, npt.NDArray[np.bool_]]  # by column: rows that cannot be, (n,)

    @property
    def possible(self) -> npt.NDArray[np.bool_]:
        """The rows that may have a density above zero, (n,)."""
        none = np.zeros(len(self.x), dtype=bool)
        return np.asarray(~np.any([none, *self.impossible.values()], axis=0))


@final
@dataclass(frozen=True)
class Schema:
    """How the columns of a table become variables of a model, and come back.

    Make one with :meth:`infer`. Two columns that are equal in every row are one variable; a
    constant column is none.
    """

    names: tuple[Hashable, ...]
    container: Container
    variables: tuple[Column, ...]
    place: Mapping[Hashable, int]  # of a column among the variables
    constants: Mapping[Hashable, Any]  # the value of each constant column

    @classmethod
    def infer(
        cls,
        X: object,
        *,
        columns: Mapping[Any, object] | None = None,
        unknown: str = "error",
        sample_weight: object | None = None,
    ) -> Schema:
        """Choose a kind for each column of a table by its values, unless ``columns`` says it.

        ``columns`` maps names (numbers, for an array) to ``"continuous"``, ``"categorical"``,
        ``"count"``, or :class:`Continuous`, :class:`Categories`, :class:`Counts`. Otherwise:
        booleans, text and categories are categorical; in a data frame, so are numbers with at
        most 10 values that occur four times on average, and whole numbers from 0 to 255 are
        counts. All other numbers are continuous, and whole numbers among them are rounded when
        they come back. (A data frame of numbered columns of one type is taken as an array.)

        >>> import numpy as np
        >>> schema = Schema.infer(np.array([[0.0, 5.0], [1.0, 5.5], [2.0, 7.0]]))
        >>> schema.variables[0].name, len(schema.variables)
        (0, 2)
        """
        table = read_table(X)
        weights = check_weights(sample_weight, table.num_rows)
        return infer_schema(table.rows(weights > 0), weights[weights > 0], columns, unknown)

    def encode(self, columns: Sequence[RawColumn], num_rows: int) -> Encoded:
        """Some or all columns of a table, as the model's variables; other ones are missing."""
        codes = np.full((num_rows, len(self.variables)), np.nan)
        log_abs_det_jacobian = np.zeros(num_rows)
        impossible = {}
        for raw in columns:
            self.check_type(raw)
            if raw.name in self.constants:
                wrong = ~raw.missing & (raw.values != self.constants[raw.name])
            else:
                number = self.place[raw.name]
                wrong = _add(self.variables[number], raw, codes[:, number], log_abs_det_jacobian)
            if bool(wrong.any()):
                impossible[raw.name] = wrong
        return Encoded(torch.from_numpy(codes), log_abs_det_jacobian, MappingProxyType(impossible))

    def encode_table(self, table: Table) -> Encoded:
        """A whole table with the columns of this schema, by their order."""
        renamed = [
            replace(raw, name=name) for raw, name in zip(table.columns, self.names, strict=True)
        ]
        return self.encode(renamed, table.num_rows)

    def decode(self, x: Tensor) -> dict[Hashable, Values]:
        """Rows (n, d) of the model's variables as columns of users' values."""
        codes = x.numpy()
        decoded = [c.decode(codes[:, i]) for i, c in enumerate(self.variables)]
        return {
            name: decoded[self.place[name]]
            if name in self.place
            else np.array([self.constants[name]] * len(codes))
            for name in self.names
        }

    def build(self, columns: Mapping[Hashable, Values], like: AnyTable = None) -> AnyTable:
        """A table of the users' kind from columns of values."""
        return self.container.build(columns, like)

    def check_names(self, names: Sequence[Hashable], what: str) -> None:
        """Refuse columns that are not there."""
        strange = [name for name in names if name not in self.names]
        if strange:
            raise ValueError(
                f"{what} names {_listed(strange)}, but the columns are {_listed(self.names)}."
            )

    def check_type(self, raw: RawColumn) -> None:
        """Refuse infinities, and text where numbers are expected."""
        if raw.name not in self.names:
            self.check_names([raw.name], "the table")
        check_finite(raw)
        is_number = raw.name in self.place and not isinstance(
            self.variables[self.place[raw.name]], States
        )
        if is_number and raw.content is Content.TEXT and not bool(raw.missing.all()):
            raise ValueError(
                f"column {raw.name!r} was numbers when the schema was made, but now holds text "
                f"such as {raw.values[~raw.missing][0]!r}. Convert it to numbers."
            )

    def keep(self, names: Sequence[Hashable]) -> tuple[Schema, list[int]]:
        """The schema of some columns in their order, and the variables that it keeps."""
        order = list(dict.fromkeys(self.place[name] for name in names if name in self.place))
        kept = Schema(
            tuple(names),
            self.container,
            tuple(self.variables[number] for number in order),
            {name: order.index(self.place[name]) for name in names if name in self.place},
            {name: self.constants[name] for name in names if name in self.constants},
        )
        return kept, order

    def fix(self, values: Mapping[int, Any]) -> Schema:
        """The same columns, those of some variables now being constant."""
        known = {n: values[place] for n, place in self.place.items() if place in values}
        return replace(
            self,
            place={n: place for n, place in self.place.items() if n not in known},
            constants={**self.constants, **known},
        )


def infer_schema(table: Table, weights: Floats, columns: object, unknown: str) -> Schema:
    """The schema of a table whose rows have positive weights."""
    if unknown not in ("error", "missing"):
        raise ValueError(f"unknown must be 'error' or 'missing', got {unknown!r}.")
    if table.num_rows == 0:
        raise ValueError("a schema needs at least one row of positive weight, got none.")
    kinds = _kinds(columns, table.names)
    rules = Rules(weights, not _is_array(table), unknown)
    found = [infer_column(raw, kinds.get(raw.name), rules) for raw in table.columns]
    constants = {c.name: c.value for c in found if isinstance(c, Constant)}
    if len(constants) == len(found):
        raise ValueError(
            f"every column is constant ({_listed(list(constants))}): with n_samples="
            f"{table.num_rows} there is nothing to model. Pass rows that differ."
        )
    variables: list[Column] = []
    place: dict[Hashable, int] = {}
    copies = _copies(table.columns, kinds)
    for column in found:
        if isinstance(column, Column):
            if column.name not in copies:
                variables.append(column)
            place[column.name] = place.get(copies.get(column.name), len(variables) - 1)
    _warn(constants, copies)
    return Schema(table.names, table.container, tuple(variables), place, constants)


def _is_array(table: Table) -> bool:
    """Whether columns have neither names nor types of their own: all are numbers alike."""
    if isinstance(table.container, ArrayContainer):
        return True
    is_named = any(isinstance(name, str) for name in table.names)
    contents = {raw.content for raw in table.columns}
    return not is_named and contents in ({Content.REAL}, {Content.WHOLE})


def _kinds(columns: object, names: Sequence[Hashable]) -> dict[Hashable, Kind]:
    if columns is None:
        return {}
    if not isinstance(columns, Mapping):
        raise ValueError(
            "columns must map names of columns to their kinds, such as {'age': 'continuous'}, or "
            f"be a Schema; got {type(columns).__name__}."
        )
    strange = [name for name in columns if name not in names]
    if strange:
        raise ValueError(f"columns names {_listed(strange)}, but there are {_listed(names)}.")
    return {name: as_kind(given, name) for name, given in columns.items()}


def _copies(
    columns: Sequence[RawColumn], kinds: Mapping[Hashable, Kind]
) -> dict[Hashable, Hashable]:
    """The columns that equal an earlier one in every row, with its name."""
    copies: dict[Hashable, Hashable] = {}
    firsts: dict[Hashable, list[RawColumn]] = {}
    for raw in columns:
        key = (raw.content, kinds.get(raw.name), raw.categories, repr(raw.values[:8].tolist()))
        same = [first for first in firsts.get(key, []) if _equal(first.values, raw.values)]
        if same:
            copies[raw.name] = same[0].name
        else:
            firsts.setdefault(key, []).append(raw)
    return copies


def _equal(left: Values, right: Values) -> bool:
    missing = is_missing(left)
    return bool((missing == is_missing(right)).all()) and bool(
        (left[~missing] == right[~missing]).all()
    )


def _warn(constants: Mapping[Hashable, Any], copies: Mapping[Hashable, Hashable]) -> None:
    for name, value in constants.items():
        warnings.warn(
            f"column {name!r} is constant: it is modelled as a point mass at {value!r}, and rows "
            "with another value will score -inf. Drop it, or fit on rows in which it varies.",
            DataWarning,
            stacklevel=4,
        )
    for name, first in copies.items():
        if name not in constants:
            warnings.warn(
                f"column {name!r} equals column {first!r} in every row: it is modelled as a copy, "
                "and rows in which they differ will score -inf. Drop one of them.",
                DataWarning,
                stacklevel=4,
            )


def _add(
    column: Column, raw: RawColumn, codes: Floats, log_abs_det_jacobian: Floats
) -> npt.NDArray[np.bool_]:
    """Write a column's codes and slopes where there are none yet; the rows that cannot be."""
    possible = column.possible(raw.values)
    values = raw.values if bool(possible.all()) else _without(raw.values, ~possible)
    own = column.encode(values)
    new = np.isnan(codes)
    differs = ~new & ~np.isnan(own) & (own != codes)
    log_abs_det_jacobian += np.where(
        new & ~np.isnan(own), column.log_abs_det_jacobian(values), 0.0
    )
    codes[new] = own[new]
    return np.asarray(~possible | differs)


def _without(values: Values, rows: npt.NDArray[np.bool_]) -> Values:
    rest = values.copy()
    rest[rows] = np.nan
    return rest


def _listed(names: Sequence[Hashable]) -> str:
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return ", ".join(map(repr, names[:10])) + more
