"""Monotone transforms of single columns: the numbers of a table <-> the codes that a model sees.

A transform keeps every answer exact: a density of codes is one of numbers after multiplication
with the derivative, and an interval of numbers is an interval of codes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np

from subtractive.tables.reading import Floats

REACH = 8.0  # robust standard deviations from the median after which a line becomes a logarithm
# Exponents of tails stay below this, so that no code becomes an infinite number.
_LARGEST_EXPONENT = 300.0


class Transform(ABC):
    """An increasing function of a column's numbers, and its inverse."""

    @abstractmethod
    def forward(self, values: Floats) -> Floats:
        """Codes (n,) of numbers (n,)."""

    @abstractmethod
    def inverse(self, codes: Floats) -> Floats:
        """Numbers (n,) of codes (n,)."""

    @abstractmethod
    def log_abs_det_jacobian(self, values: Floats) -> Floats:
        """log |d code / d value|, (n,)."""

    @property
    @abstractmethod
    def breaks(self) -> Floats:
        """Codes between which the inverse is smooth."""


@final
@dataclass(frozen=True)
class Affine(Transform):
    r"""``(x - centre) / unit``, and logarithmic where that is beyond ``reach``.

    .. math:: t = (x - c) / u, \qquad z = ±(r + \log(1 + |t| - r)) \text{ where } |t| > r

    A number at 1,000 standard deviations is improbable, but does not decide the mean score.
    """

    centre: float
    unit: float
    reach: float = math.inf

    @property
    def breaks(self) -> Floats:
        return np.array([-self.reach, self.reach]) if math.isfinite(self.reach) else np.zeros(0)

    def forward(self, values: Floats) -> Floats:
        t = np.asarray((values - self.centre) / self.unit)
        excess = np.maximum(np.abs(t) - self.reach, 0.0)
        return np.where(excess > 0, np.copysign(self.reach + np.log1p(excess), t), t)

    def inverse(self, codes: Floats) -> Floats:
        excess = np.clip(np.abs(codes) - self.reach, 0.0, _LARGEST_EXPONENT)
        far = np.copysign(self.reach + np.expm1(excess), codes)
        return self.centre + self.unit * np.where(excess > 0, far, codes)

    def log_abs_det_jacobian(self, values: Floats) -> Floats:
        t = (values - self.centre) / self.unit
        return -np.log1p(np.maximum(np.abs(t) - self.reach, 0.0)) - math.log(self.unit)


@final
@dataclass(frozen=True)
class Logarithm(Transform):
    """The standardised logarithm of the distance to a bound; ``direction`` is 1 above it."""

    origin: float
    direction: int
    centre: float
    unit: float

    @property
    def breaks(self) -> Floats:
        return np.zeros(0)

    def forward(self, values: Floats) -> Floats:
        return self.direction * (self._log_distance(values) - self.centre) / self.unit

    def inverse(self, codes: Floats) -> Floats:
        exponent = self.centre + self.unit * self.direction * codes
        return self.origin + self.direction * np.exp(np.minimum(exponent, _LARGEST_EXPONENT))

    def log_abs_det_jacobian(self, values: Floats) -> Floats:
        return -math.log(self.unit) - self._log_distance(values)

    def _log_distance(self, values: Floats) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.log(self.direction * (values - self.origin)))


@final
@dataclass(frozen=True)
class NormalScores(Transform):
    r"""A monotone curve through the quantiles of a column and those of the standard normal.

    Between ``knots`` x_k with ``scores`` z_k and ``slopes`` d_k it is a rational quadratic
    spline, whose inverse has a closed form. With ξ the position in a cell and s its secant:

    .. math:: z = z_k + Δz \frac{s ξ^2 + d_k ξ (1 - ξ)}{s + (d_k + d_{k+1} - 2 s) ξ (1 - ξ)}

    Beyond the outer knots it grows like a logarithm, or falls like one towards a bound.
    """

    knots: tuple[float, ...]
    scores: tuple[float, ...]
    slopes: tuple[float, ...]
    low: float = -math.inf
    high: float = math.inf

    def __post_init__(self) -> None:
        lengths = {len(self.knots), len(self.scores), len(self.slopes)}
        increases = bool((np.diff(self.knots) > 0).all() and (np.diff(self.scores) > 0).all())
        if len(lengths) != 1 or len(self.knots) < 2 or not increases or min(self.slopes) <= 0:
            raise ValueError("normal scores need at least two increasing knots, scores, slopes.")

    @cached_property
    def _arrays(self) -> tuple[Floats, Floats, Floats]:
        return np.array(self.knots), np.array(self.scores), np.array(self.slopes)

    @property
    def breaks(self) -> Floats:
        return self._arrays[1]

    def forward(self, values: Floats) -> Floats:
        x, z, _ = self._arrays
        cell = self._cell(x, values)
        xi, first, last = self._position(cell, values), *self._relative_slopes(cell)
        both = xi * (1 - xi)
        share = (xi**2 + first * both) / (1 + (first + last - 2) * both)
        codes = z[cell] + np.diff(z)[cell] * share
        codes = np.where(values < x[0], z[0] - self._excess(values, 0), codes)
        beyond = z[-1] + self._excess(values, -1)
        return np.asarray(np.where(values > x[-1], beyond, codes))

    def inverse(self, codes: Floats) -> Floats:
        x, z, _ = self._arrays
        cell = self._cell(z, codes)
        first, last = self._relative_slopes(cell)
        share = np.clip((codes - z[cell]) / np.diff(z)[cell], 0.0, 1.0)
        bend = share * (first + last - 2)
        a, b = 1 - first + bend, first - bend
        root = b + np.sqrt(np.maximum(b**2 + 4 * a * share, 0.0))
        # The root is at least twice the share, but for rounding.
        xi = 2 * share / np.maximum(root, np.maximum(2 * share, 1e-300))
        values = x[cell] + np.diff(x)[cell] * xi
        values = np.where(codes < z[0], self._beyond(z[0] - codes, 0), values)
        return np.where(codes > z[-1], self._beyond(codes - z[-1], -1), values)

    def log_abs_det_jacobian(self, values: Floats) -> Floats:
        x, z, _ = self._arrays
        cell = self._cell(x, values)
        xi, first, last = self._position(cell, values), *self._relative_slopes(cell)
        both = xi * (1 - xi)
        top = last * xi**2 + 2 * both + first * (1 - xi) ** 2
        bottom = 1 + (first + last - 2) * both
        secant = np.diff(z)[cell] / np.diff(x)[cell]
        inside = np.log(secant) + np.log(top) - 2 * np.log(bottom)
        inside = np.where(values < x[0], self._log_slope(values, 0), inside)
        return np.where(values > x[-1], self._log_slope(values, -1), inside)

    def _cell(self, edges: Floats, points: Floats) -> Any:  # noqa: ANN401 - integers (n,)
        """The number of the cell between two of the edges in which points (n,) are."""
        return np.clip(np.searchsorted(edges, points, side="right") - 1, 0, len(edges) - 2)

    def _position(self, cell: Any, values: Floats) -> Floats:  # noqa: ANN401
        x = self._arrays[0]
        return np.asarray(np.clip((values - x[cell]) / np.diff(x)[cell], 0.0, 1.0))

    def _relative_slopes(self, cell: Any) -> tuple[Floats, Floats]:  # noqa: ANN401
        """Slopes at both ends of cells over their secants."""
        x, z, d = self._arrays
        secant = np.diff(z)[cell] / np.diff(x)[cell]
        return d[cell] / secant, d[cell + 1] / secant

    def _room(self, end: int) -> float:
        """How far it is from an outer knot to the bound beyond it."""
        return self.knots[0] - self.low if end == 0 else self.high - self.knots[-1]

    def _excess(self, values: Floats, end: int) -> Floats:
        """How far codes are beyond the outer score, of numbers beyond the outer knot."""
        slope, room = self.slopes[end], self._room(end)
        if math.isinf(room):
            return np.asarray(np.log1p(self._distance(values, end) * slope))
        return -slope * room * self._log_room_left(values, end)

    def _distance(self, values: Floats, end: int) -> Floats:
        """How far beyond the outer knot numbers are, zero if they are not."""
        distance = self.knots[0] - values if end == 0 else values - self.knots[-1]
        return np.maximum(distance, 0.0)

    def _log_room_left(self, values: Floats, end: int) -> Floats:
        """log of the distance to the bound, over that of the outer knot."""
        left = values - self.low if end == 0 else self.high - values
        with np.errstate(divide="ignore"):
            return np.log(np.clip(left / self._room(end), 0.0, 1.0))

    def _beyond(self, excess: Floats, end: int) -> Floats:
        """The numbers beyond an outer knot whose codes are so far beyond its score."""
        slope, room, sign = self.slopes[end], self._room(end), -1 if end == 0 else 1
        if math.isinf(room):
            far = np.expm1(np.clip(excess, 0.0, _LARGEST_EXPONENT)) / slope
            return np.asarray(self.knots[end] + sign * far)
        bound = self.low if end == 0 else self.high
        return np.asarray(bound - sign * room * np.exp(-np.maximum(excess, 0.0) / (slope * room)))

    def _log_slope(self, values: Floats, end: int) -> Floats:
        slope, room = self.slopes[end], self._room(end)
        if math.isinf(room):
            return math.log(slope) - np.log1p(self._distance(values, end) * slope)
        return math.log(slope) - self._log_room_left(values, end)


def affine(values: Floats, weights: Floats) -> Affine:
    """The standardisation of numbers (n,), with tails that are logarithmic.

    The unit is the standard deviation of what is not far away: one row cannot change it much.
    """
    centre, spread = location_and_spread(values, weights)
    for _ in range(3):
        near = np.abs(values - centre) <= REACH * spread
        centre, spread = location_and_spread(values[near], weights[near])
        if spread == 0 or near.all():
            break
    if spread == 0:
        centre, spread = location_and_spread(values, weights)
    return Affine(centre, spread or 1.0, REACH)


def location_and_spread(values: Floats, weights: Floats) -> tuple[float, float]:
    """Weighted mean and standard deviation, NaN left out, without overflow or underflow."""
    there = ~np.isnan(values)
    # Equal values are counted, so that neither the order of rows nor repeating them matters.
    values, which = np.unique(values[there], return_inverse=True)
    totals = np.bincount(which, weights=weights[there])
    shares = totals / totals.sum()
    largest = float(np.abs(values).max()) or 1.0
    centre = largest * float(shares @ (values / largest))
    deviations = values - centre
    reach = float(np.abs(deviations).max())
    return centre, reach * math.sqrt(float(shares @ np.square(deviations / (reach or 1.0))))
