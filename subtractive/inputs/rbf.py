"""Radial basis functions at given centres: kernels of a PSD model (paper: Sec. 4, PSD models)."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from subtractive.inputs.base import Tensors, Window
from subtractive.inputs.gaussian import pair_product, window_integral
from subtractive.inputs.gaussian_log_density import HALF_LOG_TWO_PI, log_kernel
from subtractive.inputs.quadratic_form_sampling import uniforms
from subtractive.inputs.signed_mixture import draw_gaussian_square, draw_gaussian_units
from subtractive.inputs.univariate import UnivariateFamily
from subtractive.numerics.messages import LeafMessage


@final
@dataclass(frozen=True, init=False)
class RBF(UnivariateFamily):
    """Kernels ``f_k(x) = exp(-(x - c_k)² / 2 h_k²)``, one at each centre; nothing is learned.

    ``bandwidth`` h is one number, or one per centre. Sequences, arrays and tensors are stored as
    tuples, so that equal kernels are equal families.

    >>> RBF(torch.linspace(-1, 1, 3), 0.5)
    RBF(centres=(-1.0, 0.0, 1.0), bandwidth=(0.5, 0.5, 0.5))
    """

    centres: tuple[float, ...]
    bandwidth: tuple[float, ...]

    def __init__(
        self, centres: Sequence[float] | Tensor, bandwidth: float | Sequence[float] | Tensor
    ) -> None:
        places = tuple(float(centre) for centre in centres)
        widths = _numbers(bandwidth)
        if len(widths) == 1:
            widths = widths * len(places)
        if not places or not all(map(math.isfinite, places)):
            raise ValueError(f"RBF needs at least one centre, all finite, got centres {places}.")
        if len(widths) != len(places):
            raise ValueError(
                f"RBF needs one bandwidth, or one per centre: expected {len(places)}, got "
                f"{len(widths)}."
            )
        if not all(0 < width < math.inf for width in widths):
            raise ValueError(f"RBF needs positive, finite bandwidths, got {widths}.")
        object.__setattr__(self, "centres", places)
        object.__setattr__(self, "bandwidth", widths)

    @property
    def fold_key(self) -> Hashable:
        return RBF

    @property
    def is_non_negative(self) -> bool:
        return True

    def init(self, num_units: int, generator: torch.Generator | None) -> dict[str, Tensor]:
        return {}

    def constants(self, num_units: int) -> dict[str, Tensor]:
        if num_units != len(self.centres):
            raise ValueError(
                f"RBF has one unit per centre: expected {len(self.centres)} units, got "
                f"{num_units}. Set the number of input units to the number of centres."
            )
        bandwidth = torch.tensor(self.bandwidth, dtype=torch.float64)
        return {
            "centre": torch.tensor(self.centres, dtype=torch.float64),
            "log_scale": bandwidth.log(),
        }

    def values(self, p: Tensors, x: Tensor) -> LeafMessage:
        return LeafMessage(None, log_kernel(x, p["centre"][:, None], p["log_scale"][:, None]))

    def integral(self, p: Tensors, window: Window) -> LeafMessage:
        centre, log_scale = p["centre"][:, None], p["log_scale"][:, None]  # (f, 1, i)
        return window_integral(window, centre, log_scale, _log_volume(p)[:, None])

    def gram(self, p: Tensors, q: Tensors, window: Window) -> LeafMessage:
        mean, log_scale, log_weight = pair_product(_densities(p), _densities(q))
        log_volume = _log_volume(p)[:, None, :, None] + _log_volume(q)[:, None, None, :]
        return window_integral(window, mean, log_scale, log_weight + log_volume)

    def draw_square(
        self, p: Tensors, environment: Tensor, generator: torch.Generator | None
    ) -> Tensor:
        mean, log_scale, log_weight = pair_product(_densities(p), _densities(p))
        volume = _log_volume(p)[0]
        log_weight = log_weight[0, 0] + volume[:, None] + volume[None, :]
        products = (mean[0, 0], log_scale[0, 0], log_weight)
        return draw_gaussian_square(environment, products, uniforms(len(environment), generator))

    def draw_units(self, p: Tensors, units: Tensor, generator: torch.Generator | None) -> Tensor:
        return draw_gaussian_units(_densities(p), units, generator)


def _numbers(given: float | Sequence[float] | Tensor) -> tuple[float, ...]:
    return tuple(torch.as_tensor(given, dtype=torch.float64).reshape(-1).tolist())


def _densities(p: Tensors) -> Tensors:
    """The Gaussian densities that the kernels are multiples of."""
    return {"mean": p["centre"], "log_scale": p["log_scale"]}


def _log_volume(p: Tensors) -> Tensor:
    """``log ∫ f = log(h sqrt(2π))``, (f, i)."""
    return p["log_scale"] + HALF_LOG_TWO_PI
