"""Determinism: the inputs of every sum unit have disjoint supports (paper: Def. A.5)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from subtractive.circuits.building import require_tree
from subtractive.circuits.circuit import Circuit
from subtractive.numerics.messages import LeafMessage
from subtractive.regions.folding import divide_leaves, traverse


@torch.no_grad()
def is_deterministic(circuit: Circuit) -> bool:
    """Whether no two inputs of a sum unit can be non-zero together.

    A forward pass with the grams replaced by "may be non-zero together". For discrete inputs the
    answer is exact; families with overlapping supports, such as Gaussians, are never deterministic
    unless each sum unit has a single input.

    >>> circuit = sub.Circuit(sub.flat(2), sub.Gaussian(), num_units=3, seed=0)
    >>> sub.circuits.is_deterministic(circuit)  # Gaussians overlap
    False
    """
    require_tree(circuit.graph, "a circuit whose determinism is asked")
    disjoint = True

    def rule(number: int, children: Sequence[LeafMessage]) -> LeafMessage:
        nonlocal disjoint
        call = circuit.schedule.calls[number]
        layer = circuit.sum_layers[call.layer]
        weight = layer.expanded(
            layer.weights(), [child.shape[2] for child in children], call.folds
        )
        uses = (weight != 0).double()
        together = layer.sum_gram(children, uses).mantissa[:, 0]  # (f, o, p): pairs that may meet
        product = layer.latent([_diagonal(child) for child in children])
        alone = product[:, 0, None, :] @ uses.mT  # (f, 1, o)
        paired = together.diagonal(dim1=-2, dim2=-1)
        disjoint = disjoint and bool((paired < alone[:, 0] + 0.5).all())
        return LeafMessage((together > 0).double()[:, None], None)

    leaves = [
        LeafMessage(layer.family.overlap(layer.tensors(slice(None))).double()[:, None], None)
        for layer in circuit.input_layers
    ]
    traverse(circuit.schedule, divide_leaves(circuit.schedule, leaves), rule)
    return disjoint


def _diagonal(child: LeafMessage) -> LeafMessage:
    return LeafMessage(child.some.diagonal(dim1=-2, dim2=-1), None)
