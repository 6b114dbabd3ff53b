"""Synthetic data with holes and curves, drawn as the paper draws it (paper: Sec. 1, App. H.1)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

RADII = (1.0, 3.0, 5.0)
RING_WIDTH = 0.2


def ring(num_rows: int, *, radius: float = 2.0, width: float = 0.6, seed: int = 0) -> Tensor:
    """Points around a circle, (n, 2): any angle, a gamma radius of the given mean and deviation.

    >>> ring(1000).norm(dim=1).mean().round(decimals=1).item()
    2.0
    """
    generator = torch.Generator().manual_seed(seed)
    angle = 2 * math.pi * torch.rand(num_rows, generator=generator, dtype=torch.float64)
    shape = torch.full_like(angle, (radius / width) ** 2)
    distance = torch._standard_gamma(shape, generator=generator) * (width**2 / radius)
    return distance[:, None] * torch.stack([angle.cos(), angle.sin()], 1)


def ring_log_density(x: Tensor, *, radius: float = 2.0, width: float = 0.6) -> Tensor:
    r"""log of the density of :func:`ring`, (n,): zero in the centre, for rings with a hole.

    .. math:: p(x) = \frac{\mathrm{Gamma}(|x|; a, b)}{2 π |x|}, \quad
       a = \frac{r^2}{σ^2}, \quad b = \frac{r}{σ^2}
    """
    shape, rate, distance = (radius / width) ** 2, radius / width**2, x.norm(dim=1)
    log_scale = shape * math.log(rate) - math.lgamma(shape) - math.log(2 * math.pi)
    log_density: Tensor = torch.xlogy(shape - 2, distance) - rate * distance + log_scale
    return log_density


def rings(num_rows: int, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Points on three circles of radius 1, 3 and 5, as many as each is long, and their circles.

    The points are (n, 2), radius + N(0, 0.2²); the circles (n,) are numbered from 0.

    >>> points, circle = rings(6)
    >>> points.shape, circle.shape
    (torch.Size([6, 2]), torch.Size([6]))
    """
    generator = torch.Generator().manual_seed(seed)
    radii = torch.tensor(RADII, dtype=torch.float64)
    circle = torch.multinomial(radii, num_rows, replacement=True, generator=generator)
    angle = 2 * math.pi * torch.rand(num_rows, generator=generator, dtype=torch.float64)
    noise = torch.randn(num_rows, generator=generator, dtype=torch.float64)
    distance = radii[circle] + RING_WIDTH * noise
    return torch.stack([distance * angle.cos(), distance * angle.sin()], 1), circle


def rings_log_density(x: Tensor) -> Tensor:
    """log of the density of the points of :func:`rings`, (n,)."""
    parts = [math.log(radius / sum(RADII)) + _circle_log_density(x, radius) for radius in RADII]
    return torch.stack(parts).logsumexp(0)


def _circle_log_density(x: Tensor, radius: float) -> Tensor:
    """log-density of a uniform angle and a normal radius, (n,): a pole in the centre."""
    distance = x.norm(dim=1)
    both_signs = torch.logaddexp(
        log_normal(distance, radius, RING_WIDTH), log_normal(-distance, radius, RING_WIDTH)
    )
    return torch.sub(both_signs, torch.log(2 * math.pi * distance))


def cosine(num_rows: int, *, seed: int = 0) -> Tensor:
    """x₀ uniform in (-4, 4), x₁ = 3 cos 2x₀ + N(0, 1), (n, 2)."""
    generator = torch.Generator().manual_seed(seed)
    first = 8 * torch.rand(num_rows, generator=generator, dtype=torch.float64) - 4
    noise = torch.randn(num_rows, generator=generator, dtype=torch.float64)
    return torch.stack([first, 3 * (2 * first).cos() + noise], 1)


def cosine_log_density(x: Tensor) -> Tensor:
    """log of the density of :func:`cosine`, (n,)."""
    first, second = x.unbind(1)
    inside = log_normal(second, 3 * (2 * first).cos(), 1.0) - math.log(8)
    return torch.where(first.abs() <= 4, inside, -math.inf)


def funnel(num_rows: int, *, seed: int = 0) -> Tensor:
    """x₀ ~ N(0, 2²), x₁ ~ N(0, σ²) of variance σ² = min(exp(-x₀), 5), (n, 2)."""
    generator = torch.Generator().manual_seed(seed)
    first = 2 * torch.randn(num_rows, generator=generator, dtype=torch.float64)
    noise = torch.randn(num_rows, generator=generator, dtype=torch.float64)
    return torch.stack([first, _funnel_scale(first) * noise], 1)


def funnel_log_density(x: Tensor) -> Tensor:
    """log of the density of :func:`funnel`, (n,)."""
    first, second = x.unbind(1)
    return log_normal(first, 0.0, 2.0) + log_normal(second, 0.0, _funnel_scale(first))


def banana(num_rows: int, *, seed: int = 0) -> Tensor:
    """x₀ ~ N(0, 2²), x₁ = N(0, 1) + 0.2 (x₀² - 4), (n, 2)."""
    generator = torch.Generator().manual_seed(seed)
    first = 2 * torch.randn(num_rows, generator=generator, dtype=torch.float64)
    noise = torch.randn(num_rows, generator=generator, dtype=torch.float64)
    return torch.stack([first, noise + 0.2 * (first.square() - 4)], 1)


def banana_log_density(x: Tensor) -> Tensor:
    """log of the density of :func:`banana`, (n,)."""
    first, second = x.unbind(1)
    return log_normal(first, 0.0, 2.0) + log_normal(second, 0.2 * (first.square() - 4), 1.0)


def henon(num_rows: int, num_variables: int, *, seed: int = 0) -> Tensor:
    """Windows of Hénon's chaotic series, x' = 1 - 1.4 x² + 0.3 x₋₁, seen with noise, (n, d)."""
    generator = torch.Generator().manual_seed(seed)
    before, now = torch.rand(2, num_rows, generator=generator, dtype=torch.float64).mul(0.2)
    series = []
    for step in range(50 + num_variables):  # after fifty steps the start is forgotten
        before, now = now, 1 - 1.4 * now.square() + 0.3 * before
        if step >= 50:
            series.append(now)
    noise = torch.randn(num_rows, num_variables, generator=generator, dtype=torch.float64)
    return torch.stack(series, 1) + 0.05 * noise


def log_normal(x: Tensor, mean: Tensor | float, scale: Tensor | float) -> Tensor:
    """log N(x; mean, scale²)."""
    log_scale = torch.as_tensor(scale, dtype=x.dtype).log()
    return -0.5 * ((x - mean) / scale).square() - log_scale - 0.5 * math.log(2 * math.pi)


def _funnel_scale(first: Tensor) -> Tensor:
    return (-first).exp().clamp(max=5).sqrt()
