"""How well a model fits a table: calibration, a classifier, and random questions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from subtractive.plots.pit import ks_distance, pit_values
from subtractive.report.context import Context
from subtractive.tables.checks import check
from subtractive.tables.reading import Floats
from subtractive.tables.receipts import Check

# A table of fewer rows says too little.
FEWEST_ROWS = 60
MOST_ROWS, MOST_FEATURES, MOST_QUESTIONS, FEW_QUESTIONS, MANY_COLUMNS = 1000, 100, 100, 30, 60
# The distance of one in a hundred right models, times the root of the number of rows.
BAND = 1.628
GOOD, FAIR, POOR = 2, 1, 0


@final
@dataclass(frozen=True)
class Fidelity:
    """What was measured; ``None`` where the table is too small for it."""

    pit: pd.DataFrame
    auc: float | None
    questions: Check | None

    @property
    def distances(self) -> pd.Series:
        """The Kolmogorov-Smirnov distance of each column, the largest first."""
        found = {name: ks_distance(self.pit[name].to_numpy()) for name in self.pit}
        return pd.Series(found, dtype=float).sort_values(ascending=False, kind="stable")

    @property
    def calibrated(self) -> pd.Series:
        """Whether each column is as uniform as those of 99 of 100 right models."""
        sizes = self.pit.notna().sum().clip(lower=1)
        return self.distances <= BAND / np.sqrt(sizes.loc[self.distances.index])

    @property
    def grades(self) -> list[int]:
        """How good each measurement is."""
        found = [_grade(float(self.calibrated.mean()), 0.9, 0.6)] if len(self.pit.columns) else []
        if self.auc is not None:
            found.append(_grade(1 - self.auc, 0.38, 0.22))
        if self.questions is not None:
            found.append(_grade(self.questions.share, 0.9, 0.75))
        return found

    @property
    def verdict(self) -> str:
        """All of it in a word: the worst measurement counts."""
        if self.auc is None and self.questions is None:
            return "There are too few rows to say how well the model fits this table."
        words = {GOOD: "fits this table well", FAIR: "fits this table roughly"}
        return f"The model {words.get(min(self.grades), 'fits this table poorly')}."


def measure(context: Context) -> Fidelity:
    """Compare a model with a table in three ways."""
    view = context.model._view()
    pit = pit_values(view, context.dated, context.seed)
    codes = context.codes
    if context.table.num_rows < FEWEST_ROWS or np.isnan(codes).all(0).any():
        return Fidelity(pit, None, None)
    rows = context.some_rows(MOST_ROWS)
    count = MOST_QUESTIONS if codes.shape[1] <= MANY_COLUMNS else FEW_QUESTIONS
    questions = check(view, codes[rows], np.ones(len(rows)), count, context.seed)
    return Fidelity(pit, classifier_auc(context), questions if questions.receipts else None)


def classifier_auc(context: Context) -> float:
    """The area under the ROC curve with which gradient boosting tells samples from rows.

    One half if it cannot, one if it always can; by three-fold cross-validation. Samples are
    rounded as the table is, and have its gaps.
    """
    rows = context.some_rows(min(MOST_ROWS, len(context.samples)))
    data = context.codes[rows][:, :MOST_FEATURES]
    drawn = as_recorded(context, context.samples[: len(rows)])[:, :MOST_FEATURES]
    drawn = np.where(np.isnan(data), np.nan, drawn)
    data = as_recorded(context, context.codes[rows])[:, :MOST_FEATURES]
    features = np.concatenate([data, drawn])
    is_sample = np.repeat([0, 1], len(rows))
    booster = HistGradientBoostingClassifier(
        max_iter=60, early_stopping=False, random_state=context.seed
    )
    folds = StratifiedKFold(3, shuffle=True, random_state=context.seed)
    scores = cross_val_predict(booster, features, is_sample, cv=folds, method="predict_proba")
    return float(roc_auc_score(is_sample, scores[:, 1]))


def as_recorded(context: Context, codes: Floats) -> Floats:
    """Codes (n, d) after they were written to a table, with its grids, and read again."""
    columns = []
    for variable, column in enumerate(context.schema.variables):
        own = codes[:, variable]
        known = ~np.isnan(own)
        found = np.full(len(own), np.nan)
        found[known] = column.encode(column.decode(own[known]))
        columns.append(found)
    return np.stack(columns, 1)


def _grade(value: float, good: float, fair: float) -> int:
    return GOOD if value >= good else FAIR if value >= fair else POOR
