"""Some rows at a time: blocks that fit into a cache, and rows that are evaluated again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from subtractive.numerics.messages import LeafMessage, Scaled
from subtractive.regions.folding import FoldedSchedule

# How many numbers the largest message of a block of rows may hold to stay in a processor's cache,
# and how many rows are worth a block.
_BLOCK, _FEWEST_ROWS = 2**17, 16


def mixed_calls(schedule: FoldedSchedule, leaves: Sequence[LeafMessage]) -> list[int]:
    """The calls that make a gram for each row."""
    is_gram = [leaf.is_gram for leaf in leaves]
    by_row = [leaf.shape[1] > 1 for leaf in leaves]
    mixed = []
    for number, call in enumerate(schedule.calls):
        is_gram.append(any(is_gram[source] for source in call.sources))
        by_row.append(any(by_row[source] for source in call.sources))
        if is_gram[-1] and by_row[-1]:
            mixed.append(number)
    return mixed


def in_row_blocks(
    evaluate: Callable[[slice], tuple[Scaled, Tensor | None]], num_rows: int, numbers_per_row: int
) -> tuple[Scaled, Tensor | None]:
    """What a function finds for each block of rows, put together: roots, and flagged rows."""
    step = max(_FEWEST_ROWS, _BLOCK // numbers_per_row)
    roots, flagged = [], []
    for start in range(0, num_rows, step):
        root, repeat = evaluate(slice(start, min(start + step, num_rows)))
        roots.append(root)
        if repeat is not None:
            flagged.append(repeat + start)
    whole = Scaled(
        torch.cat([root.mantissa for root in roots], 1),
        torch.cat([root.log_scale for root in roots], 1),
    )
    return whole, torch.cat(flagged) if flagged else None


def rows_except(some: Tensor, num_rows: int) -> Tensor:
    """The numbers of all other rows."""
    others = torch.ones(num_rows, device=some.device).index_fill(0, some, 0.0)
    return others.nonzero()[:, 0]


def join_rows(roots: Sequence[Scaled], order: Tensor) -> Scaled:
    """Roots of different rows as one; ``order`` says which row each of them is."""
    back = order.argsort()
    dtype = roots[-1].mantissa.dtype
    mantissa = torch.cat([root.mantissa.to(dtype) for root in roots], 1)
    log_scale = torch.cat([root.log_scale.double() for root in roots], 1)
    return Scaled(mantissa[:, back], log_scale[:, back])
