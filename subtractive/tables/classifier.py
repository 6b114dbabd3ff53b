"""A classifier for scikit-learn: densities of the classes and Bayes' rule."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Self, final

import numpy as np
import numpy.typing as npt
from scipy.special import log_softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags, assert_all_finite, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from subtractive.tables.class_densities import ClassDensities, LabelledTable, learn_classes
from subtractive.tables.column_types import DataWarning
from subtractive.tables.containers import AnyTable
from subtractive.tables.estimator import SubtractiveMixture
from subtractive.tables.reading import Floats, RandomState, Table
from subtractive.tables.recipe import Recipe
from subtractive.tables.schema import Schema
from subtractive.tables.table_density import TableDensity
from subtractive.tables.validation import check_weights, read_table, unchanged_on_failure


@final
class SubtractiveClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # untyped
    """Bayes' rule with the density of each class, all over one schema.

    .. math:: P(class | x) ∝ P(class) p(x | class)^T

    Densities are those of one :class:`SubtractiveMixture` of rows and classes, or of one for each
    class if that is what held-out rows prefer, which also choose the power T: densities of many
    columns are too sure of themselves. Together with p(x), the density of all rows, this is a
    density of rows and classes. Few rows are held out in turn, and densities of a class in
    ``densities_`` are one for each fold, of which the mean is taken. If the estimator says of
    which structure or size it is, no row is held out, each class has a density of its own, and T
    is one.

    Missing values are integrated out, in training and when predicting. A row that no class can
    explain gets the prior probabilities, with a ``DataWarning``.

    Args:
        estimator: What is fitted; ``SubtractiveMixture()`` if not given.
        priors: Probabilities of the classes, in sorted order; their shares of the rows if not
            given.
        random_state: Where the classes' random states come from.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(200, 2)) + np.repeat([[0], [5]], 100, axis=0)
    >>> y = np.repeat(["a", "b"], 100)
    >>> mixture = sub.SubtractiveMixture(2, max_epochs=2)
    >>> model = sub.SubtractiveClassifier(mixture, random_state=0).fit(x, y)
    >>> model.predict([[0.0, 0.0], [5.0, np.nan]])
    array(['a', 'b'], dtype='<U1')
    """

    classes_: npt.NDArray[Any]
    class_log_prior_: Floats
    densities_: list[list[TableDensity]]
    power_: float
    schema_: Schema
    n_features_in_: int

    def __init__(
        self,
        estimator: SubtractiveMixture | None = None,
        *,
        priors: Sequence[float] | None = None,
        random_state: RandomState = None,
    ) -> None:
        self.estimator = estimator
        self.priors = priors
        self.random_state = random_state

    def fit(self, X: AnyTable, y: object, sample_weight: object = None) -> Self:
        """Fit densities of the classes; a row of weight two counts as two rows."""
        with unchanged_on_failure(self):
            self._learn(X, y, sample_weight)
        return self

    def _learn(self, given: AnyTable, y: object, sample_weight: object) -> None:
        table = self._read(given, reset=True)
        labels = _check_labels(y, table.num_rows)
        weights = check_weights(sample_weight, table.num_rows)
        counts = weights > 0
        classes, codes = np.unique(labels[counts], return_inverse=True)
        base = SubtractiveMixture() if self.estimator is None else self.estimator
        recipe = Recipe.of(base)
        schema = Schema.of(table.rows(counts), weights[counts], base.schema, base.unknown)
        totals = np.bincount(codes, weights=weights[counts]).astype(np.float64)
        log_priors = self._log_priors(totals)
        random = check_random_state(self.random_state)
        rows = LabelledTable(table.rows(counts), codes, weights[counts])
        found = learn_classes(recipe, schema, rows, random)
        self.classes_, self.class_log_prior_, self.schema_ = classes, log_priors, schema
        self.densities_ = [[TableDensity(view) for view in views] for views in found.views]
        self.power_ = found.power

    def predict_log_proba(self, X: AnyTable) -> Floats:
        """log P(class | x), (n, c), in the order of ``classes_``."""
        check_is_fitted(self)
        table = self._read(X, reset=False)
        views = [[density.view for density in densities] for densities in self.densities_]
        scores = ClassDensities(views).log_densities(table)
        lost = np.asarray(np.isneginf(scores).all(1))
        if bool(lost.any()):
            warnings.warn(
                f"{int(lost.sum())} rows, the first of them row {int(lost.argmax())}, are "
                "impossible in every class: they get the prior probabilities.",
                DataWarning,
                stacklevel=2,
            )
            scores[lost] = 0.0
        return np.asarray(log_softmax(self.power_ * scores + self.class_log_prior_, axis=1))

    def predict_proba(self, X: AnyTable) -> Floats:
        """P(class | x), (n, c), in the order of ``classes_``."""
        return np.exp(self.predict_log_proba(X))

    def predict(self, X: AnyTable) -> npt.NDArray[Any]:
        """The most probable class of each row, (n,)."""
        chosen = self.predict_log_proba(X).argmax(1)
        return np.asarray(self.classes_[chosen])

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _read(self, given: AnyTable, *, reset: bool) -> Table:
        table = read_table(given, self)
        validate_data(self, given, reset=reset, skip_check_array=True)
        return table

    def _log_priors(self, totals: Floats) -> Floats:
        if self.priors is None:
            return np.asarray(np.log(totals / totals.sum()))
        try:
            priors = np.asarray(self.priors, dtype=np.float64)
        except (TypeError, ValueError):
            priors = np.zeros(0)
        valid = priors.shape == totals.shape and bool((priors > 0).all())
        if not valid or not np.isclose(priors.sum(), 1.0):
            raise ValueError(
                f"priors must be {len(totals)} positive numbers that sum to one, one per class, "
                f"got {self.priors}."
            )
        return np.asarray(np.log(priors))


def _check_labels(labels: object, num_rows: int) -> npt.NDArray[Any]:
    """One class per row, (n,)."""
    if labels is None:
        raise ValueError(
            "requires y to be passed, but the target y is None: one class for each row."
        )
    checked = column_or_1d(labels, warn=True)
    assert_all_finite(checked, input_name="y")
    check_classification_targets(checked)
    if len(checked) != num_rows:
        raise ValueError(f"y needs one class per row: expected {num_rows}, got {len(checked)}.")
    return np.asarray(checked)
