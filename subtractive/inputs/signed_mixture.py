"""Signed mixtures of Gaussians on the line: quadratic forms of Gaussian inputs.

Products of two Gaussians are Gaussians, so Σ_ij E_ij f_i(x) f_j(x) is a mixture of K(K+1)/2 of
them whose weights may be negative, although the sum is not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from subtractive.inputs.quadratic_form_sampling import by_chunks
from subtractive.numerics.inversion import choose_cell, invert

# Beyond this many standard deviations a float64 sees no mass.
_REACH = 10.0
_NUM_CELLS = 64
_NUM_SCOUTS = 1024


class SignedMixture(NamedTuple):
    """Σ_k w_k N(x; m_k, s_k), with the same scales in all rows."""

    weights: Tensor  # (n, k)
    mean: Tensor  # (n or 1, k)
    scale: Tensor  # (k,)

    def cumulative(self, t: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The distribution functions and densities of some rows (r,) at points t (r,)."""
        everyone = len(rows) == len(self.weights)
        weights = self.weights if everyone else self.weights[rows]
        mean = self.mean if everyone or len(self.mean) == 1 else self.mean[rows]
        rate = math.sqrt(0.5) / self.scale
        z = (t[:, None] - mean).mul_(rate)  # (r, k)
        # P(x <= t) is (1 + erf z) / 2.
        height = torch.erf(z).add_(1).mul_(weights).sum(-1) / 2
        bell = z.square_().neg_().exp_().mul_(rate)
        return height, bell.mul_(weights).sum(-1) / math.sqrt(math.pi)

    def normal_quantile(self, uniform: Tensor) -> Tensor:
        """Where a Gaussian of the same mean and variance reaches ``uniform``, (n,)."""
        total = self.weights.sum(-1)
        mean = (self.weights * self.mean).sum(-1) / total
        second = (self.weights * (self.mean.square() + self.scale.square())).sum(-1) / total
        spread = (second - mean.square()).clamp(min=0).sqrt()
        standard: Tensor = torch.special.ndtri(uniform)
        return mean + spread * standard


def pair_weights(form: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The weights (n, P) of the pairs i <= j of symmetric forms (n, i, j), and i, j (P,)."""
    num_rows, _, units = form.shape
    i, j = torch.triu_indices(units, units, device=form.device)
    entries = form.flatten(1).gather(1, (i * units + j).expand(num_rows, -1))
    return entries.mul_(torch.where(i == j, 1.0, 2.0)), i, j


def draw_gaussian_square(
    environment: Tensor, products: tuple[Tensor, Tensor, Tensor], uniform: Tensor
) -> Tensor:
    """A value (n,) from Σ_ij E_ij f_i f_j, given means, log-scales and log-weights (i, j)."""
    mean, log_scale, log_weight = products
    weights, i, j = pair_weights(environment)
    weights = weights * (log_weight - log_weight.max()).exp()[i, j]
    return draw_signed_mixture(weights, mean[None, i, j], log_scale[i, j].exp(), uniform)


def draw_gaussian_units(
    p: Mapping[str, Tensor], units: Tensor, generator: torch.Generator | None
) -> Tensor:
    """Values (f, n) from the Gaussians of given units (f, n)."""
    noise = torch.randn(units.shape, generator=generator, dtype=torch.float64)
    scale = p["log_scale"].gather(1, units).exp()
    return p["mean"].gather(1, units) + scale * noise


def draw_signed_mixture(weights: Tensor, mean: Tensor, scale: Tensor, uniform: Tensor) -> Tensor:
    """A value (n,) from Σ_k w_k N(x; m_k, s_k): weights (n, k), means (1 or n, k), scales (k,)."""
    shared = len(mean) == 1
    edges = _edges(mean[0], scale) if shared else mean.new_zeros(0)
    heights = torch.special.ndtr((edges[:, None] - mean[:1]) / scale).mT  # (k, c + 1)

    def draw(rows: slice) -> Tensor:
        if shared:
            mixture = SignedMixture(weights[rows], mean, scale)
            return _draw_in_cells(mixture, edges, heights, uniform[rows])
        return _draw_at_once(SignedMixture(weights[rows], mean[rows], scale), uniform[rows])

    return by_chunks(draw, len(weights), max(weights.shape[1], len(edges)))


def _draw_in_cells(
    mixture: SignedMixture, edges: Tensor, heights: Tensor, uniform: Tensor
) -> Tensor:
    """First a cell between two of the edges (c + 1,), all rows alike, then a value inside it.

    ``heights`` (k, c + 1) are the distribution functions of the components at the edges.
    """
    below = mixture.weights @ heights  # (n, c + 1)
    masses = below.diff(dim=-1)
    cell, inside = choose_cell(masses, uniform)
    lower, upper = edges[cell], edges[cell + 1]
    before, mass = (t.gather(-1, cell[:, None])[:, 0] for t in (below, masses))
    start = lower + (upper - lower) * inside / mass
    return invert(mixture.cumulative, before + inside, lower, upper, start)


def _draw_at_once(mixture: SignedMixture, uniform: Tensor) -> Tensor:
    reach = _REACH * mixture.scale
    lower, upper = (mixture.mean - reach).amin(-1), (mixture.mean + reach).amax(-1)
    target = uniform * mixture.weights.sum(-1)
    start = mixture.normal_quantile(uniform)
    return invert(mixture.cumulative, target, lower, upper, start)


def _edges(mean: Tensor, scale: Tensor) -> Tensor:
    """Points that cut the line finely where components are, (c + 1,)."""
    ends = (mean - _REACH * scale).min(), (mean + _REACH * scale).max()
    offsets = torch.tensor([-_REACH, -4, -2, -1, 0, 1, 2, 4, _REACH], dtype=mean.dtype)
    # Of many components, some tell well enough where the others are.
    every = 1 + len(mean) // _NUM_SCOUTS
    candidates = (mean[::every, None] + scale[::every, None] * offsets).flatten().sort().values
    ranks = torch.linspace(0, len(candidates) - 1, _NUM_CELLS - 1, dtype=torch.float64)
    return torch.cat([ends[0][None], candidates[ranks.round().long()], ends[1][None]])
