"""The evaluation of a circuit: every query is this function with other leaves.

The fused path multiplies, sums and rescales. Rows of which cancellation or underflow may have
taken digits are evaluated again, in double precision or by the reference path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from subtractive.circuits.fused_path import FusedLayers
from subtractive.circuits.layers import Layer
from subtractive.circuits.reference_path import ReferencePath
from subtractive.circuits.traversal import Waiting, root_of, traverse, waiting_leaves
from subtractive.numerics.leaf_message import LeafMessage
from subtractive.numerics.memory import keep_freed_memory
from subtractive.numerics.scaled import Message, Scaled, to_scaled
from subtractive.numerics.signed_log import SignedLog
from subtractive.numerics.transforms import full_precision, is_transformed
from subtractive.regions.folding import FoldedSchedule, LeafCall

# The message of some regions of an input layer: of some rows or all, in some precision or its own.
LeafSource = Callable[[LeafCall, Tensor | None, torch.dtype | None], LeafMessage]

# How many numbers the largest message of a block of rows may hold to stay in a processor's cache,
# and how many rows are worth a block.
_BLOCK, _FEWEST_ROWS = 2**17, 16


@full_precision
def evaluate(
    schedule: FoldedSchedule,
    layers: Sequence[Layer],
    source: LeafSource,
    rows: Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> Scaled:
    """The root's message, for all rows or, if it is the same for all, for one.

    By fused layers. Rows of which cancellation or underflow took digits are evaluated again: in
    double precision where that is not what the parameters have, else by the reference path.
    """
    if is_transformed():  # no step may depend on the numbers
        return to_scaled(LeafMessage(*reference(schedule, layers, source)))
    root, lost = _fused(schedule, layers, leaves_of(schedule, source, rows, dtype))
    if lost is None:
        return root
    again = lost if rows is None else rows[lost]
    if root.mantissa.dtype in (torch.float32, torch.complex64):
        exact = evaluate(schedule, layers, source, again, torch.float64)
    else:
        exact = to_scaled(LeafMessage(*reference(schedule, layers, source, again)))
    if len(lost) == root.mantissa.shape[1]:
        return exact
    if not bool(root.mantissa.isfinite().all()):  # and neither would be gradients
        is_kept = torch.ones(root.mantissa.shape[1], device=lost.device).index_fill(0, lost, 0.0)
        kept = is_kept.nonzero()[:, 0]
        others = kept if rows is None else rows[kept]
        rest, _ = _fused(schedule, layers, leaves_of(schedule, source, others, dtype))
        back = torch.cat([kept, lost]).argsort()
        mantissa = torch.cat([rest.mantissa.to(exact.mantissa.dtype), exact.mantissa], 1)
        log_scale = torch.cat([rest.log_scale, exact.log_scale], 1)
        return Scaled(mantissa[:, back], log_scale[:, back])
    mantissa = root.mantissa.to(exact.mantissa.dtype).index_copy(1, lost, exact.mantissa)
    return Scaled(mantissa, root.log_scale.index_copy(1, lost, exact.log_scale.double()))


@full_precision
def reference(
    schedule: FoldedSchedule,
    layers: Sequence[Layer],
    source: LeafSource,
    rows: Tensor | None = None,
) -> SignedLog:
    """The root's message by the reference path, from leaves in double precision."""
    leaves: list[LeafMessage | SignedLog] = [*leaves_of(schedule, source, rows, torch.float64)]
    rule = ReferencePath(schedule, layers)
    root = root_of(schedule, traverse(schedule, waiting_leaves(schedule, leaves), rule))
    assert isinstance(root, SignedLog)
    return root


@full_precision
def root_of_grams(
    schedule: FoldedSchedule,
    layers: Sequence[Layer],
    leaves: Sequence[LeafMessage],
    *,
    others: Sequence[Layer] | None = None,
    perturb: Callable[[Tensor], Tensor] | None = None,
) -> Scaled:
    """The root of grams that are the same for all rows, by the reference path where need be.

    With ``others``, the layers of a second circuit, of the cross grams of both; with ``perturb``,
    every sum is changed by it.
    """
    rule = FusedLayers(schedule, layers, others=others, perturb=perturb)
    root = root_of(schedule, traverse(schedule, rule.scale_leaves(leaves), rule))
    if rule.rows_to_repeat() is None:
        return rule.scaled(root)
    # Nothing is left of the scale: by underflow, or because two circuits are nearly orthogonal.
    waiting: Waiting[LeafMessage | SignedLog] = {**waiting_leaves(schedule, leaves)}
    path = ReferencePath(schedule, layers, others=others, perturb=perturb)
    return to_scaled(LeafMessage(*root_of(schedule, traverse(schedule, waiting, path))))


def leaves_of(
    schedule: FoldedSchedule,
    source: LeafSource,
    rows: Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> list[LeafMessage]:
    """The messages of all leaves."""
    return [source(call, rows, dtype) for call in schedule.leaves]


def _fused(
    schedule: FoldedSchedule, layers: Sequence[Layer], leaves: Sequence[LeafMessage]
) -> tuple[Scaled, Tensor | None]:
    """The root's message by fused layers, and the rows that need the reference path, if any."""
    keep_freed_memory()
    rule = FusedLayers(schedule, layers)
    waiting = rule.scale_leaves(leaves)
    mixed = _mixed_calls(schedule, leaves)
    if not mixed:
        root = root_of(schedule, traverse(schedule, waiting, rule))
        return rule.scaled(root), rule.rows_to_repeat()
    first = sorted(set(range(len(schedule.calls))).difference(mixed))
    left = traverse(schedule, waiting, rule, first)
    return _by_blocks(rule, left, mixed)


def _by_blocks(
    rule: FusedLayers, left: Waiting[Message], mixed: Sequence[int]
) -> tuple[Scaled, Tensor | None]:
    """Calls with a gram for each row, a block of rows at a time."""
    num_rows = max(message.shape[1] for message in left.values())
    step = max(_FEWEST_ROWS, _BLOCK // rule.largest_gram)
    roots, flagged = [], []
    for start in range(0, num_rows, step):
        rows = slice(start, min(start + step, num_rows))
        block = rule.for_rows(rows)
        some = {piece: _rows(message, rows) for piece, message in left.items()}
        root = root_of(rule.schedule, traverse(rule.schedule, some, block, mixed))
        roots.append(block.scaled(root))
        repeat = block.rows_to_repeat()
        if repeat is not None:
            flagged.append(repeat + start)
    mantissas, log_scales = zip(*roots, strict=True)
    whole = Scaled(torch.cat(mantissas, 1), torch.cat(log_scales, 1))
    return whole, torch.cat(flagged) if flagged else None


def _rows(message: Message, rows: slice) -> Message:
    if isinstance(message, LeafMessage):
        return message.rows(rows)
    return message if message.shape[1] == 1 else message[:, rows]


def _mixed_calls(schedule: FoldedSchedule, leaves: Sequence[LeafMessage]) -> list[int]:
    """The calls that make a gram for each row."""
    is_gram = [leaf.is_gram for leaf in leaves]
    by_row = [leaf.shape[1] > 1 for leaf in leaves]
    if not any(is_gram) or not any(by_row):
        return []
    mixed = []
    for number, call in enumerate(schedule.calls):
        is_gram.append(any(is_gram[source] for source in call.sources))
        by_row.append(any(by_row[source] for source in call.sources))
        if is_gram[-1] and by_row[-1]:
            mixed.append(number)
    return mixed
