"""Inner products ∫ c₁ c₂ of circuits on one region tree, by cross grams."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from subtractive.circuits.circuit import Circuit
from subtractive.circuits.route import Visit
from subtractive.inputs.base import EVERYWHERE
from subtractive.numerics.scaled import Scaled, Unscaled


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
    """log|∫ c₁ c₂*| and its sign (or phase), (s, t) each, for circuits of many variables."""
    root = _cross_root(first, second)
    log_abs = root.mantissa.abs().log() + root.log_scale[..., None, None]
    return log_abs[0, 0], root.mantissa.sgn()[0, 0]


def _cross_root(first: Circuit, second: Circuit) -> Scaled:
    if first.graph != second.graph:
        raise ValueError(
            "the inner product needs two circuits on the same region graph: build both from one "
            "graph object."
        )
    if first.schedule != second.schedule or any(
        one.family.fold_key != other.family.fold_key
        for one, other in zip(first.input_layers(), second.input_layers(), strict=True)
    ):
        raise ValueError(
            "the inner product needs two circuits with the same input family for each variable "
            "and the same kind of product layer."
        )

    def rule(visit: Visit, children: Sequence[Unscaled | Scaled]) -> Scaled:
        layer, other = first.layer(visit.layer), second.layer(visit.layer)
        return layer.cross(other, children, visit.folds)

    leaves = [
        one.cross_gram(other, EVERYWHERE)
        for one, other in zip(first.input_layers(), second.input_layers(), strict=True)
    ]
    return first.climb(first.straight, leaves, rule)
