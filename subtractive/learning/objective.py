"""The objective: mean negative log-likelihood with Z once per update (paper: Eq. 4)."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from subtractive.densities.base import Density
from subtractive.learning.batches import Batch


def negative_log_likelihood(density: Density, batch: Batch) -> Tensor:
    """``log Z - Σ_n w_n log |c(x_n)|² / Σ_n w_n``, a scalar, missing entries integrated out.

    Of a batch that several processes share, this process's part of it: the sum over all
    processes, each of which has computed Z once, is the objective.
    """
    fit = (batch.weights * density.log_weight(batch.evidence)).sum() / batch.total
    return density.log_normaliser() / batch.num_parts - fit


@torch.no_grad()
def log_likelihood(density: Density, batches: Iterable[Batch]) -> Tensor:
    """``Σ w_n log p(x_n)`` and ``Σ w_n`` over this process's part of a data set, (2,)."""
    log_normaliser = density.log_normaliser()
    total = torch.zeros(2, dtype=torch.float64, device=density.device)
    for evidence, weights, _, _ in batches:
        scores = density.log_weight(evidence) - log_normaliser
        total += torch.stack([(weights * scores).sum(), weights.sum()])
    return total
