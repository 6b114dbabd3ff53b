"""Circuits of equal structure, evaluated side by side as one circuit with several roots.

Every region of a stack is there once for each circuit. A mixture of eight trees then takes as many
calls as one tree does, each with eight times as many regions.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import torch

from subtractive.circuits.circuit import Circuit
from subtractive.circuits.layers import ElementwiseLayer, KroneckerLayer, Layer
from subtractive.circuits.weights import GivenWeights
from subtractive.inputs.layer import InputLayer


class Stack(NamedTuple):
    """The layers of several circuits: region ``f`` of circuit ``m`` is at ``f * size + m``.

    They are computed from the parameters of the circuits, with their gradients.
    """

    circuit: Circuit  # the first one, which has the structure of all
    size: int
    input_layers: Sequence[InputLayer]
    sum_layers: Sequence[Layer]

    @classmethod
    def of(cls, circuits: Sequence[Circuit]) -> Stack:
        """The stack of circuits with the same :func:`structure`."""
        first = circuits[0]
        if len(circuits) == 1:
            return cls(first, 1, first.input_layers, first.sum_layers)
        inputs = zip(*(circuit.input_layers for circuit in circuits), strict=True)
        sums = zip(*(circuit.sum_layers for circuit in circuits), strict=True)
        return cls(
            first,
            len(circuits),
            [InputLayer.side_by_side(layers) for layers in inputs],
            [_side_by_side(layers) for layers in sums],
        )


def structure(circuit: Circuit) -> Hashable:
    """Circuits for which this is equal can be stacked; ``None`` if there is no stacking."""
    layers = circuit.sum_layers
    if not all(isinstance(layer, ElementwiseLayer | KroneckerLayer) for layer in layers):
        return None  # a product of a third party may have parameters of its own
    # Shapes of parameters: the weights themselves would have to be computed.
    shapes = [next(layer.weights.parameters()).shape for layer in layers]
    sums = [
        (type(one), type(one.weights), shape) for one, shape in zip(layers, shapes, strict=True)
    ]
    inputs = [(layer.families, layer.scopes, layer.num_units) for layer in circuit.input_layers]
    return circuit.graph, tuple(sums), tuple(inputs), circuit.dtype


def _side_by_side(layers: Sequence[Layer]) -> Layer:
    weights = torch.stack([layer.weights() for layer in layers], 1).flatten(0, 1)
    return type(layers[0])(GivenWeights(weights))
