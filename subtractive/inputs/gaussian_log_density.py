"""Logarithms of Gaussian densities and of their overlaps, differentiated by hand.

These are the largest element-wise computations of a training step: left to autograd, every factor
of a formula would be kept as a tensor of its own and cost several more on the way back. Gradients
are written in plain operations on the arguments, so that they can be differentiated again, and
are computed for a few regions at a time: their intermediate results stay in a processor's cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from subtractive.numerics.transforms import is_transformed

HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)

# How large a tensor is computed at a time.
CHUNK_BYTES = 2**20

# Variances of units whose log-scales differ by more are not all numbers of one exponent range.
WIDEST_RANGE = 600.0


def log_kernel(x: Tensor, mean: Tensor, log_scale: Tensor) -> Tensor:
    """``-(x - μ)² / 2σ²``, the Gaussian without its normalisation; arguments broadcast."""
    return -0.5 * ((x - mean) * (-log_scale).exp()).square()


def log_density(x: Tensor, mean: Tensor, log_scale: Tensor) -> Tensor:
    """``log N(x; μ, σ)``; arguments broadcast."""
    return log_kernel(x, mean, log_scale) - log_scale - HALF_LOG_TWO_PI


def log_densities(x: Tensor, mean: Tensor, log_scale: Tensor) -> Tensor:
    """``log N(x; μ, σ)`` of values (f, n, 1) and units (f, i), (f, n, i)."""
    if is_transformed():
        return log_density(x, mean[:, None], log_scale[:, None])
    return _LogDensities.apply(x, mean, log_scale)  # type: ignore[no-any-return, no-untyped-call]


def log_overlaps(mean: Tensor, log_scale: Tensor, others: tuple[Tensor, Tensor]) -> Tensor | None:
    r"""``log ∫ N(x; μ_i, σ_i) N(x; μ_j, σ_j) dx`` of units (f, i) with others (f, j), (f, i, j).

    .. math:: -\frac{(μ_i - μ_j)^2}{2 t} - \frac{1}{2} \log 2πt, \quad t = σ_i^2 + σ_j^2

    ``None`` says that the variances differ too much to be added as plain numbers, or that whether
    they do must not be asked.

    >>> one = torch.zeros(1, 1), torch.zeros(1, 1)
    >>> log_overlaps(*one, one).exp()
    tensor([[[0.2821]]])
    """
    if is_transformed():
        return None
    with torch.no_grad():
        both = log_scale if others[1] is log_scale else torch.cat([log_scale, others[1]], -1)
        low, high = both.amin(-1, keepdim=True), both.amax(-1, keepdim=True)
        if not bool((high - low).amax() <= WIDEST_RANGE):
            return None
        middle = 0.5 * (low + high)
    if others[0] is mean and others[1] is log_scale:
        return _LogOverlaps.apply(middle, mean, log_scale)  # type: ignore[no-any-return, no-untyped-call]
    return _LogOverlaps.apply(middle, mean, log_scale, *others)  # type: ignore[no-any-return, no-untyped-call]


class _LogDensities(Function):
    """``-z²/2 - log σ - log(2π)/2`` with ``z = (x - μ) / σ``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mean: Tensor, log_scale: Tensor) -> Tensor:  # noqa: ANN401
        ctx.save_for_backward(x, mean, log_scale)
        z = (x - mean[:, None]).mul_((-log_scale).exp()[:, None])
        return torch.addcmul((-log_scale - HALF_LOG_TWO_PI)[:, None], z, z, value=-0.5)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        x, mean, log_scale = ctx.saved_tensors
        to_x = _grad_in_x(grad, x, mean, log_scale) if ctx.needs_input_grad[0] else None
        return to_x, *_in_chunks(_density_grads, [grad, x, mean, log_scale])


def _density_grads(grad: Tensor, x: Tensor, mean: Tensor, log_scale: Tensor) -> list[Tensor]:
    """``∂/∂μ = z/σ``, ``∂/∂log σ = z² - 1``."""
    precision = (-log_scale).exp()
    z = (x - mean[:, None]) * precision[:, None]
    pull = grad * z
    return [pull.sum(1) * precision, (pull * z).sum(1) - grad.sum(1)]


def _grad_in_x(grad: Tensor, x: Tensor, mean: Tensor, log_scale: Tensor) -> Tensor:
    """``∂/∂x = -z/σ``."""
    precision = (-log_scale).exp()[:, None]
    return (grad * (mean[:, None] - x) * precision * precision).sum(-1, keepdim=True)


class _LogOverlaps(Function):
    """``-δ²/2t - log(t)/2 - c - log(2π)/2`` with ``δ = μ_i - μ_j``, ``t = σ_i² + σ_j²``.

    δ and the scales are in units of e^c, the middle of their range: variances of very narrow or
    very wide units would not be numbers.
    """

    @staticmethod
    def forward(ctx: Any, middle: Tensor, *units: Tensor) -> Tensor:  # noqa: ANN401
        ctx.save_for_backward(middle, *units)
        distance, variance_i, variance_j = _pairs(middle, *units)
        total = variance_i + variance_j
        twice = distance.square_().div_(total).add_(total.log_())
        return torch.add(-middle[..., None] - HALF_LOG_TWO_PI, twice, alpha=-0.5, out=twice)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        if len(ctx.saved_tensors) == 3:  # units with themselves: each is i and j
            grad = grad + grad.mT
        return None, *_in_chunks(_overlap_grads, [grad, *ctx.saved_tensors])


def _overlap_grads(grad: Tensor, middle: Tensor, *units: Tensor) -> list[Tensor]:
    """``∂/∂μ_i = -δ/t``, ``∂/∂log σ_i = (δ²/t - 1) σ_i²/t``, and the same of others j."""
    distance, variance_i, variance_j = _pairs(middle, *units)
    total = variance_i + variance_j
    share = grad / total
    pull = share * distance
    growth = torch.addcdiv(-share, pull * distance, total)
    unit = (-middle).exp()
    grads = [pull.sum(2) * -unit, growth.sum(2) * variance_i[:, :, 0]]
    if len(units) == 4:
        grads += [pull.sum(1) * unit, growth.sum(1) * variance_j[:, 0]]
    return grads


def _in_chunks(formula: Callable[..., list[Tensor]], tensors: Sequence[Tensor]) -> list[Tensor]:
    """A formula of tensors (f, ...), the first being the largest, a few regions at a time."""
    regions, count = tensors[0].shape[0], tensors[0].nbytes
    size = max(1, CHUNK_BYTES * regions // max(1, count))
    if size >= regions:
        return formula(*tensors)
    chunks = zip(*(tensor.split(size) for tensor in tensors), strict=True)
    return [torch.cat(parts) for parts in zip(*(formula(*c) for c in chunks), strict=True)]


def _pairs(
    middle: Tensor, mean: Tensor, log_scale: Tensor, *others: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The distances (f, i, j) of all means, and the variances (f, i, 1) and (f, 1, j)."""
    mean_j = others[0] if others else mean
    # Not a difference of scaled means: far from zero, that would lose digits.
    distance = (mean[:, :, None] - mean_j[:, None, :]) * (-middle).exp()[..., None]
    variance = (2 * (log_scale - middle)).exp()
    variance_j = (2 * (others[1] - middle)).exp() if others else variance
    return distance, variance[:, :, None], variance_j[:, None, :]
