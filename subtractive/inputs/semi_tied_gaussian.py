"""Gaussians with semi-tied covariances: one linear transform shared by all units (Gales, 1999)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from subtractive.inputs import gaussian_log_density
from subtractive.inputs.base import Tensors, Window
from subtractive.inputs.gaussian_log_density import HALF_LOG_TWO_PI
from subtractive.inputs.multivariate_gaussian import RegionGaussian
from subtractive.inputs.normal_products import NormalProducts
from subtractive.inputs.normals import cholesky_factor, outside
from subtractive.inputs.signed_mixture import pair_weights
from subtractive.inputs.statistics import FAR, Sample, location_and_spread
from subtractive.numerics.messages import LeafMessage

# In few variables units start apart in place, in many apart in width: places at random are then
# far from all rows. Standard deviations of places, and of which width, below so many variables.
FEW_VARIABLES = 20
SCATTER_IF_FEW, WIDTHS_IF_FEW, WIDTHS = 0.5, (-0.7, 0.3), (-1.0, 1.0)
# Units further than this from the centre, in their own widths, are computed in double precision.
FAR_IN_WIDTHS = 16.0
# Variances added to those of the rows at a start, as a share of those of the rows.
LEAST_VARIANCE = 1e-6


@final
@dataclass(frozen=True)
class SemiTiedGaussian(RegionGaussian, old_names=("TiedGaussian",)):
    r"""Gaussians of a region whose variables are independent after one common linear map.

    .. math:: f_k(x) ∝ N(y; m_k, \mathrm{diag}\, σ_k^2), \qquad y = B W (x - μ)

    B and W are triangular, and the same for all units. W and μ are fixed: in their coordinates,
    in which the rows are round, B, m_k and σ_k are learned from the identity, so that steps are
    small or large whatever the correlations are. In x all units are Gaussians of full covariance,
    and every query is answered as :class:`MultivariateGaussian` answers it; but values cost
    one change of coordinates, not one per unit, and integrals of pairs a sum over variables.
    ``norm`` is as it is there.

    >>> circuit = sub.Circuit(sub.flat([[0, 1, 2]]), sub.SemiTiedGaussian(norm=2), num_units=8)
    >>> sub.SquaredCircuit(circuit).sample(5, given={0: 1.0}).shape
    torch.Size([5, 3])
    """

    def init(
        self, size: int, num_units: int, generator: torch.Generator | None
    ) -> dict[str, Tensor]:
        mean = torch.randn(num_units, size, generator=generator, dtype=torch.float64)
        log_scale = 0.1 * torch.randn(num_units, size, generator=generator, dtype=torch.float64)
        return {"mean": mean, "log_scale": log_scale, **_identity(size)}

    def constants(self, size: int, num_units: int) -> dict[str, Tensor]:
        whiten = torch.eye(size, dtype=torch.float64)[None]
        return {"centre": torch.zeros(1, size, dtype=torch.float64), "whiten": whiten}

    def init_from_data(
        self, sample: Sample, num_units: int, power: int, generator: torch.Generator | None
    ) -> dict[str, Tensor]:
        centre, unit = location_and_spread(sample)
        points = ((sample.columns.double() - centre) / unit).nan_to_num(0.0).clamp(-FAR, FAR)
        shares = sample.weights / sample.weights.sum()
        mean = shares @ points
        deviation = points - mean
        covariance = unit[:, None] * (deviation.mT @ (shares[:, None] * deviation)) * unit
        covariance = covariance + (LEAST_VARIANCE * unit.square()).diag()
        return semi_tied_start(centre + unit * mean, covariance, num_units, power, generator)

    def update_scale(self, p: Tensors) -> dict[str, Tensor]:
        return {"mean": p["log_scale"].exp()}

    def values(self, p: Tensors, x: Tensor) -> LeafMessage:
        y = (x - p["centre"]) @ _map(p)[:, 0].mT  # (f, n, s)
        mean, log_scale = p["mean"], p["log_scale"]
        # Squares are multiplied out to be matrix products, for which narrow units far from the
        # centre need more digits.
        if bool((mean.detach().abs() * (-log_scale.detach()).exp()).amax() > FAR_IN_WIDTHS):
            y, mean, log_scale = y.double(), mean.double(), log_scale.double()
        precision = (-2 * log_scale).exp()  # (f, i, s)
        pull = mean * precision
        quadratic = torch.baddbmm(y.square() @ precision.mT, y, pull.mT, beta=-0.5)  # (f, n, i)
        constant = (0.5 * mean * pull + log_scale + HALF_LOG_TWO_PI).double().sum(-1)
        level = _log_volume(p) + self._log_height(p) - constant
        logs = (quadratic + level[:, None].to(quadratic.dtype)).to(x.dtype)
        return LeafMessage(None, outside(self.holes, x, logs))

    def full(self, p: Tensors) -> Tensors:
        return untied(p)

    def integral(self, p: Tensors, window: Window) -> LeafMessage:
        if window.is_total:
            return LeafMessage(None, self._log_height(p)[:, None].to(p["mean"].dtype))
        return super().integral(p, window)

    def gram(self, p: Tensors, q: Tensors, window: Window) -> LeafMessage:
        overlaps = _log_overlaps(p) if q is p and window.is_total else None
        if overlaps is None:
            return super().gram(p, q, window)
        height = self._log_height(p)
        heights = height[:, :, None] + height[:, None, :] + _log_volume(p)[..., None]
        return LeafMessage(None, (overlaps + heights)[:, None])

    def products(
        self, p: Tensors, environment: Tensor, x: Tensor, observed: Sequence[bool]
    ) -> NormalProducts:
        log_weight = None if any(observed) else self.gram(p, p, Window()).exponent
        if log_weight is None:
            return super().products(p, environment, x, observed)
        # Where nothing is observed, products are diagonal in the common coordinates.
        log_weight = log_weight[0]
        peak = log_weight.amax((1, 2), keepdim=True)
        weights, i, j = pair_weights(environment * (log_weight - peak).exp())
        back = _inverse_map(p)[0, 0]  # (s, s)
        precision = (-2 * p["log_scale"][0]).exp()  # (i, s)
        variance = 1 / (precision[i] + precision[j])  # (P, s)
        pull = precision * p["mean"][0]
        mean = p["centre"].flatten() + ((pull[i] + pull[j]) * variance) @ back.mT
        return NormalProducts(weights, mean[None], (back * variance[:, None]) @ back.mT)

    def _log_height(self, p: Tensors) -> Tensor:
        """log f_k / N_k, (f, i), in double precision."""
        log_diagonal = p["log_scale"].double() - _log_volume(p)[..., None] / p["mean"].shape[-1]
        return self.log_height({"mean": p["mean"], "log_diagonal": log_diagonal})


def untied(p: Tensors) -> Tensors:
    """The same Gaussians as :class:`MultivariateGaussian` has them.

    ``x = μ + A (m_k + σ_k z)`` for standard normal z, A being the inverse of B W: A with columns
    multiplied by σ_k is triangular, as a Cholesky factor is.
    """
    back = _inverse_map(p)
    factor = back * p["log_scale"].exp()[:, :, None, :]
    return {
        "mean": p["centre"] + (back @ p["mean"][..., None])[..., 0],
        "log_diagonal": back.diagonal(dim1=-2, dim2=-1).log() + p["log_scale"],
        "lower": factor.tril(-1),
    }


def semi_tied_start(
    mean: Tensor,
    covariance: Tensor,
    num_units: int,
    power: int,
    generator: torch.Generator | None,
    log_scales: Tensor | None = None,
) -> dict[str, Tensor]:
    """Units whose powers are spread over one Gaussian, its mean (s,), its covariance (s, s).

    ``log_scales`` (i,) say how much wider than it they are, and are chosen if not given.
    """
    size = len(mean)
    is_few = size < FEW_VARIABLES
    # A Gaussian to the power p is one of covariance Σ / p.
    factor = torch.linalg.cholesky(power * covariance)
    identity = torch.eye(size, dtype=factor.dtype)
    whiten = torch.linalg.solve_triangular(factor, identity, upper=False)
    scatter = (SCATTER_IF_FEW if is_few else 0.01) / math.sqrt(power)
    place = scatter * torch.randn(num_units, size, generator=generator, dtype=factor.dtype)
    if log_scales is None:
        least, largest = WIDTHS_IF_FEW if is_few else WIDTHS
        log_scales = torch.linspace(least, largest, num_units, dtype=factor.dtype)
        if num_units == 1:
            log_scales = torch.zeros(1, dtype=factor.dtype)
    else:
        place *= log_scales.exp()[:, None]
    widths = log_scales[:, None].expand(num_units, size)
    start = {"mean": place, "log_scale": widths.clone()}
    return {**start, **_identity(size), "centre": mean[None], "whiten": whiten[None]}


def _log_overlaps(p: Tensors) -> Tensor | None:
    """log ∫ N_i N_j dy of all pairs, (f, i, j); ``None`` if their scales differ too much."""
    regions, units, size = p["mean"].shape
    mean, log_scale = (p[name].mT.flatten(0, 1) for name in ("mean", "log_scale"))  # (f·s, i)
    overlaps = gaussian_log_density.log_overlaps(mean, log_scale, (mean, log_scale))
    return None if overlaps is None else overlaps.view(regions, size, units, units).sum(1)


def _identity(size: int) -> dict[str, Tensor]:
    """B at its start: the identity."""
    zeros = torch.zeros(1, size, size, dtype=torch.float64)
    return {"log_diagonal": zeros[:, 0].clone(), "lower": zeros}


def _map(p: Tensors) -> Tensor:
    """B W, (f, 1, s, s)."""
    return cholesky_factor(p) @ p["whiten"]


def _inverse_map(p: Tensors) -> Tensor:
    """A, the inverse of B W, (f, 1, s, s)."""
    change = _map(p)
    identity = torch.eye(change.shape[-1], dtype=change.dtype, device=change.device)
    back: Tensor = torch.linalg.solve_triangular(change, identity, upper=False)
    return back


def _log_volume(p: Tensors) -> Tensor:
    """log det B W, (f, 1), in double precision."""
    log_diagonal = p["whiten"].double().diagonal(dim1=-2, dim2=-1).log()
    return (p["log_diagonal"].double() + log_diagonal).sum(-1)
