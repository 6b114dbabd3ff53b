"""The schema of a table: which variable of a model each column is, and how to go both ways."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple, final

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from subtractive.io.html import html_table
from subtractive.tables.cell_values import Content
from subtractive.tables.code_sets import CodeSet
from subtractive.tables.column_types import DataWarning
from subtractive.tables.columns import Column, Numeric, sets_of_cells
from subtractive.tables.containers import AnyTable, Container, as_objects
from subtractive.tables.reading import Floats, RawColumn, Table, Values, check_finite
from subtractive.tables.schema_inference import infer_parts, listed
from subtractive.tables.states import States
from subtractive.tables.text_dates import format_dates, parse_dates
from subtractive.tables.unseen_numbers import nearest_states
from subtractive.tables.validation import check_weights, read_table
from subtractive.tables.value_text import describe_numbers, value_text

ERROR, MISSING = "error", "missing"  # what a value means that no row of training had
# What becomes of such values, in words; of numbers among few in rows that are scored or known.
LEFT_OUT = "are integrated out"
RARE = "are scored as rarer than all that were"
NEAREST = "are taken for the nearest that were"


class Encoded(NamedTuple):
    """A table as a model sees it."""

    x: Tensor  # (n, d) in float64, NaN where missing
    log_abs_det_jacobian: Floats  # (n,): what to add to log-densities of x for those of the table
    impossible: Mapping[Hashable, npt.NDArray[np.bool_]]  # by column: rows that cannot be, (n,)
    censored: Mapping[int, dict[int, CodeSet]] = MappingProxyType({})  # by row and variable
    # By variable: the codes (n,) that stand for unseen numbers, NaN elsewhere.
    unseen: Mapping[int, Floats] = MappingProxyType({})

    @property
    def possible(self) -> npt.NDArray[np.bool_]:
        """The rows that may have a density above zero, (n,)."""
        none = np.zeros(len(self.x), dtype=bool)
        return np.asarray(~np.any([none, *self.impossible.values()], axis=0))

    @property
    def as_evidence(self) -> Encoded:
        """The same with the nearest numbers in place of those that training did not have."""
        x = self.x.clone()
        for variable, codes in self.unseen.items():
            gap = x[:, variable].isnan() & torch.from_numpy(~np.isnan(codes))
            x[gap, variable] = torch.from_numpy(codes)[gap]
        return self._replace(x=x)


@final
@dataclass(frozen=True)
class Schema:
    """How the columns of a table become variables of a model, and come back.

    Make one with :meth:`infer`. Two columns that are equal in every row are one variable; a
    constant column is none, and neither is one that is set aside: an identifier or free text.
    It prints as a table of what each column was taken for, and why.

    >>> schema = sub.tables.Schema.infer(sub.data.penguins(), schema={"year": "continuous"})
    >>> [str(name) for name in schema.names][:2]
    ['species', 'island']
    """

    names: tuple[Hashable, ...]
    container: Container
    variables: tuple[Column, ...]
    place: Mapping[Hashable, int]  # of a column among the variables
    constants: Mapping[Hashable, Any]  # the value of each constant column
    kinds: Mapping[Hashable, str] = field(default_factory=dict)  # of constant columns
    reasons: Mapping[Hashable, str] = field(default_factory=dict)
    unknown: str = MISSING

    @classmethod
    def infer(
        cls,
        X: object,
        *,
        schema: Mapping[Any, object] | None = None,
        unknown: str = MISSING,
        sample_weight: object | None = None,
    ) -> Schema:
        """Choose a type for each column of a table by its values, unless ``schema`` says it.

        ``schema`` maps names (numbers, for an array) to ``"continuous"``, ``"categorical"``,
        ``"count"``, ``"ignored"``, or :class:`Continuous`, :class:`Categories`,
        :class:`Ignored`. In a data frame, numbers of few values that repeat often are states;
        others may have atoms, a grid and bounds; identifiers and free text are set aside. In an
        array all numbers have a density, without atoms or bounds, and whole numbers the grid of
        whole numbers: for the rest pass ``pd.DataFrame(X)``, or declare columns in ``schema``.

        >>> import numpy as np
        >>> schema = Schema.infer(np.array([[0.0, 5.0], [1.0, 5.5], [2.0, 7.0]]))
        >>> schema.variables[0].name, len(schema.variables)
        (0, 2)
        >>> rain = np.where(np.arange(300) % 2, 0.0, np.linspace(0.0, 9.0, 300))[:, None]
        >>> Schema.infer(rain).variables[0].atoms, Schema.infer(pd.DataFrame(rain)).column(0).atoms
        ((), (0.0,))
        """
        table = read_table(X)
        weights = check_weights(sample_weight, table.num_rows)
        return cls.of(table.rows(weights > 0), weights[weights > 0], schema, unknown)

    @classmethod
    def of(cls, table: Table, weights: Floats, schema: object, unknown: str) -> Schema:
        """The schema of a table that has been read, and whose rows have positive weights."""
        if isinstance(schema, Schema):
            return schema
        if unknown not in (ERROR, MISSING):
            raise ValueError(f"unknown must be 'error' or 'missing', got {unknown!r}.")
        return cls(table.names, table.container, *infer_parts(table, weights, schema), unknown)

    @property
    def aside(self) -> tuple[Hashable, ...]:
        """The columns that are not modelled."""
        known = (*self.place, *self.constants)
        return tuple(name for name in self.names if name not in known)

    def column(self, name: Hashable) -> Column:
        """The variable of a column."""
        return self.variables[self.place[name]]

    def constant(self, name: Hashable) -> States:
        """A constant column, as one of a single state."""
        return States(name, self.kinds.get(name, "constant"), (self.constants[name],))

    def kind(self, name: Hashable) -> str:
        """What a column holds."""
        return (self.constant(name) if name in self.constants else self.column(name)).kind

    def encode(self, columns: Sequence[RawColumn], num_rows: int) -> Encoded:
        """Some or all columns of a table, as the model's variables; other ones are missing."""
        codes = np.full((num_rows, len(self.variables)), np.nan)
        log_abs_det_jacobian = np.zeros(num_rows)
        impossible: dict[Hashable, npt.NDArray[np.bool_]] = {}
        censored: dict[int, dict[int, CodeSet]] = {}
        unseen: dict[int, Floats] = {}
        modelled = [raw for raw in columns if raw.name not in self.aside]
        for raw in map(self.as_dates, modelled):
            self.check_type(raw)
            if raw.name in self.constants:
                wrong = ~raw.missing & (raw.values != self.constants[raw.name])
            else:
                number = self.place[raw.name]
                nearest = nearest_states(self.variables[number], raw.values)
                if not np.isnan(nearest).all():
                    unseen[number] = nearest
                wrong = _add(self.variables[number], raw, codes[:, number], log_abs_det_jacobian)
                for row, one in sets_of_cells(self.variables[number], raw).items():
                    wrong[row] = one.is_empty
                    censored.setdefault(row, {})[number] = one
            if bool(wrong.any()):
                impossible[raw.name] = wrong
        x = torch.from_numpy(codes)
        return Encoded(x, log_abs_det_jacobian, MappingProxyType(impossible), censored, unseen)

    def as_dates(self, raw: RawColumn) -> RawColumn:
        """A column whose dates are held as text in microseconds, others as they are."""
        fmt = self.column(raw.name).text_format if raw.name in self.place else ""
        if not fmt or raw.content is not Content.TEXT:
            return raw
        return replace(raw, values=parse_dates(raw.values, fmt), content=Content.DATE)

    def dated(self, table: Table) -> Table:
        """A table with the names of this schema, its dates that are held as text as dates."""
        return table._replace(columns=tuple(map(self.as_dates, table.columns)))

    def encode_table(self, table: Table) -> Encoded:
        """A whole table with the columns of this schema, by their order."""
        renamed = [
            replace(raw, name=name) for raw, name in zip(table.columns, self.names, strict=True)
        ]
        self.report_unknown(renamed)
        return self.encode(renamed, table.num_rows)

    def decode(self, x: Tensor) -> dict[Hashable, Values]:
        """Rows (n, d) of the model's variables as columns of users' values."""
        codes = x.numpy()
        decoded = [c.decode(codes[:, i]) for i, c in enumerate(self.variables)]
        columns = {}
        for name in self.names:
            if name in self.place:
                columns[name] = decoded[self.place[name]]
            elif name in self.constants:
                columns[name] = np.array([self.constants[name]] * len(codes))
            else:
                columns[name] = np.full(len(codes), None, dtype=object)
        return columns

    def build(self, columns: Mapping[Hashable, Values], like: AnyTable = None) -> AnyTable:
        """A table of the users' kind from columns of values."""
        objects, container = {}, self.container.fitting(like)
        for name, values in columns.items():
            if name in self.place and (fmt := self.column(name).text_format):
                objects[name] = values if values.dtype == object else format_dates(values, fmt)
            elif name not in self.aside and container.holds_objects(name):
                objects[name] = as_objects(values, self.kind(name))
        return container.build({**columns, **objects}, like)

    def build_series(self, columns: Mapping[Hashable, Values]) -> dict[Hashable, Any]:
        """Single columns as lists of users' values."""
        table = self.build(columns)
        if isinstance(table, np.ndarray):
            return {name: table[:, i].tolist() for i, name in enumerate(columns)}
        return {name: list(table[name]) for name in columns}

    def check_names(self, names: Sequence[Hashable], what: str) -> None:
        """Refuse columns that are not there, or not modelled."""
        strange = [name for name in names if name not in self.names]
        if strange:
            raise ValueError(
                f"{what} names {listed(strange)}, but the columns are {listed(self.names)}."
            )
        ignored = [name for name in names if name in self.aside]
        if ignored:
            reason = self.reasons.get(ignored[0], "")
            raise ValueError(
                f"{what} names {ignored[0]!r}, which was set aside and is not modelled ({reason})."
                " Declare it in schema={...} and fit anew."
            )

    def check_type(self, raw: RawColumn) -> None:
        """Refuse infinities, and text where numbers are expected."""
        if raw.name not in self.names:
            self.check_names([raw.name], "the table")
        check_finite(raw)
        is_number = raw.name in self.place and isinstance(self.column(raw.name), Numeric)
        if is_number and not raw.content.is_number and not bool(raw.missing.all()):
            raise ValueError(
                f"column {raw.name!r} was numbers when the schema was made, but now holds "
                f"{raw.content.value} such as {raw.values[~raw.missing][0]!r}. Convert it."
            )

    def recoded(self, variables: tuple[Column, ...]) -> Schema:
        """The same columns with other transforms."""
        return self if variables is self.variables else replace(self, variables=variables)

    def to_frame(self) -> pd.DataFrame:
        """What each column was taken for, and why, one row per column."""
        rows = [describe_column(self, name) for name in self.names]
        return pd.DataFrame(rows, index=pd.Index(self.names, name="column"))

    def __repr__(self) -> str:
        return str(self.to_frame().to_string(max_colwidth=60))

    def _repr_html_(self) -> str:
        table = self.to_frame().reset_index()
        return html_table("Schema", [str(name) for name in table], table.to_numpy().tolist())

    def report_unknown(self, columns: Sequence[RawColumn], of_numbers: str = LEFT_OUT) -> None:
        """Refuse values that no row of the training table had, or tell what becomes of them."""
        found: dict[str, list[tuple[Hashable, list[Any]]]] = {}
        for raw in columns:
            column = self.variables[self.place[raw.name]] if raw.name in self.place else None
            dates = self.as_dates(raw)
            strange, fate = dates.missing & ~raw.missing, LEFT_OUT
            if isinstance(column, States):
                strange = strange | column.unknown(dates.values)
                has_nearest = not np.isnan(nearest_states(column, dates.values)).all()
                fate = of_numbers if has_nearest else LEFT_OUT
            if bool(strange.any()):
                found.setdefault(fate, []).append((raw.name, raw.values[strange].tolist()))
        for fate, unknown in found.items():
            told = "; ".join(
                f"column {n!r} in {len(v)} rows, such as {v[0]!r}" for n, v in unknown
            )
            if self.unknown == ERROR:
                raise ValueError(
                    f"values that were not there when the model was fitted: {told}. Correct them, "
                    "declare them with schema={...: Categories([...])}, or integrate them out "
                    "with unknown='missing'."
                )
            message = f"values that were not there when the model was fitted {fate}: {told}."
            warnings.warn(message, DataWarning, stacklevel=2)


def describe_column(schema: Schema, name: Hashable) -> dict[str, str]:
    """Kind, support, resolution, atoms of a column, and the reason, in words."""
    facts = {"kind": "", "support": "", "resolution": "", "atoms": ""}
    if name in schema.constants:
        value = value_text(schema.constants[name], schema.kind(name))
        facts |= {"kind": "constant", "support": value}
    elif name in schema.place:
        column = schema.column(name)
        facts["kind"] = column.kind
        if isinstance(column, States):
            facts["support"] = f"{len(column.values)} values"
        elif isinstance(column, Numeric):
            facts |= describe_numbers(column)
    else:
        facts["kind"] = "set aside"
    return {**facts, "reason": schema.reasons.get(name, "")}


def _add(
    column: Column, raw: RawColumn, codes: Floats, log_abs_det_jacobian: Floats
) -> npt.NDArray[np.bool_]:
    """Write a column's codes and slopes where there are none yet; the rows that cannot be."""
    possible = column.possible(raw.values)
    values = np.where(possible, raw.values, np.nan)
    own = column.encode(values)
    new = np.isnan(codes)
    differs = ~new & ~np.isnan(own) & (own != codes)
    log_abs_det_jacobian += np.where(
        new & ~np.isnan(own), column.log_abs_det_jacobian(values), 0.0
    )
    codes[new] = own[new]
    return np.asarray(~possible | differs)
