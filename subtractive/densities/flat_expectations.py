"""Expectations under mixtures of squared flat circuits of Gaussians, all members side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from subtractive.densities.flat_members import BLOCK, FlatMembers
from subtractive.inference.evidence import Evidence, rows_by_pattern
from subtractive.inference.expectations import Expectations
from subtractive.inputs.base import TestFunctions
from subtractive.inputs.multivariate_gaussian import RegionGaussian
from subtractive.inputs.natural_parameters import natural_parameters
from subtractive.inputs.signed_mixture import pair_weights

# Sums of signed weights that are smaller in proportion have lost too many digits.
LEAST_SHARE = 1e-6
# Products of units whose shares are smaller than this in all rows change no digit.
NEGLIGIBLE = 1e-15


def weigh_and_expect_flat(
    together: FlatMembers,
    log_prior: Tensor,
    evidence: Evidence,
    functions: Sequence[TestFunctions | None],
) -> tuple[Tensor, Expectations] | None:
    """log Σ_m w_m p_m(evidence), (n,), and expectations (n, q) for each variable.

    ``log_prior`` (m,) is log w_m / Z_m. ``None`` where there is no such form, or digits are lost.
    """
    family = together.family
    if not isinstance(family, RegionGaussian) or family.holes or not together.are_squared:
        return None
    full = family.full({name: tensor.double() for name, tensor in together.tensors.items()})
    natural = natural_parameters(full, family.log_height(full))
    if not natural.is_safe:
        return None
    weights = together.weights.double()
    environment, first, second = pair_weights(weights.mT @ weights)  # (m, P)
    log_weight = torch.zeros(len(evidence), dtype=torch.float64)
    result: Expectations = [
        None if f is None else torch.full((len(evidence), f.count), math.nan, dtype=torch.float64)
        for f in functions
    ]
    step = max(1, BLOCK // (4 * environment.numel() * evidence.x.shape[1]))
    for group in rows_by_pattern(evidence.observed):
        for rows in group.split(step):
            x, observed = evidence.x[rows].double(), evidence.observed[rows[0]].tolist()
            pairs = natural.condition(x, observed, first, second)
            logs, shares = _signed_shares(pairs.log_integral, environment, log_prior)
            if not bool(logs.isfinite().all()):
                return None
            log_weight = log_weight.index_copy(0, rows, logs)
            kept = (shares.detach().abs().amax(1) > NEGLIGIBLE).nonzero()[:, 0]  # (k,)
            mean, scale = pairs.mean.flatten(0, 1)[kept], pairs.scale.flatten(0, 1)[kept]
            rest = [variable for variable, is_seen in enumerate(observed) if not is_seen]
            for at, variable in enumerate(rest):
                function, before = functions[variable], result[variable]
                if function is not None and before is not None:
                    found = function.of_gaussians(shares[kept].mT, mean[:, at].mT, scale[:, at])
                    result[variable] = before.index_copy(0, rows, found)
    return log_weight, result


def _signed_shares(
    log_integral: Tensor, environment: Tensor, log_prior: Tensor
) -> tuple[Tensor, Tensor]:
    """log of the weights of rows, (n,), NaN where digits are lost; shares (m · P, n) of pairs."""
    logs = log_integral + log_prior[:, None, None]  # (m, P, n)
    peak = logs.detach().amax((0, 1))
    terms = (logs - peak).exp() * environment[..., None]
    total = terms.sum((0, 1))
    is_kept = (terms.sum(1) >= LEAST_SHARE * terms.abs().sum(1)).all(0)  # of each member
    log_weight = torch.where(is_kept & (total > 0), peak + total.log(), torch.nan)
    return log_weight, (terms / total).flatten(0, 1)
