"""The evaluation of a circuit: one loop over the calls of its schedule, whatever the query.

A query differs in its leaves alone. Each call multiplies the messages of its children, sums the
products and divides the sums by the largest. What was divided by is collected beside the messages.
At the root one guard looks for rows that may have lost digits to underflow or cancellation; they
are evaluated again, in double precision or by the reference path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from itertools import groupby
from typing import final

import torch
from torch import Tensor

from subtractive.circuits.contraction import contract
from subtractive.circuits.layers import Layer, mix, weights_of_calls
from subtractive.circuits.low_rank import Factors, low_rank_sum, shared_factors
from subtractive.circuits.reference_path import ReferencePath
from subtractive.circuits.row_blocks import (
    in_row_blocks,
    join_rows,
    mixed_calls,
    rows_except,
    rows_of,
)
from subtractive.circuits.underflow import SumRange, cancelled, underflowed
from subtractive.circuits.weights import moderate
from subtractive.numerics.leaf_message import LeafMessage, spread
from subtractive.numerics.scaled import Message, Product, Scaled, to_scaled
from subtractive.numerics.signed_log import SignedLog, signed_log
from subtractive.numerics.transforms import full_precision, is_transformed, keep_freed_memory
from subtractive.regions.folding import (
    CONTRACTION,
    FoldedSchedule,
    LeafCall,
    Waiting,
    root_of,
    split,
    traverse,
    waiting_leaves,
)
from subtractive.regions.graph_traversal import traverse_graph

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
        rest = Scaled(root.mantissa[:, kept], root.log_scale[:, kept])
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
    leaves: list[LeafMessage | SignedLog] = [*leaves_of(schedule, source, rows, torch.float64)]
    rule = ReferencePath(schedule, layers)
    if not schedule.is_tree:
        return signed_log(traverse_graph(schedule, leaves, rule)[-1])
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
    """The root of grams that are the same for all rows, by the reference path where needed.

    With ``others``, the layers of a second circuit, the grams are cross grams of both; ``perturb``
    changes every sum.
    """
    forward = ForwardPass(schedule, layers, others=others, perturb=perturb)
    root = forward.root(forward.scale_leaves(leaves))
    if forward.rows_to_repeat() is None:
        return root
    # All digits were lost: by underflow, or because two circuits are nearly orthogonal.
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


def _forward(
    schedule: FoldedSchedule, layers: Sequence[Layer], leaves: Sequence[LeafMessage]
) -> tuple[Scaled, Tensor | None]:
    """The root's message, and the rows that must be evaluated again, if there are any."""
    keep_freed_memory()
    forward = ForwardPass(schedule, layers)
    waiting = forward.scale_leaves(leaves)
    if not any(leaf.is_gram and leaf.shape[1] > 1 for leaf in leaves) and (
        len({leaf.is_gram for leaf in leaves}) == 1
    ):
        return forward.root(waiting), forward.rows_to_repeat()
    mixed = mixed_calls(schedule, leaves)
    first = [number for number in range(len(schedule.calls)) if number not in mixed]
    left = traverse(schedule, waiting, forward, first)

    def block(rows: slice) -> tuple[Scaled, Tensor | None]:
        part = forward.for_rows(rows)
        root = part.root({piece: rows_of(some, rows) for piece, some in left.items()}, mixed)
        return root, part.rows_to_repeat()

    num_rows = max(message.shape[1] for message in left.values())
    return in_row_blocks(block, num_rows, forward.largest_gram)


@final
class ForwardPass:
    """The rule of each call on the fused path: product, sum and rescaling.

    Messages are mantissas; their scales and the ranges of their sums are collected here. With
    ``others``, the layers of a second circuit, messages are cross grams of both.
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
        self.weights, self.largest, self.log_unit = moderate(weights_of_calls(schedule, layers))
        if others is not None:
            theirs = moderate(weights_of_calls(schedule, others))
            self.other_weights, self.others_largest, log_unit = theirs
            self.log_unit += log_unit
        self.ranges: dict[int, SumRange] = {}
        self.log_scales: list[tuple[Tensor, bool]] = []  # (f, n) each, and whether of grams
        self.cancelled: Tensor | None = None  # (1, n)
        self.factors: dict[int, Factors | None] = {}  # of grams for all rows, by call

    def scale_leaves(self, leaves: Sequence[LeafMessage]) -> Waiting[Message]:
        """The leaves in the pieces in which they are read.

        Where only leaves meet, they keep their exponents, which are added before the exponential
        is taken. All others are scaled, as many parts at a time as follow each other.
        """
        waiting: Waiting[Message] = {}
        for tensor, leaf in enumerate(leaves):
            parts, stays = self.schedule.parts[tensor], self.schedule.only_leaves[tensor]
            runs = [list(run) for _, run in groupby(range(len(parts)), stays.__getitem__)]
            sizes = [parts[run[-1]].stop - parts[run[0]].start for run in runs]
            for run, some in zip(runs, split(leaf, sizes), strict=True):
                message: Message = some
                if not stays[run[0]] or leaf.exponent is None:
                    message, log_scale = to_scaled(some)
                    self.log_scales.append((log_scale, leaf.is_gram))
                pieces = split(message, [parts[k].stop - parts[k].start for k in run])
                waiting.update(
                    {(tensor, parts[k].start): p for k, p in zip(run, pieces, strict=True)}
                )
        return waiting

    def __call__(self, number: int, children: Sequence[Message]) -> Tensor:
        call = self.schedule.calls[number]
        if call.kind is CONTRACTION:
            return self._rescaled(number, contract(children), self.largest_gram)
        layer, weight, largest = (
            self.layers[call.layer],
            self.weights[number],
            self.largest[number],
        )
        if all(child.dim() == 3 for child in children):
            product, log_scale, num_errors = layer.vector(children, call.folds)
            sums = Product(mix(weight, product), log_scale, num_errors)
            result = self._rescaled(number, sums, largest * weight.shape[2])
            if number == len(self.schedule.calls) - 1:
                self.cancelled = cancelled(weight, product, self.ranges[number].peak)
            return result
        widths = [child.shape[2] for child in children]
        weight = layer.expanded(weight, widths, call.folds)
        gain = largest * weight.shape[2]
        if self.others is None:
            if layer.is_elementwise and any(child.dim() == 3 for child in children):
                sums = self._mixed_sum(number, children)
            else:
                sums = layer.sum_gram(children, weight)
            return self._rescaled(number, sums, gain**2)
        other = self.others[call.layer].expanded(self.other_weights[number], widths, call.folds)
        gain *= self.others_largest[number] * other.shape[2]
        return self._rescaled(number, layer.sum_gram(children, weight, other), gain)

    def _mixed_sum(self, number: int, children: Sequence[Message]) -> Product:
        """The sum of vectors and grams, by few vectors where the grams are of low rank."""
        if number not in self.factors:  # the same for all blocks of rows
            self.factors[number] = shared_factors(children)
        factors, weight = self.factors[number], self.weights[number]
        if factors is not None:
            return low_rank_sum(weight, children, factors)
        return self.layers[self.schedule.calls[number].layer].sum_gram(children, weight)

    def _rescaled(self, number: int, sums: Product, gain: float) -> Tensor:
        """Divide sums by their largest, if that is due, and remember their range."""
        mantissa, log_scale, num_errors = sums
        is_gram = mantissa.dim() == 4 or self.schedule.calls[number].kind is CONTRACTION
        if log_scale is not None:
            self.log_scales.append((log_scale, is_gram))
        peak = least = None
        if self.schedule.is_rescaled[number]:
            size = mantissa.detach()
            if size.dim() == 4 and self.others is None:
                # The largest entries of a positive semi-definite matrix are on its diagonal.
                size = size.diagonal(dim1=-2, dim2=-1)
                size = size.real if size.is_complex() else size
            else:
                size = size.abs().flatten(2)
            # Not torch.aminmax, which takes ten times as long.
            peak = size.amax(-1).clamp_(min=torch.finfo(size.dtype).tiny)
            least = size.amin(-1) if self.schedule.is_checked[number] else None
            # In place where no backward function of our own needs the sums.
            in_place = mantissa.dim() == 3 or not mantissa.requires_grad
            divide = torch.Tensor.div_ if in_place else torch.Tensor.div
            mantissa = divide(mantissa, spread(peak, mantissa))
        self.ranges[number] = SumRange(peak, least, 1 + gain, num_errors, mantissa.dtype, is_gram)
        return mantissa if self.perturb is None else self.perturb(mantissa)

    def root(self, waiting: Waiting[Message], calls: Iterable[int] | None = None) -> Scaled:
        """The root's mantissas with their scale: all that was divided by, of all regions."""
        root = root_of(self.schedule, traverse(self.schedule, waiting, self, calls))
        assert isinstance(root, Tensor)
        is_squared = root.dim() == 4 or self.schedule.calls[-1].kind is CONTRACTION
        total = root.new_full((1,), self.log_unit, dtype=torch.float64)
        total = total * (2 if is_squared and self.others is None else 1)
        peaks = [
            (item.peak, item.is_gram) for item in self.ranges.values() if item.peak is not None
        ]
        for is_gram in (False, True):
            times = 2 if is_squared and not is_gram else 1
            numbers = [peak for peak, of_grams in peaks if of_grams is is_gram]
            if numbers:
                total = total + times * _stacked(numbers).log_().sum(0)
            logs = [log for log, of_grams in self.log_scales if of_grams is is_gram]
            if logs:
                total = total + times * _stacked(logs).sum(0)
        return Scaled(root, total.expand(root.shape[1])[None])

    @property
    def largest_gram(self) -> int:
        """How many numbers the largest gram of a row may hold."""
        return int(max(max(weight.shape[1:]) for weight in self.weights) ** 2)

    def for_rows(self, rows: slice) -> ForwardPass:
        """The same pass for some rows, after the calls that were made for all rows together."""
        block = copy(self)
        block.ranges = {number: item.rows(rows) for number, item in self.ranges.items()}
        block.log_scales = [
            (log if log.shape[1] == 1 else log[:, rows], is_gram)
            for log, is_gram in self.log_scales
        ]
        return block

    def rows_to_repeat(self) -> Tensor | None:
        """The rows that may have lost digits, if there are any."""
        flags = underflowed(self.schedule, self.ranges)
        if self.cancelled is not None and bool(self.cancelled.any()):
            flags = self.cancelled[0] if flags is None else flags | self.cancelled[0]
        return None if flags is None else flags.nonzero()[:, 0]


def _stacked(numbers: Sequence[Tensor]) -> Tensor:
    """Numbers (f, n) or (f, 1) of all regions as one new tensor in float64."""
    rows = max(number.shape[1] for number in numbers)
    together = torch.cat([n if n.shape[1] == rows else n.expand(-1, rows) for n in numbers])
    return together.double() if together.dtype != torch.float64 else together
