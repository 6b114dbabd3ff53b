"""Gaussian inputs: densities of one variable, their products and windows (paper: Sec. 2).

A product of two Gaussian densities is a third one times a number, so that every integral of a
product, over everything or over a window, is an integral of a single Gaussian.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from torch import Tensor

from subtractive.inputs.base import Tensors, UnivariateFamily, Window
from subtractive.inputs.drawing import uniforms
from subtractive.inputs.gaussian_logs import (
    HALF_LOG_TWO_PI,
    have_common_range,
    log_densities,
    log_overlaps,
)
from subtractive.inputs.signed_mixture import draw_gaussian_square, draw_gaussian_units
from subtractive.inputs.statistics import Sample, local_widths, shuffled_levels
from subtractive.numerics.scaled import safe_log
from subtractive.numerics.unscaled import Unscaled

# A window is narrow if half its width, times one plus its distance, is below this (in scales):
# there the series about its middle has all digits, and differences of Φ lose them.
NARROW = 0.2
NUM_TERMS = 12


def log_kernel(x: Tensor, mean: Tensor, log_scale: Tensor) -> Tensor:
    """``-(x - μ)² / 2σ²``, the Gaussian without its normalisation; arguments broadcast."""
    return -0.5 * ((x - mean) * (-log_scale).exp()).square()


def log_density(x: Tensor, mean: Tensor, log_scale: Tensor) -> Tensor:
    """``log N(x; μ, σ)``; arguments broadcast."""
    return log_kernel(x, mean, log_scale) - log_scale - HALF_LOG_TWO_PI


def check_finite(column: Tensor, variable: int) -> None:
    """Raise ``ValueError`` if a value of ``variable``, all in (n,), is infinite."""
    infinite = column[~column.isfinite()]
    if infinite.numel() > 0:
        raise ValueError(
            f"variable {variable} has Gaussian inputs and needs finite values, got "
            f"{infinite[0].item()}. Drop the row, or write NaN to integrate the value out."
        )


class PairProduct(NamedTuple):
    """``N(x; μ_i, σ_i) N(x; μ_j, σ_j) = exp(log_weight) N(x; mean, exp(log_scale))``."""

    mean: Tensor  # (f, 1, i, j)
    log_scale: Tensor
    log_weight: Tensor


def pair_product(p: Tensors, q: Tensors) -> PairProduct:
    r"""Products of all pairs of Gaussian densities, again Gaussian, (f, 1, i, j).

    .. math:: \frac{1}{s^2} = \frac{1}{σ_i^2} + \frac{1}{σ_j^2}, \quad
        m = s^2 \Bigl(\frac{μ_i}{σ_i^2} + \frac{μ_j}{σ_j^2}\Bigr), \quad
        w = N\Bigl(μ_i; μ_j, \sqrt{σ_i^2 + σ_j^2}\Bigr)

    >>> one = {"mean": torch.zeros(1, 1), "log_scale": torch.zeros(1, 1)}
    >>> pair_product(one, one).log_weight.exp()
    tensor([[[[0.2821]]]])
    """
    mean_i, mean_j = p["mean"][:, None, :, None], q["mean"][:, None, None, :]
    log_i, log_j = p["log_scale"][:, None, :, None], q["log_scale"][:, None, None, :]
    log_total = 0.5 * torch.logaddexp(2 * log_i, 2 * log_j)
    odds = 2 * (log_j - log_i)
    return PairProduct(
        mean_i * torch.sigmoid(odds) + mean_j * torch.sigmoid(-odds),
        log_i + log_j - log_total,
        log_density(mean_i, mean_j, log_total),
    )


def window_integral(
    window: Window, mean: Tensor, log_scale: Tensor, log_weight: Tensor
) -> Unscaled:
    r"""Integrals of weighted Gaussian densities over a window, shaped as ``mean``, (f, m, ...).

    .. math:: w \int_a^b x^p N(x; m, s) dx = w \, P(a < x \le b) \, E[x^p \mid a < x \le b]

    The expectation, of any sign, is the mantissa; the weight and the probability, which may be
    tiny, are the exponent. Bounds (f, m) broadcast against the first two axes of ``mean``.
    """
    if window.power not in (0, 1, 2):
        raise ValueError(
            f"Gaussian inputs have moments of power 0, 1 and 2, got power {window.power}."
        )
    scale = log_scale.exp()
    if window.lower is None and window.upper is None:
        moments = (None, mean, mean.square() + scale.square())
        return Unscaled(moments[window.power], log_weight)
    lower = _bound(window.lower, -math.inf, mean)
    upper = _bound(window.upper, math.inf, mean)
    if window.power == 0 and (window.lower is None or window.upper is None):
        # One open end: the window is never narrow, and half the special functions are enough.
        near = lower - mean if window.upper is None else mean - upper
        return Unscaled(None, log_weight + log_tail(near / scale))
    interval = standardise(lower, upper, mean, scale)
    mass, peak = scaled_mass(interval)
    exponent = log_weight + safe_log(mass) + peak
    if window.power == 0:
        return Unscaled(None, exponent)
    is_narrow = interval.is_narrow & (interval.width > 0)
    origin = torch.where(is_narrow, 0.5 * (lower + upper), mean)
    first = scale * first_moment(interval, mass, peak)
    if window.power == 1:
        return Unscaled(origin + first, exponent)
    second = scale.square() * second_moment(interval, mass, peak)
    return Unscaled(origin.square() + 2 * origin * first + second, exponent)


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
    """An infinite end is as good as one whose square is finite, and differentiable."""
    limit = torch.finfo(z.dtype).max ** 0.25
    return z.clamp(-limit, limit)


def _bound(bound: Tensor | None, default: float, like: Tensor) -> Tensor:
    """A bound (f, m) as (f, m, 1, ...), finite: infinity times a zero gradient would be NaN."""
    if bound is None:
        bound = like.new_full((1, 1), default)
    limit = torch.finfo(like.dtype).max ** 0.5
    finite = bound.to(like.dtype).clamp(-limit, limit)
    return finite.reshape(finite.shape + (1,) * (like.dim() - 2))


@final
@dataclass(frozen=True)
class Gaussian(UnivariateFamily):
    """Normalised densities ``f_k(x) = N(x; μ_k, σ_k)``; the parameters are μ and log σ."""

    @property
    def fold_key(self) -> Hashable:
        return Gaussian

    @property
    def is_non_negative(self) -> bool:
        return True

    @property
    def num_states(self) -> None:
        return None

    def check(self, column: Tensor, variable: int) -> None:
        check_finite(column, variable)

    def parameters(
        self, size: int, num_units: int, generator: torch.Generator | None
    ) -> dict[str, Tensor]:
        mean = torch.randn(num_units, generator=generator, dtype=torch.float64)
        log_scale = 0.1 * torch.randn(num_units, generator=generator, dtype=torch.float64)
        return {"mean": mean, "log_scale": log_scale}

    def parameters_from(
        self, sample: Sample, num_units: int, power: int, generator: torch.Generator | None
    ) -> dict[str, Tensor]:
        column, shares = sample.column(0)
        if len(column) == 0:
            return self.parameters(1, num_units, generator)
        mean, width = local_widths(column, shares, shuffled_levels(num_units, generator))
        # A Gaussian to the power p is one of scale σ / √p.
        return {"mean": mean, "log_scale": (math.sqrt(power) * width).log()}

    def step_units(self, p: Tensors) -> dict[str, Tensor]:
        return {"mean": p["log_scale"].exp()}

    def constants(self, size: int, num_units: int) -> dict[str, Tensor]:
        return {}

    def values(self, p: Tensors, x: Tensor) -> Unscaled:
        return Unscaled(None, log_densities(x, p["mean"], p["log_scale"]))

    def integral(self, p: Tensors, window: Window) -> Unscaled:
        mean, log_scale = p["mean"][:, None], p["log_scale"][:, None]  # (f, 1, i)
        return window_integral(window, mean, log_scale, torch.zeros_like(mean))

    def gram(self, p: Tensors, q: Tensors, window: Window) -> Unscaled:
        if window.is_total and have_common_range(p["log_scale"], q["log_scale"]):
            others = q["mean"], q["log_scale"]
            return Unscaled(None, log_overlaps(p["mean"], p["log_scale"], others)[:, None])
        return window_integral(window, *pair_product(p, q))

    def sample_square(
        self,
        p: Tensors,
        environment: Tensor,
        x: Tensor,
        observed: Sequence[bool],
        generator: torch.Generator | None,
    ) -> Tensor:
        mean, log_scale, log_weight = pair_product(p, p)
        products = (mean[0, 0], log_scale[0, 0], log_weight[0, 0])
        return draw_gaussian_square(environment, products, uniforms(len(x), generator))[:, None]

    def sample_units(
        self,
        p: Tensors,
        units: Tensor,
        x: Tensor,
        observed: Sequence[bool],
        generator: torch.Generator | None,
    ) -> Tensor:
        return draw_gaussian_units(p, units, generator)

    def overlap(self, p: Tensors) -> Tensor:
        num_regions, num_units = p["mean"].shape
        shape = (num_regions, num_units, num_units)
        return torch.ones(shape, dtype=torch.bool, device=p["mean"].device)
