"""A density of tables for scikit-learn."""

from __future__ import annotations

import copy
import os
from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any, Self, final

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils import Tags, estimator_html_repr
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from subtractive.densities.base import Density
from subtractive.io.files import write_tensors
from subtractive.learning.history import History
from subtractive.numerics.validation import whole_number
from subtractive.tables import checks, imputation, queries
from subtractive.tables.censoring import ROUNDS, is_censored, redrawn_table, start_table
from subtractive.tables.containers import AnyTable
from subtractive.tables.display import estimator_html
from subtractive.tables.effort import Budget
from subtractive.tables.memory import Memory, describe_memory
from subtractive.tables.model_selection import Learned, ModelSelection
from subtractive.tables.out_of_core import (
    EncodedStream,
    Pieces,
    encode_held_out,
    sample_table,
    train_on_stream,
)
from subtractive.tables.queries import draw_seed
from subtractive.tables.reading import Floats, RandomState, Table
from subtractive.tables.receipts import Check
from subtractive.tables.recipe import Recipe
from subtractive.tables.remembered_counts import RememberedCounts
from subtractive.tables.schema import Schema
from subtractive.tables.schema_description import describe_schema
from subtractive.tables.states import States
from subtractive.tables.table_density import TableQueries, index_of
from subtractive.tables.training_data import encode_rows
from subtractive.tables.training_rows import split
from subtractive.tables.validation import check_weights, read_table, unchanged_on_failure
from subtractive.tables.view import View


def _has_states(asked: TableQueries) -> bool:
    """Whether there is a column whose values have probabilities."""
    view = asked._view()
    return any(isinstance(view.schema.variables[v], States) for v in view.variables.values())


@final
class SubtractiveMixture(TableQueries, DensityMixin, BaseEstimator):  # type: ignore[misc]  # untyped
    """A density estimator that adds and subtracts components, with exact answers.

    It fits arrays of numbers and data frames with numbers, booleans, text and categories, all
    with missing values, which are integrated out. Scores are log-densities in the units of the
    table; samples and imputations come back as the same kind of table with the same types.
    ``predict`` is of a column given the others: no row belongs to a component.

    Args:
        n_components: Functions per column, and units of every layer. If not given, 8, 16 or 32
            in trees, by the number of rows, and in flat mixtures 4, 16 or 64, whichever held-out
            rows find most likely.
        kind: ``"squared"`` may subtract; ``"monotonic"`` only adds, as usual mixtures do;
            ``"squared-monotonic"`` squares what only adds.
        structure: Which columns meet when: ``"binary"`` or ``"linear"`` for a random tree,
            ``"chow-liu"`` for one from the data, ``"flat"`` for a shallow mixture. ``"auto"``
            tries mixtures of hidden Chow-Liu trees (see :func:`hidden_chow_liu_tree`), full
            covariances of the numbers beside other columns (:func:`covariance_group`) and, where
            all columns are continuous, squares of a Chow-Liu tree and shallow mixtures of full
            covariances (in 8 and in 32 frames, see :func:`semi_tied_mixture`; of components,
            where values are missing or ``n_components`` is given). With the effort ``"best"``
            trees go on as squares. It keeps what held-out rows find most likely.
        n_squares: How many squares are summed; 8 in trees if not given.
        n_structures: Over more than one random tree the model is a mixture.
        covariance: Of the components of a flat mixture: ``"full"`` or ``"diagonal"``.
        effort: How long to search: ``"fast"``, ``"balanced"``, ``"best"``, or seconds of
            processor time (these are 15, 110 and 600). Small tables take less.
        schema: What columns are, where it is not inferred: ``{"age": "continuous"}``. In arrays
            all numbers have densities, unless declared here; data frames: :meth:`Schema.infer`.
        unknown: ``"missing"`` integrates unseen categories out, with a warning; ``"error"``
            refuses them.
        max_epochs: Passes over the rows at most.
        validation_fraction: Share of the rows held out to stop in time. Tables of fewer than 50
            different rows train without.
        verbose: Show progress.
        random_state: Of the start, the trees, the split and the order of the rows.

    Rules for odd tables: infinities are refused, with the name of the column. A constant column
    is a point mass, a column equal to another is its copy, each with a ``DataWarning``; rows that
    contradict it score ``-inf``, and so do values outside bounds. Identifiers, free text and
    what cannot be modelled are set aside with one warning: missing in samples, untouched when
    gaps are filled. The base measure of scores is Lebesgue measure for numbers, and a count for
    states and atoms. Equal rows are merged, so that a weight of two is a row that occurs twice.

    >>> table = sub.data.penguins()
    >>> model = sub.SubtractiveMixture(4, max_epochs=2, random_state=0).fit(table)
    >>> gentoo = {"species": "Gentoo", "body_mass_g": (5000, None)}  # a value, an interval
    >>> model.probability({"sex": ["male"]}, given=gentoo) > 0.5
    True
    >>> model.sample(3, given=gentoo, random_state=0).shape
    (3, 8)
    >>> model.impute(table).shape, model.score_samples(table).shape
    ((344, 8), (344,))
    >>> [len(moments) for moments in (model.mean(), model.std(gentoo), model.cov())]
    [8, 7, 8]
    >>> low, high = model.interval("body_mass_g", 0.9, given={"sex": "female"})
    >>> model.ask("P(sex = male | body_mass_g > 5000)", table).rows
    61.0
    >>> model = model.partial_fit(table)  # another pass, over these rows or others
    """

    schema_: Schema
    density_: Density
    history_: History
    check_: Check | None  # random questions to rows of validation; None if there were too few
    counts_: RememberedCounts | None  # of the training table, for receipts
    n_features_in_: int

    def __init__(
        self,
        n_components: int | None = None,
        *,
        kind: str = "squared",
        structure: str = "auto",
        n_squares: int | None = None,
        n_structures: int = 1,
        covariance: str = "full",
        effort: str | float = "balanced",
        schema: Mapping[Any, object] | Schema | None = None,
        unknown: str = "missing",
        max_epochs: int = 100,
        validation_fraction: float = 0.1,
        verbose: bool | int = 0,
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.kind = kind
        self.structure = structure
        self.n_squares = n_squares
        self.n_structures = n_structures
        self.covariance = covariance
        self.effort = effort
        self.schema = schema
        self.unknown = unknown
        self.max_epochs = max_epochs
        self.validation_fraction = validation_fraction
        self.verbose = verbose
        self.random_state = random_state

    def fit(self, X: AnyTable, y: object = None, sample_weight: object = None) -> Self:
        """Infer the schema and train; a row of weight two counts as two rows.

        Ctrl-C raises ``KeyboardInterrupt``, whose ``partial`` is an estimator with the best model
        so far, or None, and leaves the estimator as it was.
        """
        with unchanged_on_failure(self):
            self._learn(X, sample_weight, Recipe.of(self), draw_seed(self.random_state))
        return self

    def fit_pieces(self, pieces: Pieces, *, sample_rows: int = 100_000) -> Self:
        """Fit a table that does not fit into memory, from pieces of it.

        ``pieces`` is a function that makes an iterator of frames or arrays for every pass, a list
        of them, or an iterator, which is read once; a pair (frame, weights) has weights of rows.
        A sample of ``sample_rows`` rows chooses the schema (which then is that of all rows) and
        the structure, and is trained on as :meth:`fit` does. Training goes on over all rows, in
        ``max_epochs`` passes at most. A table that is no longer than the sample is fitted by
        :meth:`fit`. Of an iterator the first rows are the sample, and the others one pass.

        >>> import numpy as np
        >>> random = np.random.default_rng(0)
        >>> pieces = [random.normal(size=(100, 2)) for _ in range(3)]
        >>> model = sub.SubtractiveMixture(4, max_epochs=1, random_state=0)
        >>> model.fit_pieces(pieces, sample_rows=200).sample(3).shape
        (3, 2)
        """
        whole_number("sample_rows", sample_rows, 20)
        with unchanged_on_failure(self):
            self._learn_pieces(pieces, sample_rows, Recipe.of(self))
        return self

    def partial_fit(self, X: AnyTable, y: object = None, sample_weight: object = None) -> Self:
        """One pass over the rows, from where training stands.

        The first call infers the schema and chooses the structure from its rows.
        """
        recipe = replace(Recipe.of(self), max_epochs=1)
        with unchanged_on_failure(self):
            if not hasattr(self, "density_"):
                self._learn(X, sample_weight, recipe, draw_seed(self.random_state))
                return self
            table, weights = self._read_rows(X, sample_weight, reset=False)
            density = copy.deepcopy(self.density_)
            rows = encode_rows(self.schema_, table, weights)
            seed = draw_seed(self.random_state)
            selection = ModelSelection(recipe, seed)
            self.history_ = selection.learn_more(density, rows, self.schema_.variables)
            self.density_ = density
            self.check_, self.counts_ = None, None  # they are of other rows
            if self.history_.stopped == "interrupted":
                raise KeyboardInterrupt
        return self

    def score_samples(self, X: AnyTable) -> Floats:
        """The log-density of each row, (n,), in the units of the table."""
        return queries.score_rows(self._view(), self._read(X))

    def score(self, X: AnyTable, y: object = None, sample_weight: object = None) -> float:
        """The mean log-density of the rows."""
        return queries.mean_score(self._view(), self._read(X), sample_weight)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one file, from which :func:`load` makes it again."""
        check_is_fitted(self)
        parameters = self.get_params()
        # What the schema holds already, and what no file can hold.
        parameters["schema"] = None
        if not isinstance(self.random_state, int | None):
            parameters["random_state"] = None
        estimator = {
            "parameters": parameters,
            "schema": describe_schema(self.schema_),
            "history": self.history_.to_dict(),
            "memory": describe_memory(Memory(self.check_, self.counts_)),
        }
        description = {"density": self.density_.describe(), "estimator": estimator}
        write_tensors(path, "model", self.density_.state_dict(), description)

    @available_if(_has_states)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: AnyTable, column: Hashable) -> pd.DataFrame:
        """The probabilities of a column's values given the other columns of each row."""
        return imputation.predict_proba(self._view(), self._read(X), column, index_of(X))

    def _html_repr(self) -> str:
        """What notebooks show: of a fitted model its columns, else scikit-learn's diagram."""
        if not hasattr(self, "density_"):
            return str(estimator_html_repr(self))
        return estimator_html(self.schema_, self.history_)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _learn(self, given: AnyTable, sample_weight: object, recipe: Recipe, seed: int) -> None:
        table, weights = self._read_rows(given, sample_weight, reset=True)
        if not is_censored(table):
            self._learn_table(table, weights, recipe, seed)
            return
        if recipe.structure == "auto":  # boxes of trees are exact for any number of columns
            recipe = replace(recipe, structure="chow-liu")
        full = start_table(table, np.random.default_rng(seed))
        for number in range(ROUNDS):
            self._learn_table(full, weights, recipe, seed)
            if number < ROUNDS - 1:
                generator = torch.Generator().manual_seed(seed + number)
                full = redrawn_table(self._view(), table, generator)

    def _learn_table(self, table: Table, weights: Floats, recipe: Recipe, seed: int) -> None:
        clock = Budget(0.0)
        schema = Schema.of(table, weights, self.schema, self.unknown)
        rows = encode_rows(schema, table, weights)
        selection = ModelSelection(recipe, seed)
        try:
            selection.learn(rows, schema.variables, clock.used)
        finally:
            if selection.best.learned is not None:
                self._keep(schema, selection.best.learned)
        held_out, own = split(rows, recipe.validation_fraction, seed)[1], schema.variables
        if held_out is not None:
            self.history_.best_score = checks.served_score(self._view(), own, held_out)
        self.check_, self.counts_ = checks.remember(self._view(), own, rows, held_out)
        self.history_.agreement = None if self.check_ is None else self.check_.share

    def _learn_pieces(self, pieces: Pieces, size: int, recipe: Recipe) -> None:
        seed = draw_seed(self.random_state)
        sampled = sample_table(
            pieces,
            size,
            seed,
            lambda table, weights: Schema.of(table, weights, self.schema, self.unknown),
        )
        self._learn(sampled.train.rows, sampled.train.weights, recipe, seed)
        if sampled.held is None:
            return
        stream = EncodedStream(sampled, self.schema_, recipe.max_epochs, seed)
        held = encode_held_out(self.schema_, sampled.held)
        self.history_ = train_on_stream(self.density_, stream, held, progress=recipe.progress)
        if self.history_.stopped == "interrupted":
            raise KeyboardInterrupt
        # The check of the sample was of another density, and its counts are not of all rows.
        self.check_ = checks.remember(self._view(), self.schema_.variables, held, held).check
        self.counts_ = None
        self.history_.agreement = None if self.check_ is None else self.check_.share

    def _keep(self, schema: Schema, learned: Learned) -> None:
        self.schema_ = schema.recoded(learned.columns)
        self.density_, self.history_ = learned.density, learned.history
        self.check_, self.counts_ = None, None

    def _read(self, X: AnyTable) -> Table:
        check_is_fitted(self)
        return self._checked(X, reset=False)

    def _checked(self, given: AnyTable, *, reset: bool) -> Table:
        table = read_table(given, self)
        validate_data(self, given, reset=reset, skip_check_array=True)
        return table

    def _read_rows(
        self, given: AnyTable, sample_weight: object, *, reset: bool
    ) -> tuple[Table, Floats]:
        """The rows of positive weight, and their weights."""
        table = self._checked(given, reset=reset)
        weights = check_weights(sample_weight, table.num_rows)
        return table.rows(weights > 0), weights[weights > 0]

    def _view(self) -> View:
        check_is_fitted(self)
        memory = Memory(self.check_, self.counts_)
        return View(self.schema_, self.density_, self.schema_.names, memory=memory)
