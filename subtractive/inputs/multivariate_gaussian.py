"""Multivariate Gaussian inputs: densities of regions of several variables (paper: Sec. 2)."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from subtractive.inputs.base import Flags, Random, Tensors, TestFunctions, Window
from subtractive.inputs.gaussian import Gaussian
from subtractive.inputs.gaussian_log_density import HALF_LOG_TWO_PI
from subtractive.inputs.multivariate import MultivariateFamily
from subtractive.inputs.normal_products import (
    NormalProducts,
    draw_normal_products,
    normal_products,
    propose_normal_products,
    share_of_positive_part,
)
from subtractive.inputs.normals import (
    Normals,
    Pairs,
    Partial,
    cholesky_factor,
    conditional_normals,
    conditional_scales,
    log_normal,
    log_overlaps,
    observe,
    outside,
    unit_pairs,
    whiten,
)
from subtractive.inputs.quadratic_form_sampling import uniforms
from subtractive.inputs.statistics import (
    FAR,
    Sample,
    cluster,
    cluster_covariances,
    location_and_spread,
)
from subtractive.numerics.messages import LeafMessage
from subtractive.numerics.validation import whole_number

# Values that are proposed for a row before its variables are drawn one by one: exact in any case.
PROPOSALS = 8


@dataclass(frozen=True)
class RegionGaussian(MultivariateFamily):
    """What Gaussians of regions of several variables have in common, however they are stored.

    With ``norm`` p the integral of ``f_k ** p`` is one. ``holes`` are, for each variable of the
    region, points at which f is zero, because they are atoms that other members of a mixture have.
    """

    norm: int = 1
    holes: tuple[tuple[float, ...], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "norm", whole_number("norm", self.norm, 1))
        object.__setattr__(self, "holes", tuple(tuple(points) for points in self.holes))

    @property
    def is_non_negative(self) -> bool:
        return True

    @abstractmethod
    def full(self, p: Tensors) -> Tensors:
        """The means and Cholesky factors of all units, as MultivariateGaussian stores them."""

    def integral(self, p: Tensors, window: Window) -> LeafMessage:
        p = self.full(p)
        height = self.log_height(p)[:, None]  # (f, 1, i)
        if p["mean"].shape[-1] == 1:
            return _raised(Gaussian().integral(_univariate(p), window), height)
        _check_window(window, p)
        return LeafMessage(None, height)

    def gram(self, p: Tensors, q: Tensors, window: Window) -> LeafMessage:
        left = self.full(p)
        right = left if q is p else self.full(q)
        heights = self._log_heights(left, right)
        if left["mean"].shape[-1] == 1:
            products = Gaussian().gram(_univariate(left), _univariate(right), window)
            return _raised(products, heights)
        _check_window(window, left)
        normals = _normals(left)
        others = normals if q is p else _normals(right)
        overlaps = log_overlaps(normals, others, unit_pairs(left, right))
        return LeafMessage(None, overlaps + heights)

    def partial_integral(self, p: Tensors, x: Tensor, observed: Sequence[bool]) -> LeafMessage:
        p = self.full(p)
        logs = observe(p, x, observed).log_marginal + self.log_height(p)[:, None]
        return LeafMessage(None, outside(self.holes, x, logs, observed))

    def partial_gram(
        self, p: Tensors, q: Tensors, x: Tensor, observed: Sequence[bool]
    ) -> LeafMessage:
        left_tensors = self.full(p)
        right_tensors = left_tensors if q is p else self.full(q)
        left = observe(left_tensors, x, observed)
        right = left if q is p else observe(right_tensors, x, observed)
        heights = self._log_heights(left_tensors, right_tensors)
        logs = _log_gram(left, right, unit_pairs(p, q)) + heights
        return LeafMessage(None, outside(self.holes, x, logs, observed))

    def sample_square(
        self, p: Tensors, environment: Tensor, x: Tensor, observed: Flags, generator: Random
    ) -> Tensor:
        seen = [k for k, is_seen in enumerate(observed) if is_seen]
        rest = torch.tensor([k for k, is_seen in enumerate(observed) if not is_seen]).long()
        same = bool((x[:, seen] == x[:1, seen]).all())  # one condition for all rows
        products = self.products(p, environment, x[:1] if same else x, observed)
        factor = torch.linalg.cholesky(products.covariance)
        drawn, left = x.clone(), torch.arange(len(x))
        for _ in range(PROPOSALS if len(x) > 0 else 0):
            values = propose_normal_products(products.rows(left), factor, generator)
            full = x[left].index_copy(1, rest, values)
            log_values = self.values(p, full[None]).exponent
            assert log_values is not None
            share = share_of_positive_part(environment[left], log_values[0])
            kept = uniforms(len(left), generator) < share
            drawn[left[kept]] = full[kept]
            left = left[~kept]
            if len(left) == 0:
                return drawn
        uniform = torch.rand(len(left), len(rest), generator=generator, dtype=torch.float64)
        values = draw_normal_products(products.rows(left), uniform)
        return drawn.index_copy(0, left, x[left].index_copy(1, rest, values))

    def sample_units(
        self, p: Tensors, units: Tensor, x: Tensor, observed: Flags, generator: Random
    ) -> Tensor:
        partial = observe(self.full(p), x, observed)
        mean, factor = partial.conditional  # (f, i, u, n), (f, i, u, u)
        rest = torch.tensor([k for k, is_seen in enumerate(observed) if not is_seen]).long()
        region = torch.arange(len(units))[:, None]
        noise = torch.randn(*units.shape, len(rest), generator=generator, dtype=torch.float64)
        means = mean.movedim(-1, 1)  # (f, n or 1, i, u)
        row = torch.arange(units.shape[1])[None] if means.shape[1] > 1 else 0
        drawn = means[region, row, units] + (factor[region, units] @ noise[..., None])[..., 0]
        return x.index_copy(2, rest, drawn)

    def expectations_square(
        self,
        p: Tensors,
        environment: Tensor,
        x: Tensor,
        observed: Sequence[bool],
        functions: Sequence[TestFunctions | None],
    ) -> list[Tensor | None]:
        products = self.products(p, environment, x, observed)
        weights = products.weights / products.weights.sum(-1, keepdim=True)
        scales = products.covariance.diagonal(dim1=-2, dim2=-1).sqrt()  # (P, u)
        return _expectations_of_each(observed, functions, weights, products.mean, scales)

    def expectations_units(
        self,
        p: Tensors,
        shares: Tensor,
        x: Tensor,
        observed: Sequence[bool],
        functions: Sequence[TestFunctions | None],
    ) -> list[Tensor | None]:
        mean, scales = conditional_normals(self.full(p), x, observed)
        return _expectations_of_each(observed, functions, shares, mean, scales)

    def products(
        self, p: Tensors, environment: Tensor, x: Tensor, observed: Sequence[bool]
    ) -> NormalProducts:
        """Σ_ij E_ij f_i f_j as a signed mixture of Gaussians of what is not observed."""
        full = self.full(p)
        partial = observe(full, x[None], observed)
        log_weight = _log_gram(partial, partial, unit_pairs(p, p)) + self._log_heights(full, full)
        mean, factor = partial.conditional  # (1, i, u, n), (1, i, u, u)
        return normal_products(environment, log_weight[0], mean[0].movedim(-1, 0), factor[0])

    def tilted_gram(
        self, p: Tensors, x: Tensor, observed: Sequence[bool], tilt: Tensor
    ) -> LeafMessage:
        log_gram = self.partial_gram(p, p, x[None], observed).exponent  # (1, 1, i, j)
        assert log_gram is not None
        units = p["mean"].shape[1]
        every = torch.ones(1, units, units, dtype=x.dtype)
        products = self.products(p, every, x, observed)
        factor = _tilt_factor(observed, tilt, products.mean[0], products.covariance)  # (P,)
        i, j = torch.triu_indices(units, units)
        mantissa = torch.zeros(units, units, dtype=x.dtype)
        mantissa = mantissa.index_put((i, j), factor).index_put((j, i), factor)
        return LeafMessage(mantissa[None, None], log_gram)

    def tilted_integral(
        self, p: Tensors, x: Tensor, observed: Sequence[bool], tilt: Tensor
    ) -> LeafMessage:
        p = self.full(p)
        log_marginal, (mean, factor) = observe(p, x[None], observed)
        covariance = factor[0] @ factor[0].mT
        mantissa = _tilt_factor(observed, tilt, mean[0, :, :, 0], covariance)
        return LeafMessage(mantissa[None, None], log_marginal + self.log_height(p)[:, None])

    def log_height(self, p: Tensors) -> Tensor:
        """log f_k / N_k = -log(∫ N_k^p) / p, (f, i)."""
        log_root = p["log_diagonal"].sum(-1)  # ½ log |Σ|
        size, power = p["mean"].shape[-1], self.norm
        if power == 1:
            return torch.zeros_like(log_root)
        constant = (power - 1) * HALF_LOG_TWO_PI + 0.5 * math.log(power)
        return ((power - 1) * log_root + size * constant) / power

    def _log_heights(self, p: Tensors, q: Tensors) -> Tensor:
        """Those of all products f_i g_j, (f, 1, i, j)."""
        return self.log_height(p)[:, None, :, None] + self.log_height(q)[:, None, None, :]


@final
@dataclass(frozen=True)
class MultivariateGaussian(RegionGaussian):
    """Gaussians ``f_k(x) ∝ N(x; μ_k, L_k L_kᵀ)`` of regions of any size.

    The parameters are μ, the logarithms of the diagonal of L, and what is below it. With ``norm``
    p the integral of ``f_k ** p`` is one. Densities (p = 1) in many variables differ in height by
    more than weights of sums can balance; where they are squared, p = 2 lets them start alike.

    >>> region = sub.flat([[0, 1, 2]])
    >>> circuit = sub.Circuit(region, sub.MultivariateGaussian(norm=2), num_units=4, seed=0)
    >>> sub.SquaredCircuit(circuit).covariance().shape
    torch.Size([3, 3])
    """

    def init(
        self, size: int, num_units: int, generator: torch.Generator | None
    ) -> dict[str, Tensor]:
        shape = (num_units, size)
        mean = torch.randn(shape, generator=generator, dtype=torch.float64)
        log_diagonal = 0.1 * torch.randn(shape, generator=generator, dtype=torch.float64)
        lower = torch.zeros(num_units, size, size, dtype=torch.float64)
        return {"mean": mean, "log_diagonal": log_diagonal, "lower": lower}

    def init_from_data(
        self, sample: Sample, num_units: int, power: int, generator: torch.Generator | None
    ) -> dict[str, Tensor]:
        centre, unit = location_and_spread(sample)
        points = (sample.columns.double() - centre) / unit
        # Gaps go to the middle, and outliers must not become the only clusters.
        points = points.nan_to_num(0.0).clamp(-FAR, FAR)
        clusters = cluster(points, sample.weights, num_units, generator)
        # A Gaussian to the power p is one of covariance Σ / p.
        covariance = power * cluster_covariances(points, sample.weights, clusters)
        factor = unit[:, None] * torch.linalg.cholesky(covariance)
        return {
            "mean": centre + unit * clusters.centres,
            "log_diagonal": factor.diagonal(dim1=-2, dim2=-1).log(),
            "lower": factor.tril(-1),
        }

    def update_scale(self, p: Tensors) -> dict[str, Tensor]:
        factor = cholesky_factor(p)
        below = factor.diagonal(dim1=-2, dim2=-1)[..., None].expand_as(factor)
        return {"mean": conditional_scales(factor), "lower": below}

    def full(self, p: Tensors) -> Tensors:
        return p

    def values(self, p: Tensors, x: Tensor) -> LeafMessage:
        deviation = x.mT[:, None] - p["mean"][..., None]  # (f, i, s, n)
        factor = cholesky_factor(p)
        log_density = log_normal(factor, whiten(factor, deviation)).mT  # (f, n, i)
        return LeafMessage(None, outside(self.holes, x, log_density + self.log_height(p)[:, None]))


def _log_gram(left: Partial, right: Partial, pairs: Pairs) -> Tensor:
    """log ∫ N_i N_j over what is not observed, (f, n, i, j)."""
    marginals = left.log_marginal[..., :, None] + right.log_marginal[..., None, :]
    return marginals + log_overlaps(left.conditional, right.conditional, pairs)


def _expectations_of_each(
    observed: Sequence[bool],
    functions: Sequence[TestFunctions | None],
    weights: Tensor,
    mean: Tensor,
    scales: Tensor,
) -> list[Tensor | None]:
    """Expectations for the variables not observed, from mixtures with means (n, k, u)."""
    found: list[Tensor | None] = [None] * len(observed)
    rest = [k for k, is_seen in enumerate(observed) if not is_seen]
    for at, variable in enumerate(rest):
        function = functions[variable]
        if function is not None:
            found[variable] = function.of_gaussians(weights, mean[..., at], scales[:, at])
    return found


def _tilt_factor(
    observed: Sequence[bool], tilt: Tensor, mean: Tensor, covariance: Tensor
) -> Tensor:
    """E[1 + t + t²/2], t = Σ_k θ_k x_k, of Gaussians with means (k, u) and covariances."""
    free = tilt[[k for k, is_seen in enumerate(observed) if not is_seen]]
    first = mean @ free
    return 1 + first + 0.5 * (first.square() + (covariance @ free) @ free)


def _raised(values: LeafMessage, log_factor: Tensor) -> LeafMessage:
    exponent = log_factor if values.exponent is None else values.exponent + log_factor
    return LeafMessage(values.mantissa, exponent)


def _univariate(p: Tensors) -> Tensors:
    return {"mean": p["mean"][..., 0], "log_scale": p["log_diagonal"][..., 0]}


def _normals(p: Tensors) -> Normals:
    return Normals(p["mean"][..., None], cholesky_factor(p))


def _check_window(window: Window, p: Tensors) -> None:
    if window.lower is not None or window.upper is not None or window.power != 0:
        raise ValueError(
            "MultivariateGaussian has no closed form for boxes and moments of a region of "
            f"{p['mean'].shape[-1]} variables. Give each variable a region of its own, with "
            "Gaussian inputs."
        )
