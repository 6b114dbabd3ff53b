"""Test functions of one variable: powers, points and half-lines, for moments, densities and CDFs.

A family integrates its functions, or products of two of them, against each test function.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from subtractive.inputs.base import InputFamily, Tensors, TestFunctions, Window
from subtractive.numerics.leaf_operations import side_by_side
from subtractive.numerics.messages import LeafMessage


@final
@dataclass(frozen=True)
class Moments(TestFunctions):
    """x and x²."""

    @property
    def count(self) -> int:
        return 2

    def of_products(self, family: InputFamily, p: Tensors) -> LeafMessage:
        return side_by_side([family.gram(p, p, Window(power=power)) for power in (1, 2)], axis=1)

    def of_functions(self, family: InputFamily, p: Tensors) -> LeafMessage:
        return side_by_side([family.integral(p, Window(power=power)) for power in (1, 2)], axis=1)

    def of_gaussians(self, weights: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
        first = (weights * mean).sum(-1)
        second = (weights * (mean.square() + scale.square())).sum(-1)
        return torch.stack([first, second], -1)


@final
@dataclass(frozen=True)
class DensityAt(TestFunctions):
    """The density, or the probability, at given points (q,), or (f, q) of several regions."""

    points: Tensor

    @property
    def count(self) -> int:
        return self.points.shape[-1]

    def of_products(self, family: InputFamily, p: Tensors) -> LeafMessage:
        return self.of_functions(family, p).outer()

    def of_functions(self, family: InputFamily, p: Tensors) -> LeafMessage:
        return family.values(p, _of_regions(self.points, p)[..., None])

    def of_gaussians(self, weights: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
        rate = math.sqrt(0.5) / scale
        z = (self.points[:, None] - mean[:, None, :]) * rate  # (n or 1, q, k)
        bells = z.square().neg_().exp_()  # in place where no gradient needs what was there
        return (bells @ (weights * (rate / math.sqrt(math.pi)))[..., None])[..., 0]


@final
@dataclass(frozen=True)
class CumulativeAt(TestFunctions):
    """The probability of x <= t at given points t (q,), or (f, q) of several regions."""

    points: Tensor

    @property
    def count(self) -> int:
        return self.points.shape[-1]

    def _window(self, p: Tensors) -> Window:
        return Window(upper=_of_regions(self.points, p))

    def of_products(self, family: InputFamily, p: Tensors) -> LeafMessage:
        return family.gram(p, p, self._window(p))

    def of_functions(self, family: InputFamily, p: Tensors) -> LeafMessage:
        return family.integral(p, self._window(p))

    def of_gaussians(self, weights: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
        z = (self.points[:, None] - mean[:, None, :]) / scale
        below: Tensor = torch.special.ndtr(z)
        return (below @ weights[..., None])[..., 0]


def _of_regions(points: Tensor, p: Tensors) -> Tensor:
    """Points (f, q) of all regions that the tensors belong to."""
    return points.expand(len(next(iter(p.values()))), -1)


def together(functions: Sequence[TestFunctions]) -> DensityAt | CumulativeAt | None:
    """Points of one region each as those of all regions, (f, q), the last repeated as needed.

    ``None`` if there is none, or they are of different kinds.
    """
    for kind in (DensityAt, CumulativeAt):
        same = [one for one in functions if isinstance(one, kind) and one.count > 0]
        if same and len(same) == len(functions):
            longest = max(one.count for one in same)
            rows = [
                torch.cat([one.points, one.points[-1:].expand(longest - one.count)])
                for one in same
            ]
            return kind(torch.stack(rows))
    return None
