"""What underflow and cancellation may have taken from the messages of the fused path.

Decided once, at the root, for all calls together: see
:class:`subtractive.circuits.evaluation.FusedLayers`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from subtractive.regions.folding import FoldedSchedule


class SumRange(NamedTuple):
    """The range of a call's sums, as far as it was looked at, and what underflow may have added.

    ``gain`` bounds the sum of an output's weights, ``num_errors`` counts in the smallest positive
    number of the dtype.
    """

    peak: Tensor | float | None  # (f, n), which the sums were divided by
    least: Tensor | float | None  # (f, n), before that
    gain: float
    num_errors: Tensor | float
    dtype: torch.dtype
    is_gram: bool

    def rows(self, rows: slice) -> SumRange:
        """Those of some rows."""

        def some(numbers: Tensor | float) -> Tensor | float:
            if isinstance(numbers, Tensor) and numbers.shape[1] > 1:
                return numbers[:, rows]
            return numbers

        return self._replace(
            peak=None if self.peak is None else some(self.peak),
            least=None if self.least is None else some(self.least),
            num_errors=some(self.num_errors),
        )


def underflowed(schedule: FoldedSchedule, ranges: Mapping[int, SumRange]) -> Tensor | None:
    """Rows (n,) whose root may have lost digits to underflow, or ``None`` if there are none.

    Almost always the smallest numbers of each call tell that there are none.
    """
    root = ranges[len(schedule.calls) - 1]
    eps = torch.finfo(root.dtype).eps
    is_empty = isinstance(root.peak, Tensor) and root.peak.numel() == 0
    if is_empty or _root_error(schedule, _worst(ranges)) <= eps:
        return None
    error = torch.as_tensor(_root_error(schedule, ranges))
    is_safe = error[0] <= eps
    return None if bool(is_safe.all()) else ~is_safe


def _worst(ranges: Mapping[int, SumRange]) -> dict[int, SumRange]:
    """The worst of all regions and rows of each call, as plain numbers."""
    tensors = [t for item in ranges.values() for t in item[:2] if isinstance(t, Tensor)]
    smallest = iter(torch.stack([t.amin().double() for t in tensors]).tolist())
    return {
        number: item._replace(
            peak=None if item.peak is None else next(smallest),
            least=None if item.least is None else next(smallest),
            num_errors=float(torch.as_tensor(item.num_errors).max())
            if isinstance(item.num_errors, Tensor)
            else item.num_errors,
        )
        for number, item in ranges.items()
    }


def _root_error(schedule: FoldedSchedule, ranges: Mapping[int, SumRange]) -> Tensor | float:
    """How far the root's mantissas, which are one at most, may be off: (1, n), or the worst.

    Bounds on sizes and errors go up the circuit. Where all sums of a call are far larger than its
    error, nothing was lost so far.
    """
    sizes: dict[int, float] = {}
    errors: dict[int, Tensor | float] = {}
    num_leaves = len(schedule.leaves)
    for number in sorted(ranges):
        peak, least, gain, num_errors, dtype, is_gram = ranges[number]
        tiny, eps = _LIMITS[dtype]
        size: float = 1.0
        error: Tensor | float = num_errors * tiny
        call = schedule.calls[number]
        for source, places in zip(call.sources, call.places, strict=True):
            below = source - num_leaves
            if below < 0:  # leaves have no other errors than those that were counted
                continue
            part = errors[below]
            part = part[places] if isinstance(part, Tensor) else part
            for _ in range(2 if is_gram and not ranges[below].is_gram else 1):
                error = error * sizes[below] + part * size
                size = size * sizes[below]
        error, size = error * gain, min(size * gain, 1e300)
        if isinstance(least, Tensor):  # in double precision: plain numbers would be in single
            error = torch.as_tensor(error, dtype=torch.float64, device=least.device)
            error = torch.where(least >= error / eps, 0.0, error)
        elif least is not None and least >= error / eps:
            error = 0.0
        if peak is not None:
            error, size = error / peak, 1.0
        sizes[number], errors[number] = size, error
    return errors[len(schedule.calls) - 1]


_LIMITS = {
    dtype: (torch.finfo(dtype).tiny, torch.finfo(dtype).eps)
    for dtype in (torch.float32, torch.float64, torch.complex64, torch.complex128)
}


@torch.no_grad()
def cancelled(weight: Tensor, product: Tensor, peak: Tensor) -> Tensor | None:
    """Where single precision leaves fewer than four digits of a vector of sums, (f, n)."""
    if product.dtype not in (torch.float32, torch.complex64):
        return None
    terms = torch.bmm(product.abs(), weight.abs().mT).amax(-1)  # (f, n)
    return peak < 4e3 * torch.finfo(terms.dtype).eps * terms
