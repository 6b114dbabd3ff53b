"""From a region graph and input families to the layers of a circuit (paper: Sec. 3.1)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from subtractive.circuits.layers import ElementwiseLayer, KroneckerLayer, Layer, SumLayer
from subtractive.circuits.partition_layer import PartitionLayer
from subtractive.circuits.sums import kronecker, mix
from subtractive.circuits.weights import Weights
from subtractive.inputs.base import InputFamily
from subtractive.inputs.layer import InputLayer
from subtractive.numerics.validation import whole_number
from subtractive.regions.folding import SUM_OF_PARTITIONS, FoldedSchedule
from subtractive.regions.graph import RegionGraph


class Widths(NamedTuple):
    """The number of units of input layers, sum layers and the root."""

    inputs: int
    inner: int
    outputs: int


def family_of_region(
    graph: RegionGraph, inputs: InputFamily | Sequence[InputFamily]
) -> dict[int, InputFamily]:
    """The family of each input region from one family, or one per variable."""
    if not isinstance(graph, RegionGraph):
        raise ValueError(
            f"expected a RegionGraph, got {type(graph).__name__}. Build one with "
            "random_binary_tree(d), linear_tree(d), flat(d) or RegionGraph.from_nested(...)."
        )
    check_partitions(graph)
    if isinstance(inputs, InputFamily):
        inputs = [inputs] * graph.num_variables
    if not isinstance(inputs, Sequence):
        raise ValueError(
            f"inputs needs an input family such as Gaussian(), or a list of one per variable, got "
            f"{inputs!r}."
        )
    if len(inputs) != graph.num_variables:
        raise ValueError(
            f"inputs needs one family, or one per variable: expected {graph.num_variables}, got "
            f"{len(inputs)}."
        )
    families = {}
    for region in graph.input_regions:
        scope = sorted(graph.regions[region].scope)
        family = inputs[scope[0]]
        if any(inputs[variable] != family for variable in scope):
            raise ValueError(f"the variables {scope} of one input region need the same family.")
        if not isinstance(family, InputFamily):
            raise ValueError(
                f"expected an input family such as Gaussian(), got {family!r} for variable "
                f"{scope[0]}."
            )
        family.check_scope(len(scope))
        families[region] = family
    return families


def fold_labels(graph: RegionGraph, families: Mapping[int, InputFamily]) -> dict[int, Hashable]:
    """Input regions of equal labels can share one tensor."""
    return {
        region: (family.fold_key, len(graph.regions[region].scope))
        for region, family in families.items()
    }


def build_inputs(
    graph: RegionGraph,
    schedule: FoldedSchedule,
    families: Mapping[int, InputFamily],
    widths: Widths,
    generator: torch.Generator | None,
    *,
    is_shared: bool,
) -> list[InputLayer]:
    """One input layer for each input tensor of the schedule."""
    return [
        InputLayer(
            [families[region] for region in leaf.regions],
            [sorted(graph.regions[region].scope) for region in leaf.regions],
            num_units=widths.inputs,
            generator=generator,
            is_shared=is_shared,
        )
        for leaf in schedule.leaves
    ]


def build_layers(
    schedule: FoldedSchedule,
    widths: Widths,
    product: type[Layer],
    draw: Callable[[tuple[int, int, int]], Weights],
) -> list[Layer]:
    """One product-and-sum layer for each step of the schedule."""
    layers: list[Layer] = []
    sizes = [widths.inputs] * len(schedule.leaves)
    for call in schedule.calls:
        last = call is schedule.calls[-1]
        kind = product if len(call.sources) > 1 else SumLayer
        if call.kind is SUM_OF_PARTITIONS:
            kind = PartitionLayer
        num_inputs = kind.num_inputs([sizes[source] for source in call.sources])
        sizes.append(widths.outputs if last else widths.inner)
        layers.append(kind(draw((len(call.regions), sizes[-1], num_inputs))))
    return layers


@torch.no_grad()
def check_layers(
    layers: Sequence[Layer], schedule: FoldedSchedule, input_widths: Sequence[int]
) -> list[tuple[int, int, int]]:
    """The shapes (f, o, i) of the layers' weights.

    Layers whose product is not linear in each child are refused: squaring needs that.
    """
    widths, shapes = list(input_widths), []
    for layer, call in zip(layers, schedule.calls, strict=True):
        weight = layer.weights()
        if not isinstance(layer, ElementwiseLayer | KroneckerLayer | PartitionLayer):
            _check_product(layer, weight, [widths[source] for source in call.sources])
        shapes.append((weight.shape[0], weight.shape[1], weight.shape[2]))
        widths.append(weight.shape[1])
    return shapes


def _check_product(layer: Layer, weight: Tensor, widths: Sequence[int]) -> None:
    generator = torch.Generator().manual_seed(0)
    factors = [
        torch.randn(len(weight), 3, width, generator=generator, dtype=torch.float64)
        for width in widths
    ]
    factors = [factor.to(weight) for factor in factors]
    every = slice(0, len(weight))
    product = layer.product(factors, every)
    shape = (len(weight), 3, weight.shape[2])
    if product.shape != shape:
        raise ValueError(
            f"{type(layer).__name__}.product must return {shape[2]} units (f, n, k) as num_inputs "
            f"says: expected shape {shape}, got {tuple(product.shape)}."
        )
    expected = mix(layer.expanded(weight, widths, every), kronecker(factors))
    found, size = mix(weight, product), mix(weight.abs(), product.abs()).amax()
    if not bool(((found - expected).abs() <= 1e-4 * size + 1e-30).all()):
        raise ValueError(
            f"the product of {type(layer).__name__} is not linear in each of its children, so "
            "that the square of a circuit with it is no circuit. Every term must be a product of "
            "one unit of each child."
        )


def check_widths(num_units: int, num_outputs: int, num_input_units: int | None) -> Widths:
    """The numbers of units as given by the user."""
    inner = whole_number("num_units", num_units, 1)
    outputs = whole_number("num_outputs", num_outputs, 1)
    if num_input_units is None:
        return Widths(inner, inner, outputs)
    return Widths(whole_number("num_input_units", num_input_units, 1), inner, outputs)


def as_generator(seed: int | torch.Generator | None) -> torch.Generator | None:
    """A generator from a seed; ``None`` draws from torch's global one."""
    if seed is None or isinstance(seed, torch.Generator):
        return seed
    return torch.Generator().manual_seed(whole_number("seed", seed, 0))


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
