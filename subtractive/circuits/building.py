"""From a region tree and input families to the layers of a circuit (paper: Sec. 3.1)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple

import torch

from subtractive.circuits.layers import Layer, SumLayer
from subtractive.circuits.weights import Weights
from subtractive.inputs.base import InputFamily
from subtractive.inputs.layer import InputLayer
from subtractive.numerics.validation import whole_number
from subtractive.regions.graph import RegionGraph
from subtractive.regions.schedule import Schedule


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
    if not graph.is_tree:
        raise ValueError(
            "a circuit that can be squared needs a region tree: one partition per region and no "
            "shared regions. For several trees use a Mixture of densities, one per tree."
        )
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
    schedule: Schedule,
    families: Mapping[int, InputFamily],
    widths: Widths,
    generator: torch.Generator | None,
    *,
    is_shared: bool,
) -> list[InputLayer]:
    """One input layer for each input tensor of the schedule."""
    return [
        InputLayer(
            [families[region] for region in regions],
            [sorted(graph.regions[region].scope) for region in regions],
            num_units=widths.inputs,
            generator=generator,
            is_shared=is_shared,
        )
        for regions in schedule.inputs
    ]


def build_layers(
    schedule: Schedule,
    widths: Widths,
    product: type[Layer],
    draw: Callable[[tuple[int, int, int]], Weights],
) -> list[Layer]:
    """One product-and-sum layer for each step of the schedule."""
    layers: list[Layer] = []
    sizes = [widths.inputs] * len(schedule.inputs)
    for step in schedule.steps:
        last = step is schedule.steps[-1]
        kind = product if len(step.sources) > 1 else SumLayer
        num_inputs = kind.num_inputs([sizes[source] for source in step.sources])
        sizes.append(widths.outputs if last else widths.inner)
        layers.append(kind(draw((len(step.regions), sizes[-1], num_inputs))))
    return layers


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
