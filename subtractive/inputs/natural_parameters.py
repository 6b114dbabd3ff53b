r"""Products of multivariate Gaussians by their natural parameters.

In the natural parameters of :math:`\log f(x) = -½ x^T Λ x + b^T x + c` a product is a sum, and so
is what evidence adds: only the variables that are integrated out need a decomposition, for each
pair of units one as large as their number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from subtractive.inputs.base import Tensors
from subtractive.inputs.gaussian_log_density import HALF_LOG_TWO_PI
from subtractive.inputs.normals import cholesky_factor, whiten

# Precisions of variables near scale one, beyond which sums of products lose too many digits.
LARGEST_PRECISION = 1e9


class PairConditionals(NamedTuple):
    """``∫ f_i f_j`` over what is not observed, and the Gaussian that the product is there."""

    log_integral: Tensor  # (f, P, n)
    mean: Tensor  # (f, P, u, n)
    scale: Tensor  # (f, P, u)


class NaturalParameters(NamedTuple):
    """Λ, b and c of the units of some regions."""

    precision: Tensor  # (f, i, s, s)
    pull: Tensor  # (f, i, s)
    level: Tensor  # (f, i)

    @property
    def is_safe(self) -> bool:
        """Whether sums of products of these numbers keep enough digits."""
        return bool(self.precision.detach().abs().amax() < LARGEST_PRECISION)

    def condition(
        self, x: Tensor, observed: Sequence[bool], first: Tensor, second: Tensor
    ) -> PairConditionals:
        """The products of pairs of units (P,), given rows x (n, s) of one pattern of gaps."""
        seen = [k for k, is_seen in enumerate(observed) if is_seen]
        rest = [k for k, is_seen in enumerate(observed) if not is_seen]
        known = x[:, seen].mT  # (o, n)
        pulled = self.precision[..., seen] @ known  # (f, i, s, n)
        quadratic = -0.5 * (pulled[..., seen, :] * known).sum(-2) + self.pull[..., seen] @ known
        values = quadratic + self.level[..., None]  # log f at x, zero in place of gaps, (f, i, n)
        slope = self.pull[..., rest, None] - pulled[..., rest, :]  # (f, i, u, n)
        gaps = self.precision[..., rest, :][..., rest]
        factor = torch.linalg.cholesky(gaps[:, first] + gaps[:, second])  # (f, P, u, u)
        white = whiten(factor, slope[:, first] + slope[:, second])
        log_volume = (factor.diagonal(dim1=-2, dim2=-1).log() - HALF_LOG_TWO_PI).sum(-1)
        inverse = whiten(factor, torch.eye(len(rest), dtype=x.dtype).expand_as(factor))
        exponent = 0.5 * white.square().sum(-2) - log_volume[..., None]
        return PairConditionals(
            values[:, first] + values[:, second] + exponent,
            inverse.mT @ white,
            inverse.square().sum(-2).sqrt(),
        )


def natural_parameters(p: Tensors, log_height: Tensor) -> NaturalParameters:
    """Those of Gaussians with means and Cholesky factors, times ``exp(log_height)``, (f, i)."""
    factor = cholesky_factor(p)
    identity = torch.eye(factor.shape[-1], dtype=factor.dtype)
    inverse = whiten(factor, identity.expand_as(factor))
    precision = inverse.mT @ inverse
    pull = (precision @ p["mean"][..., None])[..., 0]
    log_volume = (p["log_diagonal"] + HALF_LOG_TWO_PI).sum(-1)
    level = log_height - log_volume - 0.5 * (pull * p["mean"]).sum(-1)
    return NaturalParameters(precision, pull, level)
