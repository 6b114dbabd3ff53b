"""Inverting cumulative distribution functions, for exact sampling and quantiles."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

# Newton's method needs a handful of steps; bisection, its safeguard, the digits of a float.
_MAX_STEPS = 80


def invert(
    function: Callable[[Tensor], tuple[Tensor, Tensor]],
    target: Tensor,
    lower: Tensor,
    upper: Tensor,
) -> Tensor:
    """Where an increasing function, given with its slope, reaches its target; all (n,).

    Newton steps that stay inside the shrinking bracket, bisection otherwise.

    >>> one = torch.ones(1, dtype=torch.float64)
    >>> invert(lambda t: (t**3, 3 * t**2), 8 * one, 0 * one, 10 * one)
    tensor([2.], dtype=torch.float64)
    """
    point = 0.5 * (lower + upper)
    width = upper - lower
    for _ in range(_MAX_STEPS):
        value, slope = function(point)
        below = value < target
        lower = torch.where(below, point, lower)
        upper = torch.where(below, upper, point)
        newton = point - (value - target) / slope
        inside = (newton > lower) & (newton < upper)
        following = torch.where(inside, newton, 0.5 * (lower + upper))
        close = (following - point).abs() <= 1e-15 * (following.abs() + width)
        point = following
        if bool(close.all()):
            break
    return point


def choose_cell(masses: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Pick a cell with probability proportional to its mass (n, c), by a uniform number (n,).

    Returns the cell (n,) and the mass still to be found inside it (n,). Rounding may leave a mass
    slightly negative; it counts as zero.

    >>> choose_cell(torch.tensor([[1.0, 2.0, 1.0]]), torch.tensor([0.5]))
    (tensor([1]), tensor([1.]))
    """
    cumulative = masses.clamp(min=0).cumsum(-1)
    total = cumulative[:, -1:]
    target = uniform[:, None] * total
    cell = torch.searchsorted(cumulative, target, right=True).clamp(max=masses.shape[1] - 1)
    # The last cell with any mass: rounding may push the target beyond it.
    last = (cumulative < total).sum(-1, keepdim=True).clamp(max=masses.shape[1] - 1)
    cell = torch.minimum(cell, last)
    before = torch.where(cell > 0, cumulative.gather(-1, (cell - 1).clamp(min=0)), 0.0)
    return cell[:, 0], (target - before)[:, 0]
