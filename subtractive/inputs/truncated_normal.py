"""A standard normal variable in an interval: its probability and its first two moments.

Tails, wide and narrow intervals have formulas of their own, each with all digits.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from subtractive.inputs.gaussian_log_density import HALF_LOG_TWO_PI
from subtractive.numerics.messages import safe_log

# A window is narrow if half its width, times one plus its distance, is below this (in scales):
# there the series about its middle has all digits, and differences of Φ lose them.
NARROW = 0.2
NUM_TERMS = 12


class Interval(NamedTuple):
    """A window as a standard normal z sees it, reflected to the right: ``|near| <= far``."""

    near: Tensor
    far: Tensor
    drop: Tensor  # (far² - near²) / 2: how much lower log φ is at the far end
    middle: Tensor  # not reflected
    width: Tensor  # zero if the window is empty
    is_narrow: Tensor


def standardise(lower: Tensor, upper: Tensor, mean: Tensor, scale: Tensor) -> Interval:
    """The window from ``lower`` to ``upper``, both finite, in units of a Gaussian."""
    low, high = _clamp((lower - mean) / scale), _clamp((upper - mean) / scale)
    width = _clamp((upper - lower) / scale).clamp(min=0)
    middle = 0.5 * (low + high)
    is_left = middle < 0
    distance = torch.where(is_left, -middle, middle)
    return Interval(
        near=torch.where(is_left, -high, low),
        far=torch.where(is_left, -low, high),
        drop=width * distance,
        middle=middle,
        width=width,
        is_narrow=0.5 * width * (1 + distance) <= NARROW,
    )


def log_tail(near: Tensor) -> Tensor:
    """``log P(z > near)`` of a standard normal z, with all digits on both sides.

    >>> log_tail(torch.tensor([-40.0, 0.0, 40.0]))
    tensor([ 0.0000e+00, -6.9315e-01, -8.0461e+02])
    """
    z = _clamp(near)
    is_far = z > 0
    mass = torch.where(is_far, _mills(z), 0.5 * torch.erfc(z * math.sqrt(0.5)))
    mass = torch.where(near > z, 0.0, mass)
    return safe_log(mass) - torch.where(is_far, 0.5 * z.square(), 0.0)


def scaled_mass(interval: Interval) -> tuple[Tensor, Tensor]:
    """P(z in the interval) as ``mass * exp(peak)``, each kind of interval by its own formula."""
    near, far, drop, middle, width, is_narrow = interval
    is_tail = near > 0
    tail = _mills(near) - _mills(far) * (-drop).exp()
    central = 0.5 * (torch.erf(far * math.sqrt(0.5)) - torch.erf(near * math.sqrt(0.5)))
    narrow = width * _narrow_average(interval, 0) / math.sqrt(2 * math.pi)
    mass = torch.where(is_narrow, narrow, torch.where(is_tail, tail, central))
    from_end = torch.where(is_tail, -0.5 * near.square(), 0.0)
    return mass, torch.where(is_narrow, -0.5 * middle.square(), from_end)


def first_moment(interval: Interval, mass: Tensor, peak: Tensor) -> Tensor:
    """``E[z | interval] = (φ(a) - φ(b)) / P(a < z <= b)``; of z - middle if it is narrow."""
    side = torch.where(interval.middle < 0, -1.0, 1.0)
    wide = side * _hazard(interval, mass, peak) * -torch.expm1(-interval.drop)
    narrow = _narrow_average(interval, 1) / _narrow_average(interval, 0)
    return torch.where(interval.is_narrow, narrow, wide)


def second_moment(interval: Interval, mass: Tensor, peak: Tensor) -> Tensor:
    """``E[z² | interval] = 1 + (a φ(a) - b φ(b)) / P(a < z <= b)``; of z - middle if narrow."""
    fall = interval.near - interval.far * (-interval.drop).exp()
    wide = 1 + _hazard(interval, mass, peak) * fall
    narrow = _narrow_average(interval, 2) / _narrow_average(interval, 0)
    return torch.where(interval.is_narrow, narrow, wide)


def _hazard(interval: Interval, mass: Tensor, peak: Tensor) -> Tensor:
    """``φ(near) / P(z in the interval)`` of a wide interval."""
    height = (-0.5 * interval.near.square() - peak - HALF_LOG_TWO_PI).exp()
    return height / torch.where(interval.is_narrow, 1.0, mass)


def _mills(z: Tensor) -> Tensor:
    """``P(t > z) / exp(-z² / 2)`` for z >= 0; constant below, where it would overflow."""
    ratio: Tensor = torch.special.erfcx(z.clamp(min=0) * math.sqrt(0.5))
    return 0.5 * ratio


def _narrow_average(interval: Interval, power: int) -> Tensor:
    """The average of ``t^power φ(middle + t) / φ(middle)`` over the interval; one if it is wide.

    With h half the width, ``φ(c + t) / φ(c)`` is the sum of ``He_k(c) (-t)^k / k!``, and ``term``
    is ``He_k(c) h^k / k!``.
    """
    middle = torch.where(interval.is_narrow, interval.middle, 0.0)
    half = torch.where(interval.is_narrow, 0.5 * interval.width, 0.0)
    total, previous, term = torch.zeros_like(half), torch.zeros_like(half), torch.ones_like(half)
    for k in range(NUM_TERMS):
        if (k + power) % 2 == 0:
            total = total + (-1) ** k * term / (k + power + 1)
        previous, term = term, half * (middle * term - half * previous) / (k + 1)
    return total * half**power


def _clamp(z: Tensor) -> Tensor:
    """Replace infinite ends by large numbers whose squares are finite and differentiable."""
    limit = torch.finfo(z.dtype).max ** 0.25
    return z.clamp(-limit, limit)
