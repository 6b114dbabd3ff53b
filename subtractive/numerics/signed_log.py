"""The paper's signed log-sum-exp trick: log|y| and sign(y) of every unit (paper: App. D).

Slower than :mod:`subtractive.numerics.scaled` and free of underflow: units of one message may
differ by any factor. It is the reference for the fast path, and evaluates the rows that the fast
path gives up. Messages are :class:`Unscaled`, the mantissa being the sign (the phase of a
complex number) and the exponent log|y|, in float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from subtractive.numerics.scaled import Unscaled, double, safe_log

# How many numbers the exact sum may hold at once.
_CHUNK = 2**22


def signed_log(message: Unscaled) -> Unscaled:
    """An input's message as sign and log|y|."""
    mantissa, exponent = message
    if mantissa is None:
        assert exponent is not None
        return Unscaled(torch.ones_like(exponent, dtype=torch.float64), exponent.double())
    mantissa = mantissa.to(double(mantissa.dtype))
    log_abs = safe_log(mantissa)
    return Unscaled(mantissa.sgn(), log_abs if exponent is None else log_abs + exponent)


def multiply_signed(messages: Sequence[Unscaled]) -> Unscaled:
    """The element-wise product: signs multiply, logarithms add; vectors beside grams are squared."""
    if any(message.is_gram for message in messages):
        messages = [message if message.is_gram else message.outer() for message in messages]
    sign, log_abs = signed_log(messages[0])
    assert sign is not None
    assert log_abs is not None
    for message in messages[1:]:
        other_sign, other_log = signed_log(message)
        sign, log_abs = sign * other_sign, log_abs + other_log
    return Unscaled(sign, log_abs)


def kronecker_signed(messages: Sequence[Unscaled]) -> Unscaled:
    """The Kronecker product of vectors, (f, n, i·j), or of grams, (f, n, i·j, k·l)."""
    if any(message.is_gram for message in messages):
        messages = [message if message.is_gram else message.outer() for message in messages]
    sign, log_abs = signed_log(messages[0])
    assert sign is not None
    assert log_abs is not None
    for message in messages[1:]:
        other_sign, other_log = signed_log(message)
        assert other_sign is not None
        assert other_log is not None
        sign = _pair(sign, other_sign, torch.mul)
        log_abs = _pair(log_abs, other_log, torch.add)
    return Unscaled(sign, log_abs)


def mix_signed(weight: Tensor, message: Unscaled) -> Unscaled:
    r"""The signed log-sum-exp: ``W y`` of a vector or ``W Y Wᴴ`` of a gram.

    .. math:: log|z| = α + log|s|, s = W (sign(y) ⊙ exp(log|y| − α)), α = max_i log|y_i|
    """
    weight = weight.to(double(weight.dtype))
    if not message.is_gram:
        return _mix(weight, message)
    regions, rows, i, j = message.some.shape
    flat = Unscaled(*(None if t is None else t.reshape(regions, rows * i, j) for t in message))
    right = _mix(weight.conj(), flat)  # (f, n·i, p)
    turned = Unscaled(
        *(None if t is None else t.reshape(regions, rows, i, -1).mT for t in right)
    )  # (f, n, p, i)
    p = turned.some.shape[2]
    flat = Unscaled(*(None if t is None else t.reshape(regions, rows * p, i) for t in turned))
    left = _mix(weight, flat)  # (f, n·p, o)
    return Unscaled(*(None if t is None else t.reshape(regions, rows, p, -1).mT for t in left))


def _mix(weight: Tensor, message: Unscaled) -> Unscaled:
    sign, log_abs = message
    assert sign is not None
    assert log_abs is not None
    peak = log_abs.detach().amax(-1, keepdim=True)
    peak = torch.where(peak == -math.inf, 0.0, peak)
    terms = sign * (log_abs - peak).exp()
    dtype = torch.promote_types(terms.dtype, weight.dtype)
    total = terms.to(dtype) @ weight.to(dtype).mT  # (f, n, o)
    mixed = Unscaled(total.sgn(), peak + safe_log(total))
    real = torch.finfo(torch.float64)
    floor = weight.detach().abs().amax((1, 2))[:, None, None] * (real.tiny / real.eps)
    # One peak for all outputs loses outputs that see only small units; those get their own peaks.
    doubtful = ((total.detach().abs() < floor) & (log_abs.amax(-1, keepdim=True) > -math.inf)).any(
        -1
    )
    return _mix_exactly(weight, message, mixed, doubtful) if doubtful.any() else mixed


def _mix_exactly(weight: Tensor, message: Unscaled, mixed: Unscaled, doubtful: Tensor) -> Unscaled:
    """Replace the doubtful rows (f, n) of ``mixed`` by sums with a peak for every output."""
    sign, log_abs = message
    assert sign is not None
    assert log_abs is not None
    region, row = doubtful.nonzero(as_tuple=True)  # (r,)
    signs, logs = [], []
    for chunk in torch.arange(len(region)).split(max(1, _CHUNK // weight[0].numel())):
        w = weight[region[chunk]]  # (r, o, i)
        terms = safe_log(w) + log_abs[region[chunk], row[chunk]][:, None, :]
        peak = terms.detach().amax(-1, keepdim=True)
        peak = torch.where(peak == -math.inf, 0.0, peak)
        phases = w.sgn() * sign[region[chunk], row[chunk]][:, None, :]
        total = (phases * (terms - peak).exp()).sum(-1)  # (r, o)
        signs.append(total.sgn())
        logs.append(peak[..., 0] + safe_log(total))
    assert mixed.mantissa is not None
    assert mixed.exponent is not None
    return Unscaled(
        mixed.mantissa.index_put((region, row), torch.cat(signs)),
        mixed.exponent.index_put((region, row), torch.cat(logs)),
    )


def _pair(a: Tensor, b: Tensor, join: object) -> Tensor:
    assert callable(join)
    if a.dim() == 3:
        joined: Tensor = join(a[..., :, None], b[..., None, :])
        return joined.flatten(2)
    joined = join(a[..., :, None, :, None], b[..., None, :, None, :])
    return joined.flatten(4, 5).flatten(2, 3)
