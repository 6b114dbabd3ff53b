"""Gaussian mixtures as flat circuits: additive ones, and exactly as sums of squares.

A Gaussian density is the square of a function that is, but for a factor, Gaussian too::

    Σ_k w_k N(x; μ_k, Σ_k) = Σ_k (√w_k f_k(x))²,   f_k = N(μ_k, Σ_k)^½ ∝ N(μ_k, 2Σ_k)

so that a squared circuit whose root has one output per component, and a diagonal of weights, is
the mixture. Training then finds what to subtract: all that lies beside the diagonal.
"""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any, cast

import torch
from torch import Tensor

from subtractive.circuits.circuit import Circuit
from subtractive.circuits.weights import PositiveWeights, RealWeights, positive_weights
from subtractive.densities.monotonic import MonotonicCircuit
from subtractive.densities.squared import SquaredCircuit
from subtractive.inputs.gaussian import Gaussian
from subtractive.inputs.multivariate_gaussian import MultivariateGaussian
from subtractive.reductions.arrays import as_double
from subtractive.regions.trees import flat


def squared_gaussian_mixture(
    weights: Tensor, means: Tensor, covariances: Tensor, *, dtype: torch.dtype | None = None
) -> SquaredCircuit:
    """The mixture ``Σ_k w_k N(x; μ_k, Σ_k)`` as a sum of k squares.

    Weights are (k,), means (k, d), covariances (k, d, d).

    >>> p = sub.reductions.squared_gaussian_mixture(
    ...     torch.ones(1), torch.zeros(1, 2), torch.eye(2)[None]
    ... )
    >>> p.log_prob(torch.zeros(1, 2)).exp() * 2 * torch.pi
    tensor([1.0000], dtype=torch.float64, grad_fn=<MulBackward0>)
    """
    weights, means, factors = _checked(weights, means, covariances)
    circuit = _flat_circuit(2, means, math.sqrt(2) * factors, num_outputs=len(means))
    circuit.sum_layers[-1].weights = RealWeights(weights.sqrt().diag()[None])
    return SquaredCircuit(circuit.to(dtype or torch.get_default_dtype()))


def monotonic_gaussian_mixture(
    weights: Tensor, means: Tensor, covariances: Tensor, *, dtype: torch.dtype | None = None
) -> MonotonicCircuit:
    """The mixture ``Σ_k w_k N(x; μ_k, Σ_k)`` as an additive circuit.

    Weights are (k,), means (k, d), covariances (k, d, d).

    >>> p = sub.reductions.monotonic_gaussian_mixture(
    ...     torch.ones(1), torch.zeros(1, 2), torch.eye(2)[None]
    ... )
    >>> p.log_partition()
    tensor(0., dtype=torch.float64, grad_fn=<SelectBackward0>)
    """
    weights, means, factors = _checked(weights, means, covariances)
    circuit = _flat_circuit(1, means, factors, num_outputs=1)
    circuit.sum_layers[-1].weights = PositiveWeights(weights[None, None])
    return MonotonicCircuit(circuit.to(dtype or torch.get_default_dtype()))


def from_sklearn(
    mixture: Any,  # noqa: ANN401
    *,
    dtype: torch.dtype | None = None,
) -> MonotonicCircuit:
    """A fitted ``GaussianMixture`` of scikit-learn, of any covariance type, as a circuit.

    Diagonal and spherical components become products of one Gaussian per variable, so that boxes
    have probabilities; full and tied ones Gaussians of all variables together.

    >>> from sklearn.mixture import GaussianMixture
    >>> x = torch.randn(100, 2, generator=torch.Generator().manual_seed(0))
    >>> fitted = GaussianMixture(2, random_state=0).fit(x)
    >>> p = sub.reductions.from_sklearn(fitted)
    >>> abs(p.log_prob(x).mean().item() - fitted.score(x)) < 1e-4
    True
    """
    # Imported here: it takes longer than the rest of the package, and few programs need it.
    if not isinstance(mixture, import_module("sklearn.mixture").GaussianMixture):
        raise ValueError(
            f"expected a GaussianMixture of scikit-learn, got {type(mixture).__name__}. Any "
            "weights, means and covariances go into monotonic_gaussian_mixture."
        )
    if not hasattr(mixture, "covariances_"):
        raise ValueError("the GaussianMixture has no parameters yet: call its fit first.")
    weights, means, covariances = map(
        as_double, (mixture.weights_, mixture.means_, mixture.covariances_)
    )
    count, size = means.shape
    if mixture.covariance_type == "tied":
        covariances = covariances.expand(count, size, size)
    if mixture.covariance_type in ("full", "tied"):
        return monotonic_gaussian_mixture(weights, means, covariances, dtype=dtype)
    variances = covariances.reshape(count, -1).expand(count, size)  # one variance is for all
    circuit = Circuit(
        flat(size), Gaussian(), num_units=count, weights=positive_weights, dtype=torch.float64
    )
    inputs = circuit.input_layers[0]
    with torch.no_grad():
        inputs.get_tensor("mean").copy_(means.mT)
        inputs.get_tensor("log_scale").copy_(0.5 * variances.mT.log())
    circuit.sum_layers[-1].weights = PositiveWeights(weights[None, None])
    return MonotonicCircuit(circuit.to(dtype or torch.get_default_dtype()))


def _flat_circuit(norm: int, means: Tensor, factors: Tensor, *, num_outputs: int) -> Circuit:
    """A circuit over one region, with multiples of N(μ_k, L_k L_kᵀ) of norm one, in float64."""
    count, size = means.shape
    circuit = Circuit(
        flat([range(size)]),
        MultivariateGaussian(norm),
        num_units=count,
        num_outputs=num_outputs,
        seed=0,
        dtype=torch.float64,
    )
    inputs = circuit.input_layers[0]
    with torch.no_grad():
        inputs.get_tensor("mean").copy_(means[None])
        inputs.get_tensor("log_diagonal").copy_(factors.diagonal(dim1=-2, dim2=-1).log()[None])
        inputs.get_tensor("lower").copy_(factors.tril(-1)[None])
    return circuit


def _checked(weights: Tensor, means: Tensor, covariances: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Weights (k,) that sum to one, means (k, d) and Cholesky factors (k, d, d), in float64."""
    weights, means, covariances = map(as_double, (weights, means, covariances))
    count, size = means.shape if means.dim() == 2 else (0, 0)
    shapes = [tuple(tensor.shape) for tensor in (weights, means, covariances)]
    if 0 in (count, size) or shapes != [(count,), (count, size), (count, size, size)]:
        raise ValueError(
            "a Gaussian mixture needs weights (k,), means (k, d) and covariances (k, d, d), got "
            f"shapes {shapes[0]}, {shapes[1]} and {shapes[2]}. A diagonal covariance is "
            "variances.diag_embed()."
        )
    if not bool((weights > 0).all()) or not bool(weights.isfinite().all()):
        raise ValueError(
            f"the weights of a mixture must be positive and finite, got {weights.tolist()}. "
            "Leave out components without weight."
        )
    return weights / weights.sum(), means, cholesky_factors(covariances)


def cholesky_factors(covariances: Tensor) -> Tensor:
    """The factors L of covariances L Lᵀ, (k, d, d); ``ValueError`` if one is not definite."""
    factors, failed = torch.linalg.cholesky_ex(covariances)
    if bool(failed.any()) or not bool(factors.isfinite().all()):
        number = int((failed.bool() | ~factors.isfinite().all(-1).all(-1)).nonzero()[0])
        raise ValueError(
            f"covariances must be positive definite, that of component {number} is not. Add a "
            "small number to its diagonal."
        )
    return cast(Tensor, factors)
