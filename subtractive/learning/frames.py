"""Frames: mixtures of squared circuits whose Gaussians share their directions."""

from __future__ import annotations

import torch
from torch import Tensor

from subtractive.circuits.building import as_generator
from subtractive.circuits.circuit import Circuit
from subtractive.circuits.weights import PositiveWeights, RealWeights
from subtractive.densities.mixture import Mixture
from subtractive.densities.monotonic import MonotonicCircuit
from subtractive.densities.squared import SquaredCircuit
from subtractive.inputs.embedding import whole_number
from subtractive.inputs.tied_gaussian import TiedGaussian, frame
from subtractive.learning.expectation_maximisation import (
    GaussianComponents,
    Limits,
    fit_gaussian_mixture,
)
from subtractive.learning.initialise import MAX_ROWS, row_weights
from subtractive.regions.trees import flat

# EM only finds where the frames start: few steps, and variances that few rows cannot take to zero.
EM_LIMITS = Limits(max_iterations=10, tolerance=1e-2, floor=1e-4)


def gaussian_frames(
    data: Tensor,
    num_frames: int,
    num_units: int,
    *,
    is_squared: bool = True,
    weights: Tensor | None = None,
    seed: int = 0,
    dtype: torch.dtype | None = None,
) -> Mixture:
    """A mixture over frames at its start, from the rows (n, d) without gaps.

    A frame is a direction for each variable, found by EM for one component of a Gaussian mixture.
    In it stand ``num_units`` Gaussians (:class:`TiedGaussian`) of different places and widths,
    and their density is a sum of as many squares, each of which may subtract. If not
    ``is_squared``, it adds them only. Many narrow, long or heavy-tailed clusters cost little: a
    row is brought into each frame once, and Gaussians of different frames never meet.

    >>> rows = torch.randn(200, 3, generator=torch.Generator().manual_seed(0)).cumsum(1)
    >>> density = sub.gaussian_frames(rows, num_frames=2, num_units=4)
    >>> history = sub.fit(density, rows, max_epochs=5, progress=False)
    >>> density.marginal([0, 2]).log_prob(rows[:, [0, 2]]).shape
    torch.Size([200])
    """
    count = whole_number("num_units", num_units, 1)
    generator = as_generator(seed)
    if isinstance(data, Tensor) and len(data) > MAX_ROWS:
        some = torch.randperm(len(data), generator=generator)[:MAX_ROWS]
        weights = None if weights is None else row_weights(weights, len(data))[some]
        data = data[some]
    found = fit_gaussian_mixture(data, num_frames, weights=weights, seed=seed, limits=EM_LIMITS)
    dtype = dtype or torch.get_default_dtype()
    kept = (found.weights > 0).nonzero()[:, 0].tolist()
    members = [_member(found, k, count, generator, is_squared=is_squared).to(dtype) for k in kept]
    return Mixture(members, weights=found.weights[kept])


def _member(
    found: GaussianComponents,
    number: int,
    num_units: int,
    generator: torch.Generator | None,
    *,
    is_squared: bool,
) -> SquaredCircuit | MonotonicCircuit:
    """One component in float64, spread over the units of a frame."""
    power = 2 if is_squared else 1
    mean, covariance = found.means[number], found.covariances[number]
    circuit = Circuit(
        flat([range(len(mean))]),
        TiedGaussian(norm=power),
        num_units=num_units,
        num_outputs=num_units if is_squared else 1,
        dtype=torch.float64,
        seed=0,
    )
    inputs = circuit.input_layer(0)
    with torch.no_grad():
        for name, value in frame(mean, covariance, num_units, power, generator).items():
            inputs.get_tensor(name).copy_(value[None])
    if is_squared:
        # Ones, not shares: a step of the optimiser is then a small part of a weight.
        circuit.layer(-1).weights = RealWeights(torch.eye(num_units, dtype=torch.float64)[None])
        return SquaredCircuit(circuit)
    equal = torch.full((1, 1, num_units), 1 / num_units, dtype=torch.float64)
    circuit.layer(-1).weights = PositiveWeights(equal)
    return MonotonicCircuit(circuit)
