"""Means of columns that are standardised, in closed form where inputs have full covariances.

There the Gaussians of each row have other means, so that sums over points would take as many
exponentials as rows times components times points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from subtractive.inputs.base import InputFamily, Tensors, TestFunctions
from subtractive.inputs.weighted_points import WeightedPoints
from subtractive.numerics.messages import LeafMessage
from subtractive.tables.columns import Numeric
from subtractive.tables.transforms import Affine

_FAR = 9.0  # standard deviations


@final
@dataclass(frozen=True)
class AffineMean(TestFunctions):
    """One, and the number that a code stands for: ``c + u t``, logarithmic beyond its reach.

    Bounds (-inf and inf if there are none) are codes at which numbers are clipped.
    """

    points: WeightedPoints  # the same by a sum, for other inputs
    transform: Affine
    bounds: tuple[float, float]

    @property
    def count(self) -> int:
        return 2

    def of_products(self, family: InputFamily, p: Tensors) -> LeafMessage:
        return self.points.of_products(family, p)

    def of_functions(self, family: InputFamily, p: Tensors) -> LeafMessage:
        return self.points.of_functions(family, p)

    def of_gaussians(self, weights: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
        low, high = self.bounds
        reach = self.transform.reach
        code = mean + _beyond(mean, scale, high, reach) - _beyond(-mean, scale, -low, reach)
        total = weights.sum(-1)
        numbers = self.transform.centre * total + self.transform.unit * (weights * code).sum(-1)
        return torch.stack([total, numbers], -1)


def _beyond(mean: Tensor, scale: Tensor, bound: float, reach: float) -> Tensor:
    """E[h(x) - x] of what is above a bound, or above the reach if there is none."""
    end = min(bound, reach)
    a = (end - mean) / scale
    if bool((a > _FAR).all()):  # nothing of it is in the sum's digits
        return torch.zeros_like(a)
    above: Tensor = torch.special.ndtr(-a)
    bell = (-0.5 * a.square()).exp() / math.sqrt(2 * math.pi)
    excess = (mean - end) * above + scale * bell  # E[(x - end)+]
    if math.isfinite(bound):
        return -excess
    # E[exp(x - end) - 1 - (x - end)] above the end.
    tilted: Tensor = (mean - end + 0.5 * scale.square() + torch.special.log_ndtr(scale - a)).exp()
    return tilted - above - excess


def affine_mean(column: Numeric, points: WeightedPoints) -> AffineMean | None:
    """The mean of a column in closed form; ``None`` if its codes are no standardised numbers."""
    transform = column.transform
    if not isinstance(transform, Affine) or column.atoms or not math.isfinite(transform.reach):
        return None
    limits = [column.low, column.high]
    if column.grid is not None and column.grid.levels:
        limits = [max(limits[0], column.grid.levels[0]), min(limits[1], column.grid.levels[-1])]
    low, high = ((limit - transform.centre) / transform.unit for limit in limits)
    # A bound in the logarithmic part is too far away to matter much, and has no closed form here.
    if any(math.isfinite(end) and abs(end) > transform.reach for end in (low, high)):
        return None
    return AffineMean(points, transform, (low, high))
