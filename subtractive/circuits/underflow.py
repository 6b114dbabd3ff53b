"""The guard against digits lost to underflow or cancellation, applied once, at the root.

Messages are divided by their largest number, so underflow only matters where a sum is tiny. What
the sums of each call were divided by, and the smallest of them, are remembered: the root's scale
and bounds on its errors are computed from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
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
        some: list[Any] = [
            t[:, rows] if isinstance(t, Tensor) and t.shape[1] > 1 else t for t in self
        ]
        return SumRange(*some)


class Extremes(NamedTuple):
    """The smallest peak and the smallest sum of each call, and the logarithms of all peaks."""

    smallest: list[tuple[float | None, float | None]]
    log_peaks: list[tuple[Tensor, bool]]  # (f, n) in float64, and whether they are of grams


def extremes(ranges: Sequence[SumRange]) -> Extremes | None:
    """Those of all calls, measurements of equal shape together; ``None`` if there are no rows."""
    alike: dict[tuple[bool, int, torch.dtype], list[tuple[int, Tensor, Tensor | None]]] = {}
    for number, (peak, least, *_, is_gram) in enumerate(ranges):
        if peak is not None:
            key = is_gram, peak.shape[1], peak.dtype
            alike.setdefault(key, []).append((number, peak, least))
    found = Extremes([(None, None)] * len(ranges), [])
    for (is_gram, num_rows, _), group in alike.items():
        if num_rows == 0:
            return None
        peaks = [peak for _, peak, _ in group]
        measured = peaks + [least for *_, least in group if least is not None]
        joined = torch.cat(measured)
        each = iter(joined.amin(1).tolist())
        smallest = [min(islice(each, tensor.shape[0])) for tensor in measured]
        rest = iter(smallest[len(peaks) :])
        for (number, _, least), low in zip(group, smallest, strict=False):
            found.smallest[number] = low, None if least is None else next(rest)
        count = sum(peak.shape[0] for peak in peaks)
        found.log_peaks.append((joined[:count].double().log_(), is_gram))
    return found


def underflowed(
    schedule: FoldedSchedule, ranges: Sequence[SumRange], found: Extremes
) -> Tensor | None:
    """Rows (n,) whose root may have lost digits to underflow, or ``None`` if there are none.

    The smallest numbers of each call nearly always show that there are none.
    """
    eps = LIMITS[ranges[-1].dtype][1]
    worst = [(*s, item.most_errors) for s, item in zip(found.smallest, ranges, strict=True)]
    if _root_error(schedule, ranges, worst) <= eps:
        return None
    every = [(item.peak, item.least, item.num_errors) for item in ranges]
    by_row = torch.as_tensor(_root_error(schedule, ranges, every))
    is_safe = (by_row <= eps).all(0)
    return None if bool(is_safe.all()) else ~is_safe


def _root_error(
    schedule: FoldedSchedule, ranges: Sequence[SumRange], bounds: Sequence[tuple[Any, Any, Any]]
) -> Tensor | float:
    """A bound on the errors of the roots' mantissas, which are at most one: (f, n), or the worst.

    ``bounds`` are the largest and the smallest sum of each call and the number of its errors: for
    each row, or the worst of all. Bounds on sizes and errors go up the circuit. Where all sums of
    a call are far larger than its error, nothing was lost so far.
    """
    sizes: list[float] = []
    errors: list[Tensor | float] = []
    for call, item, (peak, least, num_errors) in zip(schedule.calls, ranges, bounds, strict=True):
        tiny, eps = LIMITS[item.dtype]
        size: float = 1.0
        error: Tensor | float = num_errors * tiny
        for (source, _), places in zip(call.reads, call.places, strict=True):
            below = source - len(schedule.leaves)
            if below < 0:  # leaves have no other errors than those that were counted
                continue
            part = errors[below]
            part = part[places] if isinstance(part, Tensor) else part
            for _ in range(2 if item.is_gram and not ranges[below].is_gram else 1):
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


LIMITS: Mapping[torch.dtype, tuple[float, float]] = {
    dtype: (torch.finfo(dtype).tiny, torch.finfo(dtype).eps)
    for dtype in (torch.float32, torch.float64, torch.complex64, torch.complex128)
}


@torch.no_grad()
def cancelled(weight: Tensor, product: Tensor, peak: Tensor) -> Tensor:
    """Where single precision leaves fewer than four digits of a vector of sums, (f, n)."""
    terms = torch.bmm(product.abs(), weight.abs().mT).amax(-1)  # (f, n)
    return peak < FEWEST_DIGITS * terms


# How small a sum in single precision is, compared with its terms, that has lost too many digits.
FEWEST_DIGITS = 4e3 * torch.finfo(torch.float32).eps
