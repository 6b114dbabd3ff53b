"""Circuits from libcirkit with their parameters, and for libcirkit.

Tensors alone are read. In libcirkit a sum may stand anywhere; here one follows every product, or
every input. The way between: sums in a row are multiplied, and where a sum is missing its weights
are the identity.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from subtractive.circuits.building import fold_labels
from subtractive.circuits.circuit import Circuit
from subtractive.circuits.layers import HadamardLayer, KroneckerLayer, Layer, SumLayer
from subtractive.circuits.weights import ComplexWeights, PositiveWeights, RealWeights, Weights
from subtractive.inputs.base import InputFamily
from subtractive.inputs.layer import InputLayer
from subtractive.interop.cirkit_exchange import Node, describe, read, symbolic_circuit, write
from subtractive.interop.cirkit_inputs import input_functions, input_node
from subtractive.regions.folding import FoldedSchedule, fold, upward
from subtractive.regions.graph import Region, RegionGraph

PRODUCTS: dict[str, type[Layer]] = {"hadamard": HadamardLayer, "kronecker": KroneckerLayer}


@dataclass(frozen=True)
class Part:
    """A region on its way to a circuit: a product of parts or an input, then weights (o, i)."""

    children: tuple[int, ...]
    layer: type[Layer]
    num_units: int  # before the sum
    weight: Tensor | None = None
    variable: int = -1
    family: InputFamily | None = None
    tensors: Mapping[str, Tensor] | None = None

    @property
    def num_outputs(self) -> int:
        """The number of units of the sum, or of what is not summed."""
        return self.num_units if self.weight is None else len(self.weight)

    def sum_weight(self) -> Tensor:
        """The weights, the identity where there are none."""
        return torch.eye(self.num_units) if self.weight is None else self.weight


def from_cirkit(source: Any) -> Circuit:  # noqa: ANN401 - of a library that is not imported
    """The circuit of a compiled libcirkit circuit, or of a file that one was exported to.

    Its region graph must be a tree. Weights are positive where all are, over non-negative inputs,
    as :class:`MonotonicCircuit` requires, else real or complex. The result shares no memory.

    >>> path = os.path.join(tempfile.mkdtemp(), "circuit.safetensors")
    >>> sub.interop.write_cirkit(sub.Circuit(sub.flat(3), sub.Gaussian(), num_units=2), path)
    >>> sub.from_cirkit(path).graph.to_nested()
    (0, 1, 2)
    """
    is_file = isinstance(source, str | os.PathLike)
    nodes, tensors = read(source) if is_file else describe(source)
    _check_tree(nodes)
    parts, root = _parts(nodes, tensors)
    graph, part_of = _region_graph(parts, root)
    families = {r: part.family for r, part in part_of.items() if part.family is not None}
    has_sums = any(part_of[region].weight is not None for region in families)
    summed = families.keys() if has_sums else ()
    labels = fold_labels(graph, families)
    schedule = fold(upward(graph, labels, summed=summed))
    if not _can_fold(schedule, part_of):
        apart = {region: (label, region) for region, label in labels.items()}
        schedule = fold(upward(graph, apart, summed=summed))
    weights = [torch.stack([*_same(call.regions, part_of)]) for call in schedule.calls]
    positive = all(f.is_non_negative for f in families.values()) and all(
        not w.is_complex() and bool((w >= 0).all()) for w in weights
    )
    layers = [
        (SumLayer if len(call.sources) == 1 else part_of[call.regions[0]].layer)(
            _weights(weight, is_positive=positive)
        )
        for call, weight in zip(schedule.calls, weights, strict=True)
    ]
    inputs = [_input_layer([part_of[r] for r in leaf.regions]) for leaf in schedule.leaves]
    dtype = next(iter(tensors.values())).real.dtype
    return Circuit.from_layers(graph, schedule, inputs=inputs, layers=layers).to(dtype)


def to_cirkit(circuit: Circuit) -> Any:  # noqa: ANN401
    """The symbolic circuit of libcirkit, which must be installed, with the same parameters.

    Compile it in libcirkit; there its parameters can be learned.

    >>> circuit = sub.Circuit(sub.linear_tree(4), sub.Gaussian(), num_units=3)
    >>> symbolic = sub.to_cirkit(circuit)  # doctest: +SKIP
    """
    return symbolic_circuit(*_exported(circuit))


def write_cirkit(circuit: Circuit, path: str | os.PathLike[str]) -> None:
    """Write a circuit to a file for libcirkit in another environment.

    ``cirkit_exchange.py`` reads it there: ``symbolic_circuit(*read(path))``.

    >>> circuit = sub.Circuit(sub.linear_tree(4), sub.Gaussian(), num_units=3)
    >>> sub.interop.write_cirkit(circuit, os.path.join(tempfile.mkdtemp(), "circuit.safetensors"))
    """
    nodes, tensors = _exported(circuit)
    write(nodes, tensors, path)


def _check_tree(nodes: Sequence[Node]) -> None:
    readers = Counter(number for node in nodes for number in node.get("inputs", []))
    shared = [number for number, count in readers.items() if count > 1]
    mixing = [
        n for n, node in enumerate(nodes) if node["kind"] == "sum" and len(node["inputs"]) > 1
    ]
    if shared or mixing:
        what = (
            f"node {shared[0]} ({nodes[shared[0]]['kind']}) is read by several others"
            if shared
            else f"node {mixing[0]} sums over several partitions of one region"
        )
        raise ValueError(
            f"the region graph of this libcirkit circuit is not a tree: {what}. Squaring needs a "
            "tree, such as RandomBinaryTree with one repetition, LinearTree, QuadTree or "
            "ChowLiuTree; QuadGraph and PoonDomingos are not trees."
        )


def _parts(nodes: Sequence[Node], tensors: Mapping[str, Tensor]) -> tuple[list[Part], int]:
    """The parts of all products and inputs, children first, and the number of the root."""
    parts: list[Part] = []
    at: list[int] = []  # node -> its part
    for number, node in enumerate(nodes):
        own = {
            name.partition(".")[2]: tensor
            for name, tensor in tensors.items()
            if name.startswith(f"{number}.")
        }
        below = [at[i] for i in node.get("inputs", [])]
        if node["kind"] == "sum":
            at.append(below[0])
            parts[below[0]] = _summed(parts[below[0]], own["weight"])
            continue
        at.append(len(parts))
        if node["kind"] in PRODUCTS:
            layer = PRODUCTS[node["kind"]]
            width = layer.num_inputs([parts[child].num_outputs for child in below])
            parts.append(Part(tuple(below), layer, width))
        else:
            functions = input_functions(node, own)
            part = Part(
                (),
                SumLayer,
                functions.num_units,
                variable=node["variable"],
                family=functions.family,
                tensors=functions.tensors,
            )
            parts.append(part if functions.weight is None else _summed(part, functions.weight))
    return parts, at[-1]


def _summed(part: Part, weight: Tensor) -> Part:
    """A part below one more sum."""
    if part.weight is not None:
        dtype = torch.promote_types(weight.dtype, part.weight.dtype)
        weight = weight.to(dtype) @ part.weight.to(dtype)
    return replace(part, weight=weight)


def _region_graph(parts: Sequence[Part], root: int) -> tuple[RegionGraph, dict[int, Part]]:
    """The region graph of the parts, and the part of each region."""
    assert root == len(parts) - 1
    regions: list[Region] = []
    for part in parts:
        if part.children:
            regions.append(Region.joining(part.children, regions))
        else:
            regions.append(Region([part.variable]))
    return RegionGraph(tuple(regions)), dict(enumerate(parts))


def _can_fold(schedule: FoldedSchedule, part_of: Mapping[int, Part]) -> bool:
    """Whether regions that would share a tensor have equal shapes and layers."""
    leaves = [[part_of[r] for r in leaf.regions] for leaf in schedule.leaves]
    calls = [[part_of[r] for r in call.regions] for call in schedule.calls]
    return all(len({part.num_units for part in some}) == 1 for some in leaves) and all(
        len({(part.sum_weight().shape, part.layer) for part in some}) == 1 for some in calls
    )


def _same(regions: Sequence[int], part_of: Mapping[int, Part]) -> list[Tensor]:
    """The weights of some regions in one dtype."""
    weights = [part_of[region].sum_weight().detach() for region in regions]
    dtype = weights[0].dtype
    for weight in weights:
        dtype = torch.promote_types(dtype, weight.dtype)
    return [weight.to(dtype, copy=True) for weight in weights]


def _weights(weight: Tensor, *, is_positive: bool) -> Weights:
    if weight.is_complex():
        return ComplexWeights(weight)
    return PositiveWeights(weight) if is_positive else RealWeights(weight)


def _input_layer(parts: Sequence[Part]) -> InputLayer:
    layer = InputLayer(
        [part.family for part in parts if part.family is not None],
        [[part.variable] for part in parts],
        num_units=parts[0].num_units,
        generator=torch.Generator(),  # what it draws is replaced at once
    )
    with torch.no_grad():
        for name in layer.names:
            stack = torch.stack([part.tensors[name] for part in parts if part.tensors])
            layer.get_tensor(name).copy_(stack)
    return layer


@torch.no_grad()
def _exported(circuit: Circuit) -> tuple[list[Node], dict[str, Tensor]]:
    """The nodes and tensors of a circuit, in its dtype."""
    if not isinstance(circuit, Circuit):
        raise ValueError(
            f"to_cirkit takes a Circuit, got {type(circuit).__name__}. Of a density take "
            "density.circuit."
        )
    nodes: list[Node] = []
    tensors: dict[str, Tensor] = {}
    last: dict[int, int] = {}  # region -> its last node
    kinds = {layer: kind for kind, layer in PRODUCTS.items()}
    for region, entry in enumerate(circuit.graph.regions):
        if entry.partitions:
            kind = kinds.get(type(circuit.sum_of(region)[0]))
            if kind is None:
                raise ValueError(
                    f"{type(circuit.sum_of(region)[0]).__name__} has no counterpart in libcirkit: "
                    "expected HadamardLayer or KroneckerLayer."
                )
            children = [last[child] for child in entry.partitions[0].children]
            nodes.append({"kind": kind, "inputs": children})
        else:
            layer, place = circuit.input_of(region)
            node, own = input_node(layer, place)
            tensors |= {f"{len(nodes)}.{name}": tensor for name, tensor in own.items()}
            nodes.append(node)
        if region in circuit.places.sums:
            weight = circuit.weight_of(region).clone()
            tensors[f"{len(nodes)}.weight"] = weight
            nodes.append({"kind": "sum", "inputs": [len(nodes) - 1], "num_units": len(weight)})
        last[region] = len(nodes) - 1
    return nodes, tensors
