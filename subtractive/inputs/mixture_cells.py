"""Values from signed mixtures of Gaussians that are the same in all rows but for their weights.

The line is cut into cells. A row first chooses one of them, and then inverts its distribution
function, a polynomial inside the cell.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from subtractive.numerics.inversion import invert

# Beyond this many standard deviations a float64 sees no mass.
REACH = 10.0
_NUM_CELLS = 64
_NUM_SCOUTS = 1024
# Of so many rows, distribution functions are interpolated by polynomials inside their cells: to
# twelve digits, if the last coefficients are so small.
_MANY_ROWS, _DEGREE, _SMOOTH = 256, 13, 1e-13
# Steps there, of which a Newton step after the last would be about its square.
_STEPS, _SMALL_STEP = 6, 1e-8
# Numbers that the weights of some rows may have, to stay in a processor's cache.
_CHUNK = 2**20

Weights = Callable[[Tensor], Tensor]  # those of some rows (r,), as (k, r)


class Components(NamedTuple):
    """Gaussians N(x; m_k, s_k), each times a factor."""

    mean: Tensor  # (k,)
    scale: Tensor
    factor: Tensor


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


class _Chosen(NamedTuple):
    """The cell of each row, its ends being F = ``before`` and ``before + mass`` of ``total``."""

    cell: Tensor  # (n,) all of them
    before: Tensor
    mass: Tensor
    inside: Tensor  # the mass below the value that is drawn
    total: Tensor


def draw_in_cells(components: Components, weights: Weights, uniform: Tensor) -> Tensor:
    """A value (n,) from Σ_k w_k a_k N(x; m_k, s_k), a being the factors of the components."""
    mean, scale, factor = components
    edges = _edges(mean, scale)
    heights = factor * torch.special.ndtr((edges[:, None] - mean) / scale)  # (c + 1, k)
    step = max(1, _CHUNK // max(len(mean), len(edges)))
    parts = [
        _choose_cells(heights @ weights(rows), uniform[rows])
        for rows in torch.arange(len(uniform)).split(step)
    ]
    chosen = _Chosen(*(torch.cat(some) for some in zip(*parts, strict=True)))
    lower, upper = edges[chosen.cell], edges[chosen.cell + 1]
    target, start = chosen.before + chosen.inside, chosen.inside / chosen.mass
    rough = torch.arange(len(uniform))
    if len(uniform) >= _MANY_ROWS:
        order = chosen.cell.argsort()
        terms = _terms(_curves(edges, components), weights, order, chosen.cell, step)
        share, lacks = _on_curves(terms, target[order], start[order], chosen.total[order])
        start, rough = torch.empty_like(start).index_copy_(0, order, share), order[lacks]
    drawn = lower + (upper - lower) * start
    if len(rough):  # polynomials are not enough
        rest = SignedMixture(weights(rough).mT * factor, mean[None], scale)
        ends = lower[rough], upper[rough]
        drawn[rough] = invert(rest.cumulative, target[rough], *ends, drawn[rough])
    return drawn


def _choose_cells(below: Tensor, uniform: Tensor) -> _Chosen:
    """A cell for each row, from the distribution functions (c + 1, n) at the edges."""
    masses = below.diff(dim=0)
    cumulative = masses.clamp(min=0).cumsum_(0)  # rounding may leave a mass slightly negative
    total = cumulative[-1]
    target = uniform * total
    # The last cell with any mass: rounding may push the target beyond it.
    last = (cumulative < total).sum(0).clamp_(max=len(masses) - 1)
    cell = torch.minimum((cumulative <= target).sum(0), last)
    before = torch.where(cell > 0, cumulative.gather(0, (cell - 1).clamp_(min=0)[None])[0], 0.0)
    here = below.gather(0, cell[None])[0], masses.gather(0, cell[None])[0]
    return _Chosen(cell, *here, target - before, below[-1])


def _curves(edges: Tensor, components: Components) -> Tensor:
    """The coefficients (c, q, k) of the components' distribution functions in each cell.

    They are those of powers of ``2 s - 1``, s being the place inside the cell.
    """
    mean, scale, factor = components
    angle = (torch.arange(_DEGREE + 1, dtype=mean.dtype) + 0.5) * (math.pi / (_DEGREE + 1))
    nodes = (angle.cos() + 1) / 2  # in the unit interval
    points = edges[:-1, None] + edges.diff()[:, None] * nodes  # (c, q)
    values: Tensor = factor * torch.special.ndtr((points[..., None] - mean) / scale)  # (c, q, k)
    # By way of Chebyshev polynomials, which interpolate well; their coefficients fall so fast
    # that powers lose no digits.
    order = torch.arange(_DEGREE + 1, dtype=mean.dtype)
    transform = (angle[:, None] * order).cos() * (2 / (_DEGREE + 1))
    transform[:, 0] /= 2
    return (transform @ _powers(_DEGREE).to(mean)).mT @ values


@functools.cache
def _powers(degree: int) -> Tensor:
    """The coefficients (q, q) of Chebyshev polynomials, one per row, from the constant up."""
    rows = np.zeros((degree + 1, degree + 1))
    for number in range(degree + 1):
        rows[number, : number + 1] = np.polynomial.chebyshev.cheb2poly([0] * number + [1])
    return torch.from_numpy(rows)


def _terms(curves: Tensor, weights: Weights, order: Tensor, cell: Tensor, step: int) -> Tensor:
    """The polynomials (q, n) of rows in order of their cells (n,), so many rows at a time."""
    every, parts = curves.unbind(), []
    for rows in order.split(step):
        cells, counts = cell[rows].unique_consecutive(return_counts=True)
        own = weights(rows).split(counts.tolist(), 1)  # (k, r) each
        parts += [every[number] @ part for number, part in zip(cells.tolist(), own, strict=True)]
    return torch.cat(parts, 1)


def _on_curves(
    terms: Tensor, target: Tensor, start: Tensor, total: Tensor
) -> tuple[Tensor, Tensor]:
    """Where in their cells rows reach their targets, (n,), and which rows lack digits.

    The polynomials are (q, n). ``start`` is where straight lines would reach the targets.
    """
    # The last coefficients of Chebyshev polynomials, in which powers have these factors.
    last = torch.maximum(
        terms[-2].abs() * 2.0 ** (2 - _DEGREE), terms[-1].abs() * 2.0 ** (1 - _DEGREE)
    )
    is_rough = last > _SMOOTH * total

    def cumulative(t: Tensor, some: Tensor) -> tuple[Tensor, Tensor]:
        y = 2 * t - 1
        value, slope = some[-1], torch.zeros_like(y)
        for term in reversed(some[:-1].unbind()):
            slope = torch.addcmul(value, slope, y)
            value = torch.addcmul(term, value, y)
        return value, 2 * slope

    share = start.clamp(0, 1)
    low, high, step = torch.zeros_like(share), torch.ones_like(share), torch.ones_like(share)
    for _ in range(_STEPS):
        value, slope = cumulative(share, terms)
        is_below = value < target
        low, high = torch.where(is_below, share, low), torch.where(is_below, high, share)
        newton = share + (target - value) / slope
        is_inside = (newton >= low) & (newton <= high)
        moved = torch.where(is_inside, newton, 0.5 * (low + high))
        step, share = (moved - share).abs(), moved
    rows = (~(step <= _SMALL_STEP)).nonzero()[:, 0]
    if len(rows):
        own = terms[:, rows]
        share[rows] = invert(
            lambda t, some: cumulative(t, own[:, some]),
            target[rows],
            low[rows],
            high[rows],
            share[rows],
        )
    return share, is_rough.nonzero()[:, 0]


def _edges(mean: Tensor, scale: Tensor) -> Tensor:
    """Points that cut the line finely where components are, (c + 1,)."""
    ends = (mean - REACH * scale).min(), (mean + REACH * scale).max()
    offsets = torch.tensor([-REACH, -4, -2, -1, 0, 1, 2, 4, REACH], dtype=mean.dtype)
    # Of many components, some tell well enough where the others are.
    every = 1 + len(mean) // _NUM_SCOUTS
    candidates = (mean[::every, None] + scale[::every, None] * offsets).flatten().sort().values
    ranks = torch.linspace(0, len(candidates) - 1, _NUM_CELLS - 1, dtype=torch.float64)
    return torch.cat([ends[0][None], candidates[ranks.round().long()], ends[1][None]])
