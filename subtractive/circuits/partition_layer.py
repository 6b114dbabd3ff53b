"""Sums over several partitions of a region, for region graphs that are not trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn, final

import torch
from torch import Tensor

from subtractive.circuits.layers import Layer
from subtractive.numerics.leaf_message import Index
from subtractive.numerics.signed_log import SignedLog, multiply_signed
from subtractive.regions.graph import RegionGraph


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


def check_partitions(graph: RegionGraph) -> None:
    """Refuse graphs that are no trees and that no circuit can be built on."""
    if graph.is_tree:
        return
    seen: set[int] = set()
    for number, region in enumerate(graph.regions):
        sizes = {len(partition.children) for partition in region.partitions}
        if len(region.partitions) > 1 and sizes != {2}:
            raise ValueError(
                "a region with several partitions needs two children in each of them: region "
                f"{number} has partitions into {sorted(sizes)} children. Split them further."
            )
        if not region.partitions:
            if seen & region.scope:
                raise ValueError(
                    f"variable {min(seen & region.scope)} has several input regions. Let all "
                    "partitions share one."
                )
            seen |= region.scope


def require_tree(graph: RegionGraph, what: str) -> None:
    """Refuse a graph with several partitions of a region where products of circuits are asked."""
    if not graph.is_tree:
        raise ValueError(
            f"{what} needs a region tree: one partition per region. Where partitions differ, the "
            "product of two circuits is none. Use a MonotonicCircuit, or for several trees a "
            "Mixture of densities, one per tree."
        )
