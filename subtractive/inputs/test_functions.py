"""Test functions of one variable: powers, points and half-lines, for moments, densities and CDFs.

A family integrates its functions, or products of two of them, against each test function.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from subtractive.inputs.base import InputFamily, Tensors, TestFunctions, Window
from subtractive.numerics.leaf_message import LeafMessage, side_by_side


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
    """The density, or the probability, at given points (q,)."""

    points: Tensor

    @property
    def count(self) -> int:
        return len(self.points)

    def of_products(self, family: InputFamily, p: Tensors) -> LeafMessage:
        return self.of_functions(family, p).outer()

    def of_functions(self, family: InputFamily, p: Tensors) -> LeafMessage:
        regions = len(next(iter(p.values())))
        return family.values(p, self.points[None, :, None].expand(regions, -1, -1))

    def of_gaussians(self, weights: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
        z = (self.points[:, None] - mean[:, None, :]) / scale  # (n or 1, q, k)
        heights = (-0.5 * z.square()).exp() / (scale * math.sqrt(2 * math.pi))
        return (heights @ weights[..., None])[..., 0]


@final
@dataclass(frozen=True)
class CumulativeAt(TestFunctions):
    """The probability of x <= t at given points t (q,)."""

    points: Tensor

    @property
    def count(self) -> int:
        return len(self.points)

    def _window(self, p: Tensors) -> Window:
        regions = len(next(iter(p.values())))
        return Window(upper=self.points[None].expand(regions, -1))

    def of_products(self, family: InputFamily, p: Tensors) -> LeafMessage:
        return family.gram(p, p, self._window(p))

    def of_functions(self, family: InputFamily, p: Tensors) -> LeafMessage:
        return family.integral(p, self._window(p))

    def of_gaussians(self, weights: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
        z = (self.points[:, None] - mean[:, None, :]) / scale
        below: Tensor = torch.special.ndtr(z)
        return (below @ weights[..., None])[..., 0]
