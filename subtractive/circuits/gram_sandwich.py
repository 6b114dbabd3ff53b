"""The sum of a squared layer, ``W G Wᴴ``, with a backward pass of its own (paper: Alg. 1)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from subtractive.numerics.leaf_message import double
from subtractive.numerics.transforms import is_batched

# From this width on, gradients of single-precision weights are computed in single precision; below
# it, the conversion would cost more than it saves.
NARROW_FROM = 96


def gram_sandwich(weight: Tensor, gram: Tensor) -> Tensor:
    """``W G Wᴴ``: weights (f, o, i), grams (f, n, i, j), result (f, n, o, p), in float64.

    Gradients assume that G is its own adjoint, as grams are, and cost three products instead of
    four.
    """
    if torch.is_grad_enabled() and (weight.requires_grad or gram.requires_grad):
        return _GramSandwich.apply(weight, gram)  # type: ignore[no-any-return, no-untyped-call]
    return _sandwich(weight, gram)


def _sandwich(weight: Tensor, gram: Tensor) -> Tensor:
    dtype = double(torch.promote_types(weight.dtype, gram.dtype))
    weight = weight.to(dtype)
    return _times_left(weight, _times_right(gram.to(dtype), weight.mH))


class _GramSandwich(Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, gram: Tensor) -> Tensor:  # noqa: ANN401
        dtype = double(torch.promote_types(weight.dtype, gram.dtype))
        wide = weight.to(dtype)
        half = _times_right(gram.to(dtype), wide.mH)
        ctx.save_for_backward(weight, gram)
        ctx.wide, ctx.half = wide, half
        return _times_left(wide, half)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        weight, gram = ctx.saved_tensors
        if torch.is_grad_enabled() or is_batched(grad):  # to be differentiated again
            return _recorded_gradients(weight, gram, grad, ctx.needs_input_grad)
        to_weight, to_gram = _gradients(weight, ctx.wide, ctx.half, grad)
        return _as(to_weight, weight), _as(to_gram, gram)


def _recorded_gradients(
    weight: Tensor, gram: Tensor, grad: Tensor, needed: tuple[bool, bool]
) -> tuple[Tensor | None, ...]:
    with torch.enable_grad():
        result = _sandwich(weight, gram)
    inputs = [t for t, is_needed in zip((weight, gram), needed, strict=True) if is_needed]
    found = iter(torch.autograd.grad(result, inputs, grad, create_graph=torch.is_grad_enabled()))
    return tuple(next(found) if is_needed else None for is_needed in needed)


def _gradients(weight: Tensor, wide: Tensor, half: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """``(S + Sᴴ) W G`` and ``Wᴴ S W`` of a gradient S.

    Where components cancel, they do so in W G, which is in double precision; what is left is as
    good in single precision as the gradients of vectors are.
    """
    if weight.dtype == torch.float32 and weight.shape[2] >= NARROW_FROM:
        scale = grad.abs().amax().clamp(min=torch.finfo(torch.float64).tiny)
        to_weight, to_gram = _products(weight, half.float(), (grad / scale).float())
        return to_weight.double() * scale, to_gram.double() * scale
    return _products(wide, half, grad)


def _products(weight: Tensor, half: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    regions, rows, outputs = grad.shape[:3]
    beside = (grad + grad.mH).movedim(1, 2).reshape(regions, outputs, rows * outputs)
    below = half.mH.reshape(regions, rows * outputs, half.shape[2])
    return torch.bmm(beside, below), _times_left(weight.mH, _times_right(grad, weight))


def _as(grad: Tensor, like: Tensor) -> Tensor:
    """A gradient in the dtype of what it is the gradient of."""
    grad = grad.real if grad.is_complex() and not like.is_complex() else grad
    return grad.to(like.dtype)


def _times_right(grams: Tensor, matrix: Tensor) -> Tensor:
    """``G M`` of grams (f, n, i, j) and matrices (f, j, p)."""
    regions, rows, i, j = grams.shape
    product = torch.bmm(grams.reshape(regions, rows * i, j), matrix)
    return product.view(regions, rows, i, matrix.shape[2])


def _times_left(matrix: Tensor, grams: Tensor) -> Tensor:
    """``M G`` of matrices (f, o, i) and grams (f, n, i, p)."""
    if grams.shape[1] == 1:
        return torch.bmm(matrix, grams[:, 0])[:, None]
    return matrix[:, None] @ grams
