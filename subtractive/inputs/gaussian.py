"""Gaussian inputs: densities of one variable, their products and windows (paper: Sec. 2).

A product of two Gaussian densities is a third one times a number, so that every integral of a
product, over everything or over a window, is an integral of a single Gaussian.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from torch import Tensor

from subtractive.inputs.base import Tensors, Window
from subtractive.inputs.gaussian_log_density import (
    log_densities,
    log_density,
    log_overlaps,
)
from subtractive.inputs.quadratic_form_sampling import uniforms
from subtractive.inputs.signed_mixture import draw_gaussian_square, draw_gaussian_units
from subtractive.inputs.statistics import Sample, local_widths, shuffled_levels
from subtractive.inputs.truncated_normal import (
    first_moment,
    log_tail,
    scaled_mass,
    second_moment,
    standardise,
)
from subtractive.inputs.univariate import UnivariateFamily
from subtractive.numerics.messages import LeafMessage, safe_log


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


def moment(power: int, mean: Tensor, scale: Tensor) -> Tensor | None:
    r"""E[x^p] of Gaussian densities, ``None`` for p = 0, where it is one.

    .. math:: E[x^p] = μ E[x^{p-1}] + (p - 1) σ^2 E[x^{p-2}]

    >>> moment(4, torch.zeros(1), torch.ones(1))
    tensor([3.])
    """
    before, now = torch.zeros_like(mean), torch.ones_like(mean)
    for order in range(power):
        before, now = now, mean * now + order * scale.square() * before
    return now if power > 0 else None


def window_integral(
    window: Window, mean: Tensor, log_scale: Tensor, log_weight: Tensor
) -> LeafMessage:
    r"""Integrals of weighted Gaussian densities over a window, shaped as ``mean``, (f, m, ...).

    .. math:: w \int_a^b x^p N(x; m, s) dx = w \, P(a < x \le b) \, E[x^p \mid a < x \le b]

    The expectation, of any sign, is the mantissa; the weight and the probability, which may be
    tiny, are the exponent. Bounds (f, m) broadcast against the first two axes of ``mean``.
    """
    scale = log_scale.exp()
    if window.lower is None and window.upper is None:
        return LeafMessage(moment(window.power, mean, scale), log_weight)
    if window.power not in (0, 1, 2):
        raise ValueError(
            f"in a window Gaussian inputs have moments of power 0, 1 and 2, got power "
            f"{window.power}."
        )
    lower = _bound(window.lower, -math.inf, mean)
    upper = _bound(window.upper, math.inf, mean)
    if window.power == 0 and (window.lower is None or window.upper is None):
        # One open end: the window is never narrow, and half the special functions are enough.
        near = lower - mean if window.upper is None else mean - upper
        return LeafMessage(None, log_weight + log_tail(near / scale))
    interval = standardise(lower, upper, mean, scale)
    mass, peak = scaled_mass(interval)
    exponent = log_weight + safe_log(mass) + peak
    if window.power == 0:
        return LeafMessage(None, exponent)
    is_narrow = interval.is_narrow & (interval.width > 0)
    origin = torch.where(is_narrow, 0.5 * (lower + upper), mean)
    first = scale * first_moment(interval, mass, peak)
    if window.power == 1:
        return LeafMessage(origin + first, exponent)
    second = scale.square() * second_moment(interval, mass, peak)
    return LeafMessage(origin.square() + 2 * origin * first + second, exponent)


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
    """Normalised densities ``f_k(x) = N(x; μ_k, σ_k)``; the parameters are μ and log σ.

    >>> circuit = sub.Circuit(sub.flat(2), sub.Gaussian(), num_units=3, seed=0)
    >>> sub.SquaredCircuit(circuit).covariance().shape
    torch.Size([2, 2])
    """

    @property
    def is_non_negative(self) -> bool:
        return True

    def init(self, num_units: int, generator: torch.Generator | None) -> dict[str, Tensor]:
        mean = torch.randn(num_units, generator=generator, dtype=torch.float64)
        log_scale = 0.1 * torch.randn(num_units, generator=generator, dtype=torch.float64)
        return {"mean": mean, "log_scale": log_scale}

    def init_from_data(
        self, sample: Sample, num_units: int, power: int, generator: torch.Generator | None
    ) -> dict[str, Tensor]:
        column, shares = sample.column(0)
        if len(column) == 0:
            return self.init(num_units, generator)
        mean, width = local_widths(column, shares, shuffled_levels(num_units, generator))
        # A Gaussian to the power p is one of scale σ / √p.
        return {"mean": mean, "log_scale": (math.sqrt(power) * width).log()}

    def update_scale(self, p: Tensors) -> dict[str, Tensor]:
        return {"mean": p["log_scale"].exp()}

    def values(self, p: Tensors, x: Tensor) -> LeafMessage:
        return LeafMessage(None, log_densities(x, p["mean"], p["log_scale"]))

    def integral(self, p: Tensors, window: Window) -> LeafMessage:
        mean, log_scale = p["mean"][:, None], p["log_scale"][:, None]  # (f, 1, i)
        return window_integral(window, mean, log_scale, torch.zeros_like(mean))

    def gram(self, p: Tensors, q: Tensors, window: Window) -> LeafMessage:
        if window.is_total:
            overlaps = log_overlaps(p["mean"], p["log_scale"], (q["mean"], q["log_scale"]))
            if overlaps is not None:
                return LeafMessage(None, overlaps[:, None])
        return window_integral(window, *pair_product(p, q))

    def draw_square(
        self, p: Tensors, environment: Tensor, generator: torch.Generator | None
    ) -> Tensor:
        mean, log_scale, log_weight = pair_product(p, p)
        products = (mean[0, 0], log_scale[0, 0], log_weight[0, 0])
        return draw_gaussian_square(environment, products, uniforms(len(environment), generator))

    def draw_units(self, p: Tensors, units: Tensor, generator: torch.Generator | None) -> Tensor:
        return draw_gaussian_units(p, units, generator)
