"""Messages of input layers, whose exponentials are not taken yet; sums, choices and joins of them.

Axes: ``f`` region, ``n`` row (one row may stand for all rows), ``i j`` units.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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

    def take(self, index: Index) -> LeafMessage:
        """The messages of some regions."""
        return LeafMessage(
            None if self.mantissa is None else self.mantissa[index],
            None if self.exponent is None else self.exponent[index],
        )

    def split(self, sizes: Sequence[int]) -> list[LeafMessage]:
        """The messages of consecutive groups of regions, together all of them."""
        parts = ([None] * len(sizes) if t is None else t.split(list(sizes)) for t in self)
        return [LeafMessage(*part) for part in zip(*parts, strict=True)]

    def rows(self, rows: slice | Tensor) -> LeafMessage:
        """The messages of some rows; one row that stands for all rows stays."""
        some = (t if t is None or t.shape[1] == 1 else t[:, rows] for t in self)
        return LeafMessage(*some)

    def unfolded(self, shape: Sequence[int]) -> LeafMessage:
        """Rows (1, f · n, ...) of one region as those of several, (f, n, ...)."""
        return LeafMessage(
            None if self.mantissa is None else self.mantissa[0].unflatten(0, shape),
            None if self.exponent is None else self.exponent[0].unflatten(0, shape),
        )

    def repeated(self, regions: int) -> LeafMessage:
        """The message of one region for several of them."""
        return LeafMessage(
            None if self.mantissa is None else self.mantissa.expand(regions, *self.some.shape[1:]),
            None if self.exponent is None else self.exponent.expand(regions, *self.some.shape[1:]),
        )

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
