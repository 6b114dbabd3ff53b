"""The model against Gaussian mixtures, on rows that the mixtures have not seen."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from subtractive.report.context import Context, Rows, as_tensor
from subtractive.report.formatting import count
from subtractive.tables.reading import Floats

SIZES = (1, 4, 16)
COVARIANCES = {"full": "full covariances", "diag": "diagonal covariances"}
FEWEST_ROWS, MOST_ROWS = 50, 20_000


class Rival(NamedTuple):
    """A density and its log-densities of the test rows, (n,)."""

    name: str
    scores: Floats

    @property
    def mean(self) -> float:
        """The mean log-density."""
        return float(self.scores.mean())

    @property
    def error(self) -> float:
        """The standard error of the mean, NaN of a mean that is not finite."""
        if not np.isfinite(self.scores).all():
            return float("nan")
        return float(self.scores.std(ddof=1) / np.sqrt(len(self.scores)))


class Comparison(NamedTuple):
    """Densities of the same columns on the same rows, the model first."""

    rivals: list[Rival]
    num_columns: int
    num_train: int
    num_test: int


def compare(context: Context) -> Comparison | str:
    """The model and two kinds of Gaussian mixtures, or why there is no comparison.

    A mixture has as many components, of 1, 4 or 16, as rows find best that neither trained it
    nor test it. All are judged on the continuous columns of complete rows, in users' units.
    """
    # A mixture's density grows without bound at an atom: nothing to compare a probability with.
    variables = [v for v in context.continuous if not context.scale(v).atoms]
    if not variables:
        return "no numeric column has a density everywhere."
    values = np.stack([context.values(variable) for variable in variables], 1)
    complete = np.flatnonzero(~np.isnan(values).any(1))
    rows = context.some_rows(MOST_ROWS, complete)
    if len(rows) < FEWEST_ROWS:
        return (
            f"only {count(len(rows))} rows are complete in the numeric columns; a comparison "
            f"needs {FEWEST_ROWS}."
        )
    train, valid, test = _split(rows, context.seed)
    centre, unit = values[train].mean(0), values[train].std(0)
    unit[unit == 0] = 1.0
    standard = (values - centre) / unit
    rivals = [Rival("this model", _model_scores(context, variables, test))]
    for kind, words in COVARIANCES.items():
        best = _best_mixture(kind, standard[train], standard[valid], context.seed)
        if best is None:
            return "they could not be fitted to these columns."
        size = "1 Gaussian" if best.n_components == 1 else f"{best.n_components} Gaussians"
        scores = best.score_samples(standard[test]) - np.log(unit).sum()
        rivals.append(Rival(f"{size}, {words}", np.asarray(scores)))
    return Comparison(rivals, len(variables), len(train) + len(valid), len(test))


def _split(rows: Rows, seed: int) -> tuple[Rows, Rows, Rows]:
    """Rows to train on (64 %), to choose by (16 %) and to judge by (20 %)."""
    order = np.random.default_rng(seed).permutation(rows)
    test, rest = np.split(order, [len(order) // 5])
    valid, train = np.split(rest, [len(rest) // 5])
    return train, valid, test


@torch.no_grad()
def _model_scores(context: Context, variables: list[int], rows: Rows) -> Floats:
    """Log-densities of the continuous columns, the others integrated out exactly."""
    density = context.density.marginal(variables)
    codes = context.codes[rows][:, variables]
    slope = sum(context.scale(v).log_abs_det_jacobian(context.values(v)[rows]) for v in variables)
    impossible = np.isnan(codes).any(1)  # complete, yet outside of what a column may hold
    scores = density.log_prob(as_tensor(codes)).numpy() + slope
    return np.where(impossible, -np.inf, scores)


def _best_mixture(kind: str, train: Floats, valid: Floats, seed: int) -> GaussianMixture | None:
    best, best_score = None, -np.inf
    for size in SIZES:
        if size > len(train):
            continue
        mixture = GaussianMixture(size, covariance_type=kind, random_state=seed)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                score = mixture.fit(train).score(valid)
        except ValueError:  # a component has shrunk to a point
            continue
        if score > best_score:
            best, best_score = mixture, score
    return best
