"""Numbers that stay finite: messages kept as mantissa times exponential (paper: Sec. 3.3).

The paper carries the logarithm and the sign of every unit through every layer. A :class:`Scaled`
message carries one logarithm per region and row instead, so that sums stay plain matrix products;
a :class:`LeafMessage`, of an input layer, has not taken its exponential yet. Axes: ``f`` region,
``n`` row (one row may stand for all rows), ``i j`` units; a message is a vector (f, n, i) or a
gram (f, n, i, j).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

Index = slice | list[int]


class LeafMessage(NamedTuple):
    """The message of an input layer: ``mantissa * exp(exponent)``, entry by entry.

    ``None`` stands for a mantissa of one or an exponent of zero, whichever a family does not
    need. The exponential is not taken yet: where inputs are multiplied, exponents are added first.

    >>> from subtractive.numerics import LeafMessage
    >>> LeafMessage(None, torch.zeros(1, 5, 3)).value().unique()  # exp(0)
    tensor([1.])
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

    @property
    def shape(self) -> torch.Size:
        return self.some.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.some.dtype

    def map(self, change: Callable[[Tensor], Tensor]) -> LeafMessage:
        """The same change on both parts, as far as they are there."""
        mantissa, exponent = self
        return LeafMessage(
            None if mantissa is None else change(mantissa),
            None if exponent is None else change(exponent),
        )

    def take(self, index: Index) -> LeafMessage:
        """The messages of some regions."""
        return self.map(lambda t: t[index])

    def split(self, sizes: Sequence[int]) -> list[LeafMessage]:
        """The messages of consecutive groups of regions, together all of them."""
        parts = ([None] * len(sizes) if t is None else t.split(list(sizes)) for t in self)
        return [LeafMessage(*part) for part in zip(*parts, strict=True)]

    def rows(self, rows: slice | Tensor) -> LeafMessage:
        """The messages of some rows; one row that stands for all rows stays."""
        return self.map(lambda t: t if t.shape[1] == 1 else t[:, rows])

    def unfolded(self, shape: Sequence[int]) -> LeafMessage:
        """Rows (1, f · n, ...) of one region as those of several, (f, n, ...)."""
        return self.map(lambda t: t[0].unflatten(0, shape))

    def repeated(self, regions: int) -> LeafMessage:
        """The message of one region for several of them."""
        return self.map(lambda t: t.expand(regions, *t.shape[1:]))

    def outer(self) -> LeafMessage:
        """The gram ``v vᴴ`` of a vector, in double precision."""
        mantissa, exponent = self
        if mantissa is not None:
            mantissa = mantissa.to(double(mantissa.dtype))
            mantissa = mantissa[..., :, None] * mantissa[..., None, :].conj()  # (f, n, i, j)
        if exponent is not None:
            exponent = exponent.double()
            exponent = exponent[..., :, None] + exponent[..., None, :]  # (f, n, i, j)
        return LeafMessage(mantissa, exponent)

    def value(self) -> Tensor:
        """The plain number; may overflow, so only for entries known to be moderate."""
        if self.exponent is None:
            return self.some
        return (
            self.exponent.exp() if self.mantissa is None else self.mantissa * self.exponent.exp()
        )


# The logarithm of a scale of one, or of one that is kept elsewhere; it broadcasts.
UNSCALED = torch.zeros((), dtype=torch.float64)


class Scaled(NamedTuple):
    """``mantissa * exp(log_scale)``, the largest mantissa of each region and row being about one.

    A scale of -inf says that the message is exactly zero. Underflow may have changed a mantissa
    by ``num_errors`` times the smallest positive number.
    """

    mantissa: Tensor  # (f, n, i) or (f, n, i, j)
    log_scale: Tensor  # (f, n) or UNSCALED, float64, constant for differentiation
    num_errors: Tensor | float = 1.0  # (f, n)

    @property
    def is_gram(self) -> bool:
        return self.mantissa.dim() == 4

    @property
    def shape(self) -> torch.Size:
        return self.mantissa.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.mantissa.dtype

    def take(self, index: Index) -> Scaled:
        """The messages of some regions."""
        scale = self.log_scale
        return Scaled(self.mantissa[index], scale if scale is UNSCALED else scale[index])

    def split(self, sizes: Sequence[int]) -> list[Scaled]:
        """The messages of consecutive groups of regions, together all of them."""
        mantissas = self.mantissa.split([*sizes])
        if self.log_scale is UNSCALED:
            return [Scaled(mantissa, UNSCALED) for mantissa in mantissas]
        scales = self.log_scale.split([*sizes])
        return [Scaled(*part) for part in zip(mantissas, scales, strict=True)]

    def rows(self, rows: slice | Tensor) -> Scaled:
        """The messages of some rows; one row that stands for all rows stays."""
        if self.shape[1] == 1:
            return self
        scale = self.log_scale
        is_shared = scale is UNSCALED or scale.shape[1] == 1
        return Scaled(self.mantissa[:, rows], scale if is_shared else scale[:, rows])

    def outer(self) -> Scaled:
        """The gram ``v vᴴ`` of a vector, in double precision."""
        wide = self.mantissa.to(double(self.dtype))
        gram = wide[..., :, None] * wide[..., None, :].conj()  # (f, n, i, j)
        scale = self.log_scale
        return Scaled(gram, scale if scale is UNSCALED else 2 * scale, 2.0 * self.num_errors)


# What passes through a circuit: of a leaf before its exponential, of a layer with a scale.
Message = LeafMessage | Scaled


def to_scaled(message: LeafMessage) -> Scaled:
    """Take the exponential of a leaf's message, relative to its largest entry."""
    mantissa, exponent = message
    units = tuple(range(2, message.some.dim()))
    if exponent is None:
        assert mantissa is not None
        return divide(mantissa, mantissa.detach().abs().amax(units))
    size = exponent.detach()
    if mantissa is not None:
        size = size + mantissa.detach().abs().log()
    peak = size.amax(units, keepdim=True)  # (f, n, 1, ...)
    log_scale = peak.reshape(peak.shape[:2]).double()
    # Any finite number will do where all entries are exactly zero.
    shifted = exponent - peak.clamp(min=torch.finfo(peak.dtype).min)
    if mantissa is None:
        return Scaled(shifted.exp_(), log_scale)
    # Only where the mantissa is (nearly) zero does the exponent exceed the peak, by any amount.
    limit = math.log(torch.finfo(shifted.dtype).max)
    impossible, possible = shifted.clamp(max=0.5 * limit), shifted.clamp(max=0.999 * limit)
    size = torch.where(mantissa == 0, impossible, possible).exp()
    return Scaled(size * mantissa, log_scale)


def divide(mantissa: Tensor, peak: Tensor) -> Scaled:
    """Numbers (f, n, ...) divided by their largest magnitudes (f, n); zeros stay."""
    safe = torch.where(peak == 0, 1.0, peak)
    return Scaled(mantissa / spread(safe, mantissa), peak.double().log())


def multiply(messages: Sequence[Message]) -> Scaled:
    """The element-wise product; vectors beside grams become grams.

    Exponents of leaves are added before the exponential: two narrow Gaussians may disagree by more
    than a float can hold. Mantissas are scaled one by one, and pair by pair where there are many.
    """
    grams = [message for message in messages if message.is_gram]
    if not grams or len(grams) == len(messages):
        return _multiply_alike(messages)
    vectors = [message for message in messages if not message.is_gram]
    # One outer product for all vectors, of numbers and not of exponents: an exponential of every
    # entry of every row's gram would cost more than the products.
    vector = _multiply_alike(vectors)
    vector = _rescaled(vector) if len(vectors) > 1 else vector
    return times(_multiply_alike(grams), vector.outer())


def _multiply_alike(messages: Sequence[Message]) -> Scaled:
    """The element-wise product of vectors, or of grams."""
    exponent, factors = None, []
    for message in messages:
        if isinstance(message, Scaled):
            factors.append(message)
            continue
        if message.mantissa is not None:
            factors.append(to_scaled(LeafMessage(message.mantissa, None)))
        if message.exponent is not None:
            exponent = message.exponent if exponent is None else exponent + message.exponent
    if exponent is not None:
        factors.append(to_scaled(LeafMessage(None, exponent)))
    while len(factors) > 2:
        pairs = zip(factors[::2], factors[1::2], strict=False)
        odd = factors[len(factors) // 2 * 2 :]
        factors = [_rescaled(times(*pair)) for pair in pairs] + odd
    return times(*factors) if len(factors) == 2 else factors[0]


def times(one: Scaled, other: Scaled) -> Scaled:
    """The element-wise product of two messages of the same kind."""
    errors = one.num_errors + other.num_errors + 1.0
    return Scaled(one.mantissa * other.mantissa, added_scales((one, other)), errors)


def added_scales(factors: Iterable[Scaled]) -> Tensor:
    """The logarithm of the product of all scales."""
    total = UNSCALED
    for _, scale, _ in factors:
        if scale is not UNSCALED:
            total = scale if total is UNSCALED else total + scale
    return total


def _rescaled(product: Scaled) -> Scaled:
    size = product.mantissa.detach().abs()
    peak = size.amax(tuple(range(2, size.dim())))
    mantissa, log_scale, _ = divide(product.mantissa, peak)
    errors = product.num_errors / peak.double()  # infinite where all entries underflowed
    return Scaled(mantissa, product.log_scale + log_scale, errors)


def normalise_rows(x: Tensor) -> Tensor:
    """Divide each row of (n, ...) by its largest magnitude; rows of zeros stay."""
    peak = x.detach().abs().amax(tuple(range(1, x.dim())), keepdim=True)
    return x / torch.where(peak == 0, 1.0, peak)


def log_sum_exp(x: Tensor) -> Tensor:
    """log Σ exp(x) over the last axis; of nothing but -inf it is -inf, with a gradient of zero."""
    peak = x.detach().amax(-1, keepdim=True)
    finite = torch.where(peak == -math.inf, 0.0, peak)
    return safe_log((x - finite).exp().sum(-1)) + finite[..., 0]


def sum_of_squares(mantissa: Tensor) -> Tensor:
    """Σ_s |c_s|² of roots (f, n, s), or the trace of their grams (f, n, s, s), in float64."""
    if mantissa.dim() == 4:
        trace = mantissa.diagonal(dim1=-2, dim2=-1).sum(-1)
        return (trace.real if trace.is_complex() else trace).double()
    return mantissa.abs().double().square().sum(-1)


def log_sum_of_squares(message: Scaled) -> Tensor:
    """log Σ_s |c_s|² of roots, or the logarithms of their traces, (f, n).

    A trace that rounding has pushed below zero keeps its magnitude.
    """
    log_scale = message.log_scale if message.is_gram else 2 * message.log_scale
    return safe_log(sum_of_squares(message.mantissa)) + log_scale


def log_sum(message: Scaled) -> Tensor:
    """log Σ_s c_s of roots of non-negative entries, (f, n) in float64."""
    return (
        safe_log(message.mantissa.to(double(message.mantissa.dtype)).sum(-1)) + message.log_scale
    )


def safe_log(x: Tensor) -> Tensor:
    """log|x|; where x is exactly zero the value is -inf and the gradient zero instead of NaN."""
    zero = x == 0
    return torch.where(zero, -math.inf, torch.where(zero, 1.0, x).abs().log())


def double(dtype: torch.dtype) -> torch.dtype:
    """The double-precision dtype of the same kind."""
    return torch.complex128 if dtype.is_complex else torch.float64


def pick(tensor: Tensor, regions: Index) -> Tensor:
    """Some regions of a tensor (f, ...); all of them are the tensor itself, not a copy of it."""
    count = tensor.shape[0]
    if isinstance(regions, slice) and regions.indices(count) == (0, count, 1):
        return tensor
    return tensor[regions]


def spread(per_row: Tensor, like: Tensor) -> Tensor:
    """Numbers (f, n) in a shape that broadcasts against (f, n, ...)."""
    return per_row.reshape(per_row.shape + (1,) * (like.dim() - per_row.dim()))
