"""Inverting cumulative distribution functions, for exact sampling and quantiles."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

# Newton's method needs a handful of steps; bisection, its safeguard, the digits of a float.
_MAX_STEPS = 80
# Newton's next step is about the square of the last one, both in units of the first bracket.
_SMALL_STEP = 1e-8


def invert(
    function: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
    target: Tensor,
    lower: Tensor,
    upper: Tensor,
    start: Tensor,
) -> Tensor:
    """Where increasing functions, given with their slopes, reach their targets; all (n,).

    ``function(points, rows)`` evaluates the functions of some rows. Newton steps that stay inside
    the shrinking bracket, bisection otherwise; rows that have arrived are left alone. A start
    outside the bracket is replaced by its middle.

    >>> one = torch.ones(1, dtype=torch.float64)
    >>> invert(lambda t, rows: (t**3, 3 * t**2), 8 * one, 0 * one, 10 * one, 5 * one)
    tensor([2.], dtype=torch.float64)
    """
    point = torch.where((start > lower) & (start < upper), start, 0.5 * (lower + upper))
    width = upper - lower
    rows = torch.arange(len(target), device=target.device)
    for _ in range(_MAX_STEPS):
        here, low, high = point[rows], lower[rows], upper[rows]
        value, slope = function(here, rows)
        below = value < target[rows]
        low, high = torch.where(below, here, low), torch.where(below, high, here)
        newton = here - (value - target[rows]) / slope
        inside = (newton > low) & (newton < high)
        is_small = (newton - here).abs() <= _SMALL_STEP * width[rows]
        # A small step out of the bracket is rounding: there is nothing better than its end.
        safe = torch.where(is_small, newton.clamp(low, high), 0.5 * (low + high))
        point = point.index_copy(0, rows, torch.where(inside, newton, safe))
        lower, upper = lower.index_copy(0, rows, low), upper.index_copy(0, rows, high)
        is_narrow = high - low <= 1e-15 * width[rows] + 4e-16 * here.abs()
        rows = rows[~(is_small | is_narrow)]
        if len(rows) == 0:
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
