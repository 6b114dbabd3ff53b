"""Filling gaps, and finding odd rows, with scikit-learn's interfaces for pipelines."""

from __future__ import annotations

from typing import Any, Self, final

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, OutlierMixin, TransformerMixin, clone
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from subtractive.tables.containers import AnyTable
from subtractive.tables.estimator import SubtractiveMixture
from subtractive.tables.reading import Floats, RandomState
from subtractive.tables.validation import check_weights


@final
class SubtractiveImputer(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # untyped
    """Fills missing values with conditional means, or the most probable categories.

    Args:
        estimator: The density that is fitted; ``SubtractiveMixture()`` if not given.
        random_state: That of the density.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(200, 1)) * [[1.0, 2.0]]
    >>> x[::4, 1] = np.nan
    >>> imputer = sub.SubtractiveImputer(sub.SubtractiveMixture(4, max_epochs=2), random_state=0)
    >>> bool(np.isnan(imputer.fit_transform(x)).any())
    False
    """

    estimator_: SubtractiveMixture
    n_features_in_: int

    def __init__(
        self, estimator: SubtractiveMixture | None = None, *, random_state: RandomState = None
    ) -> None:
        self.estimator = estimator
        self.random_state = random_state

    def fit(self, X: AnyTable, y: object = None, sample_weight: object = None) -> Self:
        """Fit the density."""
        self.estimator_ = _fitted(self, X, sample_weight)
        _take_names(self, self.estimator_)
        return self

    def transform(self, X: AnyTable) -> AnyTable:
        """The table without gaps."""
        check_is_fitted(self)
        return self.estimator_.impute(X)

    def get_feature_names_out(self, input_features: object = None) -> npt.NDArray[Any]:
        """The names of the columns, which stay as they are."""
        check_is_fitted(self)
        return np.array([str(name) for name in self.estimator_.schema_.names], dtype=object)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


@final
class SubtractiveOutlierDetector(OutlierMixin, BaseEstimator):  # type: ignore[misc]  # untyped
    """Rows of low density: as many of the training rows as ``contamination`` says are outliers.

    Args:
        estimator: The density that is fitted; ``SubtractiveMixture()`` if not given.
        contamination: The share of outliers among the rows of training.
        random_state: That of the density.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(200, 2))
    >>> mixture = sub.SubtractiveMixture(4, max_epochs=2)
    >>> detector = sub.SubtractiveOutlierDetector(mixture, random_state=0).fit(x)
    >>> detector.predict([[0.0, 0.0], [50.0, 0.0]])
    array([ 1, -1])
    """

    estimator_: SubtractiveMixture
    offset_: float
    n_features_in_: int

    def __init__(
        self,
        estimator: SubtractiveMixture | None = None,
        *,
        contamination: float = 0.1,
        random_state: RandomState = None,
    ) -> None:
        self.estimator = estimator
        self.contamination = contamination
        self.random_state = random_state

    def fit(self, X: AnyTable, y: object = None, sample_weight: object = None) -> Self:
        """Fit the density, and find the score below which rows are outliers."""
        if not 0 < self.contamination <= 0.5:
            raise ValueError(
                f"contamination must be above 0 and at most 0.5, got {self.contamination!r}."
            )
        self.estimator_ = _fitted(self, X, sample_weight)
        _take_names(self, self.estimator_)
        scores = self.estimator_.score_samples(X)
        weights = check_weights(sample_weight, len(scores))
        order = np.argsort(scores, kind="stable")
        below = np.cumsum(weights[order]) / weights.sum()
        # Rounding must not make one row more an outlier.
        border = int(np.searchsorted(below, self.contamination + 1e-9, side="right"))
        self.offset_ = float(scores[order][border])
        return self

    def score_samples(self, X: AnyTable) -> Floats:
        """The log-density of each row, (n,)."""
        check_is_fitted(self)
        return self.estimator_.score_samples(X)

    def decision_function(self, X: AnyTable) -> Floats:
        """The log-density of each row over that of the border, (n,): negative for outliers."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: AnyTable) -> npt.NDArray[np.int64]:
        """-1 for outliers and 1 for other rows, (n,)."""
        return np.where(self.decision_function(X) < 0, -1, 1)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def _fitted(
    owner: SubtractiveImputer | SubtractiveOutlierDetector,
    given: AnyTable,
    sample_weight: object,
) -> SubtractiveMixture:
    """The density of an owner, whose random state counts if it has one."""
    fresh = SubtractiveMixture() if owner.estimator is None else clone(owner.estimator)
    if owner.random_state is not None:
        fresh.set_params(random_state=owner.random_state)
    return fresh.fit(given, sample_weight=sample_weight)


def _take_names(estimator: Any, fitted: SubtractiveMixture) -> None:  # noqa: ANN401 - of ours
    estimator.n_features_in_ = fitted.n_features_in_
    if hasattr(fitted, "feature_names_in_"):
        estimator.feature_names_in_ = fitted.feature_names_in_
