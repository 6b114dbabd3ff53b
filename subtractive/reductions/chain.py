"""Circuits over linear trees from tables and matrices, and back (paper: App. B.4).

A chain over the variables 0..d-1 computes, from the last variable to the first::

    m_t = W_t (T_t[:, x_t] ⊙ m_{t+1}),   m_{d-1} = T_{d-1}[:, x_{d-1}],   c(x) = m_0

with a table T_t (i, v) per variable and a matrix W_t (o, i) for each but the last. With Kronecker
products instead, the tables may have fewer rows than the messages. One variable alone is
``W_0 T_0[:, x_0]``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from subtractive.circuits.building import fold_labels
from subtractive.circuits.circuit import Circuit
from subtractive.circuits.layers import HadamardLayer, KroneckerLayer, Layer
from subtractive.circuits.weights import ComplexWeights, RealWeights, Weights
from subtractive.inputs.base import InputFamily
from subtractive.inputs.layer import InputLayer
from subtractive.regions.folding import fold, upward
from subtractive.regions.graph import RegionGraph
from subtractive.regions.trees import linear_tree

# Families whose functions are linear in a table: the learned tensor, and whether as a logarithm.
TABLES = {"table": False, "coefficient": False, "logits": True, "log_coefficient": True}


class Link(NamedTuple):
    """A region of a linear tree that joins one variable, the leaf, with the rest of the chain."""

    region: int
    leaf: int
    rest: int
    leaf_first: bool


def links_of(graph: RegionGraph) -> list[Link]:
    """The joining regions of a linear tree, from the root down; none for a single region."""
    links: list[Link] = []
    region = graph.root
    while partitions := graph.regions[region].partitions:
        children = partitions[0].children
        leaves = [child for child in children if not graph.regions[child].partitions]
        if len(partitions) > 1 or len(children) != 2 or not leaves:
            raise ValueError(
                "a chain needs a linear tree, which splits off one variable at a time. Build the "
                "circuit over linear_tree(d)."
            )
        leaf_first = children[0] == leaves[0]
        rest = children[1] if leaf_first else children[0]
        links.append(Link(region, leaves[0], rest, leaf_first))
        region = rest
    return links


class Leaf(NamedTuple):
    """The functions of one region of a chain: a family and its tensors, each (i, ...)."""

    family: InputFamily
    tensors: Mapping[str, Tensor]
    size: int = 1  # the number of variables


def table_leaf(family: InputFamily, table: Tensor) -> Leaf:
    """Functions that are linear in a table (i, v)."""
    (name,) = family.start(1, 1, torch.Generator())[0]
    return Leaf(family, {name: table.log() if TABLES[name] else table})


def chain_circuit(leaves: Sequence[Leaf], layers: Sequence[Layer]) -> Circuit:
    """The circuit of a chain, in float64, from the first leaf and the root's layer on.

    Layers are one fewer than leaves but for a single one. Leaves of equal families share a
    tensor, and need equally many units.
    """
    ends = list(accumulate(leaf.size for leaf in leaves))
    scopes = [range(end - leaf.size, end) for leaf, end in zip(leaves, ends, strict=True)]
    graph = linear_tree(scopes)
    number = {r: ends.index(max(graph.regions[r].scope) + 1) for r in graph.input_regions}
    families = {region: leaves[number[region]].family for region in graph.input_regions}
    schedule = fold(upward(graph, fold_labels(graph, families)))
    inputs = [
        _input_layer([(leaves[number[r]], scopes[number[r]]) for r in regions])
        for regions in (leaf.regions for leaf in schedule.leaves)
    ]
    # The schedule goes from the last leaf to the first.
    return Circuit.from_layers(graph, schedule, inputs=inputs, layers=layers[::-1]).double()


def _input_layer(members: Sequence[tuple[Leaf, range]]) -> InputLayer:
    first = members[0][0]
    layer = InputLayer(
        [leaf.family for leaf, _ in members],
        [scope for _, scope in members],
        num_units=len(next(iter(first.tensors.values()))),
        generator=torch.Generator(),  # what it draws is replaced at once
    )
    with torch.no_grad():
        for name in first.tensors:
            stack = torch.stack([leaf.tensors[name] for leaf, _ in members])
            layer.get_tensor(name).copy_(stack)
    return layer


def table_name(layer: InputLayer) -> str:
    """The tensor of an input layer in which its functions are linear, or its logarithms."""
    for name in TABLES:
        if name in layer.names:
            return name
    raise ValueError(
        "a matrix-product state needs inputs that are tables or splines: Embedding, Categorical "
        f"or Spline, got {type(layer.family).__name__}."
    )


def table_of(circuit: Circuit, region: int) -> Tensor:
    """The functions of an input region, and of the sum over it if there is one, as (i, v)."""
    layer, place = circuit.input_of(region)
    name = table_name(layer)
    stored = layer.get_tensor(name)[place][0].detach().double()
    if name == "logits":
        stored = stored.softmax(-1)
    elif TABLES[name]:
        stored = stored.exp()
    if region not in circuit.places.sums:
        return stored
    weight = circuit.weight_of(region).detach()
    weight = weight.to(torch.promote_types(weight.dtype, torch.float64))
    return weight @ stored.to(weight.dtype)


def core_of(circuit: Circuit, link: Link, table: Tensor) -> Tensor:
    """The core (left, v, right) of a product of a table (i, v) with the rest of the chain."""
    layer, _ = circuit.sum_of(link.region)
    weight = circuit.weight_of(link.region).detach()
    weight = weight.to(torch.promote_types(weight.dtype, torch.float64))
    table = table.to(torch.promote_types(weight.dtype, table.dtype))
    weight = weight.to(table.dtype)
    if isinstance(layer, HadamardLayer):
        return weight[:, None, :] * table.mT[None]
    assert isinstance(layer, KroneckerLayer)
    width = table.shape[0]
    if link.leaf_first:
        return torch.einsum("oir,iv->ovr", weight.unflatten(1, (width, -1)), table)
    return torch.einsum("ori,iv->ovr", weight.unflatten(1, (-1, width)), table)


def signed_weights(matrix: Tensor) -> Weights:
    """Real or complex weights of one region from a matrix (o, i)."""
    return ComplexWeights(matrix[None]) if torch.is_complex(matrix) else RealWeights(matrix[None])
