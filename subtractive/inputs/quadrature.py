"""Quadrature on the line, for input functions that can only be evaluated.

Gauss-Legendre rules on a fixed number of panels; an infinite end is brought to a finite one by
x = t / (1 - t²) or the like. Functions that are smooth between the break points, and not narrower
than a hundredth of the interval (on the line: of order one near zero), get about ten digits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from subtractive.numerics.messages import LeafMessage

NUM_PANELS = 24
NUM_NODES = 16
# Ends beyond this count as infinite; the square of this number is still finite.
FAR_OUT = 1e150


@final
@dataclass(frozen=True)
class Line:
    """The interval from ``lower`` to ``upper``, either of them perhaps infinite.

    Each x has a coordinate t in a finite interval: x itself if both ends are finite.
    """

    lower: float = -math.inf
    upper: float = math.inf
    break_points: tuple[float, ...] = ()

    def x(self, t: Tensor) -> Tensor:
        """The point with coordinate t."""
        if math.isfinite(self.lower) and math.isfinite(self.upper):
            return t
        if math.isfinite(self.lower):
            return self.lower + t / (1 - t)
        if math.isfinite(self.upper):
            return self.upper + t / (1 + t)
        return t / ((1 - t) * (1 + t))

    def derivative(self, t: Tensor) -> Tensor:
        """dx / dt."""
        if math.isfinite(self.lower) and math.isfinite(self.upper):
            return torch.ones_like(t)
        if math.isfinite(self.lower):
            return (1 - t) ** -2
        if math.isfinite(self.upper):
            return (1 + t) ** -2
        return (1 + t.square()) / ((1 - t) * (1 + t)).square()

    def t(self, x: Tensor) -> Tensor:
        """The coordinate of x, or of the end of the interval that is nearest to it."""
        x = x.double().clamp(max(self.lower, -FAR_OUT), min(self.upper, FAR_OUT))
        if math.isfinite(self.lower) and math.isfinite(self.upper):
            return x
        if math.isfinite(self.lower):
            return (x - self.lower) / (1 + x - self.lower)
        if math.isfinite(self.upper):
            return (x - self.upper) / (1 - x + self.upper)
        return 2 * x / (1 + (1 + 4 * x.square()).sqrt())

    @property
    def edges(self) -> Tensor:
        """The coordinates of the ends of all panels, (c + 1,)."""
        ends = self.t(torch.tensor([self.lower, self.upper]))
        panels = ends[0] + (ends[1] - ends[0]) * torch.arange(NUM_PANELS + 1) / NUM_PANELS
        breaks = self.t(torch.tensor(self.break_points, dtype=torch.float64))
        edges: Tensor = torch.cat([panels, breaks]).unique()
        return edges

    def rule(self, lower: Tensor | None, upper: Tensor | None) -> tuple[Tensor, Tensor]:
        """Nodes and weights of the integral over lower < x <= upper, both (f, m, g) or (1, 1, g).

        Bounds are (f, m). The nodes move with them, so that derivatives by them are exact.
        """
        start, end = self.edges[:-1], self.edges[1:]
        low = start[None, None] if lower is None else clip(self.t(lower), start, end)
        high = end[None, None] if upper is None else clip(self.t(upper), start, end)
        nodes, weights = np.polynomial.legendre.leggauss(NUM_NODES)
        width = (high - low).clamp(min=0)[..., None]  # (f, m, c, 1)
        t = low[..., None] + width * torch.from_numpy((nodes + 1) / 2)
        # An empty window may lie at an infinite end, where derivatives are not finite.
        is_finite = self.derivative(t.detach()).isfinite()
        t = torch.where(is_finite, t, 0.5 * (start + end)[:, None])
        measure = width * torch.from_numpy(weights / 2) * self.derivative(t)
        return self.x(t).flatten(2), measure.flatten(2)


def clip(bound: Tensor, start: Tensor, end: Tensor) -> Tensor:
    """A bound (f, m) brought into each of the intervals (..., c) from start to end, (f, m, c)."""
    bound = bound[..., None]
    # Not clamp: a bound on an edge moves one interval only, the one to its left.
    return torch.where(bound <= start, start, torch.where(bound > end, end, bound))


def weighted_sum(values: LeafMessage, weights: Tensor) -> LeafMessage:
    """``Σ_g w_g f_i(x_g)``, (f, m, i), of values (f, m or 1, g, i) and weights (f or 1, m, g)."""
    sizes, peak = _over_peak(values, weights)
    total = (weights.to(sizes.dtype)[..., None, :] @ sizes)[..., 0, :]
    return LeafMessage(total, None if peak is None else peak[..., 0, :].expand_as(total))


def weighted_products(left: LeafMessage, right: LeafMessage, weights: Tensor) -> LeafMessage:
    """``Σ_g w_g f_i(x_g) h_j(x_g)``, (f, m, i, j), in the same way."""
    sizes, peak = _over_peak(left, weights)
    others, other_peak = (sizes, peak) if right is left else _over_peak(right, weights)
    total = (sizes * weights.to(sizes.dtype)[..., None]).mT @ others
    if peak is None or other_peak is None:
        return LeafMessage(total, None)
    return LeafMessage(total, (peak.mT + other_peak).expand_as(total))


def _over_peak(values: LeafMessage, weights: Tensor) -> tuple[Tensor, Tensor | None]:
    """The values over exp(peak), and the peaks (f, m or 1, 1, i), of what has a weight."""
    if values.exponent is None:
        return values.some, None
    counts = (weights != 0) if values.some.shape[1] > 1 else (weights != 0).any(1, keepdim=True)
    exponent = values.exponent.masked_fill(~counts[..., None], -math.inf)
    peak = exponent.detach().amax(2, keepdim=True)
    peak = torch.where(peak == -math.inf, 0.0, peak)
    sizes = (exponent - peak).exp()
    return (sizes if values.mantissa is None else values.mantissa * sizes), peak
