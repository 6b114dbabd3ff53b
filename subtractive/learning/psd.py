r"""Maximum likelihood for PSD models: a convex problem, solved with a certificate.

With the points fixed and A = B ρ Bᵀ, Bᵀ G B = 1 (G being the gram of the kernels), Z is the trace
of ρ, and the mean of log ψᵀ ρ ψ, ψ = Bᵀ κ(x), is to be maximised over all positive semi-definite
ρ of trace one. The logarithm being concave, no ρ' does better than ρ by more than

.. math:: \frac1n \sum_x \log \frac{ψ^T ρ' ψ}{ψ^T ρ ψ} \le \log \mathrm{tr}(ρ' R)
          \le \log λ_{\max}(R), \qquad R = \frac1n \sum_x \frac{ψ ψ^T}{ψ^T ρ ψ}.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from subtractive.circuits.building import as_generator
from subtractive.inputs.gaussian_log_density import HALF_LOG_TWO_PI
from subtractive.inputs.statistics import FAR, Sample, cluster, location_and_spread
from subtractive.learning.run import TrainingWarning
from subtractive.numerics.validation import whole_number
from subtractive.reductions.arrays import Array, as_double
from subtractive.reductions.psd import PSDModel, checked_psd_model

# Eigenvalues of the gram of the kernels below this share of the largest are left out: without
# them all of a density's digits but eight could cancel.
LEAST_EIGENVALUE = 1e-8
LEAST_BANDWIDTH = 0.02  # in spreads of a column


class Whitened(NamedTuple):
    """Rows ψ (n, r) in a basis B (m, r) of orthonormal functions."""

    rows: Tensor
    basis: Tensor


def fit_psd_model(
    data: Array,
    num_points: int,
    *,
    bandwidth: Array | None = None,
    tolerance: float = 1e-3,
    max_iterations: int = 1000,
    seed: int = 0,
) -> PSDModel:
    """The most likely PSD model of rows (n, d), with points at the centres of k-means.

    The mean log-likelihood is within ``tolerance`` of the best that any matrix has for these
    points and bandwidths; else a ``TrainingWarning`` says how far. A bandwidth that is not given
    follows from how far rows are from the points.

    >>> data = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    >>> model = sub.learning.fit_psd_model(data, 5)
    >>> sub.reductions.squared_psd_model(*model, dtype=torch.float64).log_partition().abs() < 1e-6
    tensor(True)
    """
    x = _finite_rows(data)
    count = whole_number("num_points", num_points, 1)
    centre, unit = location_and_spread(Sample(x, x.new_ones(len(x))))
    standard = ((x - centre) / unit).clamp(-FAR, FAR)
    clusters = cluster(standard, x.new_ones(len(x)), count, as_generator(seed))
    if bandwidth is None:
        # κ² is narrower than κ by √2; neighbours overlap if it is √2 as wide as the rows around.
        distance = (standard - clusters.centres[clusters.labels]).square().mean().sqrt()
        bandwidth = unit * (2 * distance).clamp(min=LEAST_BANDWIDTH)
    points = centre + unit * clusters.centres
    model = checked_psd_model(points, torch.eye(count, dtype=torch.float64), bandwidth)
    white = whitened(model, x)
    mass = torch.bincount(clusters.labels, minlength=count).double().clamp(min=0.5)
    gram = torch.exp(log_kernel_gram(model.points, model.bandwidth))
    start = torch.linalg.pinv(white.basis) * (mass / gram.diagonal()).sqrt()  # (r, m)
    factor = _maximise(white.rows.numpy(), start.numpy(), max_iterations)
    density = torch.from_numpy(factor @ factor.T / np.square(factor).sum())
    fitted = model._replace(matrix=white.basis @ density @ white.basis.mT)
    gap = _gap(white.rows, density)
    if gap > tolerance:
        warnings.warn(
            f"the mean log-likelihood may be up to {gap:.2g} below the best one, more than the "
            f"tolerance of {tolerance:.2g}. Raise max_iterations, or take fewer points.",
            TrainingWarning,
            stacklevel=2,
        )
    return fitted


def likelihood_gap(model: PSDModel, data: Array) -> float:
    """An upper bound on the mean log-likelihood that a better matrix could gain on rows (n, d).

    It is zero exactly where the matrix is the most likely one for its points and bandwidths.

    >>> x = torch.randn(100, 1, generator=torch.Generator().manual_seed(0))
    >>> model = sub.learning.fit_psd_model(x, num_points=4)
    >>> sub.learning.likelihood_gap(model, x) < 1e-3
    True
    """
    checked = checked_psd_model(*model)
    white = whitened(checked, _finite_rows(data))
    inverse = torch.linalg.pinv(white.basis)
    density = inverse @ checked.matrix @ inverse.mT
    return _gap(white.rows, density / density.trace())


def whitened(model: PSDModel, x: Tensor) -> Whitened:
    """Rows in orthonormal functions; each is divided by its largest kernel, which changes no A."""
    deviation = (x[:, None] - model.points) / model.bandwidth  # (n, m, d)
    log_kernels = -0.5 * deviation.square().sum(-1)
    kernels = (log_kernels - log_kernels.amax(1, keepdim=True)).exp()
    gram = log_kernel_gram(model.points, model.bandwidth).exp()
    values, vectors = torch.linalg.eigh(gram)
    kept = values > LEAST_EIGENVALUE * values[-1]
    basis = vectors[:, kept] / values[kept].sqrt()
    return Whitened(kernels @ basis, basis)


def log_kernel_gram(points: Tensor, bandwidth: Tensor) -> Tensor:
    """``log ∫ κ_i κ_j``, (m, m), for points and bandwidths (m, d)."""
    total = bandwidth.square()[:, None] + bandwidth.square()[None]  # (m, m, d)
    distance = (points[:, None] - points[None]).square() / total
    log_volume = bandwidth.log()[:, None] + bandwidth.log()[None] - 0.5 * total.log()
    log_gram: Tensor = (log_volume + HALF_LOG_TWO_PI - 0.5 * distance).sum(-1)
    return log_gram


def _maximise(
    rows: NDArray[np.float64], start: NDArray[np.float64], max_iterations: int
) -> NDArray[np.float64]:
    """A factor F (r, m) of the most likely ρ = F Fᵀ / |F|².

    With as many columns as rows every local maximum over factors is a global one over ρ.
    """

    def loss(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        factor = flat.reshape(start.shape)
        images = rows @ factor  # (n, m)
        squares, norm = np.square(images).sum(1), np.square(factor).sum()
        slope = 2 * factor / norm - 2 * rows.T @ (images / squares[:, None]) / len(rows)
        return float(np.log(norm) - np.log(squares).mean()), slope.ravel()

    options = {"maxiter": max_iterations, "maxfun": 2 * max_iterations, "ftol": 1e-12}
    options["gtol"] = 1e-9
    found = minimize(loss, start.ravel(), jac=True, method="L-BFGS-B", options=options)
    best: NDArray[np.float64] = found.x.reshape(start.shape)
    return best


def _gap(rows: Tensor, density: Tensor) -> float:
    likelihood = ((rows @ density) * rows).sum(1, keepdim=True)
    ratios = (rows / likelihood).mT @ rows / len(rows)  # R, (r, r)
    return float(torch.linalg.eigvalsh(ratios)[-1].log())


def _finite_rows(data: Array) -> Tensor:
    x = as_double(data)
    if x.dim() != 2 or x.numel() == 0 or not bool(x.isfinite().all()):
        raise ValueError(
            "a PSD model is fitted to a table (rows, variables) of finite numbers, got shape "
            f"{tuple(x.shape)} and {int((~x.isfinite()).sum())} gaps or infinite values. Leave "
            "out rows with gaps."
        )
    return x
