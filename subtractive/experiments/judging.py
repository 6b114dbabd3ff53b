"""What a fitted density is worth: mean log-likelihoods of rows that it has not seen."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean, stdev
from typing import Any

import torch
from torch import Tensor

from subtractive.data.splits import Splits

LogProb = Callable[[Tensor], Tensor]
# Rows at a time: what a model of many units needs for them fits into memory.
CHUNK = 2048


@torch.no_grad()
def log_likelihoods(log_prob: LogProb, rows: Tensor) -> Tensor:
    """log p of every row, (n,) in float64."""
    return torch.cat([log_prob(part).double() for part in rows.split(CHUNK)])


def judge(log_prob: LogProb, splits: Splits) -> dict[str, Any]:
    """Mean log-likelihoods of validation and test rows, and two standard errors of the latter."""
    test = log_likelihoods(log_prob, splits.test)
    return {
        "valid": float(log_likelihoods(log_prob, splits.valid).mean()),
        "test": float(test.mean()),
        "two_errors": 2 * float(test.std()) / len(test) ** 0.5,
    }


def mean_and_deviation(values: list[float]) -> tuple[float, float | None]:
    """The mean of some runs, and their standard deviation if there are several."""
    return fmean(values), stdev(values) if len(values) > 1 else None
