"""Determinism: the inputs of every sum unit have disjoint supports (paper: Def. A.5)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from subtractive.circuits.circuit import Circuit
from subtractive.circuits.layers import Layer
from subtractive.circuits.route import Visit
from subtractive.circuits.weights import RealWeights
from subtractive.numerics.leaf_message import LeafMessage
from subtractive.numerics.scaled import Scaled


@torch.no_grad()
def is_deterministic(circuit: Circuit) -> bool:
    """Whether no two inputs of a sum unit can be non-zero together.

    A climb with the grams replaced by "may be non-zero together". For discrete inputs the answer
    is exact; families with overlapping supports, such as Gaussians, are never deterministic
    unless each sum unit has a single input.
    """
    disjoint = True

    def rule(visit: Visit, children: Sequence[LeafMessage | Scaled]) -> LeafMessage:
        nonlocal disjoint
        layer = circuit.layer(visit.layer)
        uses = type(layer)(RealWeights((layer.weights() != 0).double()))
        together = _numbers(uses, children, visit)  # (f, o, p): pairs of inputs that may meet
        alone = _numbers(uses, [_diagonal(child) for child in children], visit)
        paired = together.diagonal(dim1=-2, dim2=-1)
        disjoint = disjoint and bool((paired < alone + 0.5).all())
        return LeafMessage((together > 0).double()[:, None], None)

    leaves = []
    for layer in circuit.input_layers():
        overlap = layer.family.overlap(layer.tensors(slice(None)))
        leaves.append(LeafMessage(overlap.double()[:, None], None))
    circuit.climb(circuit.straight, leaves, rule)
    return disjoint


def _numbers(layer: Layer, children: Sequence[LeafMessage | Scaled], visit: Visit) -> Tensor:
    message = layer.scaled(children, visit.folds)
    # Counts do not underflow: a scale of NaN says that there is nothing to count.
    scale = message.log_scale.exp().nan_to_num(0.0)
    return (message.mantissa * scale.reshape(scale.shape + (1,) * (message.mantissa.dim() - 2)))[
        :, 0
    ]


def _diagonal(child: LeafMessage | Scaled) -> LeafMessage:
    assert isinstance(child, LeafMessage)
    return LeafMessage(child.some.diagonal(dim1=-2, dim2=-1), None)
