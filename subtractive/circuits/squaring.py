"""Squares of circuits written out as circuits (paper: Algs. 1 and B.1, Prop. 4).

Nothing here is fast: :class:`subtractive.densities.squared.SquaredCircuit` never forms W ⊗ W. The
written-out square is for study, and for checking every fast path against the paper.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from subtractive.circuits.building import require_tree
from subtractive.circuits.circuit import Circuit
from subtractive.circuits.determinism import is_deterministic
from subtractive.circuits.layers import KroneckerLayer, Layer
from subtractive.circuits.weights import ComplexWeights, PositiveWeights, RealWeights, Weights
from subtractive.inputs.layer import InputLayer
from subtractive.inputs.products import Products


def materialise_square(circuit: Circuit) -> Circuit:
    """The circuit of Σ_s |c_s(x)|²: K² units where ``circuit`` has K, and one output.

    >>> circuit = sub.Circuit(sub.flat(2), sub.Gaussian(), num_units=3, num_outputs=2, seed=0)
    >>> x = torch.randn(5, 2)
    >>> squared = sub.materialise_square(circuit)
    >>> torch.allclose(squared(x)[:, 0], circuit(x).square().sum(1), rtol=1e-4)
    True
    """
    require_tree(circuit.graph, "a circuit that can be squared")
    widths = [layer.num_units for layer in circuit.input_layers]
    inputs = [
        _product_inputs(layer, _all_pairs(layer.num_units)) for layer in circuit.input_layers
    ]
    layers: list[Layer] = []
    for layer, call in zip(circuit.sum_layers, circuit.schedule.calls, strict=True):
        children = [widths[source] for source in call.sources]
        weight = layer.expanded(layer.weights(), children, call.folds).detach()
        outputs = weight.shape[1]
        pair = (weight[:, :, None, :, None] * weight.conj()[:, None, :, None, :]).flatten(1, 2)
        if not layer.is_elementwise:
            pair = _permute(pair, children)
        pair = pair.flatten(2)  # (f, o·p, i·j)
        if call is circuit.schedule.calls[-1]:
            pair = pair[:, :: outputs + 1].sum(1, keepdim=True)  # Σ_s c_s c_s: pairs (s, s) only
        kind = type(layer) if layer.is_elementwise else KroneckerLayer
        layers.append(kind(_like(layer.weights, pair)))
        widths.append(outputs)
    return Circuit.from_layers(circuit.graph, circuit.schedule, inputs=inputs, layers=layers)


def square_deterministic(circuit: Circuit) -> Circuit:
    """The square of a deterministic circuit: as large as the circuit, and monotonic (Prop. 4).

    >>> circuit = sub.Circuit(sub.linear_tree(2), sub.Embedding(2), num_units=1)
    >>> sub.circuits.square_deterministic(circuit).num_outputs
    1
    """
    if not is_deterministic(circuit):
        raise ValueError(
            "the circuit is not deterministic: two inputs of a sum unit are non-zero together, so "
            "that its square has cross terms. Use materialise_square(circuit)."
        )
    inputs = [
        _product_inputs(layer, tuple((i, i) for i in range(layer.num_units)))
        for layer in circuit.input_layers
    ]
    widths = [layer.num_units for layer in circuit.input_layers]
    layers: list[Layer] = []
    for layer, call in zip(circuit.sum_layers, circuit.schedule.calls, strict=True):
        weight = layer.expanded(layer.weights(), [widths[s] for s in call.sources], call.folds)
        squares = weight.detach().abs().square()
        if call is circuit.schedule.calls[-1]:
            squares = squares.sum(1, keepdim=True)
        kind = type(layer) if layer.is_elementwise else KroneckerLayer
        layers.append(kind(PositiveWeights(squares)))
        widths.append(weight.shape[1])
    return Circuit.from_layers(circuit.graph, circuit.schedule, inputs=inputs, layers=layers)


def _all_pairs(width: int) -> tuple[tuple[int, int], ...]:
    return tuple((i, j) for i in range(width) for j in range(width))


def _product_inputs(layer: InputLayer, pairs: tuple[tuple[int, int], ...]) -> InputLayer:
    squared = InputLayer(
        [Products(layer.family, pairs)] * len(layer.scopes),
        layer.scopes,
        num_units=len(pairs),
        generator=torch.Generator(),  # what it draws is replaced at once
        is_shared=layer.is_shared,
    )
    squared.to(next(iter(layer.tensors(slice(None)).values())).dtype)
    squared.load_state_dict(layer.state_dict())
    return squared


def _permute(pair: Tensor, widths: Sequence[int]) -> Tensor:
    """The paper's R: from (a b ..)(a' b' ..) to (a a')(b b') .., (f, o·p, i, j)."""
    count = len(widths)
    axes = pair.reshape(*pair.shape[:2], *widths, *widths)
    order = [2 + axis for h in range(count) for axis in (h, count + h)]
    return axes.permute(0, 1, *order).flatten(2)[:, :, None, :]


def _like(weights: Weights, value: Tensor) -> Weights:
    if isinstance(weights, PositiveWeights):
        return PositiveWeights(value)
    return ComplexWeights(value) if torch.is_complex(value) else RealWeights(value)
