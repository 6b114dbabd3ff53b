"""The paper's synthetic sets of two variables, standardised, with their densities (App. H.1)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from subtractive.data.synthetic import (
    banana,
    banana_log_density,
    cosine,
    cosine_log_density,
    funnel,
    funnel_log_density,
    rings,
    rings_log_density,
)

LogDensity = Callable[[Tensor], Tensor]


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


class AffineMap(NamedTuple):
    """Points turned by an angle, moved, and stretched."""

    angle: float
    mean: Tensor  # (2,), taken away after turning
    scale: Tensor  # (2,), divided by after that

    def apply(self, x: Tensor) -> Tensor:
        """The images of points (n, 2)."""
        return (x @ self._rotation().T - self.mean) / self.scale

    def log_density(self, shape: LogDensity) -> LogDensity:
        """The density of the images of points of a shape."""

        def log_density(x: Tensor) -> Tensor:
            raw = (x.double() * self.scale + self.mean) @ self._rotation()
            return shape(raw) + self.scale.log().sum()

        return log_density

    def _rotation(self) -> Tensor:
        cos, sin = math.cos(self.angle), math.sin(self.angle)
        return torch.tensor([[cos, -sin], [sin, cos]], dtype=torch.float64)


class SyntheticSet(NamedTuple):
    """Rows for training, validation and test, (n, 2) each, and the density they come from."""

    train: Tensor
    valid: Tensor
    test: Tensor
    log_density: LogDensity

    @property
    def rows(self) -> tuple[Tensor, Tensor, Tensor]:
        """The three tables."""
        return self.train, self.valid, self.test


def draw(
    name: str, sizes: tuple[int, int, int] = (10_000, 1_000, 2_000), seed: int = 0
) -> SyntheticSet:
    """Fresh rows of one of the :data:`SHAPES`, standardised by the training rows.

    >>> data = draw("banana", (1000, 100, 100))
    >>> data.train.mean(0).abs().max() < 1e-9, data.log_density(data.test).shape
    (tensor(True), torch.Size([100]))
    """
    shape = SHAPES[name]
    raw = shape.draw(sum(sizes), seed)
    still = AffineMap(shape.angle, raw.new_zeros(2), raw.new_ones(2)).apply(raw)
    mean, scale = still[: sizes[0]].mean(0), still[: sizes[0]].std(0, correction=0)
    affine = AffineMap(shape.angle, mean, scale)
    train, valid, test = affine.apply(raw).split(sizes)
    return SyntheticSet(train, valid, test, affine.log_density(shape.log_density))


def find_map(name: str, x: Tensor) -> AffineMap:
    """The map under which rows (n, 2) are most likely, found by search near their moments.

    It makes the true density of rows known that someone else has drawn and standardised.
    """
    shape = SHAPES[name]
    still = AffineMap(shape.angle, x.new_zeros(2), x.new_ones(2)).apply(shape.draw(100_000, 0))

    def affine(numbers: NDArray[np.float64]) -> AffineMap:
        shift, stretch = torch.from_numpy(numbers).split(2)
        scale = still.std(0) * stretch.exp()
        return AffineMap(shape.angle, still.mean(0) + shift, scale)

    def loss(numbers: NDArray[np.float64]) -> float:
        logs = affine(numbers).log_density(shape.log_density)(x)
        # Of a uniform part a row may fall off the edge: bad, but not infinitely so.
        return -float(logs.clamp(min=-50).mean())

    best = np.zeros(4)
    for size in (0.02, 0.005, 0.002):  # again from where it ended: edges stop a search too early
        corners = best + np.vstack([np.zeros(4), size * np.eye(4)])
        options = {"initial_simplex": corners, "maxiter": 400, "xatol": 1e-5, "fatol": 1e-8}
        best = minimize(loss, best, method="Nelder-Mead", options=options).x
    return affine(best)
