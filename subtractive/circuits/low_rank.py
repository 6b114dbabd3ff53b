"""Grams of low rank: few vectors whose outer products add up to a positive semi-definite matrix.

Integrals of smooth functions that overlap are nearly dependent: a gram of 64 Gaussians has a
numerical rank of about 20. The square of a layer is then cheaper by that factor.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy
import torch
from torch import Tensor

from subtractive.numerics.messages import Message, Scaled, double, multiply


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
