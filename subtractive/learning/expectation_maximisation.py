"""Expectation maximisation for Gaussian mixtures: where flat squared circuits may start."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple, final

import torch
from torch import Tensor

from subtractive.circuits.building import as_generator
from subtractive.inference.evidence import as_table
from subtractive.inputs.gaussian_log_density import HALF_LOG_TWO_PI
from subtractive.inputs.statistics import Sample, cluster, cluster_covariances, location_and_spread
from subtractive.learning.initialise import row_weights
from subtractive.numerics.validation import whole_number

# Numbers of a chunk of rows (rows x components x variables): they should fit into a cache.
ENTRIES = 2**18
# A component with a smaller share of the rows stays where it is: its moments are rounding errors.
LEAST_MASS = 1e-12


class GaussianComponents(NamedTuple):
    """A mixture ``Σ_k w_k N(x; μ_k, Σ_k)``, in float64."""

    weights: Tensor  # (k,)
    means: Tensor  # (k, d)
    covariances: Tensor  # (k, d, d)

    def log_prob(self, x: Tensor) -> Tensor:
        """log p(x), (n,), of rows x (n, d)."""
        log_densities = FULL.log_densities(self)
        parts = [
            (log_densities(rows) + self.weights.log()).logsumexp(1)
            for rows in x.double().split(_chunk_size(self))
        ]
        return torch.cat(parts)


class Ellipsoids:
    """Gaussians N(μ_k, Σ_k) as the maps to coordinates in which they are round."""

    def __init__(self, means: Tensor, covariances: Tensor) -> None:
        factor = torch.linalg.cholesky(covariances)
        identity = torch.eye(factor.shape[-1], dtype=factor.dtype)
        self._whiten = torch.linalg.solve_triangular(factor, identity, upper=False)  # (k, d, d)
        self._offset = (self._whiten @ means[..., None]).flatten()
        self.log_volumes = (factor.diagonal(dim1=-2, dim2=-1).log() + HALF_LOG_TWO_PI).sum(-1)

    def distances(self, x: Tensor) -> Tensor:
        """``(x − μ_k)ᵀ Σ_k⁻¹ (x − μ_k)``, (n, k), of rows x (n, d)."""
        white = x @ self._whiten.flatten(0, 1).mT - self._offset
        distances: Tensor = white.unflatten(1, self._whiten.shape[:2]).square_().sum(-1)
        return distances


class Covariance(ABC):
    """The shape of the covariances: what EM must know about them."""

    @abstractmethod
    def log_densities(self, components: GaussianComponents) -> Callable[[Tensor], Tensor]:
        """The function of rows x (n, d) that is log N(x; μ_k, Σ_k), (n, k)."""

    @abstractmethod
    def second_moments(self, x: Tensor, shares: Tensor) -> Tensor:
        """``Σ_n r_nk x_n x_nᵀ``, (k, d, d), for shares r (n, k), as far as the shape needs it."""

    @abstractmethod
    def restrict(self, covariances: Tensor) -> Tensor:
        """Covariances (k, d, d) brought into the shape."""


@final
class Full(Covariance):
    """Any covariance: ellipsoids in any direction."""

    def log_densities(self, components: GaussianComponents) -> Callable[[Tensor], Tensor]:
        ellipsoids = Ellipsoids(components.means, components.covariances)
        return lambda x: -0.5 * ellipsoids.distances(x) - ellipsoids.log_volumes

    def second_moments(self, x: Tensor, shares: Tensor) -> Tensor:
        weighted = shares.mT[:, None, :] * x.mT[None]  # (k, d, n)
        moments: Tensor = (weighted.flatten(0, 1) @ x).unflatten(0, weighted.shape[:2])
        return moments

    def restrict(self, covariances: Tensor) -> Tensor:
        return covariances


@final
class Diagonal(Covariance):
    """Independent variables within a component: ellipsoids along the axes."""

    def log_densities(self, components: GaussianComponents) -> Callable[[Tensor], Tensor]:
        variance = components.covariances.diagonal(dim1=-2, dim2=-1)  # (k, d)
        precision = 1 / variance
        linear = (components.means * precision).mT
        constant = (components.means.square() * precision).sum(1)
        log_volumes = (0.5 * variance.log() + HALF_LOG_TWO_PI).sum(-1)

        def log_densities(x: Tensor) -> Tensor:
            quadratic = x.square() @ precision.mT - 2 * x @ linear
            return -0.5 * (quadratic + constant) - log_volumes

        return log_densities

    def second_moments(self, x: Tensor, shares: Tensor) -> Tensor:
        return (shares.mT @ x.square()).diag_embed()

    def restrict(self, covariances: Tensor) -> Tensor:
        return covariances.diagonal(dim1=-2, dim2=-1).diag_embed()


FULL, DIAGONAL = Full(), Diagonal()


class Limits(NamedTuple):
    """When EM ends, and the least variance as a share of the squared spread of a column."""

    max_iterations: int = 100
    tolerance: float = 1e-3  # of the mean log-likelihood from one iteration to the next
    floor: float = 1e-6


LIMITS = Limits()


def fit_gaussian_mixture(
    data: Tensor,
    num_components: int,
    *,
    covariance: Covariance = FULL,
    weights: Tensor | None = None,
    num_restarts: int = 1,
    seed: int = 0,
    limits: Limits = LIMITS,
) -> GaussianComponents:
    """The most likely of ``num_restarts`` Gaussian mixtures of rows (n, d), each from k-means++.

    Rows with a NaN are left out. A row of weight two counts as two equal rows.

    >>> data = torch.cat([torch.randn(50, 1) - 5, torch.randn(50, 1) + 5])
    >>> fit_gaussian_mixture(data, 2).weights
    tensor([0.5000, 0.5000], dtype=torch.float64)
    """
    sample = complete_rows(data, weights)
    count = whole_number("num_components", num_components, 1)
    centre, unit = location_and_spread(sample)
    x, shares = (sample.columns - centre) / unit, sample.weights / sample.weights.sum()
    generator = as_generator(seed)
    best, best_score = None, -math.inf
    for _ in range(whole_number("num_restarts", num_restarts, 1)):
        start = clustered(x, shares, count, generator)
        found, score = improve(start, x, shares, covariance, limits)
        if best is None or score > best_score:
            best, best_score = found, score
    assert best is not None
    return GaussianComponents(
        best.weights,
        centre + unit * best.means,
        unit[:, None] * best.covariances * unit,
    )


def clustered(
    x: Tensor, shares: Tensor, count: int, generator: torch.Generator | None
) -> GaussianComponents:
    """One component for each cluster of the rows x (n, d), found by k-means."""
    clusters = cluster(x, shares, count, generator)
    mass = shares.new_zeros(count).index_add(0, clusters.labels, shares).clamp(min=LEAST_MASS)
    covariances = cluster_covariances(x, shares, clusters)
    return GaussianComponents(mass / mass.sum(), clusters.centres, covariances)


def improve(
    start: GaussianComponents,
    x: Tensor,
    shares: Tensor,
    covariance: Covariance,
    limits: Limits,
) -> tuple[GaussianComponents, float]:
    """Steps of EM from a start until it stops improving, and the likelihood before the last one.

    ``shares`` (n,) are the weights of the rows x (n, d) and sum to one.
    """
    components = start._replace(covariances=covariance.restrict(start.covariances))
    previous = -math.inf
    for _ in range(limits.max_iterations):
        moments = expectation(components, x, shares, covariance)
        components = maximisation(moments, components, covariance, limits.floor)
        if abs(moments.log_likelihood - previous) < limits.tolerance:
            break
        previous = moments.log_likelihood
    return components, moments.log_likelihood


class Moments(NamedTuple):
    """What the rows say about components to which they belong by shares."""

    log_likelihood: float  # the mean over all rows
    mass: Tensor  # (k,)
    first: Tensor  # (k, d)
    second: Tensor  # (k, d, d)


def expectation(
    components: GaussianComponents, x: Tensor, shares: Tensor, covariance: Covariance
) -> Moments:
    """The E-step, some rows at a time."""
    total, mass = 0.0, torch.zeros_like(components.weights)
    first, second = torch.zeros_like(components.means), torch.zeros_like(components.covariances)
    log_densities, log_weights = covariance.log_densities(components), components.weights.log()
    size = _chunk_size(components)
    for rows, weight in zip(x.split(size), shares.split(size), strict=True):
        joint = log_densities(rows) + log_weights  # (n, k)
        log_prob = joint.logsumexp(1, keepdim=True)
        belongs = weight[:, None] * (joint - log_prob).exp()
        total += float(weight @ log_prob[:, 0])
        mass += belongs.sum(0)
        first += belongs.mT @ rows
        second += covariance.second_moments(rows, belongs)
    return Moments(total, mass, first, second)


def maximisation(
    moments: Moments, before: GaussianComponents, covariance: Covariance, floor: float
) -> GaussianComponents:
    """The M-step: weights, means and covariances of the rows that belong to each component."""
    is_empty = moments.mass < LEAST_MASS
    mass = moments.mass.clamp(min=LEAST_MASS)
    means = moments.first / mass[:, None]
    products = means[:, :, None] * means[:, None, :]
    covariances = covariance.restrict(moments.second / mass[:, None, None] - products)
    return GaussianComponents(
        mass / mass.sum(),
        torch.where(is_empty[:, None], before.means, means),
        torch.where(is_empty[:, None, None], before.covariances, raised(covariances, floor)),
    )


def raised(covariances: Tensor, floor: float) -> Tensor:
    """Covariances (k, d, d) with ``floor`` added to all variances, positive definite for sure."""
    raised = covariances + floor * torch.eye(covariances.shape[1], dtype=covariances.dtype)
    lost = torch.linalg.cholesky_ex(raised).info > 0
    if lost.any():  # rounding errors of far outliers exceed the floor
        values, vectors = torch.linalg.eigh(raised[lost])
        least = 1e-12 * values.amax(-1, keepdim=True).clamp(min=1)
        repaired = (vectors * torch.maximum(values, least)[:, None]) @ vectors.mT
        raised = raised.index_put((lost,), repaired)
    return raised


def _chunk_size(components: GaussianComponents) -> int:
    return max(1, ENTRIES // components.means.numel())


def complete_rows(data: Tensor, weights: Tensor | None) -> Sample:
    """The rows without gaps that count, in float64, and their weights."""
    given = data.shape[1] if isinstance(data, Tensor) and data.dim() == 2 else -1
    table = as_table(data, given, torch.device("cpu")).detach().double()
    shares = row_weights(weights, len(table))
    counts = ~table.isnan().any(1) & (shares > 0)
    if bool(table.isinf().any()) or not bool(counts.any()):
        raise ValueError(
            f"a Gaussian mixture needs finite numbers, and at least one row without gaps: got "
            f"{int(table.isinf().sum())} infinite values and {int(counts.sum())} rows without "
            "gaps. Fill the gaps, or start from initialise(), which needs no complete rows."
        )
    return Sample(table[counts], shares[counts])
