"""The sums of a layer: of vectors ``W a``, of grams ``W A Wᴴ``, and over all units of a region.

Integrals of smooth functions that overlap are nearly dependent: a gram of 64 Gaussians has a
numerical rank of about 20. It is the sum of the outer products of so few vectors, by which the
square of a layer is cheaper by that factor.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
import scipy
import torch
from torch import Tensor
from torch.autograd import Function

from subtractive.numerics.messages import Message, Scaled, double, multiply, times
from subtractive.numerics.transforms import is_transformed

# Where grams have so many units, their products take longer than calling torch.
_WIDE = 64


def mix(weight: Tensor, values: Tensor) -> Tensor:
    """``y = W x``: weights (f, o, i), values (f, n, i), result (f, n, o)."""
    if weight.dtype != values.dtype:
        dtype = torch.promote_types(weight.dtype, values.dtype)
        weight, values = weight.to(dtype), values.to(dtype)
    return torch.bmm(values, weight.mT)


def mix_gram(weight: Tensor, gram: Tensor, other: Tensor) -> Tensor:
    """``Y = W G Vᴴ``, in double precision: components that nearly cancel leave few digits.

    Weights are (f, o, i) and (f, p, j), grams (f, n, i, j), the result is (f, n, o, p). Where both
    weights are one tensor, gradients may take it that G is its own adjoint, as grams are.
    """
    is_complex = weight.is_complex() or gram.is_complex() or other.is_complex()
    dtype = torch.complex128 if is_complex else torch.float64
    gram = gram.to(dtype)
    regions, rows, i, j = gram.shape
    if rows == 1 and i >= _WIDE and other is weight and not (is_complex or is_transformed()):
        return _GramSum.apply(weight, gram)  # type: ignore[no-any-return, no-untyped-call]
    left = weight.to(dtype)
    right = left if other is weight else other.to(dtype)
    half = torch.bmm(gram.reshape(regions, rows * i, j), right.mH)
    if rows == 1:
        return torch.bmm(left, half).unsqueeze(1)
    return left[:, None] @ half.view(regions, rows, i, -1)


class _GramSum(Function):
    """``W G Wᵀ`` of weights (f, o, i) and grams (f, 1, i, j), differentiated by hand.

    That takes three products instead of four. Components that cancel do so in ``G Wᵀ``, which is
    in double precision. What is left is as good in single precision as gradients of vectors are.
    """

    @staticmethod
    def forward(ctx: Any, weight: Tensor, gram: Tensor) -> Tensor:  # noqa: ANN401
        wide = weight.to(gram.dtype)
        half = torch.bmm(gram.squeeze(1), wide.mT)
        ctx.save_for_backward(weight, gram, half)
        return torch.bmm(wide, half).unsqueeze(1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        """``∂/∂W = (S + Sᵀ) W G`` and ``∂/∂G = Wᵀ (S + Sᵀ) W / 2`` for a gradient S."""
        weight, gram, half = ctx.saved_tensors
        if torch.is_grad_enabled():  # they will be differentiated again
            half = torch.bmm(gram.squeeze(1), weight.to(gram.dtype).mT)
        else:
            half, grad = half.to(weight.dtype), grad.to(weight.dtype)
        matrix, grad = weight.to(grad.dtype), grad.squeeze(1)
        both = grad + grad.mT
        to_weight = torch.bmm(both, half.mT)
        to_gram = torch.bmm(matrix.mT, torch.bmm(both, 0.5 * matrix))
        return to_weight.to(weight.dtype), to_gram.to(gram.dtype).unsqueeze(1)


def kronecker(vectors: Sequence[Tensor]) -> Tensor:
    """``a ⊗ b ⊗ ...``, (f, n, i·j·...), of vectors (f, n, i), (f, n, j), ..."""
    product = vectors[0]
    for vector in vectors[1:]:
        product = (product[..., :, None] * vector[..., None, :]).flatten(2)
    return product


def mix_kronecker_gram(weight: Tensor, grams: Sequence[Tensor], other: Tensor) -> Tensor:
    """``W (A ⊗ B ⊗ ...) Vᴴ`` by applying each gram to its own axis of W.

    Weights (f, o, i·j·...) and (f, p, k·l·...), grams (f, n, i, k), (f, n, j, l), ..., result
    (f, n, o, p).
    """
    rows = max(gram.shape[1] for gram in grams)
    dtype = weight.dtype
    for gram in grams:
        dtype = torch.promote_types(dtype, gram.dtype)
    regions, outputs = weight.shape[:2]
    # (f, n, o, i·j·...); each turn contracts the foremost input axis and appends its image.
    image = weight[:, None].to(dtype).expand(regions, rows, -1, -1)
    for gram in grams:
        image = image.reshape(regions, rows, outputs, gram.shape[2], -1)
        image = image.movedim(3, -1) @ gram[:, :, None].to(dtype)  # (f, n, o, rest, k)
        image = image.flatten(3)
    mixed = mix(other.conj(), image.flatten(1, 2))
    return torch.unflatten(mixed, 1, (rows, outputs))


def contract(children: Sequence[Message]) -> Scaled:
    r"""The product of all messages that meet at a region, summed over its units, (1, n, 1).

    .. math:: \sum_{ij} v_i v_j^* G_{ij}

    with v the product of all vectors, and G that of all grams. Grams for all rows are multiplied
    before those of single rows.
    """
    vectors = [child for child in children if not child.is_gram]
    grams = [child for child in children if child.is_gram]
    shared = [gram for gram in grams if gram.shape[1] == 1]
    by_row = [gram for gram in grams if gram.shape[1] > 1]
    gram = reduce(times, [multiply(some) for some in (shared, by_row) if some]) if grams else None
    if not vectors:
        assert gram is not None
        return gram._replace(mantissa=_real(gram.mantissa.sum((2, 3))))
    vector = multiply(vectors)
    wide = vector.mantissa.to(double(vector.dtype))  # (1, n, i)
    log_scale, errors = 2 * vector.log_scale, 2.0 * vector.num_errors + 1.0
    if gram is None:
        return Scaled(_real(wide.sum(-1).abs().square()), log_scale, errors)
    if gram.shape[1] == 1:
        image = mix(gram.mantissa[:, 0].mT, wide)
    else:
        wide = wide.to(torch.promote_types(wide.dtype, gram.dtype))
        image = (wide[..., None, :] @ gram.mantissa.to(wide.dtype))[..., 0, :]
    total = _real((image * wide.conj()).sum(-1))
    return Scaled(total, log_scale + gram.log_scale, errors + gram.num_errors)


def _real(total: Tensor) -> Tensor:
    """Numbers (1, n) that are real but for rounding, as (1, n, 1)."""
    return (total.real if total.is_complex() else total)[..., None]


def low_rank_factors(grams: Tensor) -> Tensor | None:
    r"""Vectors u (f, r, i) with ``G_ij = Σ_r u_ri u_rj``, or ``None`` if they are no fewer.

    Cholesky's method with pivots takes the unit with the largest remainder first and stops where
    all are below i·ε of what they were. The rest ΔG is positive semi-definite, so that
    :math:`|ΔG_{ij}| ≤ iε \sqrt{G_{ii} G_{jj}}`: no more than what rounding does to a sum over i
    units.

    >>> low_rank_factors(torch.ones(1, 3, 3, dtype=torch.float64))
    tensor([[[1., 1., 1.]]], dtype=torch.float64)
    """
    if grams.dtype != torch.float64:
        return None
    factors = [_pivoted_cholesky(gram) for gram in grams.cpu().numpy()]
    rank, width = max(len(factor) for factor in factors), grams.shape[-1]
    if 4 * rank > 3 * width:
        return None
    padded = np.zeros((len(factors), rank, width))
    for region, factor in enumerate(factors):
        padded[region, : len(factor)] = factor
    return torch.from_numpy(padded).to(grams.device)


def _pivoted_cholesky(gram: np.ndarray) -> np.ndarray:
    """The vectors of one gram, (r, i); all of them where the rank cannot be told."""
    size = np.sqrt(gram.diagonal().clip(min=0))
    size[~(size > 0)] = 1
    tolerance = len(size) * np.finfo(gram.dtype).eps
    scaled = gram / size / size[:, None]
    lower, order, rank, _ = scipy.linalg.lapack.dpstrf(scaled, tol=tolerance, lower=1)
    if not 0 < rank < len(size):
        return gram
    vectors = np.empty((rank, len(size)))
    vectors[:, order - 1] = np.tril(lower[:, :rank]).T
    return np.asarray(vectors * size)


def shared_factors(messages: Sequence[Message]) -> Scaled | None:
    """The product of the grams for all rows as few vectors, where vectors of each row meet them.

    ``None`` where that does not help. Gradients do not pass through a factorisation.
    """
    grams = [message for message in messages if message.is_gram]
    rows = [message.shape[1] for message in messages if not message.is_gram]
    if max(rows, default=1) == 1 or any(gram.shape[1] > 1 for gram in grams):
        return None
    if torch.is_grad_enabled():
        return None
    product = multiply(grams)
    vectors = low_rank_factors(product.mantissa[:, 0])
    return None if vectors is None else Scaled(vectors, product.log_scale)


def low_rank_sum(weight: Tensor, messages: Sequence[Message], factors: Scaled) -> Scaled:
    r"""``W (v vᴴ ⊙ G) Wᴴ``, (f, n, o, p), of the product v of all vectors and factors u of G.

    .. math:: \sum_r (W (v ⊙ u_r)) (W (v ⊙ u_r))^H
    """
    vector = multiply([message for message in messages if not message.is_gram])
    regions, rows, width = vector.shape
    dtype = double(torch.promote_types(weight.dtype, vector.dtype))
    terms = vector.mantissa.to(dtype)[:, :, None] * factors.mantissa[:, None]  # (f, n, r, i)
    sums = torch.bmm(terms.reshape(regions, -1, width), weight.to(dtype).mT)
    sums = sums.view(regions, rows, -1, weight.shape[1])  # (f, n, r, o)
    log_scale = factors.log_scale + 2 * vector.log_scale
    return Scaled(sums.mT @ sums.conj(), log_scale, 2.0 * vector.num_errors + 3.0)
