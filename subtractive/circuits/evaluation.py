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

from subtractive.circuits.layers import (
    ElementwiseLayer,
    KroneckerLayer,
    Layer,
    weights_of_calls,
)
from subtractive.circuits.reference_path import ReferencePath
from subtractive.circuits.row_blocks import in_row_blocks, join_rows, mixed_calls, rows_except
from subtractive.circuits.sums import contract, low_rank_sum, mix, shared_factors
from subtractive.circuits.underflow import (
    FEWEST_DIGITS,
    LIMITS,
    Extremes,
    SumRange,
    cancelled,
    extremes,
    underflowed,
)
from subtractive.circuits.weights import moderate
from subtractive.numerics.messages import UNSCALED, LeafMessage, Message, Scaled, spread, to_scaled
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

_SINGLE = (torch.float32, torch.complex64)


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
    if root.dtype in _SINGLE:
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
    root, lost = forward.root(forward.scale_leaves(leaves))
    if lost is None:
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
    if not (any(leaf.is_gram for leaf in leaves) and any(leaf.shape[1] > 1 for leaf in leaves)):
        return forward.root(messages)
    mixed = mixed_calls(schedule, leaves)
    first = [number for number in range(len(schedule.calls)) if number not in mixed]
    left = traverse(schedule, messages, forward, first)

    def block(rows: slice) -> tuple[Scaled, Tensor | None]:
        some = {place: message.rows(rows) for place, message in left.items()}
        return forward.for_rows(rows).root(some, mixed)

    num_rows = max(message.shape[1] for message in left.values())
    return in_row_blocks(block, num_rows, forward.largest_gram)


@final
class ForwardPass:
    """The rule of each call on the fused path: product, sum and rescaling.

    What messages are divided by is collected for the root's scale, and the ranges of all sums for
    the guard; the messages themselves are unscaled. With ``others``, the layers of a second
    circuit, they are cross grams of both.
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
        self.log_scales: list[tuple[Tensor, bool]] = []  # (f, n), and whether of grams
        self.factors: dict[int, Scaled | None] = {}  # of grams for all rows, by call
        self.last_terms: tuple[Tensor, Tensor] | None = None  # weight and product of the root

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
                message: Message = piece
                if run[0] not in among_leaves or leaf.exponent is None:
                    mantissa, log_scale, _ = to_scaled(piece)
                    self.log_scales.append((log_scale, mantissa.dim() == 4))
                    message = Scaled(mantissa, UNSCALED)
                found.update(zip(run, split(message, some), strict=True))
        return found

    def __call__(self, number: int, children: Sequence[Message]) -> Scaled:
        call = self.schedule.calls[number]
        if call.kind is CONTRACTION:
            return self._rescaled(number, contract(children), self.largest_gram, is_gram=True)
        layer, (weight, log_scale, largest) = self.layers[call.layer], self.weights[number]
        if not any(child.is_gram for child in children):
            product = layer.vector(children, call.folds)
            if number == len(self.schedule.calls) - 1:
                self.last_terms = weight, product.mantissa
            sums = product._replace(mantissa=mix(weight, product.mantissa))
            gain = largest * weight.shape[2]
            return self._rescaled(number, sums, gain, log_scale, is_gram=False)
        widths = [child.shape[2] for child in children]
        weight = layer.expanded(weight, widths, call.folds)
        gain = largest * weight.shape[2]
        if self.others is None:
            sums = self._sum_gram(number, children, weight)
            return self._rescaled(number, sums, gain**2, 2 * log_scale, is_gram=True)
        other, other_scale, other_largest = self.other_weights[number]
        other = self.others[call.layer].expanded(other, widths, call.folds)
        gain *= other_largest * other.shape[2]
        sums = layer.sum_gram(children, weight, other)
        return self._rescaled(number, sums, gain, log_scale + other_scale, is_gram=True)

    def _sum_gram(self, number: int, children: Sequence[Message], weight: Tensor) -> Scaled:
        """``W P Wᴴ``, by few vectors where grams for all rows are of low rank."""
        layer = self.layers[self.schedule.calls[number].layer]
        if not torch.is_grad_enabled() and layer.is_elementwise:
            if number not in self.factors:  # the same for all blocks of rows
                self.factors[number] = shared_factors(children)
            factors = self.factors[number]
            if factors is not None:
                return low_rank_sum(weight, children, factors)
        return layer.sum_gram(children, weight)

    def _rescaled(
        self, number: int, sums: Scaled, gain: float, log_scale: float = 0.0, *, is_gram: bool
    ) -> Scaled:
        """Divide sums by their largest, if that is due, and remember their range."""
        mantissa, scale, num_errors = sums
        if scale is not UNSCALED or log_scale != 0:
            scale = (scale + log_scale).to(mantissa.device).reshape(scale.shape or (1, 1))
            self.log_scales.append((scale.expand(len(mantissa), -1), is_gram))
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
            peak = size.amax(-1).clamp_(min=LIMITS[size.dtype][0])
            least = size.amin(-1) if self.schedule.is_checked[number] else None
            # Not in place where autograd would have to copy: what is one for all rows is a view.
            is_view = is_gram and mantissa.shape[1] == 1
            mantissa = (torch.div if is_view else Tensor.div_)(mantissa, spread(peak, mantissa))
        self.ranges[number] = SumRange(peak, least, 1 + gain, num_errors, mantissa.dtype, is_gram)
        return Scaled(mantissa if self.perturb is None else self.perturb(mantissa), UNSCALED)

    def root(
        self, messages: Mapping[Part, Message], calls: Iterable[int] | None = None
    ) -> tuple[Scaled, Tensor | None]:
        """The root's message, and the rows that may have lost digits, if there are any."""
        root = root_of(self.schedule, traverse(self.schedule, messages, self, calls))
        assert isinstance(root, Scaled)
        ranges = [self.ranges[number] for number in range(len(self.schedule.calls))]
        found = extremes(ranges)
        if found is None:  # there are no rows
            return Scaled(root.mantissa, root.mantissa.new_zeros(root.shape[:2]).double()), None
        squares, roots = ranges[-1].is_gram, root.shape[0]
        log_scale = UNSCALED
        for scales, is_gram in found.log_peaks + self.log_scales:
            # Each row on its own: its last digit must not depend on its place in the batch.
            by_row = scales.reshape(-1, roots, scales.shape[1]).permute(1, 2, 0)
            total = by_row.contiguous().sum(-1)
            # Every vector below a gram is squared once on the way to the root.
            log_scale = log_scale + (2 * total if squares and not is_gram else total)
        flags = underflowed(self.schedule, ranges, found)
        if self._may_cancel(found):
            assert self.last_terms is not None
            assert ranges[-1].peak is not None
            some = cancelled(*self.last_terms, ranges[-1].peak).any(0)
            flags = some if flags is None else flags | some
        lost = None if flags is None or not bool(flags.any()) else flags.nonzero()[:, 0]
        return Scaled(root.mantissa, log_scale.expand(roots, root.shape[1])), lost

    def _may_cancel(self, found: Extremes) -> bool:
        """Whether vectors in single precision at the root may have cancelled."""
        if self.last_terms is None or self.last_terms[1].dtype not in _SINGLE:
            return False
        item, (peak, _) = self.ranges[len(self.schedule.calls) - 1], found.smallest[-1]
        # Units of products are at most one, but perhaps in layers of a third party.
        is_plain = isinstance(self.layers[-1], ElementwiseLayer | KroneckerLayer)
        return not is_plain or peak is None or peak < FEWEST_DIGITS * item.gain

    @property
    def largest_gram(self) -> int:
        """How many numbers the largest gram of a row may hold."""
        return int(max(max(weight.matrix.shape[1:]) for weight in self.weights) ** 2)

    def for_rows(self, rows: slice) -> ForwardPass:
        """The same pass for some rows, after the calls that were made for all rows together."""
        block = copy(self)
        block.ranges = {number: item.rows(rows) for number, item in self.ranges.items()}
        block.log_scales = [
            (scale if scale.shape[1] == 1 else scale[:, rows], is_gram)
            for scale, is_gram in self.log_scales
        ]
        return block
