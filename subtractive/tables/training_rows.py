"""Encoded rows to train on: merged, split and taken in batches."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

SMALL = 50  # a table of fewer different rows trains without a held-out part


class Rows(NamedTuple):
    """Encoded rows (n, d) in float64, NaN where missing, and their weights (n,)."""

    x: Tensor
    weights: Tensor


def split(rows: Rows, fraction: float, seed: int) -> tuple[Rows, Rows | None]:
    """Rows to train on, and rows to judge by: a random share, or none of a small table."""
    num_valid = int(fraction * len(rows.x))
    if len(rows.x) < SMALL or num_valid == 0:
        return rows, None
    order = torch.randperm(len(rows.x), generator=torch.Generator().manual_seed(seed))
    train, valid = order[num_valid:], order[:num_valid]
    return Rows(rows.x[train], rows.weights[train]), Rows(rows.x[valid], rows.weights[valid])


def batch_size(rows: Rows) -> int:
    """Larger batches for larger tables: small ones need many steps more than smooth ones."""
    return 512 if len(rows.x) >= 10_000 else 256 if len(rows.x) >= 2_000 else 64


def merge(rows: Rows) -> Rows:
    """Equal rows made one with the sum of their weights, whatever their order.

    A row of weight two is therefore two rows, to the last bit.
    """
    codes = np.ascontiguousarray(rows.x.numpy()) + 0.0  # no negative zeros
    codes[np.isnan(codes)] = np.nan  # and one NaN
    keys = codes.view(np.dtype((np.void, codes.itemsize * codes.shape[1])))[:, 0]
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    # Sums do not depend on the order of rows either if their terms are sorted.
    weights = rows.weights.numpy()
    order = np.lexsort((weights, inverse))
    totals = np.bincount(inverse[order], weights=weights[order])
    return Rows(torch.from_numpy(codes[first]), torch.from_numpy(totals))
