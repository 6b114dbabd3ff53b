"""Limits of what units say: no Gaussian finer than its column, no state less than possible."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from subtractive.densities.base import Density
from subtractive.inputs.categorical import Categorical
from subtractive.inputs.layer import InputLayer
from subtractive.tables.columns import LEAST_SCALE, Column, Numeric
from subtractive.tables.transforms import NormalScores

# Normal scores have a spread of one: broader Gaussians would only make for heavy tails.
LARGEST_SCALE = 1.25
# Of a full covariance it is the width given all other columns that is bounded, by this share.
LEAST_CONDITIONAL = 1e-3


def scale_limits(columns: Sequence[Column]) -> Tensor:
    """The least and the largest width of a Gaussian of each variable, (d, 2), in its codes."""
    limits = []
    for column in columns:
        least = column.least_scale if isinstance(column, Numeric) else LEAST_SCALE
        is_normal = isinstance(column, Numeric) and isinstance(column.transform, NormalScores)
        limits.append([least, LARGEST_SCALE if is_normal else math.inf])
    return torch.tensor(limits, dtype=torch.float64)


@torch.no_grad()
def limit_scales(density: Density, limits_of: Tensor, power: int) -> None:
    """Bring, in place, widths of Gaussians into the limits (d, 2) of their variables.

    The density is made of functions to this ``power``, and a Gaussian of width σ to the power p
    has the width σ / √p.
    """
    for layer in density.modules():
        if not isinstance(layer, InputLayer):
            continue
        is_single = layer.variables.shape[1] == 1
        name = "log_scale" if is_single else "log_diagonal"
        if name not in layer.names:
            continue
        tensor = layer.get_tensor(name)
        if is_single:
            limits = (math.sqrt(power) * limits_of[layer.variables[:, 0]]).log()  # (f, 2)
            tensor.clamp_(limits[:, :1].to(tensor.dtype), limits[:, 1:].to(tensor.dtype))
        elif "whiten" in layer.names:  # B and the widths share the covariance
            half = 0.5 * math.log(LEAST_CONDITIONAL)
            tensor.clamp_(half, -half)
            layer.get_tensor("log_scale").clamp_(min=half)
        else:
            tensor.clamp_(min=math.log(math.sqrt(power) * LEAST_CONDITIONAL))


@torch.no_grad()
def limit_shares(density: Density, num_rows: float) -> None:
    """Raise, in place, the shares of states that are next to nothing in a unit.

    The least share of v states is that of one row more than there are, spread over all of them,
    1 / (v (n + 1)): a level that was declared and never seen is as probable as that.
    """
    for layer in density.modules():
        if isinstance(layer, InputLayer) and isinstance(layer.family, Categorical):
            logits = layer.get_tensor("logits")
            least = -math.log(layer.family.num_states * (num_rows + 1))
            logits.copy_(logits.log_softmax(-1).clamp(min=least))
