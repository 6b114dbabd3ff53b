"""Expectations of any functions of one variable, by sums over given points."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

import torch
from torch import Tensor

from subtractive.inputs.base import InputFamily, Tensors, TestFunctions
from subtractive.inputs.test_functions import DensityAt
from subtractive.numerics.leaf_operations import largest_exponent, relative_values
from subtractive.numerics.messages import LeafMessage


@final
@dataclass(frozen=True)
class WeightedPoints(TestFunctions):
    r"""``Σ_q w_rq p(x_q)`` of the density p of a variable at points (q,), with weights (r, q).

    With the nodes of a quadrature rule, and the values of r functions at them times the weights
    of the rule, these are expectations; at states and atoms they are exact.
    """

    points: Tensor
    weights: Tensor
    # Products by the parameters that they were computed from, which rows with other gaps share.
    _products: dict[tuple[object, ...], tuple[Tensors, LeafMessage]] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    @property
    def count(self) -> int:
        return len(self.weights)

    def of_products(self, family: InputFamily, p: Tensors) -> LeafMessage:
        if torch.is_grad_enabled():
            return self._of_products(family, p)
        key = tuple((name, t.data_ptr(), t._version, t.shape) for name, t in p.items())
        if key not in self._products:  # the tensors are kept, so that no other has their place
            self._products[key] = p, self._of_products(family, p)
        return self._products[key][1]

    def _of_products(self, family: InputFamily, p: Tensors) -> LeafMessage:
        size, peak = self._sizes(family, p)
        weighted = self.weights[:, None, :] * size.mT[:, None]  # (f, r, i, q)
        products = weighted @ size[:, None]  # (f, r, i, j)
        return LeafMessage(products, (2 * peak)[:, None, :, None].expand_as(products))

    def of_functions(self, family: InputFamily, p: Tensors) -> LeafMessage:
        size, peak = self._sizes(family, p)
        sums = self.weights @ size  # (f, r, i)
        return LeafMessage(sums, peak[:, None].expand_as(sums))

    def of_gaussians(self, weights: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
        return DensityAt(self.points).of_gaussians(weights, mean, scale) @ self.weights.mT

    def _sizes(self, family: InputFamily, p: Tensors) -> tuple[Tensor, Tensor]:
        """The functions at the points, (f, q, i), in units of exp of peaks (f, 1)."""
        values = DensityAt(self.points).of_functions(family, p)
        peak = largest_exponent(values)
        size = relative_values(values, values).double()
        if peak is None:
            return size, size.new_zeros(len(size), 1)
        return size, peak.flatten(1)[:, :1].double()
