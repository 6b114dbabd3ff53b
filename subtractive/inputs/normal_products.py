"""Quadratic forms of multivariate Gaussians: drawing from them, and their moments.

A product of two Gaussians is a Gaussian, so Σ_ij E_ij f_i(x) f_j(x) is a signed mixture of them.
Its variables are drawn one after the other from signed mixtures on the line.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from subtractive.inputs.quadratic_form_sampling import by_chunks
from subtractive.inputs.signed_mixture import draw_signed_mixture, pair_weights


class NormalProducts(NamedTuple):
    """``N_i N_j = w N(m, S)`` for the pairs i <= j of Gaussians of one region."""

    weights: Tensor  # (n, P), with the environment, up to a factor for each row
    mean: Tensor  # (n or 1, P, u)
    covariance: Tensor  # (P, u, u)


def normal_products(
    environment: Tensor, log_weight: Tensor, mean: Tensor, factor: Tensor
) -> NormalProducts:
    """Products of Gaussians with means (n or 1, i, u) and Cholesky factors (i, u, u).

    ``log_weight`` (n or 1, i, j) holds the logarithms of their integrals, environments are
    (n, i, j).

    .. math:: S = Σ_i (Σ_i + Σ_j)^{-1} Σ_j, m = Σ_j (Σ_i + Σ_j)^{-1} μ_i + Σ_i (Σ_i + Σ_j)^{-1} μ_j
    """
    peak = log_weight.amax((1, 2), keepdim=True)
    weights, i, j = pair_weights(environment * (log_weight - peak).exp())
    covariance = factor @ factor.mT
    total = torch.linalg.cholesky(covariance[i] + covariance[j])  # (P, u, u)
    from_i = torch.cholesky_solve(covariance[i], total).mT  # Σ_i (Σ_i + Σ_j)⁻¹
    from_j = torch.cholesky_solve(covariance[j], total).mT
    means = from_j @ mean[:, i, :, None] + from_i @ mean[:, j, :, None]
    product = from_i @ covariance[j]
    return NormalProducts(weights, means[..., 0], 0.5 * (product + product.mT))


def draw_normal_products(products: NormalProducts, uniform: Tensor) -> Tensor:
    """Values (n, u) from uniform numbers (n, u), one variable after the other."""
    factor = torch.linalg.cholesky(products.covariance)  # (P, u, u)
    num_rows, size = uniform.shape

    def draw(rows: slice) -> Tensor:
        weights = products.weights[rows]
        mean = products.mean if len(products.mean) == 1 else products.mean[rows]
        noise = torch.zeros(len(weights), weights.shape[1], 0, dtype=uniform.dtype)  # (n, P, k)
        drawn = []
        for k in range(size):
            scale = factor[:, k, k]
            centre = mean[..., k] + (noise * factor[:, k, :k]).sum(-1)  # (n or 1, P)
            drawn.append(draw_signed_mixture(weights, centre, scale, uniform[rows, k]))
            standard = (drawn[-1][:, None] - centre) / scale
            log_ratio = -0.5 * standard.square() - scale.log()
            weights = weights * (log_ratio - log_ratio.amax(-1, keepdim=True)).exp()
            noise = torch.cat([noise, standard[..., None]], -1)
        return torch.stack(drawn, -1)

    return by_chunks(draw, num_rows, products.weights.shape[1] * size)
