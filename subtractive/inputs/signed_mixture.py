"""Signed mixtures of Gaussians on the line: quadratic forms of Gaussian inputs.

Products of two Gaussians are Gaussians, so Σ_ij E_ij f_i(x) f_j(x) is a mixture of K(K+1)/2 of
them whose weights may be negative, although the sum is not.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from subtractive.inputs.quadratic_form_sampling import by_chunks
from subtractive.numerics.inversion import choose_cell, invert

# Beyond this many standard deviations a float64 sees no mass.
_REACH = 10.0
_NUM_CELLS = 64
_NUM_SCOUTS = 1024
# Of so many rows, distribution functions are interpolated by polynomials inside their cells: to
# twelve digits, if the last coefficients are so small.
_MANY_ROWS, _DEGREE, _SMOOTH = 256, 13, 1e-13
# Newton steps there, of which the next would be about the square of the last.
_STEPS, _SMALL_STEP = 4, 1e-8


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
    weights.mul_((log_weight - log_weight.max()).exp()[i, j])
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
    if len(mean) > 1:

        def draw(rows: slice) -> Tensor:
            return _draw_at_once(SignedMixture(weights[rows], mean[rows], scale), uniform[rows])

        return by_chunks(draw, len(weights), weights.shape[1])
    edges = _edges(mean[0], scale)
    has_many_rows = len(weights) >= _MANY_ROWS
    curves = _curves(edges, mean[0], scale) if has_many_rows else None
    heights = torch.special.ndtr((edges[:, None] - mean) / scale).mT  # (k, c + 1)

    def draw_in_cells(rows: slice) -> Tensor:
        mixture = SignedMixture(weights[rows], mean, scale)
        return _draw_in_cells(mixture, edges, heights, curves, uniform[rows])

    return by_chunks(draw_in_cells, len(weights), max(weights.shape[1], len(edges)))


def _draw_in_cells(
    mixture: SignedMixture, edges: Tensor, heights: Tensor, curves: Tensor | None, uniform: Tensor
) -> Tensor:
    """First a cell between two of the edges (c + 1,), all rows alike, then a value inside it.

    ``heights`` (k, c + 1) are the distribution functions of the components at the edges. With
    ``curves`` they are polynomials inside the cells; where those lack digits, Newton steps follow.
    """
    below = mixture.weights @ heights  # (n, c + 1)
    masses = below.diff(dim=-1)
    cell, inside = choose_cell(masses, uniform)
    lower, upper = edges[cell], edges[cell + 1]
    before, mass = (t.gather(-1, cell[:, None])[:, 0] for t in (below, masses))
    if curves is None:
        start = lower + (upper - lower) * inside / mass
        return invert(mixture.cumulative, before + inside, lower, upper, start)
    share, rows = _on_curves(
        mixture.weights, curves, cell, (before + inside, inside / mass, below[:, -1])
    )
    drawn = lower + (upper - lower) * share
    if len(rows):
        rest = SignedMixture(mixture.weights[rows], mixture.mean, mixture.scale)
        target, ends = (before + inside)[rows], (lower[rows], upper[rows])
        drawn[rows] = invert(rest.cumulative, target, *ends, drawn[rows])
    return drawn


def _curves(edges: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    """The coefficients (c, k, q) of the components' distribution functions in each cell.

    They are those of powers of ``2 s - 1``, s being the place inside the cell.
    """
    angle = (torch.arange(_DEGREE + 1, dtype=mean.dtype) + 0.5) * (math.pi / (_DEGREE + 1))
    nodes = (angle.cos() + 1) / 2  # in the unit interval
    points = edges[:-1, None] + edges.diff()[:, None] * nodes  # (c, q)
    values: Tensor = torch.special.ndtr(
        (points[:, None] - mean[:, None]) / scale[:, None]
    )  # (c, k, q)
    # By way of Chebyshev polynomials, which interpolate well; their coefficients fall so fast
    # that powers lose no digits.
    order = torch.arange(_DEGREE + 1, dtype=mean.dtype)
    transform = (angle[:, None] * order).cos() * (2 / (_DEGREE + 1))
    transform[:, 0] /= 2
    return values @ (transform @ _powers(_DEGREE).to(mean))


@functools.cache
def _powers(degree: int) -> Tensor:
    """The coefficients (q, q) of Chebyshev polynomials, one per row, from the constant up."""
    rows = np.zeros((degree + 1, degree + 1))
    for number in range(degree + 1):
        rows[number, : number + 1] = np.polynomial.chebyshev.cheb2poly([0] * number + [1])
    return torch.from_numpy(rows)


def _on_curves(
    weights: Tensor, curves: Tensor, cell: Tensor, sought: tuple[Tensor, Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    """Where in their cells (n,) rows reach their targets, (n,), and which rows lack digits.

    ``sought`` are the targets, where a straight line would reach them, and the mass of all cells.
    """
    target, start, total = sought
    order = cell.argsort()
    counts = torch.bincount(cell, minlength=len(curves)).tolist()
    sorted_weights = weights[order].split(counts)
    parts = [w @ curve for w, curve in zip(sorted_weights, curves, strict=True)]
    coefficients = torch.empty(len(cell), curves.shape[2], dtype=weights.dtype)
    coefficients[order] = torch.cat(parts)
    # The last coefficients of Chebyshev polynomials, in which powers have these factors.
    last = coefficients[:, -2:].abs() * torch.tensor([2.0 ** (2 - _DEGREE), 2.0 ** (1 - _DEGREE)])
    is_rough = last.amax(-1) > _SMOOTH * total
    terms = coefficients.mT.contiguous()  # (q, n)

    def cumulative(t: Tensor, some: Tensor) -> tuple[Tensor, Tensor]:
        y = 2 * t - 1
        value, slope = some[-1], torch.zeros_like(y)
        for term in reversed(some[:-1].unbind()):
            slope = torch.addcmul(value, slope, y)
            value = torch.addcmul(term, value, y)
        return value, 2 * slope

    share, step = start.clamp(0, 1), torch.zeros_like(start)
    for _ in range(_STEPS):  # cells are so small that Newton's method needs no bracket
        value, slope = cumulative(share, terms)
        step = (target - value) / slope
        share = (share + step).clamp(0, 1)
    rows = (~(step.abs() <= _SMALL_STEP)).nonzero()[:, 0]
    if len(rows):
        low, high = torch.zeros(len(rows), dtype=share.dtype), share.new_ones(len(rows))
        share[rows] = invert(
            lambda t, some: cumulative(t, terms[:, rows[some]]),
            target[rows],
            low,
            high,
            start[rows],
        )
    return share, is_rough.nonzero()[:, 0]


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
