"""A density over the columns of a table: every question and every answer in users' units."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pandas as pd

from subtractive.tables import (
    asking,
    checks,
    dependence,
    imputation,
    intervals,
    queries,
    summaries,
)
from subtractive.tables.containers import AnyTable
from subtractive.tables.display import view_html, view_text
from subtractive.tables.reading import Floats, RandomState, Table
from subtractive.tables.receipts import Check, Receipt
from subtractive.tables.view import Given, View


def index_of(X: AnyTable) -> pd.Index | None:
    """The names of the rows of a data frame of pandas; other tables have none."""
    index = getattr(X, "index", None)
    return None if callable(index) else index  # lists have a method of this name


class TableQueries(ABC):
    """What the density of a table can be asked, all of it in the units of the table.

    Evidence is a set for each column: a value, an interval ``(low, high)`` with ``None`` for an
    open end, or a list of values. Answers have the names of columns.
    """

    @abstractmethod
    def _view(self) -> View:
        """What is asked."""

    @abstractmethod
    def _read(self, X: AnyTable) -> Table:
        """A table with the columns of what is asked, all of them and in their order."""

    def condition(self, given: Mapping[Any, object]) -> TableDensity:
        """The density given values of some columns: ``{"age": 40, "income": (0, None)}``.

        Columns whose values are known are left out of it.
        """
        return TableDensity(self._view().given(given))

    def marginal(self, columns: Sequence[Hashable]) -> TableDensity:
        """The density of some columns, in the order given."""
        return TableDensity(self._view().restricted(columns))

    def probability(self, event: Mapping[Any, object], given: Given = None) -> float:
        """P(event | given): intervals ``(low, high)``, ``None`` being an open end, or values.

        ``probability({"age": (40, None), "city": ["Oslo", "Bergen"]}, given={"owner": True})``.
        On a grid, a column is in an interval if its rounded value is.
        """
        return queries.probability(self._view().given(given), event)

    def sample(
        self,
        n_samples: int | None = None,
        *,
        given: AnyTable = None,
        random_state: RandomState = None,
    ) -> AnyTable:
        """Exact samples given sets of values, or one for each row of a table of values."""
        if given is None or isinstance(given, Mapping):
            view = self._view()
            return queries.sample(view.given(given), n_samples, random_state, view.names)
        table = self._read(given)
        queries.check_count(n_samples, table)
        return imputation.impute(self._view(), table, given, 1, random_state)[0]

    def impute(
        self, X: AnyTable, *, n_draws: int | None = None, random_state: RandomState = None
    ) -> AnyTable:
        """Fill missing values with conditional means, or the most probable category.

        A mean of numbers that are rounded, or of few values, is rounded to one of them.
        With ``n_draws`` the result is a list of so many tables, whose gaps are drawn from their
        joint conditional distribution.
        """
        return imputation.impute(self._view(), self._read(X), X, n_draws, random_state)

    def mean(self, given: Given = None) -> pd.Series:
        """Means of the columns, of dates too; NaN where values are categories."""
        return summaries.means(self._view().given(given))

    def std(self, given: Given = None) -> pd.Series:
        """Standard deviations, those of dates being durations; NaN where values are categories."""
        return summaries.spreads(self._view().given(given))

    def cov(self, given: Given = None) -> pd.DataFrame:
        """Covariances of the columns, dates in microseconds; NaN where values are categories."""
        return summaries.cov(self._view().given(given))

    def expectation(
        self, column: Hashable, function: Callable[[Any], Any], given: Given = None
    ) -> float:
        """E[f(column) | given], f being a function of an array of the column's values.

        Dates, times and durations are in microseconds there, dates since 1970.
        """
        return summaries.expectation(self._view().given(given), column, function)

    def cdf(self, column: Hashable, points: object, given: Given = None) -> pd.Series:
        """P(column <= t | given) at points t."""
        return summaries.cdf(self._view().given(given), column, points)

    def quantile(self, column: Hashable, levels: object, given: Given = None) -> pd.Series:
        """Where the distribution function of a column reaches levels between 0 and 1."""
        return summaries.quantiles(self._view().given(given), [column], levels)[column]

    def quantiles(self, levels: object, given: Given = None) -> pd.DataFrame:
        """The quantiles of all columns of numbers, one row per level."""
        return summaries.quantiles(self._view().given(given), None, levels)

    def interval(self, column: Hashable, level: float = 0.9, given: Given = None) -> pd.Series:
        """The values between which, both included, a column is with at least this probability.

        As much is outside on either side. Where a column has a grid or atoms, an interval of
        whole cells holds more; it is then as short as neither end can be moved inside.
        """
        return intervals.interval(self._view().given(given), column, level)

    def mode(self, given: Given = None, *, random_state: RandomState = 0) -> pd.Series:
        """A row of high density, the best of many samples: it may miss the highest."""
        return summaries.mode(self._view().given(given), random_state)

    def marginals(self, given: Given = None) -> pd.DataFrame:
        """Densities of all columns at many values, and probabilities of states and atoms.

        Dates and durations have densities per microsecond.
        """
        view = self._view().given(given)
        return summaries.dated(view, summaries.marginals(view))

    def dependence(
        self, given: Given = None, *, n_samples: int = 1000, random_state: RandomState = 0
    ) -> pd.DataFrame:
        """Mutual information of all pairs of columns, in nats, estimated by exact samples.

        Given intervals of columns that share a full covariance it is a lower bound, by always the
        same 20,000 samples.
        """
        view = self._view().given(given)
        return dependence.dependence(view, n_samples, random_state)

    def ask(self, question: str, table: AnyTable = None) -> Receipt:
        """The answer to ``"P(weather = rain | precipitation = 0, temp_max > 20)"``.

        The receipt also has the matching rows of the table, their share, and whether both agree
        within chance. Without a table it has those of the training table, as far as counts of
        pairs of columns were remembered, and how many answers of this kind held-out rows agreed
        with after the fit.
        """
        view = self._view()
        read = None if table is None else self._read(table)
        return asking.ask(view, asking.parse_question(question, view.schema), question, read)

    def check(
        self, table: AnyTable, *, n_questions: int = 300, random_state: RandomState = 0
    ) -> Check:
        """Random questions, and the share of answers that agree with a table within chance."""
        seed, view = queries.draw_seed(random_state), self._view()
        codes = queries.encode(view, self._read(table)).x.numpy()
        return checks.check(view, codes, np.ones(len(codes)), n_questions, seed)

    def predict(self, X: AnyTable, column: Hashable | None = None) -> pd.Series | pd.DataFrame:
        """The mean, or the most probable value, of a column given the others of each row.

        Without a column, those of all columns, each given the others.
        """
        view, table, index = self._view(), self._read(X), index_of(X)
        if column is not None:
            return imputation.predict(view, table, column, index)
        names = list(view.variables)
        return pd.DataFrame({name: imputation.predict(view, table, name, index) for name in names})


@final
@dataclass(frozen=True, repr=False)
class TableDensity(TableQueries):
    """The density of some columns, given sets of values: what conditioning and marginals give."""

    view: View

    def __repr__(self) -> str:
        return view_text(self.view)

    def _repr_html_(self) -> str:
        return view_html(self.view)

    def _view(self) -> View:
        return self.view

    def predict_proba(self, X: AnyTable, column: Hashable) -> pd.DataFrame:
        """The probabilities of a column's values given the other columns of each row."""
        return imputation.predict_proba(self._view(), self._read(X), column, index_of(X))

    def _read(self, X: AnyTable) -> Table:
        return self.view.read(X)

    def score_samples(self, X: AnyTable) -> Floats:
        """The log-density of each row, (n,); missing values are integrated out.

        The base measure is Lebesgue measure for numbers, and a count for states and atoms.
        """
        return queries.score_rows(self.view, self._read(X))

    def score(self, X: AnyTable, y: object = None, sample_weight: object = None) -> float:
        """The mean log-density of the rows."""
        return queries.mean_score(self.view, self._read(X), sample_weight)
