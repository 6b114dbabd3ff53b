"""Numbers that stay finite: messages kept as mantissa times exponential (paper: Sec. 3.3).

The paper carries the logarithm and the sign of every unit through every layer. A :class:`Scaled`
message carries one logarithm per region and row instead, so that sums stay plain matrix products.
Axes: ``f`` region, ``n`` row (one row may stand for all rows), ``i j`` units; a message is a
vector (f, n, i) or a gram (f, n, i, j).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from subtractive.numerics.leaf_message import Index, LeafMessage, double, split, spread


class Scaled(NamedTuple):
    """``mantissa * exp(log_scale)``, the largest mantissa of each region and row being one.

    A scale of -inf says that the message is exactly zero; a scale of NaN that digits were lost to
    underflow, and that the row must be evaluated again by :mod:`subtractive.numerics.signed_log`.
    What underflow took from small units may be missed further up, where larger ones vanish:
    ``lost`` bounds it.
    """

    mantissa: Tensor  # (f, n, i) or (f, n, i, j)
    log_scale: Tensor  # (f, n), float64, constant for differentiation
    lost: Tensor | float = 0.0  # (f, n), float64: how far a mantissa may be off by underflow

    @property
    def is_gram(self) -> bool:
        return self.mantissa.dim() == 4

    def take(self, index: Index) -> Scaled:
        """The messages of some regions."""
        lost = self.lost if isinstance(self.lost, float) else self.lost[index]
        return Scaled(self.mantissa[index], self.log_scale[index], lost)

    def split(self, parts: Sequence[slice]) -> list[Scaled]:
        """The messages of consecutive groups of regions, together all of them."""
        tensors = (split(tensor, parts) for tensor in self)
        return [Scaled(*part) for part in zip(*tensors, strict=True)]

    def outer(self) -> Scaled:
        """The gram ``v vᴴ`` of a vector, in double precision."""
        wide = self.mantissa.to(double(self.mantissa.dtype))
        gram = wide[..., :, None] * wide[..., None, :].conj()  # (f, n, i, j)
        return Scaled(gram, 2 * self.log_scale, 2 * self.lost)


def settle(message: LeafMessage | Scaled) -> Scaled:
    """Take the exponential of an input's message, relative to its largest entry."""
    if isinstance(message, Scaled):
        return message
    mantissa, exponent = message
    some = message.some
    units = tuple(range(2, some.dim()))
    if exponent is None:
        assert mantissa is not None
        return _divided(mantissa, mantissa.detach().abs().amax(units))
    size = exponent.detach()
    if mantissa is not None:
        size = size + mantissa.detach().abs().log()
    peak = size.amax(units)  # (f, n)
    # Any finite number will do where all entries are exactly zero.
    finite = peak.clamp(min=torch.finfo(peak.dtype).min)
    shifted = exponent - spread(finite, exponent)
    if mantissa is None:
        return Scaled(shifted.exp(), peak.double())
    # Only where the mantissa is (nearly) zero does the exponent exceed the peak, by any amount.
    limit = math.log(torch.finfo(shifted.dtype).max)
    impossible, possible = shifted.clamp(max=0.5 * limit), shifted.clamp(max=0.999 * limit)
    settled = torch.where(mantissa == 0, impossible, possible).exp() * mantissa
    return Scaled(settled, peak.double())


def rescale(message: Scaled, unit: Tensor | float = 1.0) -> Scaled:
    """Bring the largest mantissa of each region and row back to one.

    ``unit`` (f, 1), or one for all regions, is the size of the result when nothing underflows. A
    result so much smaller that the entries behind it may have lost digits is marked by a scale of
    NaN.
    """
    mantissa, log_scale, lost = message
    real = torch.finfo(mantissa.dtype)
    units = tuple(range(2, mantissa.dim()))
    size = mantissa.detach().abs()
    peak, least = size.amax(units), size.amin(units)  # (f, n)
    # Small weights underflow by themselves: what they take is not proportional to them.
    lost = (lost + real.tiny) * (unit + 1.0)
    floor = lost / real.eps
    # Almost always every unit of every row is large enough to have all its digits.
    if bool((least >= floor).all()) and bool((peak < math.inf).all()):
        return Scaled(mantissa / spread(peak, mantissa), log_scale + peak.double().log())
    is_exact = (peak >= floor) & (peak < math.inf)
    trusted = is_exact | (log_scale == -math.inf)
    scaled = _divided(mantissa, peak)
    return Scaled(
        scaled.mantissa,
        torch.where(trusted, log_scale + scaled.log_scale, math.nan),
        # Where all units have all their digits, nothing was lost so far.
        torch.where(least >= floor, 0.0, lost / peak.double()),
    )


def joined(mantissa: Tensor, factors: Sequence[Scaled]) -> Scaled:
    """The message of a product: its mantissa, and the scales of its factors together."""
    log_scale, lost = factors[0].log_scale, factors[0].lost
    for factor in factors[1:]:
        log_scale, lost = log_scale + factor.log_scale, lost + factor.lost
    return Scaled(mantissa, log_scale, lost)


def multiply(messages: Sequence[LeafMessage | Scaled]) -> Scaled:
    """The element-wise product; vectors beside grams become grams."""
    grams = [message for message in messages if message.is_gram]
    vectors = [message for message in messages if not message.is_gram]
    if grams and vectors:
        # One outer product for all vectors, of numbers and not of exponents: an exponential of
        # every entry of every row's gram would cost more than the products.
        vector = rescale(multiply(vectors)) if len(vectors) > 1 else settle(vectors[0])
        return _product([multiply(grams), vector.outer()])
    exponent, factors = _split(messages)
    if exponent is not None:
        factors.append(settle(LeafMessage(None, exponent)))
    return _product(factors)


def add_rows(message: Scaled, count: int) -> Scaled:
    """The sums of ``count`` rows that follow each other: (f, n · count, ...) becomes (f, n, ...).

    >>> rows = Scaled(torch.ones(1, 2, 1), torch.tensor([[0.0, -math.inf]]))
    >>> add_rows(rows, 2).mantissa
    tensor([[[1.]]])
    """
    mantissa = message.mantissa.unflatten(1, (-1, count))  # (f, n, count, ...)
    log_scale = message.log_scale.unflatten(1, (-1, count))
    peak = log_scale.amax(-1)  # (f, n)
    shares = (log_scale - torch.where(peak == -math.inf, 0.0, peak)[..., None]).exp()
    total = (mantissa * spread(shares, mantissa).to(mantissa.dtype)).sum(2)
    lost: Tensor | float = message.lost
    if isinstance(lost, Tensor):
        lost = (lost.unflatten(1, (-1, count)) * shares).sum(-1)
    else:
        lost = lost * count
    return Scaled(total, peak, lost)


def normalise_rows(x: Tensor) -> Tensor:
    """Divide each row of (n, ...) by its largest magnitude; rows of zeros stay."""
    peak = x.detach().abs().amax(tuple(range(1, x.dim())), keepdim=True)
    return x / torch.where(peak == 0, 1.0, peak)


def log_magnitude(message: Scaled) -> Tensor:
    """log Σ|c_s|² of a root vector, or log of the trace of a root gram, (n,) in float64.

    A trace that rounding has pushed below zero keeps its magnitude.
    """
    return log_magnitudes(message)[0]


def log_magnitudes(message: Scaled) -> Tensor:
    """The same of several roots, (f, n)."""
    if message.is_gram:
        trace = message.mantissa.diagonal(dim1=-2, dim2=-1).sum(-1)
        total = trace.real if trace.is_complex() else trace
        return safe_log(total.double()) + message.log_scale
    total = message.mantissa.abs().double().square().sum(-1)
    return safe_log(total) + 2 * message.log_scale


def log_sum(message: Scaled) -> Tensor:
    """log Σ c_s of a root vector of non-negative entries, (n,) in float64."""
    return log_sums(message)[0]


def log_sums(message: Scaled) -> Tensor:
    """The same of several roots, (f, n)."""
    total = message.mantissa.to(double(message.mantissa.dtype)).sum(-1)
    return safe_log(total) + message.log_scale


def log_sum_exp(x: Tensor) -> Tensor:
    """log Σ exp(x) over the last axis; of nothing but -inf it is -inf, with a gradient of zero."""
    peak = x.detach().amax(-1, keepdim=True)
    finite = torch.where(peak == -math.inf, 0.0, peak)
    return safe_log((x - finite).exp().sum(-1)) + finite[..., 0]


def safe_log(x: Tensor) -> Tensor:
    """log|x|; where x is exactly zero the value is -inf and the gradient zero instead of NaN."""
    zero = x == 0
    return torch.where(zero, -math.inf, torch.where(zero, 1.0, x).abs().log())


def _divided(mantissa: Tensor, peak: Tensor) -> Scaled:
    safe = torch.where(peak == 0, 1.0, peak)
    return Scaled(mantissa / spread(safe, mantissa), peak.double().log())


def _split(messages: Sequence[LeafMessage | Scaled]) -> tuple[Tensor | None, list[Scaled]]:
    """The sum of all exponents, if there are any, and the mantissas, which are to be multiplied.

    Mantissas are scaled one by one: the product of those of many inputs underflows.
    """
    total, factors = None, []
    for message in messages:
        if isinstance(message, Scaled):
            factors.append(message)
            continue
        mantissa, exponent = message
        if mantissa is not None:
            factors.append(settle(LeafMessage(mantissa, None)))
        if exponent is not None:
            total = exponent if total is None else total + exponent
    return total, factors


def _product(factors: Sequence[Scaled]) -> Scaled:
    """The product of all factors, not rescaled: the sum that follows does that."""
    while len(factors) > 2:
        # Neighbours first: in one long chain units drift apart, and the smaller ones are lost.
        pairs = zip(factors[::2], factors[1::2], strict=False)
        products = [rescale(_product(pair)) for pair in pairs]
        factors = products + list(factors[2 * len(products) :])
    mantissas = [factor.mantissa for factor in factors]
    return joined(mantissas[0] if len(factors) == 1 else torch.mul(*mantissas), factors)
