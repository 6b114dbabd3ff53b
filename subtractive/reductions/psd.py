"""PSD models κ(x)ᵀ A κ(x) / Z as sums of squares, and back (paper: Sec. 4, App. B.3).

With Gaussian kernels κ_i(x) = exp(-Σ_d (x_d - c_id)² / 2 h_id²) at m points and the
eigendecomposition A = Σ_s λ_s u_s u_sᵀ::

    κᵀ A κ = Σ_s (√λ_s u_sᵀ κ)²

is a squared circuit over the flat region graph, with as many outputs as A has rank.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from subtractive.circuits.circuit import Circuit
from subtractive.circuits.weights import RealWeights
from subtractive.densities.squared import SquaredCircuit
from subtractive.inputs.gaussian import Gaussian
from subtractive.inputs.gaussian_log_density import HALF_LOG_TWO_PI
from subtractive.inputs.rbf import RBF
from subtractive.reductions.arrays import Array, as_double
from subtractive.reductions.shallow import quadratic_form, shallow_weight
from subtractive.regions.trees import flat


class PSDModel(NamedTuple):
    """The density κ(x)ᵀ A κ(x) / Z, in float64."""

    points: Tensor  # (m, d)
    matrix: Tensor  # A, (m, m)
    bandwidth: Tensor  # (m, d)


def squared_psd_model(
    points: Array, matrix: Array, bandwidth: Array = 1.0, *, dtype: torch.dtype | None = None
) -> SquaredCircuit:
    """The PSD model of points (m, d) and a positive semi-definite matrix (m, m).

    ``bandwidth`` is one number, one per variable (d,), or one per point and variable (m, d).

    >>> matrix = torch.tensor([[1.0, -0.9], [-0.9, 1.0]])
    >>> p = sub.reductions.squared_psd_model(torch.tensor([[-1.0], [1.0]]), matrix)
    >>> p.circuit.num_outputs  # the rank of the matrix
    2
    """
    model = checked_psd_model(points, matrix, bandwidth)
    size = model.points.shape[1]
    factor = _factor(model.matrix)
    circuit = Circuit(
        flat(size),
        [RBF(model.points[:, d], model.bandwidth[:, d]) for d in range(size)],
        num_units=len(model.points),
        num_outputs=len(factor),
        seed=0,
        dtype=torch.float64,
    )
    circuit.sum_layers[-1].weights = RealWeights(factor[None])
    return SquaredCircuit(circuit.to(dtype or torch.get_default_dtype()))


def psd_model(density: SquaredCircuit) -> PSDModel:
    """The points, matrix and bandwidths of a shallow squared circuit of Gaussians or kernels.

    Z is kept, but for rounding: the matrix takes up what Gaussian densities have over kernels.

    >>> circuit = sub.Circuit(sub.flat(3), sub.Gaussian(), num_units=4, num_outputs=2)
    >>> model = sub.reductions.psd_model(sub.SquaredCircuit(circuit))
    >>> model.points.shape, torch.linalg.matrix_rank(model.matrix).item()
    (torch.Size([4, 3]), 2)
    """
    weight = shallow_weight(density)
    circuit = density.circuit
    log_height = weight.new_zeros(weight.shape[1], dtype=torch.float64)  # of kernels, (m,)
    points, log_scales = [], []
    for variable, family in enumerate(circuit.families):
        if not isinstance(family, Gaussian | RBF):
            raise ValueError(
                "a PSD model has Gaussian or RBF inputs, one per variable, but variable "
                f"{variable} has {type(family).__name__} inputs."
            )
        numbers = _inputs_of(density, variable)
        log_scales.append(numbers["log_scale"])
        points.append(numbers["centre" if isinstance(family, RBF) else "mean"])
        if isinstance(family, Gaussian):
            log_height = log_height - log_scales[-1] - HALF_LOG_TWO_PI
    height = log_height.exp()
    matrix = height[:, None] * quadratic_form(weight) * height
    return PSDModel(torch.stack(points, 1), matrix, torch.stack(log_scales, 1).exp())


def _inputs_of(density: SquaredCircuit, variable: int) -> dict[str, Tensor]:
    """The tensors (m,) of the inputs of one variable."""
    graph = density.circuit.graph
    region = next(r for r in graph.input_regions if graph.regions[r].scope == {variable})
    layer, place = density.circuit.input_of(region)
    tensors = layer.tensors(place, torch.float64)
    return {name: tensor[0].detach() for name, tensor in tensors.items()}


def checked_psd_model(points: Array, matrix: Array, bandwidth: Array) -> PSDModel:
    """Points, matrix and bandwidths whose shapes fit, in float64."""
    points, matrix, bandwidth = map(as_double, (points, matrix, bandwidth))
    count, size = points.shape if points.dim() == 2 else (0, 0)
    if 0 in (count, size) or matrix.shape != (count, count):
        raise ValueError(
            "a PSD model needs points (m, d) and a matrix (m, m), got shapes "
            f"{tuple(points.shape)} and {tuple(matrix.shape)}."
        )
    if tuple(bandwidth.shape) not in {(), (1,), (size,), (count, size)}:
        raise ValueError(
            f"bandwidth needs one number, one per variable ({size},), or one per point and "
            f"variable ({count}, {size}), got shape {tuple(bandwidth.shape)}."
        )
    if not all(bool(tensor.isfinite().all()) for tensor in (points, matrix, bandwidth)):
        raise ValueError("a PSD model needs finite points, matrix entries and bandwidths.")
    if not bool((bandwidth > 0).all()):
        raise ValueError(f"bandwidths must be positive, got {float(bandwidth.min()):g}.")
    if not torch.allclose(matrix, matrix.mT, rtol=1e-6, atol=1e-6 * float(matrix.abs().max())):
        raise ValueError("the matrix of a PSD model must be symmetric. Use (A + A.T) / 2.")
    return PSDModel(points, (matrix + matrix.mT) / 2, bandwidth.expand(count, size))


def _factor(matrix: Tensor) -> Tensor:
    """F (s, m) with ``Fᵀ F = A``, one row per positive eigenvalue."""
    values, vectors = torch.linalg.eigh(matrix)
    largest = float(values[-1])
    rounding = len(matrix) * torch.finfo(matrix.dtype).eps * float(values.abs().max())
    if float(values[0]) < -1e3 * rounding:
        raise ValueError(
            "the matrix of a PSD model must be positive semi-definite, but its smallest "
            f"eigenvalue is {float(values[0]):.3g} (the largest is {largest:.3g}). Clip negative "
            "eigenvalues to zero first."
        )
    is_positive = values > rounding
    if not bool(is_positive.any()):
        raise ValueError("the matrix of a PSD model must not be zero.")
    factor: Tensor = (vectors[:, is_positive] * values[is_positive].sqrt()).mT
    return factor
