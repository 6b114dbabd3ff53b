"""Synthetic data with holes and curves, drawn as the paper draws it (paper: Sec. 1, App. H.1)."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def ring(num_rows: int, *, radius: float = 2.0, width: float = 0.6, seed: int = 0) -> Tensor:
    """Points around a circle: uniform angle, normal radius, (n, 2) in float64.

    >>> ring(1000).norm(dim=1).mean().round(decimals=1).item()
    2.0
    """
    generator = torch.Generator().manual_seed(seed)
    angle = 2 * math.pi * torch.rand(num_rows, generator=generator, dtype=torch.float64)
    noise = torch.randn(num_rows, generator=generator, dtype=torch.float64)
    distance = radius + width * noise
    return torch.stack([distance * angle.cos(), distance * angle.sin()], 1)


def ring_log_density(x: Tensor, *, radius: float = 2.0, width: float = 0.6) -> Tensor:
    """log of the density of :func:`ring`, (n,): radius normal, angle uniform, both signs of r."""
    distance = x.norm(dim=1)

    def log_normal(r: Tensor) -> Tensor:
        standard = ((r - radius) / width).square()
        return -0.5 * standard - math.log(width * math.sqrt(2 * math.pi))

    folded = torch.logaddexp(log_normal(distance), log_normal(-distance))
    return torch.sub(folded, torch.log(2 * math.pi * distance))


def rings(num_rows: int, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Points on three circles of radius 1, 3 and 5, as many as each is long, and their circles.

    The points are (n, 2), radius + N(0, 0.2²); the circles (n,) are numbered from 0.

    >>> points, circle = rings(6)
    >>> points.shape, circle.shape
    (torch.Size([6, 2]), torch.Size([6]))
    """
    generator = torch.Generator().manual_seed(seed)
    radii = torch.tensor([1.0, 3.0, 5.0], dtype=torch.float64)
    circle = torch.multinomial(radii, num_rows, replacement=True, generator=generator)
    angle = 2 * math.pi * torch.rand(num_rows, generator=generator, dtype=torch.float64)
    noise = torch.randn(num_rows, generator=generator, dtype=torch.float64)
    distance = radii[circle] + 0.2 * noise
    return torch.stack([distance * angle.cos(), distance * angle.sin()], 1), circle
