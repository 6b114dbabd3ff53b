"""Denormal numbers: zeros for all we know, on which processors are slow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def flushed_denormals() -> Iterator[None]:
    """Take numbers below the smallest normal one for zeros in this thread, for a while.

    Posterior probabilities of many units are mostly such numbers, and a product of matrices full
    of them takes ten times as long.

    >>> with flushed_denormals():
    ...     (torch.tensor(1e-310, dtype=torch.float64) * 0.5).item()
    0.0
    """
    smallest = torch.finfo(torch.float64).tiny
    was_flushed = bool(torch.tensor(smallest, dtype=torch.float64) * 0.5 == 0)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(was_flushed)
