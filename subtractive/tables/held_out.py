"""Which of two models rows that were held out prefer."""

from __future__ import annotations

from torch import Tensor

# Nats by which one row may prefer a model, at most.
MOST_PER_ROW = 20.0


def mean_gain(scores: Tensor, others: Tensor, weights: Tensor) -> float:
    """By how many nats log-densities (n,) are above ``others`` of the same rows, in the mean.

    Differences are paired, and no row counts for more than some nats: one that both models find
    nearly impossible does not say which of them is better.
    """
    gains = (scores - others).clamp(-MOST_PER_ROW, MOST_PER_ROW).nan_to_num()
    return float((weights * gains).sum() / weights.sum())
