"""The sum of a squared layer, ``W G Wᴴ``, differentiated by hand (paper: Alg. 1)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from subtractive.numerics.leaf_message import double


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
        return from_left(weight, from_right(gram, weight.mH))

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        weight, gram = ctx.saved_tensors
        return congruence_slopes(weight, gram, 0.5 * (slope + slope.mH))


def congruence_slopes(weight: Tensor, gram: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
    """``∂/∂W = 2 S W G`` and ``∂/∂G = Wᴴ S W``, the slope S being its own adjoint."""
    mixed = from_right(slope, weight)  # (f, n, o, j)
    regions, rows, outputs, width = mixed.shape
    beside = mixed.movedim(1, 2).reshape(regions, outputs, rows * width)
    to_weight = torch.bmm(beside, gram.reshape(regions, rows * width, width))
    return 2 * to_weight, from_left(weight.mH, mixed)


def from_right(grams: Tensor, matrix: Tensor) -> Tensor:
    """``G M`` of grams (f, n, i, j) and matrices (f, j, p)."""
    regions, rows, i, j = grams.shape
    product = torch.bmm(grams.reshape(regions, rows * i, j), matrix)
    return product.reshape(regions, rows, i, matrix.shape[2])


def from_left(matrix: Tensor, grams: Tensor) -> Tensor:
    """``M G`` of matrices (f, o, i) and grams (f, n, i, p)."""
    if grams.shape[1] == 1:
        return torch.bmm(matrix, grams[:, 0])[:, None]
    return matrix[:, None] @ grams
