"""Signed mixtures of Gaussians on the line: quadratic forms of Gaussian inputs.

Products of two Gaussians are Gaussians, so Σ_ij E_ij f_i(x) f_j(x) is a mixture of K(K+1)/2 of
them whose weights may be negative, although the sum is not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from subtractive.inputs.drawing import by_chunks
from subtractive.numerics.inversion import choose_cell, invert

# Beyond this many standard deviations a float64 sees no mass.
_REACH = 10.0
_NUM_CELLS = 64


def pair_weights(form: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The weights (n, P) of the pairs i <= j of symmetric forms (n, i, j), and i, j (P,)."""
    i, j = torch.triu_indices(*form.shape[1:], device=form.device)
    return form[:, i, j] * torch.where(i == j, 1.0, 2.0), i, j


def draw_gaussian_square(
    environment: Tensor, products: tuple[Tensor, Tensor, Tensor], uniform: Tensor
) -> Tensor:
    """A value (n,) from Σ_ij E_ij f_i f_j, given means, log-scales and log-weights (i, j)."""
    mean, log_scale, log_weight = products
    weights, i, j = pair_weights(environment * (log_weight - log_weight.max()).exp())
    return draw_signed_mixture(weights, mean[None, i, j], log_scale[i, j].exp(), uniform)


def draw_gaussian_units(
    p: Mapping[str, Tensor], units: Tensor, generator: torch.Generator | None
) -> Tensor:
    """Values (f, n, 1) from the Gaussians of given units (f, n)."""
    noise = torch.randn(units.shape, generator=generator, dtype=torch.float64)
    scale = p["log_scale"].gather(1, units).exp()
    return (p["mean"].gather(1, units) + scale * noise)[..., None]


def draw_signed_mixture(weights: Tensor, mean: Tensor, scale: Tensor, uniform: Tensor) -> Tensor:
    """A value (n,) from Σ_k w_k N(x; m_k, s_k): weights (n, k), means (1 or n, k), scales (k,)."""
    edges = _edges(mean[0], scale) if len(mean) == 1 else None

    def draw(rows: slice) -> Tensor:
        w, u = weights[rows], uniform[rows]
        m = mean if len(mean) == 1 else mean[rows]
        if edges is None:
            lower = (m - _REACH * scale).amin(-1)
            upper = (m + _REACH * scale).amax(-1)
            target = u * w.sum(-1)
        else:
            table = torch.special.ndtr((edges[:, None] - m) / scale)  # (c + 1, k)
            heights = w @ table.mT  # (n, c + 1)
            cell, inside = choose_cell(heights.diff(dim=-1), u)
            lower, upper = edges[cell], edges[cell + 1]
            target = heights.gather(-1, cell[:, None])[:, 0] + inside

        def cumulative(t: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            z = (t[:, None] - (m if len(m) == 1 else m[rows])) / scale
            height = (w[rows] * torch.special.ndtr(z)).sum(-1)
            density = (w[rows] / scale * (-0.5 * z.square()).exp()).sum(-1)
            return height, density / math.sqrt(2 * math.pi)

        return invert(cumulative, target, lower, upper)

    return by_chunks(draw, len(weights), weights.shape[1])


def _edges(mean: Tensor, scale: Tensor) -> Tensor:
    """Points that cut the line finely where components are, (c + 1,)."""
    offsets = torch.tensor([-_REACH, -4, -2, -1, 0, 1, 2, 4, _REACH], dtype=mean.dtype)
    candidates = (mean[:, None] + scale[:, None] * offsets).flatten().sort().values
    ranks = torch.linspace(0, len(candidates) - 1, _NUM_CELLS + 1).round().long()
    return candidates[ranks]
