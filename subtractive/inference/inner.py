"""Inner products ∫ c₁ c₂ of circuits on one region tree, by cross grams."""

from __future__ import annotations

from collections.abc import Hashable

from torch import Tensor

from subtractive.circuits.building import require_tree
from subtractive.circuits.circuit import Circuit
from subtractive.circuits.evaluation import root_of_grams
from subtractive.inputs.base import EVERYWHERE
from subtractive.numerics.messages import Scaled, safe_log


def inner(first: Circuit, second: Circuit) -> Tensor:
    """∫ c₁(x) c₂(x)* dx for all pairs of outputs, (s, t), as plain numbers.

    >>> circuit = sub.Circuit(sub.flat(2), sub.Gaussian(), num_units=3, seed=0)
    >>> z = sub.SquaredCircuit(circuit).log_partition().exp()
    >>> torch.allclose(sub.inner(circuit, circuit)[0, 0], z)
    True
    """
    root = _cross_root(first, second)
    return (root.mantissa * root.log_scale.exp()[..., None, None])[0, 0]


def log_inner(first: Circuit, second: Circuit) -> tuple[Tensor, Tensor]:
    """log|∫ c₁ c₂*| and its sign (or phase), (s, t) each, for circuits of many variables.

    >>> circuit = sub.Circuit(sub.flat(2), sub.Gaussian(), num_units=3, seed=0)
    >>> log_abs, sign = sub.inference.log_inner(circuit, circuit)
    >>> bool(torch.isclose(log_abs[0, 0], sub.SquaredCircuit(circuit).log_partition()))
    True
    """
    root = _cross_root(first, second)
    log_abs = safe_log(root.mantissa) + root.log_scale[..., None, None]
    return log_abs[0, 0], root.mantissa.sgn()[0, 0]


def _cross_root(first: Circuit, second: Circuit) -> Scaled:
    _check_comparable(first, second)
    leaves = [
        one.cross_gram(other, EVERYWHERE)
        for one, other in zip(first.input_layers, second.input_layers, strict=True)
    ]
    return root_of_grams(first.schedule, first.sum_layers, leaves, others=second.sum_layers)


def _check_comparable(first: Circuit, second: Circuit) -> None:
    for circuit in (first, second):
        if not isinstance(circuit, Circuit):
            raise ValueError(
                f"the inner product takes two circuits, got {type(circuit).__name__}. Of a "
                "density take density.circuit."
            )
    if first.graph != second.graph:
        raise ValueError(
            "the inner product needs two circuits on the same region graph: build both from one "
            "graph object."
        )
    require_tree(first.graph, "the inner product")
    if first.schedule != second.schedule or _kinds(first) != _kinds(second):
        raise ValueError(
            "the inner product needs two circuits with the same input family for each variable "
            "and the same kind of product layer; both or neither with as many input units as "
            "units."
        )


def _kinds(circuit: Circuit) -> list[Hashable]:
    inputs = [layer.family.fold_key for layer in circuit.input_layers]
    return [*inputs, *map(type, circuit.layers)]
