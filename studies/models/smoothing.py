"""Smoothness as a prior: tables and splines are smoothed a little after every step.

Penalised likelihood, as P-splines have it, with the penalty decoupled from the optimiser as AdamW
does it for weight decay: a step is followed by the minimiser of |a - b|² + μ |D² b|², D² being
second differences, and μ the learning rate times the strength. Whatever the units of a, a smooth
row of numbers stays and a rough one fades.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim import Optimizer


def smoother(num_bases: int, amounts: Tensor) -> Tensor:
    """The matrices (f, b, b) that smooth rows of coefficients (b,) by the amounts μ (f,).

    >>> straight = torch.arange(4.0, dtype=torch.float64)
    >>> smoothed = straight @ smoother(4, torch.tensor([5.0]).double())
    >>> torch.allclose(smoothed[0], straight)
    True
    """
    differences = torch.eye(num_bases, dtype=torch.float64).diff(dim=0).diff(dim=0)
    sizes, directions = torch.linalg.eigh(differences.mT @ differences)
    faded = directions / (1 + amounts.double()[:, None, None] * sizes.clamp(min=0))
    return torch.matmul(faded, directions.mT)


def smooth_after_steps(optimizer: Optimizer, table: Tensor, strengths: Tensor) -> None:
    """Let every step of an optimiser end with the rows of a table (f, i, b) smoothed.

    ``strengths`` (f,) are per unit of the learning rate.
    """
    made: dict[float, Tensor] = {}

    @torch.no_grad()
    def smooth(*_: object) -> None:
        rate = float(optimizer.param_groups[0]["lr"])
        if rate not in made:
            made.clear()  # rates come and go
            made[rate] = smoother(table.shape[-1], rate * strengths).to(table.dtype)
        table.copy_(table @ made[rate])

    optimizer.register_step_post_hook(smooth)
