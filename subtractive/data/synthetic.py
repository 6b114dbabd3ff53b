"""Synthetic data with holes and curves, drawn as the paper draws it (paper: Sec. 1, App. H.1)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

LogDensity = Callable[[Tensor], Tensor]

RADII = (1.0, 3.0, 5.0)
RING_WIDTH = 0.2


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
    folded = torch.logaddexp(
        log_normal(distance, radius, width), log_normal(-distance, radius, width)
    )
    return torch.sub(folded, torch.log(2 * math.pi * distance))


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
    parts = [
        math.log(radius / sum(RADII)) + ring_log_density(x, radius=radius, width=RING_WIDTH)
        for radius in RADII
    ]
    return torch.stack(parts).logsumexp(0)


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


class Shape(NamedTuple):
    """A density of two variables: how to draw from it, its logarithm, and how far it is turned."""

    draw: Callable[[int, int], Tensor]  # number of rows and seed
    log_density: LogDensity
    angle: float = 0.0


SHAPES = {
    "rings": Shape(lambda n, seed: rings(n, seed=seed)[0], rings_log_density),
    "cosine": Shape(lambda n, seed: cosine(n, seed=seed), cosine_log_density, math.pi / 4),
    "funnel": Shape(lambda n, seed: funnel(n, seed=seed), funnel_log_density, math.pi / 4),
    "banana": Shape(lambda n, seed: banana(n, seed=seed), banana_log_density),
}


class Frame(NamedTuple):
    """Where the points of a shape are drawn: turned by an angle, moved, and stretched."""

    angle: float
    mean: Tensor  # (2,), taken away after turning
    scale: Tensor  # (2,), divided by after that

    def turned(self, x: Tensor) -> Tensor:
        """Points of the shape in this frame, both (n, 2)."""
        return (x @ self._rotation().T - self.mean) / self.scale

    def log_density(self, shape: LogDensity) -> LogDensity:
        """The density of points of a shape in this frame."""

        def log_density(x: Tensor) -> Tensor:
            raw = (x.double() * self.scale + self.mean) @ self._rotation()
            return shape(raw) + self.scale.log().sum()

        return log_density

    def _rotation(self) -> Tensor:
        cos, sin = math.cos(self.angle), math.sin(self.angle)
        return torch.tensor([[cos, -sin], [sin, cos]], dtype=torch.float64)


class Draw(NamedTuple):
    """Rows for training, validation and test, (n, 2) each, and the density they come from."""

    train: Tensor
    valid: Tensor
    test: Tensor
    log_density: LogDensity


def draw(name: str, sizes: tuple[int, int, int] = (10_000, 1_000, 2_000), seed: int = 0) -> Draw:
    """Fresh rows of one of the :data:`SHAPES`, standardised by the training rows.

    >>> data = draw("banana", (1000, 100, 100))
    >>> data.train.mean(0).abs().max() < 1e-9, data.log_density(data.test).shape
    (tensor(True), torch.Size([100]))
    """
    shape = SHAPES[name]
    raw = shape.draw(sum(sizes), seed)
    still = Frame(shape.angle, raw.new_zeros(2), raw.new_ones(2)).turned(raw)
    mean, scale = still[: sizes[0]].mean(0), still[: sizes[0]].std(0, correction=0)
    frame = Frame(shape.angle, mean, scale)
    train, valid, test = frame.turned(raw).split(sizes)
    return Draw(train, valid, test, frame.log_density(shape.log_density))


def find_frame(name: str, x: Tensor) -> Frame:
    """The frame in which rows (n, 2) are most likely, found by search near their moments.

    It makes the true density of rows known that someone else has drawn and standardised.
    """
    shape = SHAPES[name]
    still = Frame(shape.angle, x.new_zeros(2), x.new_ones(2)).turned(shape.draw(100_000, 0))

    def frame(numbers: NDArray[np.float64]) -> Frame:
        shift, stretch = torch.from_numpy(numbers).split(2)
        scale = still.std(0) * stretch.exp()
        return Frame(shape.angle, still.mean(0) + shift, scale)

    def badness(numbers: NDArray[np.float64]) -> float:
        logs = frame(numbers).log_density(shape.log_density)(x)
        # Of a uniform part a row may fall off the edge: bad, but not infinitely so.
        return -float(logs.clamp(min=-50).mean())

    best = np.zeros(4)
    for size in (0.02, 0.005, 0.002):  # again from where it ended: edges stop a search too early
        corners = best + np.vstack([np.zeros(4), size * np.eye(4)])
        options = {"initial_simplex": corners, "maxiter": 400, "xatol": 1e-5, "fatol": 1e-8}
        best = minimize(badness, best, method="Nelder-Mead", options=options).x
    return frame(best)
