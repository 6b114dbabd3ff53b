"""The reference path: every call by the paper's signed log-sum-exp (paper: App. D)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

from torch import Tensor

from subtractive.circuits.layers import Layer, weights_of_calls
from subtractive.numerics.messages import LeafMessage
from subtractive.numerics.signed_log import (
    SignedLog,
    add_signed,
    mix_signed,
    mix_signed_gram,
    multiply_signed,
    signed_log,
)
from subtractive.regions.folding import (
    CONTRACTION,
    FoldedSchedule,
    divide_leaves,
    root_of,
    traverse,
)


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
        self.weights, self.others = weights_of_calls(schedule, layers), others
        self.other_weights = [] if others is None else weights_of_calls(schedule, others)

    def __call__(self, number: int, children: Sequence[SignedLog]) -> SignedLog:
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

    def root(self, leaves: Sequence[LeafMessage]) -> SignedLog:
        """The root's message."""
        messages = divide_leaves(self.schedule, [signed_log(leaf) for leaf in leaves])
        return root_of(self.schedule, traverse(self.schedule, messages, self))
