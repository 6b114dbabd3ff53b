"""What a fitted density is worth: mean log-likelihoods of rows that it has not seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from statistics import fmean, median, stdev
from typing import Any, TypeVar

import torch
from torch import Tensor

from studies.data.splits import Splits
from studies.grid.experiment import Record, Run

LogProb = Callable[[Tensor], Tensor]
Key = TypeVar("Key", bound=Hashable)
# Rows at a time: what a model of many units needs for them fits into memory.
CHUNK = 2048


@torch.no_grad()
def log_likelihoods(log_prob: LogProb, rows: Tensor) -> Tensor:
    """log p of every row, (n,) in float64."""
    return torch.cat([log_prob(part).double() for part in rows.split(CHUNK)])


def evaluate(log_prob: LogProb, splits: Splits) -> dict[str, Any]:
    """Mean log-likelihoods of validation and test rows, and two standard errors of the latter."""
    test = log_likelihoods(log_prob, splits.test)
    return {
        "valid": float(log_likelihoods(log_prob, splits.valid).mean()),
        "test": float(test.mean()),
        "two_errors": 2 * float(test.std()) / len(test) ** 0.5,
    }


def score(record: Record) -> float:
    """The test score of a run; -∞ for a model that failed, which JSON cannot say."""
    value = record.result["test"]
    return float(value) if isinstance(value, int | float) else -math.inf


def grouped(records: Sequence[Record], key: Callable[[Run], Key]) -> dict[Key, list[Record]]:
    """Records whose runs have the same key, in the order in which keys first occur."""
    groups: dict[Key, list[Record]] = {}
    for record in records:
        groups.setdefault(key(record.run), []).append(record)
    return groups


def spread(records: Sequence[Record]) -> list[float]:
    """The median, the least and the largest test score."""
    tests = [score(record) for record in records]
    return [median(tests), min(tests), max(tests)]


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean of some runs, and their standard deviation if there are several, all finite.

    >>> mean_and_deviation([1.0, 3.0]), mean_and_deviation([2.0])
    ((2.0, 1.4142135623730951), (2.0, None))
    """
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return fmean(values), None
    return fmean(values), stdev(values)
