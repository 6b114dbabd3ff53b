"""The paper's signed log-sum-exp trick: log|y| and sign(y) of every unit (paper: App. D).

Slower than :mod:`subtractive.numerics.messages` and free of underflow: the units of one message
may differ by any factor. It is the reference path: the oracle of the fused one, which also
evaluates the rows that lost digits to underflow there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from subtractive.numerics.messages import Index, LeafMessage, double, safe_log
from subtractive.numerics.transforms import is_transformed

# How many numbers a sum with a peak for every output may hold at once.
_CHUNK = 2**22


class SignedLog(NamedTuple):
    """A vector (f, n, i) or gram (f, n, i, j) as ``sign * exp(log_abs)``, in double precision.

    The sign of a complex number is its phase. Where a number is exactly zero its sign is zero,
    its logarithm -inf, and no gradient passes.

    >>> from subtractive.numerics import SignedLog
    >>> number = SignedLog(torch.tensor([[[-1.0]]]), torch.tensor([[[2.0]]]))  # -e²
    >>> number.shape
    torch.Size([1, 1, 1])
    """

    sign: Tensor
    log_abs: Tensor

    @property
    def is_gram(self) -> bool:
        return self.sign.dim() == 4

    @property
    def shape(self) -> torch.Size:
        return self.log_abs.shape

    def take(self, index: Index) -> SignedLog:
        """The messages of some regions."""
        return SignedLog(self.sign[index], self.log_abs[index])

    def split(self, sizes: Sequence[int]) -> list[SignedLog]:
        """The messages of consecutive groups of regions, together all of them."""
        parts = (tensor.split(list(sizes)) for tensor in self)
        return [SignedLog(*part) for part in zip(*parts, strict=True)]

    def outer(self) -> SignedLog:
        """The gram ``v vᴴ`` of a vector."""
        sign = self.sign[..., :, None] * self.sign[..., None, :].conj()
        return SignedLog(sign, self.log_abs[..., :, None] + self.log_abs[..., None, :])

    def map(self, change: Callable[[Tensor], Tensor]) -> SignedLog:
        """The same change of shape on both parts."""
        return SignedLog(change(self.sign), change(self.log_abs))


def signed_log(message: LeafMessage) -> SignedLog:
    """An input's message as sign and log|y|."""
    mantissa, exponent = message
    if mantissa is None:
        log_abs = message.some.double()
        return SignedLog(torch.ones_like(log_abs), log_abs)
    mantissa = mantissa.to(double(mantissa.dtype))
    log_abs = safe_log(mantissa)
    return SignedLog(mantissa.sgn(), log_abs if exponent is None else log_abs + exponent)


def add_signed(message: SignedLog) -> SignedLog:
    """The sum over all units, (f, n, 1)."""
    flat = message.map(lambda t: t.flatten(2))
    return mix_signed(torch.ones_like(flat.log_abs[:, :1]), flat)


def multiply_signed(messages: Sequence[SignedLog]) -> SignedLog:
    """The element-wise product: signs multiply, logarithms add."""
    product, *others = _alike(messages)
    for other in others:
        product = SignedLog(product.sign * other.sign, product.log_abs + other.log_abs)
    return product


def kronecker_signed(messages: Sequence[SignedLog]) -> SignedLog:
    """The Kronecker product of vectors, (f, n, i·j), or of grams, (f, n, i·j, k·l)."""
    product, *others = _alike(messages)
    for other in others:
        product = SignedLog(
            _pair(product.sign, other.sign, torch.mul),
            _pair(product.log_abs, other.log_abs, torch.add),
        )
    return product


def mix_signed(weight: Tensor, message: SignedLog) -> SignedLog:
    r"""The signed log-sum-exp: ``W y`` of a vector or ``W Y Wᴴ`` of a gram.

    .. math:: log|z| = α + log|s|, s = W (sign(y) ⊙ exp(log|y| − α)), α = max_i log|y_i|
    """
    return mix_signed_gram(weight, message, weight) if message.is_gram else _mix(weight, message)


def mix_signed_gram(weight: Tensor, message: SignedLog, other: Tensor) -> SignedLog:
    """``W Y Vᴴ`` of grams."""
    rows = message.sign.shape[1]
    right = _mix(other.conj(), message.map(lambda t: t.flatten(1, 2)))  # (f, n·i, p)
    turned = right.map(lambda t: t.unflatten(1, (rows, -1)).mT)  # (f, n, p, i)
    left = _mix(weight, turned.map(lambda t: t.flatten(1, 2)))  # (f, n·p, o)
    return left.map(lambda t: t.unflatten(1, (rows, -1)).mT)


def _alike(messages: Sequence[SignedLog]) -> list[SignedLog]:
    """All as vectors, or all as grams."""
    squared = any(message.is_gram for message in messages)
    return [m.outer() if squared and not m.is_gram else m for m in messages]


def _mix(weight: Tensor, message: SignedLog) -> SignedLog:
    weight = weight.to(double(weight.dtype))
    if is_transformed():
        return _mix_all_exactly(weight, message)  # no step may depend on the numbers
    sign, log_abs = message
    peak = log_abs.detach().amax(-1, keepdim=True)
    shift = torch.where(peak == -math.inf, 0.0, peak)
    terms = sign * (log_abs - shift).exp()
    dtype = torch.promote_types(terms.dtype, weight.dtype)
    total = terms.to(dtype) @ weight.to(dtype).mT  # (f, n, o)
    mixed = SignedLog(total.sgn(), shift + safe_log(total))
    real = torch.finfo(torch.float64)
    unit = weight.detach().abs().amax((1, 2)).clamp(min=1.0)[:, None, None]
    floor = unit * (real.tiny / real.eps)
    # One peak for all outputs loses outputs that see only small units; those get their own.
    doubtful = ((total.detach().abs() < floor) & (peak > -math.inf)).any(-1)
    return _mix_exactly(weight, message, mixed, doubtful) if doubtful.any() else mixed


def _mix_all_exactly(weight: Tensor, message: SignedLog) -> SignedLog:
    """Sums with a peak for every output of every row."""
    terms = safe_log(weight)[:, None] + message.log_abs[:, :, None, :]  # (f, n, o, i)
    return _add_terms(terms, weight.sgn()[:, None] * message.sign[:, :, None, :])


def _add_terms(terms: Tensor, phases: Tensor) -> SignedLog:
    """Σ_i phase_i exp(term_i) over the last axis."""
    peak = terms.detach().amax(-1, keepdim=True)
    peak = torch.where(peak == -math.inf, 0.0, peak)
    total = (phases * (terms - peak).exp()).sum(-1)
    return SignedLog(total.sgn(), peak[..., 0] + safe_log(total))


def _mix_exactly(
    weight: Tensor, message: SignedLog, mixed: SignedLog, doubtful: Tensor
) -> SignedLog:
    """Replace the doubtful rows (f, n) of ``mixed`` by sums with a peak for every output."""
    region, row = doubtful.nonzero(as_tuple=True)  # (r,)
    signs, logs = [], []
    for chunk in torch.arange(len(region)).split(max(1, _CHUNK // weight[0].numel())):
        at = region[chunk], row[chunk]
        factors = weight[region[chunk]]  # (r, o, i)
        terms = safe_log(factors) + message.log_abs[at][:, None, :]
        sign, log_abs = _add_terms(terms, factors.sgn() * message.sign[at][:, None, :])
        signs.append(sign)
        logs.append(log_abs)
    return SignedLog(
        mixed.sign.index_put((region, row), torch.cat(signs)),
        mixed.log_abs.index_put((region, row), torch.cat(logs)),
    )


def _pair(a: Tensor, b: Tensor, join: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    if a.dim() == 3:
        return join(a[..., :, None], b[..., None, :]).flatten(2)
    joined = join(a[..., :, None, :, None], b[..., None, :, None, :])  # (f, n, i, j, k, l)
    return joined.flatten(4, 5).flatten(2, 3)
