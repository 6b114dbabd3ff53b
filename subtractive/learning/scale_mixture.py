"""Gaussian scale mixtures: shapes found in rows whatever their size, for rows of many variables.

Patches of images, returns of shares and the like differ far more in size than in shape: EM with
plain Gaussians spends its components on sizes. Here every shape comes in all sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from subtractive.inputs.statistics import Sample, location_and_spread
from subtractive.learning.expectation_maximisation import (
    FULL,
    LEAST_MASS,
    Ellipsoids,
    raised,
)

# How many rows of the common shape are mixed into that of the rows along one direction.
COMMON_ROWS = 200
# The least variance of a shape, as a share of that of all rows in the same direction.
FLOOR = 1e-4
# The least variance of all rows in any direction, as a share of the squared spread of a column,
# and the least of a row as a share of that of all: for equal rows, and fewer rows than columns.
LEAST_VARIANCE, LEAST_ENERGY = 1e-8, 1e-6
# How many numbers a block of rows may have in the coordinates of all shapes.
NUMBERS = 2**22


class ScaleMixture(NamedTuple):
    """A mixture ``Σ_kj w_kj N(x; μ_k, s_j² Σ_k)``, in float64."""

    weights: Tensor  # (k, j)
    means: Tensor  # (k, d)
    covariances: Tensor  # (k, d, d)
    log_scales: Tensor  # (j,)

    def log_prob(self, x: Tensor) -> Tensor:
        """log p(x), (n,), of rows x (n, d)."""
        joint = _joint(self)
        parts = [joint(rows).flatten(1).logsumexp(1) for rows in x.split(_block(self))]
        return torch.cat(parts)


def fit_scale_mixture(
    sample: Sample, num_shapes: int, num_scales: int, generator: torch.Generator | None, steps: int
) -> ScaleMixture:
    """Shapes of rows along the same direction, improved by some steps of EM; scales stay."""
    centre, unit = location_and_spread(sample)
    x, shares = (sample.columns - centre) / unit, sample.weights / sample.weights.sum()
    mean = shares @ x
    x = x - mean
    factor = torch.linalg.cholesky(raised((x * shares[:, None]).mT @ x, LEAST_VARIANCE))
    white = torch.linalg.solve_triangular(factor, x.mT, upper=False).mT
    found = along_directions(white, shares, num_shapes, num_scales, generator)
    for _ in range(steps):
        found = improved(found, white, shares)
    covariances = raised(factor @ found.covariances @ factor.mT, LEAST_VARIANCE)
    return found._replace(
        means=centre + unit * (mean + found.means @ factor.mT),
        covariances=unit[:, None] * covariances * unit,
    )


def along_directions(
    white: Tensor,
    shares: Tensor,
    num_shapes: int,
    num_scales: int,
    generator: torch.Generator | None,
) -> ScaleMixture:
    """A shape for each of some rows, from all rows (n, d) closest to its direction or opposite."""
    size = white.shape[1]
    energy = white.square().mean(1).clamp(min=LEAST_ENERGY)  # (n,)
    directions = white / energy.sqrt()[:, None]
    count = min(num_shapes, int((shares > 0).sum()))
    seeds = directions[torch.multinomial(shares, count, generator=generator)]
    nearest = [(rows @ seeds.mT).abs().argmax(1) for rows in directions.split(NUMBERS // count)]
    labels = torch.cat(nearest)
    common = COMMON_ROWS / len(white)
    mass = shares.new_zeros(count).index_add(0, labels, shares)
    shapes = common * torch.eye(size, dtype=white.dtype).repeat(count, 1, 1)
    for k in range(count):
        rows = directions[labels == k]
        shapes[k] += (rows * shares[labels == k, None]).mT @ rows
    # Each scale stands for as many rows.
    places = (torch.arange(num_scales, dtype=white.dtype) + 0.5) / num_scales
    ordered, order = energy.sort()
    rank = torch.searchsorted(shares[order].cumsum(0), places).clamp(max=len(white) - 1)
    weights = ((mass + common) / (mass + common).sum())[:, None] / num_scales
    return ScaleMixture(
        weights.expand(count, num_scales),
        torch.zeros(count, size, dtype=white.dtype),
        shapes / (mass + common)[:, None, None],
        0.5 * ordered[rank].log(),
    )


def improved(before: ScaleMixture, x: Tensor, shares: Tensor) -> ScaleMixture:
    """One step of EM for weights, means and covariances."""
    mass = torch.zeros_like(before.weights)
    first, second = torch.zeros_like(before.means), torch.zeros_like(before.covariances)
    joint_of, precision = _joint(before), (-2 * before.log_scales).exp()
    size = _block(before)
    for rows, weight in zip(x.split(size), shares.split(size), strict=True):
        joint = joint_of(rows)  # (n, k, j)
        belongs = weight[:, None, None] * (joint - joint.logsumexp((1, 2), keepdim=True)).exp()
        mass += belongs.sum(0)
        scaled = belongs @ precision  # (n, k)
        first += scaled.mT @ rows
        second += FULL.second_moments(rows, scaled)
    is_empty = mass.sum(1) < LEAST_MASS
    mass = mass.clamp(min=LEAST_MASS)
    total = mass.sum(1)
    means = first / (mass @ precision)[:, None]
    products = first[:, :, None] * means[:, None, :]
    covariances = raised((second - products) / total[:, None, None], FLOOR)
    return before._replace(
        weights=mass / mass.sum(),
        means=torch.where(is_empty[:, None], before.means, means),
        covariances=torch.where(is_empty[:, None, None], before.covariances, covariances),
    )


def _joint(mixture: ScaleMixture) -> Callable[[Tensor], Tensor]:
    """The function of rows x (n, d) that is log w_kj N(x; μ_k, s_j² Σ_k), (n, k, j)."""
    ellipsoids = Ellipsoids(mixture.means, mixture.covariances)
    log_scales = mixture.means.shape[1] * mixture.log_scales
    level = mixture.weights.log() - ellipsoids.log_volumes[:, None] - log_scales  # (k, j)
    half = 0.5 * (-2 * mixture.log_scales).exp()  # (j,)
    return lambda x: level - ellipsoids.distances(x)[..., None] * half


def _block(mixture: ScaleMixture) -> int:
    return max(1, NUMBERS // (mixture.means.numel() + mixture.weights.numel()))
