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

Index = slice | Tensor


class Unscaled(NamedTuple):
    """What an input layer says: ``mantissa * exp(exponent)``, entry by entry.

    ``None`` stands for a mantissa of one or an exponent of zero, whichever a family does not
    need. The exponential is not taken yet: where inputs are multiplied, exponents are added first.
    """

    mantissa: Tensor | None  # (f, n, i) or (f, n, i, j)
    exponent: Tensor | None  # the same

    @property
    def some(self) -> Tensor:
        """Whichever tensor is there: for shapes, dtypes and devices."""
        tensor = self.mantissa if self.mantissa is not None else self.exponent
        assert tensor is not None
        return tensor

    @property
    def is_gram(self) -> bool:
        return self.some.dim() == 4

    def take(self, index: Index) -> Unscaled:
        """The messages of some regions."""
        return Unscaled(
            None if self.mantissa is None else self.mantissa[index],
            None if self.exponent is None else self.exponent[index],
        )

    def rows(self, rows: Tensor) -> Unscaled:
        """The messages of some rows."""
        return Unscaled(
            None if self.mantissa is None else self.mantissa[:, rows],
            None if self.exponent is None else self.exponent[:, rows],
        )

    def outer(self) -> Unscaled:
        """The gram ``v vᴴ`` of a vector, in double precision."""
        mantissa, exponent = self
        if mantissa is not None:
            mantissa = mantissa.to(double(mantissa.dtype))
            mantissa = mantissa[..., :, None] * mantissa[..., None, :].conj()  # (f, n, i, j)
        if exponent is not None:
            exponent = exponent.double()
            exponent = exponent[..., :, None] + exponent[..., None, :]  # (f, n, i, j)
        return Unscaled(mantissa, exponent)

    def value(self) -> Tensor:
        """The plain number; may overflow, so only for entries known to be moderate."""
        if self.exponent is None:
            return self.some
        return (
            self.exponent.exp() if self.mantissa is None else self.mantissa * self.exponent.exp()
        )


class Scaled(NamedTuple):
    """``mantissa * exp(log_scale)``, the largest mantissa of each region and row being one.

    A scale of -inf says that the message is exactly zero; a scale of NaN that digits were lost to
    underflow, and that the row must be evaluated again by :mod:`subtractive.numerics.signed_log`.
    """

    mantissa: Tensor  # (f, n, i) or (f, n, i, j)
    log_scale: Tensor  # (f, n), float64, constant for differentiation

    @property
    def is_gram(self) -> bool:
        return self.mantissa.dim() == 4

    def take(self, index: Index) -> Scaled:
        """The messages of some regions."""
        return Scaled(self.mantissa[index], self.log_scale[index])

    def outer(self) -> Scaled:
        """The gram ``v vᴴ`` of a vector, in double precision."""
        wide = self.mantissa.to(double(self.mantissa.dtype))
        return Scaled(wide[..., :, None] * wide[..., None, :].conj(), 2 * self.log_scale)


def double(dtype: torch.dtype) -> torch.dtype:
    """The double-precision dtype of the same kind."""
    return torch.complex128 if dtype.is_complex else torch.float64


def settle(message: Unscaled | Scaled) -> Scaled:
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
    finite = torch.where(peak == -math.inf, 0.0, peak)
    settled = (exponent - _spread(finite, exponent)).exp()
    if mantissa is not None:
        # An impossible unit's exponent is irrelevant, and may overflow.
        settled = torch.where(mantissa == 0, 0.0, settled) * mantissa
    return Scaled(settled, peak.double())


def rescale(mantissa: Tensor, log_scale: Tensor, unit: Tensor | float = 1.0) -> Scaled:
    """Bring the largest mantissa of each region and row back to one.

    ``unit`` (f, 1) is the size of the result when nothing underflows. A result so much smaller
    that the entries behind it may have lost digits is marked by a scale of NaN.
    """
    real = torch.finfo(mantissa.dtype)
    peak = mantissa.detach().abs().amax(tuple(range(2, mantissa.dim())))  # (f, n)
    trusted = (peak >= unit * (real.tiny / real.eps)) | (log_scale == -math.inf)
    scaled = _divided(mantissa, peak)
    return Scaled(scaled.mantissa, torch.where(trusted, log_scale + scaled.log_scale, math.nan))


def multiply(messages: Sequence[Unscaled | Scaled]) -> Scaled:
    """The element-wise product; vectors beside grams become grams."""
    if any(message.is_gram for message in messages):
        messages = [message if message.is_gram else message.outer() for message in messages]
    inputs = [message for message in messages if isinstance(message, Unscaled)]
    factors = [message for message in messages if isinstance(message, Scaled)]
    if inputs:
        factors.append(settle(_multiply_inputs(inputs)))
    product = factors[0]
    for factor in factors[1:]:
        mantissa = product.mantissa * factor.mantissa
        log_scale = product.log_scale + factor.log_scale
        # The sum that follows rescales one product; a longer chain must not underflow on the way.
        product = rescale(mantissa, log_scale) if len(factors) > 2 else Scaled(mantissa, log_scale)
    return product


def choose(mask: Tensor, yes: Unscaled, no: Unscaled) -> Unscaled:
    """Entry by entry of a mask (f, n), the message ``yes`` or the message ``no``."""

    def pick(first: Tensor | None, second: Tensor | None, neutral: float) -> Tensor | None:
        if first is None and second is None:
            return None
        some = first if first is not None else second
        assert some is not None
        return torch.where(
            _spread(mask, some),
            neutral if first is None else first,
            neutral if second is None else second,
        )

    return Unscaled(pick(yes.mantissa, no.mantissa, 1.0), pick(yes.exponent, no.exponent, 0.0))


def normalise_rows(x: Tensor) -> Tensor:
    """Divide each row of (n, ...) by its largest magnitude; rows of zeros stay."""
    peak = x.detach().abs().amax(tuple(range(1, x.dim())), keepdim=True)
    return x / torch.where(peak == 0, 1.0, peak)


def log_magnitude(message: Scaled) -> Tensor:
    """log Σ|c_s|² of a root vector, or log of the trace of a root gram, (n,) in float64.

    A trace that rounding has pushed below zero keeps its magnitude.
    """
    if message.is_gram:
        trace = message.mantissa.diagonal(dim1=-2, dim2=-1).sum(-1)
        total = trace.real if trace.is_complex() else trace
        return (safe_log(total.double()) + message.log_scale)[0]
    total = message.mantissa.abs().double().square().sum(-1)
    return (safe_log(total) + 2 * message.log_scale)[0]


def log_sum(message: Scaled) -> Tensor:
    """log Σ c_s of a root vector of non-negative entries, (n,) in float64."""
    total = message.mantissa.to(double(message.mantissa.dtype)).sum(-1)
    return (safe_log(total) + message.log_scale)[0]


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
    return Scaled(mantissa / _spread(safe, mantissa), peak.double().log())


def _spread(per_row: Tensor, like: Tensor) -> Tensor:
    return per_row.reshape(per_row.shape + (1,) * (like.dim() - per_row.dim()))


def _multiply_inputs(messages: Sequence[Unscaled]) -> Unscaled:
    mantissa = exponent = None
    for message in messages:
        if message.mantissa is not None:
            mantissa = message.mantissa if mantissa is None else mantissa * message.mantissa
        if message.exponent is not None:
            exponent = message.exponent if exponent is None else exponent + message.exponent
    return Unscaled(mantissa, exponent)
