"""What shallow squared circuits are made of: one product, one sum (paper: Sec. 2)."""

from __future__ import annotations

import torch
from torch import Tensor

from subtractive.circuits.layers import KroneckerLayer
from subtractive.densities.squared import SquaredCircuit


def shallow_weight(density: SquaredCircuit) -> Tensor:
    """The weights (s, i) of the only sum of a shallow circuit, in double precision."""
    if not isinstance(density, SquaredCircuit):
        raise ValueError(
            f"expected a SquaredCircuit, got {type(density).__name__}. Other densities are not "
            "quadratic forms of their inputs."
        )
    circuit = density.circuit
    if len(circuit.layers) > 1 or isinstance(circuit.sum_layers[-1], KroneckerLayer):
        raise ValueError(
            f"the circuit is deep: {len(circuit.layers)} layers of sums over a tree of depth "
            f"{circuit.graph.depth}, so that writing it out takes exponentially many components. "
            "Only a circuit over flat(d), with one sum over Hadamard products, is a shallow one."
        )
    weight = circuit.weight_of(circuit.graph.root).detach()
    return weight.to(torch.promote_types(weight.dtype, torch.float64))


def quadratic_form(weight: Tensor) -> Tensor:
    """The matrix A (i, i) of ``Σ_s |Σ_i w_si f_i|² = fᵀ A f`` for weights (s, i)."""
    form: Tensor = (weight.mT @ weight.conj()).real
    return form
