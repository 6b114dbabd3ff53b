"""Sums, choices and joins of messages, and their plain numbers where they are moderate."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from subtractive.numerics.messages import LeafMessage, Scaled, spread


def choose(mask: Tensor, yes: LeafMessage, no: LeafMessage) -> LeafMessage:
    """Entry by entry of a mask (f, n), the message ``yes`` or the message ``no``."""

    def pick(first: Tensor | None, second: Tensor | None, neutral: float) -> Tensor | None:
        if first is None and second is None:
            return None
        some = first if first is not None else second
        assert some is not None
        return torch.where(
            spread(mask, some),
            neutral if first is None else first,
            neutral if second is None else second,
        )

    return LeafMessage(pick(yes.mantissa, no.mantissa, 1.0), pick(yes.exponent, no.exponent, 0.0))


def add(first: LeafMessage, second: LeafMessage) -> LeafMessage:
    """The sum of two messages, entry by entry, whatever their exponents.

    >>> small, large = LeafMessage(torch.ones(1), None), LeafMessage(None, torch.tensor([800.0]))
    >>> add(large, large).exponent, add(small, small).mantissa
    (tensor([800.]), tensor([2.]))
    """
    if first.exponent is None and second.exponent is None:
        return LeafMessage(first.some + second.some, None)
    exponents = [
        torch.zeros_like(m.some) if m.exponent is None else m.exponent for m in (first, second)
    ]
    peak = torch.maximum(*(exponent.detach() for exponent in exponents))
    peak = torch.where(peak == -math.inf, 0.0, peak)
    sizes = [(exponent - peak).exp() for exponent in exponents]
    terms = [
        size if message.mantissa is None else message.mantissa * size
        for message, size in zip((first, second), sizes, strict=True)
    ]
    return LeafMessage(terms[0] + terms[1], peak)


def side_by_side(messages: Sequence[LeafMessage], axis: int = 0) -> LeafMessage:
    """Messages of several regions (axis 0) or several rows (axis 1) as one."""
    if all(message.mantissa is None for message in messages):
        mantissa = None
    else:
        mantissa = torch.cat(
            [torch.ones_like(m.some) if m.mantissa is None else m.mantissa for m in messages], axis
        )
    if all(message.exponent is None for message in messages):
        return LeafMessage(mantissa, None)
    exponents = [torch.zeros_like(m.some) if m.exponent is None else m.exponent for m in messages]
    return LeafMessage(mantissa, torch.cat(exponents, axis))


def largest_exponent(message: LeafMessage) -> Tensor | None:
    """The largest exponent of each region, in the shape of the message."""
    if message.exponent is None:
        return None
    peak = message.exponent.detach().flatten(1).amax(1)  # (f,)
    finite = torch.where(peak == -math.inf, 0.0, peak)
    return spread(finite, message.exponent).expand_as(message.exponent)


def relative_values(message: LeafMessage, reference: LeafMessage) -> Tensor:
    """Plain numbers in units of the largest exponent of another message in each region."""
    peak = largest_exponent(reference)
    if peak is None:
        return message.some if message.exponent is None else message.value()
    largest = spread(peak.flatten(1)[:, 0], message.some)
    exponent = torch.zeros_like(largest) if message.exponent is None else message.exponent
    size = torch.exp(exponent - largest)
    return size if message.mantissa is None else message.mantissa * size


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
    return Scaled((mantissa * spread(shares, mantissa).to(mantissa.dtype)).sum(2), peak)
