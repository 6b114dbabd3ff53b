"""The guard against digits lost to underflow or cancellation, applied once, at the root.

Messages are divided by their largest number, so underflow only matters where a sum is tiny. The
smallest sums of each call are remembered; bounds on the errors are computed from them at the root.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from subtractive.regions.folding import FoldedSchedule


class SumRange(NamedTuple):
    """The range of a call's sums, as far as it was measured, and what underflow may have added.

    ``gain`` bounds the sum of an output's weights, ``num_errors`` counts errors in units of the
    smallest positive number of the dtype.
    """

    peak: Tensor | None  # (f, n), the largest, which the sums were divided by
    least: Tensor | None  # (f, n), the smallest before that
    gain: float
    num_errors: Tensor | float
    dtype: torch.dtype
    is_gram: bool

    @property
    def most_errors(self) -> float:
        """The largest number of errors of all regions and rows."""
        number = self.num_errors
        return float(number.max()) if isinstance(number, Tensor) else number

    def rows(self, rows: slice) -> SumRange:
        """Those of some rows."""

        def some(numbers: Tensor | float) -> Tensor | float:
            if isinstance(numbers, Tensor) and numbers.shape[1] > 1:
                return numbers[:, rows]
            return numbers

        peak, least, gain, num_errors, dtype, is_gram = self
        peak = None if peak is None else some(peak)  # type: ignore[assignment]
        least = None if least is None else some(least)  # type: ignore[assignment]
        return SumRange(peak, least, gain, some(num_errors), dtype, is_gram)


def underflowed(schedule: FoldedSchedule, ranges: Mapping[int, SumRange]) -> Tensor | None:
    """Rows (n,) whose root may have lost digits to underflow, or ``None`` if there are none.

    The smallest numbers of each call nearly always show that there are none.
    """
    items = [ranges[number] for number in range(len(schedule.calls))]
    eps = _LIMITS[items[-1].dtype][1]
    measured = [t for item in items for t in item[:2] if t is not None]
    if any(t.numel() == 0 for t in measured):
        return None
    least = iter(_least(measured))
    worst = []
    for item in items:
        peak, low = (None if t is None else next(least) for t in item[:2])
        worst.append((peak, low, item.most_errors))
    if _root_error(schedule, items, worst) <= eps:
        return None
    every = [(item.peak, item.least, item.num_errors) for item in items]
    by_row = torch.as_tensor(_root_error(schedule, items, every))
    is_safe = (by_row <= eps).all(0)
    return None if bool(is_safe.all()) else ~is_safe


def _least(measured: Sequence[Tensor]) -> list[float]:
    """The least number of each tensor: those of equal shape together, as there may be many."""
    alike: dict[Any, list[int]] = {}
    for number, tensor in enumerate(measured):
        alike.setdefault((tensor.shape, tensor.dtype), []).append(number)
    found = [0.0] * len(measured)
    for numbers in alike.values():
        stacked = torch.stack([measured[number] for number in numbers])
        for number, least in zip(numbers, stacked.flatten(1).amin(1).tolist(), strict=True):
            found[number] = least
    return found


def _root_error(
    schedule: FoldedSchedule, items: Sequence[SumRange], bounds: Sequence[tuple[Any, Any, Any]]
) -> Tensor | float:
    """A bound on the errors of the roots' mantissas, which are at most one: (f, n), or the worst.

    ``bounds`` are the largest and the smallest sum of each call and the number of its errors: for
    each row, or the worst of all. Bounds on sizes and errors go up the circuit. Where all sums of
    a call are far larger than its error, nothing was lost so far.
    """
    sizes: list[float] = []
    errors: list[Tensor | float] = []
    for call, item, bound in zip(schedule.calls, items, bounds, strict=True):
        peak, least, num_errors = bound
        tiny, eps = _LIMITS[item.dtype]
        size: float = 1.0
        error: Tensor | float = num_errors * tiny
        for source, places in zip(call.sources, call.places, strict=True):
            below = source - len(schedule.leaves)
            if below < 0:  # leaves have no other errors than those that were counted
                continue
            part = errors[below]
            part = part[places] if isinstance(part, Tensor) else part
            for _ in range(2 if item.is_gram and not items[below].is_gram else 1):
                error = error * sizes[below] + part * size
                size = size * sizes[below]
        error, size = error * item.gain, min(size * item.gain, 1e300)
        if isinstance(least, Tensor):  # in double precision: plain numbers would be in single
            error = torch.as_tensor(error, dtype=torch.float64, device=least.device)
            error = torch.where(least >= error / eps, 0.0, error)
        elif least is not None and least >= error / eps:
            error = 0.0
        if peak is not None:
            error, size = error / peak, 1.0
        sizes.append(size)
        errors.append(error)
    return errors[-1]


_LIMITS = {
    dtype: (torch.finfo(dtype).tiny, torch.finfo(dtype).eps)
    for dtype in (torch.float32, torch.float64, torch.complex64, torch.complex128)
}


@torch.no_grad()
def cancelled(weight: Tensor, product: Tensor, peak: Tensor | None) -> Tensor | None:
    """Where single precision leaves fewer than four digits of a vector of sums, (f, n)."""
    if product.dtype not in (torch.float32, torch.complex64) or peak is None:
        return None
    terms = torch.bmm(product.abs(), weight.abs().mT).amax(-1)  # (f, n)
    return peak < 4e3 * torch.finfo(terms.dtype).eps * terms
