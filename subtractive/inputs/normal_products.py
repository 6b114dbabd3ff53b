"""Quadratic forms of multivariate Gaussians: drawing from them, and their moments.

A product of two Gaussians is a Gaussian, so Σ_ij E_ij f_i(x) f_j(x) is a signed mixture of them.
Values are proposed by its positive part and kept with the probability that the whole form has
of that; where too few are kept, variables are drawn one after the other from signed mixtures on
the line.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from subtractive.inputs.quadratic_form_sampling import by_chunks, quadratic, uniforms
from subtractive.inputs.signed_mixture import draw_signed_mixture, pair_weights
from subtractive.numerics.inversion import choose_cell


class NormalProducts(NamedTuple):
    """``N_i N_j = w N(m, S)`` for the pairs i <= j of Gaussians of one region."""

    weights: Tensor  # (n, P), with the environment, up to a factor for each row
    mean: Tensor  # (n or 1, P, u)
    covariance: Tensor  # (P, u, u)

    def rows(self, rows: Tensor) -> NormalProducts:
        """Those of some rows."""
        mean = self.mean if len(self.mean) == 1 else self.mean[rows]
        return NormalProducts(self.weights[rows], mean, self.covariance)


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
    # One product of matrices for each pair, not one of a matrix and a vector for each row.
    by_unit = mean.movedim(1, 0)  # (i, n or 1, u)
    means = (by_unit[i] @ from_j.mT + by_unit[j] @ from_i.mT).movedim(0, 1)
    product = from_i @ covariance[j]
    return NormalProducts(weights, means, 0.5 * (product + product.mT))


def propose_normal_products(
    products: NormalProducts, factor: Tensor, generator: torch.Generator | None
) -> Tensor:
    """Values (n, u) from the products of positive weight alone, with factors (P, u, u)."""
    count, size = len(products.weights), factor.shape[-1]
    chosen, _ = choose_cell(products.weights, uniforms(count, generator))
    noise = torch.randn(count, size, generator=generator, dtype=torch.float64)
    mean = products.mean[0 if len(products.mean) == 1 else torch.arange(count), chosen]

    def spread(rows: slice) -> Tensor:
        return (factor[chosen[rows]] @ noise[rows, :, None])[..., 0]

    return mean + by_chunks(spread, count, size * size)


def share_of_positive_part(environment: Tensor, log_values: Tensor) -> Tensor:
    """Σ_ij E_ij f_i f_j over the same sum of its positive terms, (n,), from log f (n, i)."""
    values = (log_values - log_values.amax(-1, keepdim=True)).exp()[:, None]
    whole, positive = (quadratic(values, e)[:, 0] for e in (environment, environment.clamp(min=0)))
    return whole / positive


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
