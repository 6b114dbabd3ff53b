"""The fused path: product, sum and rescaling of each call as plain matrix products.

Messages are mantissas. What they were divided by, and the range of their sums, is collected
beside them, and looked at once, at the root.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import copy
from itertools import groupby
from typing import final

import torch
from torch import Tensor

from subtractive.circuits.layers import Layer, mix, weights_of_calls
from subtractive.circuits.traversal import Waiting, split
from subtractive.circuits.underflow import SumRange, cancelled, underflowed
from subtractive.numerics.leaf_message import LeafMessage, double, spread
from subtractive.numerics.scaled import Message, Product, Scaled, added, multiply, to_scaled
from subtractive.regions.folding import CONTRACTION, FoldedSchedule

# Larger weights are divided by their largest: squared they must not leave the range of a float.
_MODERATE = {torch.float32: 1e4, torch.float64: 1e60}


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
            for run, some in zip(runs, split(leaf, sizes), strict=True):
                stay = stays[run[0]] and leaf.exponent is not None
                message: Message = some if stay else self._scaled_leaf(some)
                pieces = split(message, [parts[k].stop - parts[k].start for k in run])
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


def _moderate(
    schedule: FoldedSchedule, layers: Sequence[Layer]
) -> tuple[list[Tensor], list[float], float]:
    """Weights whose squares stay finite, their largest, and the scale of all regions together."""
    weights = weights_of_calls(schedule, layers)
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
