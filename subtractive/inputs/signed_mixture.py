"""Signed mixtures of Gaussians on the line: quadratic forms of Gaussian inputs.

Products of two Gaussians are Gaussians, so Σ_ij E_ij f_i(x) f_j(x) is a mixture of K(K+1)/2 of
them whose weights may be negative, although the sum is not.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from subtractive.inputs.mixture_cells import REACH, Components, SignedMixture, draw_in_cells
from subtractive.inputs.quadratic_form_sampling import by_chunks
from subtractive.numerics.inversion import invert


def pair_weights(form: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The weights (n, P) of the pairs i <= j of symmetric forms (n, i, j), and i, j (P,)."""
    units = form.shape[2]
    i, j = torch.triu_indices(units, units, device=form.device)
    entries = form.flatten(1).index_select(1, i * units + j)
    return entries.mul_(torch.where(i == j, 1.0, 2.0)), i, j


def draw_gaussian_square(
    environment: Tensor, products: tuple[Tensor, Tensor, Tensor], uniform: Tensor
) -> Tensor:
    """A value (n,) from Σ_ij E_ij f_i f_j, given means, log-scales and log-weights (i, j)."""
    mean, log_scale, log_weight = products
    weights, i, j = pair_weights(environment)
    factor = (log_weight - log_weight.max()).exp()[i, j]
    components = Components(mean[i, j], log_scale[i, j].exp(), factor)
    return draw_in_cells(components, lambda rows: weights[rows].mT, uniform)


def draw_gaussian_units(
    p: Mapping[str, Tensor], units: Tensor, generator: torch.Generator | None
) -> Tensor:
    """Values (f, n) from the Gaussians of given units (f, n)."""
    noise = torch.randn(units.shape, generator=generator, dtype=torch.float64)
    scale = p["log_scale"].gather(1, units).exp()
    return p["mean"].gather(1, units) + scale * noise


def draw_signed_mixture(weights: Tensor, mean: Tensor, scale: Tensor, uniform: Tensor) -> Tensor:
    """A value (n,) from Σ_k w_k N(x; m_k, s_k): weights (n, k), means (1 or n, k), scales (k,)."""
    if len(mean) == 1:
        components = Components(mean[0], scale, torch.ones_like(scale))
        return draw_in_cells(components, lambda rows: weights[rows].mT, uniform)

    def draw(rows: slice) -> Tensor:
        return _draw_at_once(SignedMixture(weights[rows], mean[rows], scale), uniform[rows])

    return by_chunks(draw, len(weights), weights.shape[1])


def _draw_at_once(mixture: SignedMixture, uniform: Tensor) -> Tensor:
    reach = REACH * mixture.scale
    lower, upper = (mixture.mean - reach).amin(-1), (mixture.mean + reach).amax(-1)
    target = uniform * mixture.weights.sum(-1)
    start = mixture.normal_quantile(uniform)
    return invert(mixture.cumulative, target, lower, upper, start)
