"""Sums over several partitions of a region, for region graphs that are not trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn, final

import torch
from torch import Tensor

from subtractive.circuits.layers import Layer
from subtractive.numerics.messages import Index
from subtractive.numerics.signed_log import SignedLog, multiply_signed


@final
class PartitionLayer(Layer):
    """``W [a ⊙ b; c ⊙ d; ...]``: sums of the products of all partitions of a region.

    Its children are those of all partitions in their order, two of each. A sum over different
    partitions is no circuit when squared: this layer is for monotonic circuits.

    >>> circuit = sub.Circuit(sub.regions.quad_graph(2, 2), sub.Categorical(3), num_units=4,
    ...     weights=sub.positive_weights)
    >>> circuit.sum_layers[-1].weights().shape  # two partitions of four units each
    torch.Size([1, 1, 8])
    """

    @staticmethod
    def num_inputs(widths: Sequence[int]) -> int:
        return sum(widths[::2])

    def product(self, factors: Sequence[Tensor], folds: Index) -> Tensor:
        products = [a * b for a, b in zip(factors[::2], factors[1::2], strict=True)]
        rows = max(product.shape[1] for product in products)
        return torch.cat([product.expand(-1, rows, -1) for product in products], -1)

    def reference(self, children: Sequence[SignedLog]) -> SignedLog:
        pairs = [multiply_signed(pair) for pair in zip(children[::2], children[1::2], strict=True)]
        rows = max(pair.shape[1] for pair in pairs)
        full = [pair.map(lambda t: t.expand(-1, rows, -1)) for pair in pairs]
        return SignedLog(
            torch.cat([pair.sign for pair in full], -1),
            torch.cat([pair.log_abs for pair in full], -1),
        )

    @property
    def is_non_negative(self) -> bool:
        return self.weights.is_non_negative

    def expanded(self, weight: Tensor, widths: Sequence[int], folds: Index) -> Tensor:
        return weight

    def units_of_children(self, units: Tensor, widths: Sequence[int]) -> list[Tensor]:
        """The unit of each child, -1 where another partition was chosen."""
        found, first = [], 0
        for slot, width in enumerate(widths):
            if slot % 2 == 0:
                is_here = (units >= first) & (units < first + width)
                found += [torch.where(is_here, units - first, -1)] * 2
                first += width
        return found

    def __init_subclass__(cls) -> NoReturn:
        raise TypeError("PartitionLayer cannot be subclassed. Subclass Layer.")
