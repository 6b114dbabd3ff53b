"""What a report looks at: a model, a table, and the table as the model sees it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
import numpy.typing as npt
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from subtractive.circuits.circuit import Circuit
from subtractive.densities.base import Density
from subtractive.densities.mixture import Mixture
from subtractive.densities.monotonic import MonotonicCircuit
from subtractive.densities.squared import SquaredCircuit
from subtractive.plots.columns import Marginal, marginals
from subtractive.report.formatting import state
from subtractive.tables.cell_values import Content
from subtractive.tables.columns import Column, Numeric
from subtractive.tables.containers import AnyTable
from subtractive.tables.estimator import SubtractiveMixture
from subtractive.tables.reading import Floats, RawColumn, Table
from subtractive.tables.schema import Encoded, Schema
from subtractive.tables.states import States
from subtractive.tables.validation import read_table

Rows = npt.NDArray[np.intp]
NUM_SAMPLES = 2000


@final
@dataclass(frozen=True)
class Context:
    """A fitted model, a table with its columns, the scores of all rows, and a seed."""

    model: SubtractiveMixture
    table: Table
    encoded: Encoded
    scores: Floats  # (n,), in users' units
    seed: int

    @classmethod
    def of(cls, model: SubtractiveMixture, frame: AnyTable, seed: int) -> Context:
        """Check the model and the table, and score every row."""
        if not isinstance(model, SubtractiveMixture):
            raise ValueError(
                f"a report shows a SubtractiveMixture and a table, got {type(model).__name__}: "
                "a density without the schema of a table knows no columns."
            )
        check_is_fitted(model)
        scores = model.score_samples(frame)
        table = read_table(frame)
        return cls(model, table, model.schema_.encode_table(table), scores, seed)

    @property
    def schema(self) -> Schema:
        """How columns become variables."""
        return self.model.schema_

    @property
    def density(self) -> Density:
        """The model of the variables."""
        return self.model.density_

    @property
    def codes(self) -> Floats:
        """The variables of each row, (n, d), NaN where missing."""
        return np.asarray(self.encoded.x.numpy())

    @cached_property
    def continuous(self) -> list[int]:
        """The variables that are numbers on a scale."""
        return [i for i, column in enumerate(self.schema.variables) if isinstance(column, Numeric)]

    @cached_property
    def discrete(self) -> list[int]:
        """The other variables: categories and counts."""
        return [i for i in range(len(self.schema.variables)) if i not in self.continuous]

    def column(self, variable: int) -> Column:
        """What a variable stands for."""
        return self.schema.variables[variable]

    def name(self, variable: int) -> Hashable:
        """The column of a variable."""
        return self.schema.variables[variable].name

    def scale(self, variable: int) -> Numeric:
        """A continuous column."""
        column = self.schema.variables[variable]
        assert isinstance(column, Numeric)
        return column

    @cached_property
    def dated(self) -> Table:
        """The table, its dates that are held as text as dates."""
        return self.schema.dated(self.table)

    def raw(self, variable: int) -> RawColumn:
        """The column of a variable as it is in the table, dates as dates."""
        return self.dated.columns[self.schema.names.index(self.name(variable))]

    def values(self, variable: int) -> Floats:
        """A continuous column in users' units, (n,), NaN where missing."""
        return np.asarray(self.raw(variable).values, dtype=np.float64)

    def states(self, variable: int) -> list[str]:
        """The states of a discrete variable in words."""
        column = self.schema.variables[variable]
        if not isinstance(column, States):
            return [str(number) for number in range(num_states(self, variable))]
        is_boolean = self.raw(variable).content is Content.BOOLEAN
        return [state(bool(value) if is_boolean else value) for value in column.values]

    @cached_property
    def marginals(self) -> dict[Hashable, Marginal]:
        """The distributions of all columns that are modelled, by name."""
        return marginals(self.model, None)

    @cached_property
    def samples(self) -> Floats:
        """Codes (m, d) of exact samples, drawn by the seed."""
        generator = torch.Generator().manual_seed(self.seed)
        with torch.no_grad():
            drawn = self.density.sample(NUM_SAMPLES, generator=generator)
        return np.asarray(drawn.numpy())

    def limits(self, variable: int) -> tuple[float, float]:
        """The values between which a continuous column is drawn."""
        points = self.marginals[self.name(variable)].points
        return float(points[0]), float(points[-1])

    def some_rows(self, most: int, among: Rows | None = None) -> Rows:
        """At most so many rows, drawn by the seed, in their order."""
        rows = np.arange(self.table.num_rows) if among is None else among
        if len(rows) <= most:
            return rows
        chosen = np.random.default_rng(self.seed).choice(len(rows), most, replace=False)
        return np.asarray(rows[np.sort(chosen)])

    def circuits(self) -> list[Circuit]:
        """The circuits that the density is made of: one, or one per member of a mixture."""
        members = self.density.members if isinstance(self.density, Mixture) else [self.density]
        kinds = (SquaredCircuit, MonotonicCircuit)
        return [member.circuit for member in members if isinstance(member, kinds)]


def num_states(context: Context, variable: int) -> int:
    """How many states a discrete variable has."""
    states = context.density.families[variable].num_states
    assert states is not None
    return states


def as_tensor(codes: Floats) -> Tensor:
    """Codes as the densities take them."""
    return torch.from_numpy(np.ascontiguousarray(codes))
