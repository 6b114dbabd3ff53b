"""How the weights of sum layers start (paper: App. H; real weights start non-negative there)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Initialiser = Callable[[Sequence[int], torch.Generator | None], Tensor]


def uniform(low: float = 0.0, high: float = 1.0) -> Initialiser:
    """Weights uniform in (low, high]: with the defaults the paper's non-negative start.

    >>> draw = sub.init.uniform()
    >>> bool((draw((1, 2, 3), None) > 0).all())
    True
    """

    def draw(shape: Sequence[int], generator: torch.Generator | None) -> Tensor:
        zero_to_one = torch.rand(*shape, generator=generator, dtype=torch.float64)
        return high - (high - low) * zero_to_one

    return draw


def normal(mean: float = 0.0, std: float = 1.0) -> Initialiser:
    """Weights from a normal distribution, half of them negative with the defaults.

    >>> sub.init.normal()((1, 2, 3), None).shape
    torch.Size([1, 2, 3])
    """

    def draw(shape: Sequence[int], generator: torch.Generator | None) -> Tensor:
        return mean + std * torch.randn(*shape, generator=generator, dtype=torch.float64)

    return draw


def log_normal(mean: float = 0.0, std: float = 1.0) -> Initialiser:
    """Positive weights whose logarithms are normal.

    >>> bool((sub.init.log_normal()((1, 2, 3), None) > 0).all())
    True
    """

    def draw(shape: Sequence[int], generator: torch.Generator | None) -> Tensor:
        return (mean + std * torch.randn(*shape, generator=generator, dtype=torch.float64)).exp()

    return draw


def dirichlet(concentration: float = 1.0) -> Initialiser:
    """Each row of a weight matrix from a Dirichlet distribution: positive, summing to one.

    >>> sub.init.dirichlet()((1, 2, 3), None).sum(-1).round(decimals=6)
    tensor([[1., 1.]], dtype=torch.float64)
    """
    if not concentration > 0:
        raise ValueError(f"the concentration must be positive, got {concentration}.")

    def draw(shape: Sequence[int], generator: torch.Generator | None) -> Tensor:
        alpha = torch.full(tuple(shape), concentration, dtype=torch.float64)
        gamma = torch._standard_gamma(alpha, generator=generator)
        return gamma / gamma.sum(-1, keepdim=True)

    return draw
