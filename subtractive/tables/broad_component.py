"""The broad component beside every mixture of a table: room for rows unlike all others."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from subtractive.circuits.circuit import Circuit
from subtractive.circuits.weights import positive_weights
from subtractive.densities.base import Density
from subtractive.densities.mixture import Mixture
from subtractive.densities.monotonic import MonotonicCircuit
from subtractive.inputs.base import InputFamily
from subtractive.learning.expected_flows import Flows, update
from subtractive.learning.sufficient_statistics import count
from subtractive.regions.trees import flat
from subtractive.tables.training_rows import Rows

# The weight of the broad component, which is rarely drawn from: one of its rows in a thousand
# would change the correlations of samples. And its widths as multiples of those of the columns.
BROAD_SHARE, BROAD_WIDTH = 1e-5, 2.0


def with_broad(
    members: Sequence[Density], weights: Sequence[float], broad: MonotonicCircuit
) -> Mixture:
    """Members with their weights, beside the broad component."""
    shares = [(1 - BROAD_SHARE) * weight for weight in weights]
    return Mixture([*members, broad], weights=[*shares, BROAD_SHARE])


def broad_component(rows: Rows, families: Sequence[InputFamily]) -> MonotonicCircuit:
    """Independent columns, Gaussians several times as wide as they are: room for any row.

    No row is then so improbable that it alone decides a mean score.
    """
    circuit = Circuit(
        flat(len(families)),
        families,
        num_units=1,
        weights=positive_weights,
        dtype=torch.float64,
        seed=0,
    )
    shares = rows.weights / rows.weights.sum()
    inputs = []
    for layer in circuit.input_layers:
        x = rows.x[:, layer.variables[:, 0]].mT  # (f, n)
        known = (~x.isnan() * shares)[..., None]
        inputs.append(count(layer.family, x.nan_to_num(), known))
    sums = [torch.ones_like(layer.weights()).detach() for layer in circuit.sum_layers]
    update(circuit, Flows(sums, inputs), 10 / len(rows.x))
    with torch.no_grad():
        for layer in circuit.input_layers:
            if "log_scale" in layer.names:
                layer.get_tensor("log_scale").add_(math.log(BROAD_WIDTH))
            elif layer.family.num_states is not None:
                table = layer.get_tensor("logits").softmax(-1)
                layer.get_tensor("logits").copy_(
                    (0.9 * table + 0.1 / layer.family.num_states).log()
                )
    return MonotonicCircuit(circuit)
