"""The models that a teacher is distilled into: chains of tokens, additive or squared.

Over the linear tree a monotonic circuit is an inhomogeneous hidden Markov model, a squared one a
Born machine (paper: Sec. 5 A, App. H).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from subtractive.circuits.circuit import Circuit
from subtractive.circuits.weights import RealWeights, positive_weights, real_weights
from subtractive.densities.monotonic import MonotonicCircuit
from subtractive.densities.squared import SquaredCircuit
from subtractive.inference.evidence import make_evidence
from subtractive.init import Initialiser, dirichlet, log_normal, normal, uniform
from subtractive.inputs.categorical import Categorical
from subtractive.inputs.embedding import Embedding
from subtractive.regions.trees import linear_tree

Chained = MonotonicCircuit | SquaredCircuit

# How all parameters start (paper: App. H). A squared model starts small, because its values grow.
MONOTONIC_STARTS: dict[str, Initialiser] = {
    "uniform": uniform(),
    "log-normal": log_normal(),
    "dirichlet": dirichlet(),
}
SQUARED_STARTS: dict[str, Initialiser] = {
    "uniform": uniform(0.0, 0.1),
    "normal": normal(0.0, 0.1),
    "shifted-normal": normal(0.1, 0.1),
}


def monotonic_chain(
    length: int,
    num_states: int,
    num_units: int,
    *,
    start: str = "dirichlet",
    is_shared: bool = False,
    seed: int = 0,
) -> MonotonicCircuit:
    """A hidden Markov model of ``num_units`` states.

    It has tables of its own at every position, or one that all positions share.

    >>> monotonic_chain(3, num_states=5, num_units=2).circuit.num_parameters
    36
    """
    draw, generator = _chosen(MONOTONIC_STARTS, start), torch.Generator().manual_seed(seed)
    circuit = Circuit(
        linear_tree(length),
        Categorical(num_states),
        num_units=num_units,
        shared_inputs=is_shared,
        weights=positive_weights,
        initialise=draw,
        seed=generator,
    )
    _fill(circuit, "logits", lambda shape: draw(shape, generator).log())
    return MonotonicCircuit(circuit)


def squared_chain(
    length: int,
    num_states: int,
    num_units: int,
    *,
    num_squares: int = 1,
    start: str = "uniform",
    is_shared: bool = False,
    seed: int = 0,
) -> SquaredCircuit:
    """A Born machine of bond dimension ``num_units``, or a sum of squares of such chains."""
    draw, generator = _chosen(SQUARED_STARTS, start), torch.Generator().manual_seed(seed)
    circuit = Circuit(
        linear_tree(length),
        Embedding(num_states),
        num_units=num_units,
        num_outputs=num_squares,
        shared_inputs=is_shared,
        weights=real_weights,
        initialise=draw,
        seed=generator,
    )
    _fill(circuit, "table", lambda shape: draw(shape, generator))
    return SquaredCircuit(circuit)


@torch.no_grad()
def square_root_chain(model: MonotonicCircuit, *, num_squares: int = 1) -> SquaredCircuit:
    """A squared chain that starts where an additive one has arrived.

    Every parameter becomes its square root: (Σ_z Π √a √b)² is Σ_z Π a b and cross terms between
    different hidden paths, few where the path is nearly known. With several squares each takes a
    share of the first units, and has cross terms among them only.
    """
    circuit = model.circuit
    length, width = circuit.num_variables, circuit.input_layers[0].num_units
    num_states = circuit.families[0].num_states
    assert num_states is not None
    if circuit.num_outputs != 1:
        raise ValueError(f"expected an additive model of one output, got {circuit.num_outputs}.")
    root = squared_chain(
        length,
        num_states,
        width,
        num_squares=num_squares,
        is_shared=circuit.input_layers[0].is_shared,
    )
    tables = circuit.input_layers[0].get_tensor("logits").softmax(-1).sqrt()
    root.circuit.input_layers[0].get_tensor("table").copy_(tables)
    for layer, source in zip(root.circuit.sum_layers, circuit.sum_layers, strict=True):
        assert isinstance(layer.weights, RealWeights)
        weight = source.weights().sqrt()
        if layer is root.circuit.sum_layers[-1]:
            share = torch.arange(width) % num_squares == torch.arange(num_squares)[:, None]
            weight = weight * share  # (1, s, i)
        layer.weights.value.copy_(weight)
    return root


@torch.no_grad()
def negative_share(model: Chained) -> float:
    """Which part of the sum weights is negative."""
    weights = sum_weights(model)
    return float((weights < 0).double().mean())


@torch.no_grad()
def sum_weights(model: Chained) -> Tensor:
    """All weights of all sums, (w,)."""
    return torch.cat([layer.weights().flatten() for layer in model.circuit.sum_layers])


@torch.no_grad()
def log_probs(model: Chained, states: Tensor, *, rows_at_once: int = 4096) -> Tensor:
    """log p of sequences (n, d) of states, (n,), a block at a time."""
    log_z = model.log_partition()
    parts = []
    for block in states.split(rows_at_once):
        evidence = make_evidence(block.float(), None, model.families, model.device)
        parts.append(model.log_weight(evidence) - log_z)
    return torch.cat(parts)


def _chosen(starts: dict[str, Initialiser], name: str) -> Initialiser:
    if name not in starts:
        raise ValueError(f"unknown start {name!r}: expected one of {', '.join(starts)}.")
    return starts[name]


@torch.no_grad()
def _fill(circuit: Circuit, name: str, draw: Callable[[tuple[int, ...]], Tensor]) -> None:
    """Draw tables position by position: all at once in float64 they may not fit into memory."""
    for layer in circuit.input_layers:
        table = layer.get_tensor(name)
        for position in range(len(table)):
            table[position] = draw(tuple(table.shape[1:]))
