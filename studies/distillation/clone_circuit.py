"""Homogeneous chains as densities of the library, for all its queries about sequences.

``c(x) = W_0 (f_0 ⊙ W_1 (f_1 ⊙ ...))`` over the linear tree: W_0 is π, every other W the
transition, f says which clones speak a token. The last sum is part of the last input.
"""

from __future__ import annotations

import numpy as np
import torch

import subtractive as sub
from studies.distillation.clones import CloneChain
from subtractive.circuits.weights import PositiveWeights

# The logarithm of what stands for zero in tables of probabilities.
_NEVER = -80.0


@torch.no_grad()
def as_density(chain: CloneChain, length: int) -> sub.MonotonicCircuit:
    """An additive chain over sequences of a length, each position with tables of its own."""
    if length < 3:
        raise ValueError(f"expected sequences of at least three tokens, got {length}.")
    tokens = len(chain.offsets) - 1
    speaks = np.repeat(np.eye(tokens, dtype=np.float32), np.diff(chain.offsets), axis=0)  # (k, v)
    circuit = sub.Circuit(
        sub.linear_tree(length),
        sub.Categorical(tokens),
        num_units=chain.num_states,
        weights=sub.positive_weights,
        seed=0,
    )
    layer = circuit.input_layers[0]
    logits = layer.get_tensor("logits")  # (d, k, v), in the order of layer.variables
    own = _logs(speaks)
    last = _logs(chain.transition @ speaks)
    for place, variable in enumerate(layer.variables[:, 0].tolist()):
        logits[place] = last if variable == length - 1 else own
    for position in range(length - 1):
        region = _region(circuit, position)
        value = chain.initial[None] if position == 0 else chain.transition
        sums, folds = circuit.sum_of(region)
        assert isinstance(sums.weights, PositiveWeights)
        sums.weights.log_value[folds] = _logs(value)
    return sub.MonotonicCircuit(circuit)


def _region(circuit: sub.Circuit, position: int) -> int:
    """The number of the region of a position and all after it."""
    scope = frozenset(range(position, circuit.num_variables))
    return next(k for k, r in enumerate(circuit.graph.regions) if frozenset(r.scope) == scope)


def _logs(values: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> torch.Tensor:
    return torch.from_numpy(np.array(values)).log().clamp(min=_NEVER)
