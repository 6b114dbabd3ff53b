"""The one traversal of a circuit, and the rules of its messages: fused layers, reference path.

Every query is this traversal with other leaves. Fused layers multiply, sum and rescale. What
underflow may have taken is bounded once, at the root; rows where it may have taken digits are
evaluated again by the signed log-sum-exp, the reference path.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from itertools import groupby
from typing import TypeVar, final

import torch
from torch import Tensor

from subtractive.circuits.layers import Layer, mix
from subtractive.circuits.underflow import SumRange, cancelled, underflowed
from subtractive.numerics.leaf_message import LeafMessage, double, spread
from subtractive.numerics.memory import keep_freed_memory
from subtractive.numerics.scaled import Message, Product, Scaled, added, multiply, to_scaled
from subtractive.numerics.signed_log import (
    SignedLog,
    add_signed,
    mix_signed,
    mix_signed_gram,
    multiply_signed,
)
from subtractive.numerics.transforms import full_precision, is_transformed
from subtractive.regions.folding import CONTRACTION, TRANSPOSED, FoldedSchedule, LeafCall

M = TypeVar("M", LeafMessage, Message, LeafMessage | SignedLog)
Piece = tuple[int, int]  # a tensor, and the first region of a part that one call reads
Waiting = dict[Piece, M]
# The message of some regions of an input layer: of some rows or all, in some precision or its own.
LeafSource = Callable[[LeafCall, Tensor | None, torch.dtype | None], LeafMessage]

# Larger weights are divided by their largest: squared they must not leave the range of a float.
_MODERATE = {torch.float32: 1e4, torch.float64: 1e60}
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


def leaves_of(
    schedule: FoldedSchedule,
    source: LeafSource,
    rows: Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> list[LeafMessage]:
    """The messages of all leaves."""
    return [source(call, rows, dtype) for call in schedule.leaves]


def waiting_leaves(schedule: FoldedSchedule, leaves: Sequence[M]) -> Waiting[M]:
    """The leaves in the pieces in which they are read."""
    waiting: Waiting[M] = {}
    for tensor, leaf in enumerate(leaves):
        waiting.update(_pieces(schedule, tensor, leaf))
    return waiting


def traverse(
    schedule: FoldedSchedule,
    waiting: Mapping[Piece, M],
    rule: Callable[[int, Sequence[M]], M],
    calls: Iterable[int] | None = None,
) -> Waiting[M]:
    """Send messages through some calls, or through all, and return what was not read.

    ``rule(number, children)`` makes the message of a call. Whatever was read is let go.
    """
    left = dict(waiting)
    for number in range(len(schedule.calls)) if calls is None else calls:
        call = schedule.calls[number]
        children = [
            left.pop((source, places.start))
            for source, places in zip(call.sources, call.places, strict=True)
        ]
        left.update(_pieces(schedule, len(schedule.leaves) + number, rule(number, children)))
    return left


def root_of(schedule: FoldedSchedule, left: Mapping[Piece, M]) -> M:
    """The root's message."""
    return left[len(schedule.leaves) + len(schedule.calls) - 1, 0]


def _pieces(schedule: FoldedSchedule, tensor: int, message: M) -> Waiting[M]:
    """A tensor in the parts that its readers take; the root is one piece."""
    parts = schedule.parts[tensor]
    if len(parts) < 2:
        return {(tensor, 0): message}
    split = _split(message, [part.stop - part.start for part in parts])
    return {(tensor, part.start): piece for part, piece in zip(parts, split, strict=True)}


def _split(message: M, sizes: Sequence[int]) -> Sequence[M]:
    # Not sliced: in the backward pass the parts are joined, not added to zeros.
    return [message] if len(sizes) == 1 else message.split(list(sizes))


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


@final
class FusedLayers:
    """The rule of the fused path: product, sum and rescaling of each call.

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
        self.weights, self.units, self.log_unit = _moderate(schedule, layers)
        if others is not None:
            self.other_weights, self.other_units, more = _moderate(schedule, others)
            self.log_unit += more
        self.ranges: dict[int, SumRange] = {}
        self.log_scales: list[tuple[Tensor, bool]] = []  # (f, n) each, and whether of vectors
        self.cancelled: Tensor | None = None  # (1, n)

    def scale_leaves(self, leaves: Sequence[LeafMessage]) -> Waiting[Message]:
        """The leaves in the pieces in which they are read.

        Exponents stay where only leaves meet, which adds them before the exponential. All others
        are scaled, as many parts at a time as follow each other.
        """
        waiting: Waiting[Message] = {}
        for tensor, leaf in enumerate(leaves):
            parts, stays = self.schedule.parts[tensor], self.schedule.only_leaves[tensor]
            runs = [list(run) for _, run in groupby(range(len(parts)), stays.__getitem__)]
            sizes = [parts[run[-1]].stop - parts[run[0]].start for run in runs]
            for run, some in zip(runs, _split(leaf, sizes), strict=True):
                stay = stays[run[0]] and leaf.exponent is not None
                message: Message = some if stay else self._scaled_leaf(some)
                pieces = _split(message, [parts[k].stop - parts[k].start for k in run])
                waiting.update(
                    {(tensor, parts[k].start): p for k, p in zip(run, pieces, strict=True)}
                )
        return waiting

    def _scaled_leaf(self, leaf: LeafMessage) -> Tensor:
        mantissa, log_scale = to_scaled(leaf)
        self._collect(log_scale, is_vector=not leaf.is_gram)
        return mantissa

    def __call__(self, number: int, children: Sequence[Message]) -> Tensor:
        call = self.schedule.calls[number]
        if call.kind is CONTRACTION:
            return self._rescaled(number, contract(children), self.largest_gram)
        layer, weight, unit = self.layers[call.layer], self.weights[number], self.units[number]
        if all(child.dim() == 3 for child in children):
            product = layer.vector(children, call.folds)
            sums = product._replace(mantissa=mix(weight, product.mantissa))
            result = self._rescaled(number, sums, unit * weight.shape[2])
            peak = self.ranges[number].peak
            if isinstance(peak, Tensor) and number == len(self.schedule.calls) - 1:
                self.cancelled = cancelled(weight, product.mantissa, peak)
            return result
        widths = [child.shape[2] for child in children]
        weight = layer.expanded(weight, widths, call.folds)
        if self.others is None:
            sums = layer.sum_gram(children, weight)
            return self._rescaled(number, sums, (unit * weight.shape[2]) ** 2)
        other = self.others[call.layer].expanded(self.other_weights[number], widths, call.folds)
        sums = layer.sum_gram(children, weight, other)
        gain = unit * self.other_units[number] * weight.shape[2] * other.shape[2]
        return self._rescaled(number, sums, gain)

    def _rescaled(self, number: int, sums: Product, gain: float) -> Tensor:
        """Divide sums by their largest, where it is their turn, and remember their range."""
        mantissa, log_scale, num_errors = sums
        is_gram = mantissa.dim() == 4 or self.schedule.calls[number].kind is CONTRACTION
        self._collect(log_scale, is_vector=not is_gram)
        peak = least = None
        if self.schedule.is_rescaled[number]:
            with torch.no_grad():
                if mantissa.dim() == 4 and self.others is None:
                    # The largest entries of a positive semi-definite matrix are on its diagonal.
                    size = mantissa.diagonal(dim1=-2, dim2=-1)
                    size = size.real if size.is_complex() else size
                else:
                    size = mantissa.abs().flatten(2)
                # Not torch.aminmax, which takes ten times as long.
                peak = size.amax(-1).clamp_(min=torch.finfo(size.dtype).tiny)
                least = size.amin(-1) if self.schedule.is_checked[number] else None
            # In place where no custom backward function stands in the way.
            in_place = mantissa.dim() == 3 or not mantissa.requires_grad
            divide = torch.Tensor.div_ if in_place else torch.Tensor.div
            mantissa = divide(mantissa, spread(peak, mantissa))
        self.ranges[number] = SumRange(
            peak, least, 1.0 + gain, num_errors, mantissa.dtype, is_gram
        )
        return mantissa if self.perturb is None else self.perturb(mantissa)

    def _collect(self, log_scale: Tensor | None, *, is_vector: bool) -> None:
        if log_scale is not None:
            self.log_scales.append((log_scale, is_vector))

    def scaled(self, root: Message) -> Scaled:
        """The root's mantissas with their scale: all that was divided by, of all regions."""
        assert isinstance(root, Tensor)
        is_squared = root.dim() == 4 or self.schedule.calls[-1].kind is CONTRACTION
        log_scale = root.new_zeros(1, dtype=torch.float64)
        for is_vector in (True, False):
            peaks = [
                item.peak
                for item in self.ranges.values()
                if isinstance(item.peak, Tensor) and item.is_gram is not is_vector
            ]
            logs = [log for log, of_vectors in self.log_scales if of_vectors is is_vector]
            times = 2 if is_vector and is_squared else 1
            for numbers, is_log in ((peaks, False), (logs, True)):
                if numbers:
                    added = _below_each_other(numbers)
                    log_scale = log_scale + times * (added if is_log else added.log_()).sum(0)
        log_unit = self.log_unit * (2 if is_squared and self.others is None else 1)
        return Scaled(root, (log_scale + log_unit).expand(root.shape[1])[None])

    @property
    def largest_gram(self) -> int:
        """How many numbers the largest gram of a row may hold."""
        return int(max(max(weight.shape[1:]) for weight in self.weights) ** 2)

    def for_rows(self, rows: slice) -> FusedLayers:
        """The same rule for some rows, of which the first calls were made already."""
        block = copy(self)
        block.ranges = {number: item.rows(rows) for number, item in self.ranges.items()}
        block.log_scales = [
            (log if log.shape[1] == 1 else log[:, rows], is_vector)
            for log, is_vector in self.log_scales
        ]
        return block

    def rows_to_repeat(self) -> Tensor | None:
        """The rows for which the reference path must be taken, if there are any."""
        flags = underflowed(self.schedule, self.ranges)
        if self.cancelled is not None and bool(self.cancelled.any()):
            flags = self.cancelled[0] if flags is None else flags | self.cancelled[0]
        return None if flags is None else flags.nonzero()[:, 0]


def _below_each_other(numbers: Sequence[Tensor]) -> Tensor:
    """Numbers (f, n) or (f, 1) of all regions as one new tensor in float64."""
    rows = max(number.shape[1] for number in numbers)
    numbers = [n if n.shape[1] == rows else n.expand(-1, rows) for n in numbers]
    together = torch.cat(list(numbers))
    return together.double() if together.dtype != torch.float64 else together


def _weights(schedule: FoldedSchedule, layers: Sequence[Layer]) -> list[Tensor]:
    """The weights (f, o, i) of each call; nothing is summed where messages are contracted."""
    weights = []
    for call in schedule.calls:
        if call.kind is not CONTRACTION:
            weight = layers[call.layer].weight(call.folds)
            weights.append(weight.mT if call.kind is TRANSPOSED else weight)
    return weights


def _moderate(
    schedule: FoldedSchedule, layers: Sequence[Layer]
) -> tuple[list[Tensor], list[float], float]:
    """Weights whose squares stay finite, their largest, and the scale of all regions together."""
    weights = _weights(schedule, layers)
    bounds = [bound for w in weights for bound in torch.aminmax(_parts(w.detach()))]
    sizes = torch.stack(bounds).abs_().view(-1, 2).amax(1).tolist()
    log_unit = 0.0
    for number, size in enumerate(sizes):
        limit = _MODERATE[weights[number].real.dtype]
        if not (1 / limit < size < limit) and 0 < size < math.inf:
            weights[number], sizes[number] = weights[number] / size, 1.0
            log_unit += len(weights[number]) * math.log(size)
    return weights, sizes, log_unit


def _parts(weight: Tensor) -> Tensor:
    return torch.view_as_real(weight.resolve_conj()) if weight.is_complex() else weight


def contract(children: Sequence[Message]) -> Product:
    r"""The product of all messages that meet at a region, summed over its units, (1, n, 1).

    .. math:: \sum_{ij} v_i v_j^* G_{ij}

    with v the product of all vectors, and G that of all grams. Grams for all rows are multiplied
    before those of single rows.
    """
    grams = [child for child in children if child.dim() == 4]
    vectors = [child for child in children if child.dim() == 3]
    by_row = [gram for gram in grams if gram.shape[1] > 1]
    shared = [gram for gram in grams if gram.shape[1] == 1]
    products = [multiply(some) for some in (shared, by_row) if some]
    gram = products[0] if products else None
    if len(products) > 1:
        one, other = products
        gram = Product(
            one.mantissa * other.mantissa,
            added(one.log_scale, other.log_scale),
            one.num_errors + other.num_errors + 1.0,
        )
    if not vectors:
        assert gram is not None
        total = gram.mantissa.sum((2, 3))
        return gram._replace(mantissa=(total.real if total.is_complex() else total)[..., None])
    vector = multiply(vectors)
    wide = vector.mantissa.to(double(vector.mantissa.dtype))  # (1, n, i)
    log_scale = None if vector.log_scale is None else 2 * vector.log_scale
    if gram is None:
        total = wide.sum(-1).abs().square()
        return Product(total[..., None], log_scale, 2.0 * vector.num_errors + 1.0)
    if gram.mantissa.shape[1] == 1:
        total = (mix(gram.mantissa[:, 0].mT, wide) * wide.conj()).sum(-1)
    else:
        wide = wide.to(torch.promote_types(wide.dtype, gram.mantissa.dtype))
        total = ((wide[..., None, :] @ gram.mantissa.to(wide.dtype))[..., 0, :] * wide.conj()).sum(
            -1
        )
    total = total.real if total.is_complex() else total
    errors = gram.num_errors + 2.0 * vector.num_errors + 1.0
    return Product(total[..., None], added(log_scale, gram.log_scale), errors)


@final
class ReferencePath:
    """The rule of the reference path: the paper's signed log-sum-exp, in double precision."""

    def __init__(
        self,
        schedule: FoldedSchedule,
        layers: Sequence[Layer],
        *,
        others: Sequence[Layer] | None = None,
        perturb: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.schedule, self.layers, self.perturb = schedule, layers, perturb
        self.weights, self.others = _weights(schedule, layers), others
        self.other_weights = [] if others is None else _weights(schedule, others)

    def __call__(self, number: int, children: Sequence[LeafMessage | SignedLog]) -> SignedLog:
        call = self.schedule.calls[number]
        if call.kind is CONTRACTION:
            product = multiply_signed(children)
            return add_signed(product if product.is_gram else product.outer())
        layer, widths = self.layers[call.layer], [child.shape[2] for child in children]
        weight = layer.expanded(self.weights[number], widths, call.folds)
        product = layer.reference(children)
        if self.others is None:
            sign, log_abs = mix_signed(weight, product)
        else:
            other = self.other_weights[number]
            other = self.others[call.layer].expanded(other, widths, call.folds)
            sign, log_abs = mix_signed_gram(weight, product, other)
        return SignedLog(sign if self.perturb is None else self.perturb(sign), log_abs)
