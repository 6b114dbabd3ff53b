"""Quantiles: where a cumulative distribution function reaches given levels."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

# A bracket is cut into cells until nothing is left of a float64. More points in one call cost
# less than more calls.
_CELLS = 16
_MAX_STEPS = 200


@torch.no_grad()
def quantiles(
    cumulative: Callable[[Tensor], Tensor], levels: Tensor, centre: float, spread: float
) -> Tensor:
    """The points (q,) at which a distribution function reaches its levels (q,) in (0, 1).

    The search starts around ``centre`` and widens by ``spread`` until it holds all levels. No
    gradient passes.

    >>> levels = torch.tensor([0.25, 0.5], dtype=torch.float64)
    >>> quantiles(lambda t: t.clamp(0, 1), levels, 0.5, 0.1)
    tensor([0.2500, 0.5000], dtype=torch.float64)
    """
    # A spread rounded to zero would never widen the bracket.
    spread = max(spread, 1e-8 * abs(centre), 1e-150)
    lower = torch.full_like(levels, centre - spread)
    upper = torch.full_like(levels, centre + spread)
    step = spread
    for _ in range(_MAX_STEPS):
        low, high = cumulative(lower) > levels, cumulative(upper) < levels
        if not bool((low | high).any()):
            break
        step *= 2
        lower, upper = (
            torch.where(low, lower - step, lower),
            torch.where(high, upper + step, upper),
        )
    shares = torch.linspace(0, 1, _CELLS + 1, dtype=levels.dtype, device=levels.device)
    for _ in range(_MAX_STEPS):
        edges = torch.lerp(lower[:, None], upper[:, None], shares)  # (q, c + 1)
        heights = cumulative(edges[:, 1:-1].flatten()).unflatten(0, (-1, _CELLS - 1))
        cell = (heights < levels[:, None]).sum(1, keepdim=True)  # the one where it is reached
        lower, upper = (edges.gather(1, cell + end)[:, 0] for end in (0, 1))
        if bool((upper - lower <= 1e-15 * (lower.abs() + spread)).all()):
            break
    return 0.5 * (lower + upper)


def state_quantiles(probabilities: Tensor, levels: Tensor) -> Tensor:
    """The smallest states (q,) whose cumulative probability reaches the levels.

    >>> state_quantiles(torch.tensor([0.2, 0.5, 0.3]), torch.tensor([0.1, 0.6, 0.9]))
    tensor([0., 1., 2.], dtype=torch.float64)
    """
    cumulative = probabilities.cumsum(0)
    states = torch.searchsorted(cumulative, levels.to(cumulative.dtype))
    return states.clamp(max=len(probabilities) - 1).double()
