"""Where training starts: inputs from the columns of the data, weights so that Z is one."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from subtractive.circuits.building import as_generator
from subtractive.circuits.circuit import Circuit
from subtractive.densities.base import Density
from subtractive.densities.mixture import Mixture
from subtractive.densities.monotonic import MonotonicCircuit
from subtractive.densities.squared import SquaredCircuit
from subtractive.inference.evidence import make_evidence
from subtractive.inputs.layer import InputLayer
from subtractive.inputs.statistics import Sample
from subtractive.numerics.validation import check_weights

# A start need not have seen more rows than this.
MAX_ROWS = 2**16
# No layer is multiplied by more than exp(this), or its inverse: single precision ends at exp(88).
MAX_EXPONENT = 30.0


@torch.no_grad()
def initialise(
    density: Density, data: Tensor, *, weights: Tensor | None = None, seed: int = 0
) -> None:
    """Start the inputs of a density from rows (n, d), and scale its weights so that log Z ≈ 0.

    Gaussians go to quantiles of their columns, tables and splines start from histograms, each
    with noise that tells the units apart. NaN entries are left out; a row of weight two counts
    twice. The weights of sums stay as they were drawn, but for one factor per layer. The same
    seed gives the same start; members of a mixture start differently.

    >>> circuit = sub.Circuit(sub.flat(2), sub.Gaussian(), num_units=4, seed=0)
    >>> density, data = sub.SquaredCircuit(circuit), 1e3 + 7 * torch.randn(100, 2)
    >>> sub.initialise(density, data)
    >>> bool(density.log_prob(data).mean() > -8), bool(density.log_partition().abs() < 1e-4)
    (True, True)
    """
    rows = make_evidence(data, None, density.families, density.device)
    if len(rows) == 0:
        raise ValueError("a start from data needs at least one row, got an empty table.")
    table = torch.where(rows.observed, rows.x, math.nan).cpu()
    shares = row_weights(weights, len(rows))
    generator = as_generator(seed)
    kept = (shares > 0).nonzero()[:, 0]
    kept = kept[torch.randperm(len(kept), generator=generator)[:MAX_ROWS]]
    table, shares = table[kept], shares[kept]
    for part in _parts(density):
        power = 2 if isinstance(part, SquaredCircuit) else 1
        starts = [
            _start(layer, table, shares, power, generator) for layer in part.circuit.input_layers
        ]
        for layer, start in zip(part.circuit.input_layers, starts, strict=True):
            for name, value in start.items():
                layer.get_tensor(name).copy_(value)
        scale_to_one(part.circuit, float(part.log_normaliser()) / power)


def _parts(density: Density) -> Iterator[SquaredCircuit | MonotonicCircuit]:
    """The circuits that a density is made of, each as the density it is in it."""
    if isinstance(density, SquaredCircuit | MonotonicCircuit):
        yield density
    elif isinstance(density, Mixture):
        for member in density.members:
            assert isinstance(member, Density)
            yield from _parts(member)
    else:
        raise ValueError(
            "a start from data needs a SquaredCircuit, a MonotonicCircuit or a Mixture of them, "
            f"got {type(density).__name__}. Initialise the density it was made from."
        )


def _start(
    layer: InputLayer,
    table: Tensor,
    weights: Tensor,
    power: int,
    generator: torch.Generator | None,
) -> dict[str, Tensor]:
    """The learned tensors of an input layer, (f, i, ...) each, region by region.

    Functions that regions share start from the columns of all of them.
    """
    if layer.is_shared:
        columns = torch.cat([table[:, list(scope)] for scope in layer.scopes])
        pooled = Sample(columns, weights.repeat(len(layer.scopes)))
        start = layer.family.init_from_data(pooled, layer.num_units, power, generator)
        return {name: value[None] for name, value in start.items()}
    starts = [
        family.init_from_data(
            Sample(table[:, list(scope)], weights), layer.num_units, power, generator
        )
        for family, scope in zip(layer.families, layer.scopes, strict=True)
    ]
    return {name: torch.stack([start[name] for start in starts]) for name in starts[0]}


def scale_to_one(circuit: Circuit, log_size: float) -> None:
    """Divide c by exp(log_size), each sum over a region taking the same share of it.

    The root alone would leave the range of single precision when there are many variables.
    """
    # Where regions have several partitions, not every sum is part of every product.
    layers = circuit.sum_layers if circuit.graph.is_tree else circuit.sum_layers[-1:]
    counts = [layer.weights().shape[0] for layer in layers]
    exponent = max(-MAX_EXPONENT, min(MAX_EXPONENT, -log_size / sum(counts)))
    for layer in layers:
        layer.weights.multiply_by(math.exp(exponent))


def row_weights(weights: object | None, count: int) -> Tensor:
    """Weights of the rows, (n,) in float64; ones if none are given."""
    shares = check_weights(weights, count)
    if count > 0 and not bool((shares > 0).any()):
        raise ValueError("a start from data needs a row that counts: all weights are zero.")
    return shares
