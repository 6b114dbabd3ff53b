"""The sum of a squared layer, ``W G Wᴴ``, differentiated by hand (paper: Alg. 1)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from subtractive.numerics.unscaled import double


def congruence(weight: Tensor, gram: Tensor) -> Tensor:
    """``W G Wᴴ``: weights (f, o, i), grams (f, n, i, j), result (f, n, o, p), in float64.

    Slopes take it that G is its own adjoint, as grams are, and cost three products instead of
    four.
    """
    dtype = double(torch.promote_types(weight.dtype, gram.dtype))
    return _Congruence.apply(weight.to(dtype), gram.to(dtype))  # type: ignore[no-any-return, no-untyped-call]


class _Congruence(Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, gram: Tensor) -> Tensor:  # noqa: ANN401
        ctx.save_for_backward(weight, gram)
        return _from_left(weight, _from_right(gram, weight.mH))

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        """``∂/∂G = Wᴴ S W`` and ``∂/∂W = 2 S W G``, the slope S being made its own adjoint."""
        weight, gram = ctx.saved_tensors
        mixed = _from_right(0.5 * (slope + slope.mH), weight)  # (f, n, o, j)
        regions, rows, outputs, width = mixed.shape
        beside = mixed.movedim(1, 2).reshape(regions, outputs, rows * width)
        to_weight = torch.bmm(beside, gram.reshape(regions, rows * width, width))
        return 2 * to_weight, _from_left(weight.mH, mixed)


def _from_right(grams: Tensor, matrix: Tensor) -> Tensor:
    """``G M`` of grams (f, n, i, j) and matrices (f, j, p)."""
    regions, rows, i, j = grams.shape
    product = torch.bmm(grams.reshape(regions, rows * i, j), matrix)
    return product.reshape(regions, rows, i, matrix.shape[2])


def _from_left(matrix: Tensor, grams: Tensor) -> Tensor:
    """``M G`` of matrices (f, o, i) and grams (f, n, i, p): one product for all rows, turned."""
    if grams.shape[1] == 1:
        return torch.bmm(matrix, grams[:, 0])[:, None]
    return _from_right(grams.mT, matrix.mT).mT
