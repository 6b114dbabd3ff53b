"""The objective: mean negative log-likelihood with Z once per update (paper: Eq. 4)."""

from __future__ import annotations

import torch
from torch import Tensor

from subtractive.densities.base import Density
from subtractive.queries.evidence import Evidence


def negative_log_likelihood(density: Density, batch: Evidence) -> Tensor:
    """−mean log p over the rows of a batch, missing entries integrated out, a scalar."""
    return density.log_normaliser() - density.log_weight(batch).mean()


@torch.no_grad()
def mean_log_likelihood(density: Density, data: Evidence) -> float:
    """mean log p over all rows of a data set."""
    return float(density.log_weight(data).mean() - density.log_normaliser())
