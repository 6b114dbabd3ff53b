"""The objective: mean negative log-likelihood with Z once per update (paper: Eq. 4)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from subtractive.densities.base import Density
from subtractive.inference.partition import CancellationError
from subtractive.learning.batches import Batch
from subtractive.learning.distributed import Group

# Where two densities are compared, a row counts for so many times the median difference of all
# rows at most, which is taken to be between so many nats.
MEDIANS_PER_ROW, LEAST_PER_ROW, MOST_PER_ROW = 6.0, 1.0, 20.0


def negative_log_likelihood(density: Density, batch: Batch) -> Tensor:
    """``log Z - Σ_n w_n log |c(x_n)|² / Σ_n w_n``, a scalar, missing entries integrated out.

    Of a batch that several processes share, this process's part of it: the sum over all
    processes, each of which has computed Z once, is the objective.
    """
    fit = (batch.weights * density.log_weight(batch.evidence)).sum() / batch.total
    return density.log_normaliser() / batch.num_parts - fit


class RowScores(NamedTuple):
    """log p of rows, and their weights, (n,) each."""

    scores: Tensor
    weights: Tensor

    def mean(self, group: Group) -> float:
        """The mean over the rows of all processes; -inf if there is none."""
        total = torch.stack([(self.weights * self.scores).sum(), self.weights.sum()])
        group.add([total])
        mean = float(total[0] / total[1])
        return -math.inf if math.isnan(mean) else mean

    def gain(self, other: RowScores) -> float:
        """By how much these are better than others of the same rows, in the mean."""
        return paired_gain(self.scores, other.scores, self.weights)


def paired_gain(scores: Tensor, others: Tensor, weights: Tensor) -> float:
    """By how many nats log-densities (n,) are above others of the same rows, in the mean.

    No row counts for much more than most rows do: one that both densities find nearly impossible
    does not say which of them is better.
    """
    return float((weights * _gains(scores, others)).sum() / weights.sum())


def paired_error(scores: Tensor, others: Tensor, weights: Tensor) -> float:
    """The standard error of the paired gain of log-densities (n,)."""
    shares, gains = weights / weights.sum(), _gains(scores, others)
    deviations = gains - (shares * gains).sum()
    return float((shares * deviations).square().sum().sqrt())


def _gains(scores: Tensor, others: Tensor) -> Tensor:
    gains = (scores - others).nan_to_num(0.0, math.inf, -math.inf)
    median = float(gains.abs().median()) if len(gains) else 0.0
    most = min(MOST_PER_ROW, max(LEAST_PER_ROW, MEDIANS_PER_ROW * median))
    return gains.clamp(-most, most)


@torch.no_grad()
def row_scores(density: Density, batches: Iterable[Batch]) -> RowScores:
    """The log-likelihoods of this process's part of a data set; -inf if Z cancels completely."""
    nothing = torch.zeros(0, dtype=torch.float64, device=density.device)
    scores, weights = [nothing], [nothing]
    try:
        log_normaliser = density.log_normaliser()
    except CancellationError:
        log_normaliser = torch.tensor(math.inf, dtype=torch.float64, device=density.device)
    for batch in batches:
        scores.append(density.log_weight(batch.evidence) - log_normaliser)
        weights.append(batch.weights.double())
    return RowScores(torch.cat(scores), torch.cat(weights))
