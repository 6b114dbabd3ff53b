"""Encoded rows to train on: merged, split, and spread over the cells of their grids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from subtractive.tables.columns import Column, Numeric

MOST_UNMERGED = 2**20  # rows that repeat and are trained on one by one
SMALL = 50  # a table of fewer different rows trains without a held-out part


class Rows(NamedTuple):
    """Encoded rows (n, d) in float64, NaN where missing, and their weights (n,)."""

    x: Tensor
    weights: Tensor
    log_abs_det_jacobian: Tensor  # (n,): what to add to their log-densities for table units

    def take(self, rows: Tensor) -> Rows:
        """Some of the rows."""
        return Rows(self.x[rows], self.weights[rows], self.log_abs_det_jacobian[rows])

    @property
    def mean_log_jacobian(self) -> float:
        """The weighted mean of what is to be added."""
        return float((self.weights * self.log_abs_det_jacobian).sum() / self.weights.sum())


def split(rows: Rows, fraction: float, seed: int) -> tuple[Rows, Rows | None]:
    """Rows to train on, and rows to judge by: a random share, or none of a small table."""
    num_valid = int(fraction * len(rows.x))
    if len(rows.x) < SMALL or num_valid == 0:
        return rows, None
    generator = torch.Generator().manual_seed(seed)
    if bool((rows.weights == 1).all()) or not bool((rows.weights == rows.weights.round()).all()):
        order = torch.randperm(len(rows.x), generator=generator)
        return rows.take(order[num_valid:]), rows.take(order[:num_valid])
    # A merged row stands for many: each of them is held out or not, or one row would decide.
    which = torch.repeat_interleave(rows.weights.long())
    chosen = which[torch.randperm(len(which), generator=generator)[: int(fraction * len(which))]]
    held = torch.bincount(chosen, minlength=len(rows.x)).double()
    return tuple(  # type: ignore[return-value]
        rows._replace(weights=weights).take((weights > 0).nonzero()[:, 0])
        for weights in (rows.weights - held, held)
    )


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
    return Rows(
        torch.from_numpy(codes[first]),
        torch.from_numpy(totals),
        rows.log_abs_det_jacobian[torch.from_numpy(first)],
    )


def recode(rows: Rows, old: Sequence[Column], new: Sequence[Column]) -> Rows:
    """The same rows under other transforms of their columns."""
    columns, log_jacobian = [], torch.zeros(len(rows.x), dtype=torch.float64)
    for number, (before, after) in enumerate(zip(old, new, strict=True)):
        codes = rows.x[:, number].numpy()
        if isinstance(before, Numeric) and isinstance(after, Numeric):
            values = before.numbers(codes)
            columns.append(torch.from_numpy(after.encode(values)))
            log_jacobian += torch.from_numpy(after.log_abs_det_jacobian(values))
        else:
            columns.append(rows.x[:, number])
    return Rows(torch.stack(columns, 1), rows.weights, log_jacobian)


def dither(
    x: Tensor,
    columns: Sequence[Column],
    generator: torch.Generator,
    share_of_cell: float = 1.0,
) -> Tensor:
    """Rows (n, d) spread over the cells of the grids of their columns, or over part of them."""
    spread = x.clone()
    for number, column in enumerate(columns):
        if isinstance(column, Numeric) and column.grid is not None:
            uniform = torch.rand(len(x), generator=generator, dtype=torch.float64)
            uniform = 0.5 + share_of_cell * (uniform - 0.5)
            codes = column.dither(x[:, number].numpy(), uniform.numpy())
            spread[:, number] = torch.from_numpy(codes)
    return spread


def _unmerged(rows: Rows) -> Rows:
    """Rows that repeat, one by one, where weights are counts.

    A loss is the mean over a batch: a row of large weight would count in one batch only.
    """
    are_counts = bool((rows.weights == rows.weights.round()).all())
    if not are_counts or rows.weights.max() == 1 or rows.weights.sum() > MOST_UNMERGED:
        return rows
    each = rows.take(torch.repeat_interleave(rows.weights.long()))
    return each._replace(weights=torch.ones_like(each.weights))


def num_trained_rows(rows: Rows) -> int:
    """How many rows there are to train on, one by one."""
    return len(_unmerged(rows).x)


@final
@dataclass(frozen=True)
class DitheredBatches:
    """Batches of (rows, weights), in a new order and with new noise each time they are asked for.

    A value on a grid stands for its whole cell: training must not see it as a point.
    """

    rows: Rows
    columns: tuple[Column, ...]
    batch_size: int
    generator: torch.Generator = field(compare=False)
    share_of_cell: float = 1.0

    def __call__(self) -> Iterator[tuple[Tensor, Tensor]]:
        rows = _unmerged(self.rows)
        order = torch.randperm(len(rows.x), generator=self.generator)
        x = dither(rows.x, self.columns, self.generator, self.share_of_cell)
        for some in order.split(self.batch_size):
            yield x[some], rows.weights[some]
