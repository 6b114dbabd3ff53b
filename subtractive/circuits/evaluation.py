"""The evaluation of a circuit: one loop over the calls of its schedule, whatever the query.

A query differs in its leaves alone. Each call multiplies the messages of its children, sums the
products and divides the sums by the largest, whose logarithm goes into the scale of the message.
At the root one guard looks for rows that may have lost digits to underflow or cancellation; they
are evaluated again, in double precision or by the reference path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from itertools import groupby
from typing import final

import torch
from torch import Tensor

from subtractive.circuits.contraction import contract
from subtractive.circuits.layers import Layer, mix, weights_of_calls
from subtractive.circuits.low_rank import low_rank_sum, shared_factors
from subtractive.circuits.reference_path import ReferencePath
from subtractive.circuits.row_blocks import in_row_blocks, join_rows, mixed_calls, rows_except
from subtractive.circuits.underflow import SumRange, cancelled, underflowed
from subtractive.circuits.weights import moderate
from subtractive.numerics.leaf_message import LeafMessage, spread
from subtractive.numerics.scaled import Message, Scaled, to_scaled
from subtractive.numerics.signed_log import SignedLog
from subtractive.numerics.transforms import full_precision, is_transformed, keep_freed_memory
from subtractive.regions.folding import (
    CONTRACTION,
    FoldedSchedule,
    LeafCall,
    Part,
    root_of,
    split,
    traverse,
)

# The message of some regions of an input layer: of some rows or all, in some precision or its own.
LeafSource = Callable[[LeafCall, Tensor | None, torch.dtype | None], LeafMessage]


@full_precision
def evaluate(
    schedule: FoldedSchedule,
    layers: Sequence[Layer],
    source: LeafSource,
    rows: Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> Scaled:
    """The root's message, for all rows or, if it is the same for all, for one."""
    # Transformed: no step may depend on the numbers. Several readers: no common scale at the root.
    if is_transformed() or not schedule.is_tree:
        return to_scaled(LeafMessage(*reference(schedule, layers, source, rows)))
    root, lost = _forward(schedule, layers, leaves_of(schedule, source, rows, dtype))
    if lost is None:
        return root
    again = lost if rows is None else rows[lost]
    if root.mantissa.dtype in (torch.float32, torch.complex64):
        exact = evaluate(schedule, layers, source, again, torch.float64)
    else:
        exact = to_scaled(LeafMessage(*reference(schedule, layers, source, again)))
    if len(lost) == root.mantissa.shape[1]:
        return exact
    kept = rows_except(lost, root.mantissa.shape[1])
    if bool(root.mantissa.isfinite().all()):
        rest = root.rows(kept)
    else:  # numbers that are not finite would spoil the gradients of all rows
        others = kept if rows is None else rows[kept]
        rest, _ = _forward(schedule, layers, leaves_of(schedule, source, others, dtype))
    return join_rows([rest, exact], torch.cat([kept, lost]))


@full_precision
def reference(
    schedule: FoldedSchedule,
    layers: Sequence[Layer],
    source: LeafSource,
    rows: Tensor | None = None,
) -> SignedLog:
    """The root's message by the reference path, from leaves in double precision."""
    leaves = leaves_of(schedule, source, rows, torch.float64)
    return ReferencePath(schedule, layers).root(leaves)


@full_precision
def root_of_grams(
    schedule: FoldedSchedule,
    layers: Sequence[Layer],
    leaves: Sequence[LeafMessage],
    *,
    others: Sequence[Layer] | None = None,
    perturb: Callable[[Tensor], Tensor] | None = None,
) -> Scaled:
    """The root of grams that are the same for all rows, by the reference path where needed.

    With ``others``, the layers of a second circuit, the grams are cross grams of both; ``perturb``
    changes every sum.
    """
    forward = ForwardPass(schedule, layers, others=others, perturb=perturb)
    root = forward.root(forward.scale_leaves(leaves))
    if forward.rows_to_repeat() is None:
        return root
    # All digits were lost: by underflow, or because two circuits are nearly orthogonal.
    path = ReferencePath(schedule, layers, others=others, perturb=perturb)
    return to_scaled(LeafMessage(*path.root(leaves)))


def leaves_of(
    schedule: FoldedSchedule,
    source: LeafSource,
    rows: Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> list[LeafMessage]:
    """The messages of all leaves."""
    return [source(call, rows, dtype) for call in schedule.leaves]


def _forward(
    schedule: FoldedSchedule, layers: Sequence[Layer], leaves: Sequence[LeafMessage]
) -> tuple[Scaled, Tensor | None]:
    """The root's message, and the rows that must be evaluated again, if there are any."""
    keep_freed_memory()
    forward = ForwardPass(schedule, layers)
    messages = forward.scale_leaves(leaves)
    mixed = mixed_calls(schedule, leaves)
    if not mixed:
        return forward.root(messages), forward.rows_to_repeat()
    first = [number for number in range(len(schedule.calls)) if number not in mixed]
    left = traverse(schedule, messages, forward, first)

    def block(rows: slice) -> tuple[Scaled, Tensor | None]:
        part = forward.for_rows(rows)
        root = part.root({place: message.rows(rows) for place, message in left.items()}, mixed)
        return root, part.rows_to_repeat()

    num_rows = max(message.shape[1] for message in left.values())
    return in_row_blocks(block, num_rows, forward.largest_gram)


@final
class ForwardPass:
    """The rule of each call on the fused path: product, sum and rescaling.

    The ranges of all sums are collected for the guard. With ``others``, the layers of a second
    circuit, messages are cross grams of both.
    """

    def __init__(
        self,
        schedule: FoldedSchedule,
        layers: Sequence[Layer],
        *,
        others: Sequence[Layer] | None = None,
        perturb: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.schedule, self.layers, self.others = schedule, layers, others
        self.perturb = perturb
        self.weights = moderate(weights_of_calls(schedule, layers))
        if others is not None:
            self.other_weights = moderate(weights_of_calls(schedule, others))
        self.ranges: dict[int, SumRange] = {}
        self.cancelled: Tensor | None = None  # (f, n), of the roots
        self.factors: dict[int, Scaled | None] = {}  # of grams for all rows, by call

    def scale_leaves(self, leaves: Sequence[LeafMessage]) -> dict[Part, Message]:
        """The leaves in the parts in which they are read.

        Where only leaves meet, they keep their exponents, which are added before the exponential
        is taken. All others are scaled, as many parts at a time as follow each other.
        """
        among_leaves = self.schedule.among_leaves
        found: dict[Part, Message] = {}
        for tensor, leaf in enumerate(leaves):
            sizes = self.schedule.sizes[tensor]
            parts = [(tensor, part) for part in range(len(sizes))]
            runs = [list(run) for _, run in groupby(parts, among_leaves.__contains__)]
            lengths = [[sizes[part] for _, part in run] for run in runs]
            pieces = split(leaf, [sum(some) for some in lengths])
            for run, some, piece in zip(runs, lengths, pieces, strict=True):
                stays = run[0] in among_leaves and leaf.exponent is not None
                message: Message = piece if stays else to_scaled(piece)
                found.update(zip(run, split(message, some), strict=True))
        return found

    def __call__(self, number: int, children: Sequence[Message]) -> Scaled:
        call = self.schedule.calls[number]
        if call.kind is CONTRACTION:
            return self._rescaled(number, contract(children), self.largest_gram)
        layer, (weight, log_scale, largest) = self.layers[call.layer], self.weights[number]
        if not any(child.is_gram for child in children):
            product = layer.vector(children, call.folds)
            sums = product._replace(mantissa=mix(weight, product.mantissa))
            result = self._rescaled(number, sums, largest * weight.shape[2], log_scale)
            if number == len(self.schedule.calls) - 1:
                self.cancelled = cancelled(weight, product.mantissa, self.ranges[number].peak)
            return result
        widths = [child.shape[2] for child in children]
        weight = layer.expanded(weight, widths, call.folds)
        gain = largest * weight.shape[2]
        if self.others is None:
            sums = self._sum_gram(number, children, weight)
            return self._rescaled(number, sums, gain**2, 2 * log_scale)
        other, other_scale, other_largest = self.other_weights[number]
        other = self.others[call.layer].expanded(other, widths, call.folds)
        gain *= other_largest * other.shape[2]
        sums = layer.sum_gram(children, weight, other)
        return self._rescaled(number, sums, gain, log_scale + other_scale)

    def _sum_gram(self, number: int, children: Sequence[Message], weight: Tensor) -> Scaled:
        """``W P Wᴴ``, by few vectors where grams for all rows are of low rank."""
        layer = self.layers[self.schedule.calls[number].layer]
        if layer.is_elementwise and not all(child.is_gram for child in children):
            if number not in self.factors:  # the same for all blocks of rows
                self.factors[number] = shared_factors(children)
            factors = self.factors[number]
            if factors is not None:
                return low_rank_sum(weight, children, factors)
        return layer.sum_gram(children, weight)

    def _rescaled(self, number: int, sums: Scaled, gain: float, log_scale: float = 0.0) -> Scaled:
        """Divide sums by their largest, if that is due, and remember their range."""
        mantissa, total, num_errors = sums
        total = total + log_scale if log_scale else total
        peak = least = None
        if self.schedule.is_rescaled[number]:
            size = mantissa.detach()
            if sums.is_gram and self.others is None:
                # The largest entries of a positive semi-definite matrix are on its diagonal.
                size = size.diagonal(dim1=-2, dim2=-1)
                size = size.real if size.is_complex() else size
            else:
                size = size.abs().flatten(2)
            # Not torch.aminmax, which takes ten times as long.
            peak = size.amax(-1).clamp_(min=torch.finfo(size.dtype).tiny)
            least = size.amin(-1) if self.schedule.is_checked[number] else None
            mantissa = mantissa.div_(spread(peak, mantissa))
            total = total + peak.double().log()
        is_gram = sums.is_gram or self.schedule.calls[number].kind is CONTRACTION
        self.ranges[number] = SumRange(peak, least, 1 + gain, num_errors, mantissa.dtype, is_gram)
        return Scaled(mantissa if self.perturb is None else self.perturb(mantissa), total)

    def root(self, messages: Mapping[Part, Message], calls: Iterable[int] | None = None) -> Scaled:
        """The root's message."""
        root = root_of(self.schedule, traverse(self.schedule, messages, self, calls))
        assert isinstance(root, Scaled)
        return root

    @property
    def largest_gram(self) -> int:
        """How many numbers the largest gram of a row may hold."""
        return int(max(max(weight.matrix.shape[1:]) for weight in self.weights) ** 2)

    def for_rows(self, rows: slice) -> ForwardPass:
        """The same pass for some rows, after the calls that were made for all rows together."""
        block = copy(self)
        block.ranges = {number: item.rows(rows) for number, item in self.ranges.items()}
        return block

    def rows_to_repeat(self) -> Tensor | None:
        """The rows that may have lost digits, if there are any."""
        flags = underflowed(self.schedule, self.ranges)
        if self.cancelled is not None and bool(self.cancelled.any()):
            some = self.cancelled.any(0)
            flags = some if flags is None else flags | some
        return None if flags is None else flags.nonzero()[:, 0]
