"""Mixtures of squared circuits whose Gaussians share a transform (semi-tied covariances)."""

from __future__ import annotations

import torch
from torch import Tensor

from subtractive.circuits.building import as_generator
from subtractive.circuits.circuit import Circuit
from subtractive.circuits.weights import PositiveWeights, RealWeights
from subtractive.densities.mixture import Mixture
from subtractive.densities.monotonic import MonotonicCircuit
from subtractive.densities.squared import SquaredCircuit
from subtractive.inputs.base import Tensors
from subtractive.inputs.semi_tied_gaussian import SemiTiedGaussian, semi_tied_start
from subtractive.learning.expectation_maximisation import (
    GaussianComponents,
    Limits,
    complete_rows,
    fit_gaussian_mixture,
)
from subtractive.learning.initialise import MAX_ROWS, row_weights
from subtractive.learning.scale_mixture import ScaleMixture, fit_scale_mixture
from subtractive.numerics.validation import whole_number
from subtractive.regions.trees import flat

# EM only finds where members start: few steps, and variances that few rows cannot take to zero.
EM_LIMITS = Limits(max_iterations=10, tolerance=1e-2, floor=1e-4)
# Shapes take more rows than clusters do, and fewer steps.
DIRECTION_ROWS, DIRECTION_STEPS = 2**18, 2

CLUSTERS, DIRECTIONS = "clusters", "directions"


def semi_tied_mixture(
    data: Tensor,
    num_transforms: int,
    num_units: int,
    *,
    is_squared: bool = True,
    start: str = CLUSTERS,
    weights: Tensor | None = None,
    seed: int = 0,
    dtype: torch.dtype | None = None,
) -> Mixture:
    """A mixture of squared circuits with semi-tied covariances, started from rows (n, d).

    Each of the ``num_transforms`` members has one linear transform of the variables. In its
    coordinates stand ``num_units`` Gaussians (:class:`SemiTiedGaussian`) of different places and
    widths, and the member's density is a sum of as many squares, each of which may subtract; if
    not ``is_squared``, it only adds them. Many narrow, long or heavy-tailed clusters cost little:
    a row is transformed once per member, and Gaussians of different members never meet.

    Members start at ``"clusters"`` of rows, found by EM, or at the shapes of rows that lie in
    similar ``"directions"``, whatever their size: better for patches of images and other rows
    that differ more in size than in place. Rows must have no gaps.

    >>> rows = torch.randn(200, 3, generator=torch.Generator().manual_seed(0)).cumsum(1)
    >>> density = sub.learning.semi_tied_mixture(rows, num_transforms=2, num_units=4)
    >>> history = sub.fit(density, rows, max_epochs=5, progress=False)
    >>> density.marginal([0, 2]).log_prob(rows[:, [0, 2]]).shape
    torch.Size([200])
    """
    count = whole_number("num_units", num_units, 1)
    transforms = whole_number("num_transforms", num_transforms, 1)
    if start not in (CLUSTERS, DIRECTIONS):
        raise ValueError(f'start must be "clusters" or "directions", got {start!r}.')
    generator = as_generator(seed)
    most = MAX_ROWS if start == CLUSTERS else DIRECTION_ROWS
    if isinstance(data, Tensor) and len(data) > most:
        some = torch.randperm(len(data), generator=generator)[:most]
        weights = None if weights is None else row_weights(weights, len(data))[some]
        data = data[some]
    found: GaussianComponents | ScaleMixture
    if start == CLUSTERS:
        found = fit_gaussian_mixture(
            data, transforms, weights=weights, seed=seed, limits=EM_LIMITS
        )
        shares, scales = found.weights[:, None].expand(-1, count), None
    else:
        sample = complete_rows(data, weights)
        found = fit_scale_mixture(sample, transforms, count, generator, DIRECTION_STEPS)
        shares, scales = found.weights, found.log_scales
    dtype = dtype or torch.get_default_dtype()
    members, masses = [], []
    for mean, covariance, own in zip(found.means, found.covariances, shares, strict=True):
        if own.sum() > 0:
            place = semi_tied_start(
                mean, covariance, count, 2 if is_squared else 1, generator, scales
            )
            members.append(_member(place, own / own.mean(), is_squared=is_squared).to(dtype))
            masses.append(own.sum())
    return Mixture(members, weights=torch.stack(masses))


def _member(
    place: Tensors, shares: Tensor, *, is_squared: bool
) -> SquaredCircuit | MonotonicCircuit:
    """One member in float64; ``shares`` (i,) say how much of the mass each unit has."""
    size, num_units = place["centre"].shape[-1], len(shares)
    circuit = Circuit(
        flat([range(size)]),
        SemiTiedGaussian(norm=2 if is_squared else 1),
        num_units=num_units,
        num_outputs=num_units if is_squared else 1,
        dtype=torch.float64,
        seed=0,
    )
    inputs = circuit.input_layers[0]
    with torch.no_grad():
        for name, value in place.items():
            inputs.get_tensor(name).copy_(value[None])
    if is_squared:
        # Ones, not shares: a step of the optimiser is then a small part of a weight.
        circuit.sum_layers[-1].weights = RealWeights(shares.sqrt().diag()[None])
        return SquaredCircuit(circuit)
    circuit.sum_layers[-1].weights = PositiveWeights(shares[None, None] / num_units)
    return MonotonicCircuit(circuit)
