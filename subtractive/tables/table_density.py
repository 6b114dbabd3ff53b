"""A density over the columns of a table: every question and every answer in users' units."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch

from subtractive.densities.base import Density
from subtractive.tables.containers import AnyTable
from subtractive.tables.events import as_box
from subtractive.tables.moments import column_covariance, column_means
from subtractive.tables.reading import (
    Floats,
    RandomState,
    Table,
    is_missing,
    read_mapping,
)
from subtractive.tables.schema import Encoded, Schema
from subtractive.tables.validation import check_weights, read_table

# Rows that are encoded and scored at a time, which bounds the memory of a long table.
ROWS_AT_ONCE = 2**16


@final
@dataclass(frozen=True)
class TableDensity:
    """A density and the schema of its columns: what conditioning and marginals give.

    Values are asked for and answered in users' units, by names of columns (numbers, for arrays).
    """

    schema: Schema
    density: Density

    def score_samples(self, X: AnyTable) -> Floats:
        """The log-density of each row, (n,); missing values are integrated out."""
        return self.score_rows(self._read(X))

    def score(self, X: AnyTable, y: object = None, sample_weight: object = None) -> float:
        """The mean log-density of the rows."""
        return self.mean_score(self._read(X), sample_weight)

    def sample(
        self,
        n_samples: int | None = None,
        *,
        given: AnyTable = None,
        random_state: RandomState = None,
    ) -> AnyTable:
        """Exact samples, given values ``{column: value}``, or one for each row of a table."""
        generator = as_generator(random_state)
        if given is not None and not isinstance(given, Mapping):
            table = self._read(given)
            if n_samples not in (None, table.num_rows):
                raise ValueError(
                    f"a table of given values yields one sample for each of its {table.num_rows} "
                    f"rows, got n_samples={n_samples}. Leave n_samples out."
                )
            return self._filled(table, given, generator)
        count = _count(1 if n_samples is None else n_samples)
        row, known = self._given(given or {}), self._given_values(given or {})
        with torch.no_grad():
            x = self.density.sample(given=row.expand(count, -1), generator=generator)
        values = self.schema.decode(x)
        for name, place in self.schema.place.items():
            if place in known:  # as given, not as encoded and back
                values[name] = np.array([known[place]] * count)
        return self.schema.build(values)

    def impute(
        self, X: AnyTable, *, sample: bool = False, random_state: RandomState = None
    ) -> AnyTable:
        """Fill missing values with conditional means, or the most probable state or count.

        With ``sample`` they are drawn from their joint conditional distribution instead. A column
        with a single bound is filled with what is the mean on its logarithmic scale.
        """
        generator = as_generator(random_state) if sample else None
        return self._filled(self._read(X), X, generator)

    def condition(self, given: Mapping[Any, object]) -> TableDensity:
        """The density of the other columns, given values of some: ``{"age": 40}``."""
        if not isinstance(given, Mapping) or not given:
            raise ValueError(
                f"condition needs values by column, such as {{'age': 40}}, got {given!r}."
            )
        row = self._given(given)[0]
        known = {i: row[i].item() for i in range(len(row)) if not row[i].isnan()}
        rest = [name for name in self.schema.names if name not in given]
        schema, keep = self.schema.fix(self._given_values(given)).keep(rest)
        if not keep:
            raise ValueError(
                "condition must leave at least one column free whose values are not known."
            )
        density = self.density.condition(known) if known else self.density
        free = [i for i in range(len(row)) if i not in known]
        return TableDensity(schema, density.marginal([free.index(i) for i in keep]))

    def marginal(self, columns: Sequence[Hashable]) -> TableDensity:
        """The density of some columns, in the order given."""
        if isinstance(columns, str) or not isinstance(columns, Sequence | np.ndarray):
            raise ValueError(f"marginal needs a list of columns, got {columns!r}.")
        names = list(columns)
        self.schema.check_names(names, "marginal")
        schema, keep = self.schema.keep(names)
        if not keep or len(set(names)) < len(names):
            raise ValueError(
                f"marginal needs different columns, at least one of them not constant, got "
                f"{names}."
            )
        return TableDensity(schema, self.density.marginal(keep))

    def probability(
        self,
        event: Mapping[Any, object],
        given: Mapping[Any, object] | None = None,
    ) -> float:
        """P(event | given): intervals ``(low, high)``, ``None`` being an open end, or values.

        ``probability({"age": (40, None), "city": ["Oslo", "Bergen"]}, given={"owner": True})``.
        A column of whole numbers is in an interval if its rounded value is.
        """
        both = [name for name in event if name in (given or {})] if event else []
        if both:
            raise ValueError(f"column {both[0]!r} is both in the event and given: drop one.")
        if given:
            return self.condition(given).probability(event)
        box = as_box(self.schema, event)
        if box is None:
            return 0.0
        if not box:
            return 1.0
        return self._probability(box)

    @property
    def mean_(self) -> Floats:
        """Means of the columns, (d,); NaN of text, and of columns with a single bound."""
        return column_means(self.schema, self.density)

    @property
    def covariance_(self) -> Floats:
        """Covariances of the columns, (d, d); NaN in the same places as means."""
        return column_covariance(self.schema, self.density)

    def score_rows(self, table: Table) -> Floats:
        """The log-density of each row of a table that has been read, some rows at a time."""
        parts = [np.zeros(0)]
        with torch.no_grad():
            for start in range(0, table.num_rows, ROWS_AT_ONCE):
                rows = self.schema.encode_table(table.rows(slice(start, start + ROWS_AT_ONCE)))
                scores = self.density.log_prob(rows.x).numpy() + rows.log_abs_det_jacobian
                parts.append(np.where(rows.possible, scores, -np.inf))
        return np.concatenate(parts)

    def mean_score(self, table: Table, sample_weight: object) -> float:
        """The weighted mean log-density of a table that has been read."""
        weights = check_weights(sample_weight, table.num_rows)
        counts = weights > 0
        return float(np.average(self.score_rows(table.rows(counts)), weights=weights[counts]))

    def _read(self, given: AnyTable) -> Table:
        table = read_table(given)
        names = self.schema.names
        if all(name in table.names for name in names):
            order = [table.names.index(name) for name in names]
            return table._replace(columns=tuple(table.columns[i] for i in order))
        missing = [name for name in names if name not in table.names]
        if len(table.columns) != len(names) or not isinstance(table.names[0], int):
            raise ValueError(f"the table lacks the columns {missing}; it has {list(table.names)}.")
        return table

    def _given(self, given: Mapping[Any, object]) -> torch.Tensor:
        """Given values as a row of codes (1, d)."""
        self.schema.check_names(list(given), "given")
        row = self.schema.encode(read_mapping(given), 1)
        for name, raw in zip(given, read_mapping(given), strict=True):
            if bool(raw.missing.any()):
                raise ValueError(f"the given value of column {name!r} is missing: leave it out.")
        _check_possible(row)
        return row.x

    def _given_values(self, given: Mapping[Any, object]) -> dict[int, Any]:
        """The given value of each variable."""
        place = self.schema.place
        raws = read_mapping(given)
        return {place[raw.name]: raw.values[0] for raw in raws if raw.name in place}

    def _filled(self, table: Table, like: AnyTable, generator: torch.Generator | None) -> AnyTable:
        """A table whose gaps are filled by draws of a generator, or by means without one."""
        rows = self.schema.encode_table(table)
        _check_possible(rows)
        with torch.no_grad():
            x = self.density.impute(rows.x, sample=generator is not None, generator=generator)
        filled = self.schema.decode(x)
        columns = {
            name: np.where(is_missing(raw.values), filled[name], raw.values)
            for name, raw in zip(self.schema.names, table.columns, strict=True)
        }
        return self.schema.build(columns, like)

    def _probability(self, box: Mapping[int, Any]) -> float:
        try:
            return float(self.density.probability(box).detach())
        except ValueError as error:
            if "no closed form" not in str(error):
                raise
        if len(box) > 1:
            names = [self.schema.variables[number].name for number in box]
            raise ValueError(
                f"there is no closed form for the probability of a box over the columns {names} "
                "in a model with full covariances. Ask for one column at a time, or fit with "
                "structure='binary' or covariance='diagonal'."
            )
        ((number, edges),) = box.items()
        low, high = self.density.cdf(number, torch.tensor(edges, dtype=torch.float64)).tolist()
        return max(0.0, float(high - low))


def as_generator(random_state: RandomState) -> torch.Generator:
    """A generator from an int, a ``RandomState``, or ``None`` for numpy's own."""
    return torch.Generator().manual_seed(draw_seed(random_state))


def draw_seed(random_state: RandomState) -> int:
    """A seed drawn as scikit-learn does from an int, a ``RandomState`` or ``None``."""
    from sklearn.utils import check_random_state  # which takes long to import

    return int(check_random_state(random_state).randint(2**31 - 1))


def _count(n_samples: object) -> int:
    if not isinstance(n_samples, int | np.integer) or isinstance(n_samples, bool) or n_samples < 0:
        raise ValueError(f"n_samples must be a whole number of at least 0, got {n_samples!r}.")
    return int(n_samples)


def _check_possible(rows: Encoded) -> None:
    for name, wrong in rows.impossible.items():
        raise ValueError(
            f"the value of column {name!r} in row {int(wrong.nonzero()[0][0])} has probability "
            "zero (it is outside the bounds, beyond the largest count, or differs from a constant "
            "or from its copy): nothing can be conditioned on it."
        )
