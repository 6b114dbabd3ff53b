"""Binomial inputs: one probability per unit (paper: Sec. 5, binomials on discrete data)."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from subtractive.inputs.base import Tensors, UnivariateFamily, Window, state_weights
from subtractive.inputs.embedding import check_states, whole_number
from subtractive.numerics.scaled import Unscaled, safe_log

# exp(-600) and its products with numbers of moderate size are far from the underflow of float64.
SAFE_EXPONENT = 600.0


def log_choose(total: int, device: torch.device) -> Tensor:
    """``log C(total, x)`` for x = 0 .. total, (v,) in float64."""
    log_factorial = torch.lgamma(torch.arange(1, total + 2, dtype=torch.float64, device=device))
    return log_factorial[-1] - log_factorial - log_factorial.flip(0)


def binomial_log_prob(logit: Tensor, total: int, x: Tensor) -> Tensor:
    r"""Logarithms of binomial probabilities.

    .. math:: \log C(N, x) + x \log σ(θ) + (N - x) \log σ(-θ)

    ``logit`` θ and ``x`` broadcast. The result is in float64: its terms are much larger than it.

    >>> binomial_log_prob(torch.tensor(0.0), 2, torch.tensor([0, 1, 2])).exp().float()
    tensor([0.2500, 0.5000, 0.2500])
    """
    logit, x = logit.double(), x.long()
    ways = log_choose(total, x.device)[x]
    return ways + x * logsigmoid(logit) + (total - x) * logsigmoid(-logit)


def log_table_integral(table: Tensor, weights: Tensor) -> Tensor:
    """``log Σ_v w_v exp(T_iv)``, (f, m, i), of a table (f, i, v) and weights (f, m, v) >= 0."""
    mantissa, peak = _shifted(table, weights)
    return safe_log((mantissa @ weights[..., None])[..., 0]) + _finite(peak)


def log_table_gram(left: Tensor, right: Tensor, weights: Tensor, width: int) -> Tensor:
    """``log Σ_v w_v exp(S_iv + T_jv)``, (f, m, i, j): matrix products of ``width`` states each.

    ``left`` is (f, i, v), ``right`` (f, j, v), ``weights`` (f, m, v) >= 0.
    """
    mantissas, exponents = [], []
    for chunk in torch.arange(left.shape[-1], device=left.device).split(width):
        share = weights[..., chunk]
        left_mantissa, left_peak = _shifted(left[..., chunk], share)
        right_mantissa, right_peak = left_mantissa, left_peak
        if right is not left:
            right_mantissa, right_peak = _shifted(right[..., chunk], share)
        mantissas.append((left_mantissa * share[:, :, None, :]) @ right_mantissa.mT)
        exponents.append(left_peak[..., :, None] + right_peak[..., None, :])  # (f, m, i, j)
    peak = _finite(torch.stack(exponents).amax(0))
    total = torch.zeros_like(peak)
    for mantissa, exponent in zip(mantissas, exponents, strict=True):
        total = total + mantissa * (exponent - peak).exp()
    return safe_log(total) + peak


def chunk_width(left: Tensor, right: Tensor) -> int:
    """How many states two units may share before their product, each peaked at one, underflows.

    The log-probabilities of units i and j differ by (θ_i - θ_j) x plus a constant. Over ``width``
    states the one's fall at the other's peak is therefore at most ½ width |θ_i - θ_j|, for one of
    the two at least. ``left`` and ``right`` are logits.
    """
    logits = torch.cat([left.flatten(), right.flatten()]).detach()
    spread = float(logits.max() - logits.min())
    return max(1, int(2 * SAFE_EXPONENT / max(spread, 1e-3)))


def _shifted(table: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """``exp(table - peak)``, (f, m, i, v), zero without weight, and the peaks (f, m, i)."""
    ignored = (weights == 0)[:, :, None, :]
    masked = table[:, None].masked_fill(ignored, -math.inf)
    peak = masked.detach().amax(-1)
    return (masked - _finite(peak)[..., None]).exp(), peak


def _finite(peak: Tensor) -> Tensor:
    """The peak of nothing is as good as any: what it multiplies is zero."""
    return torch.where(peak == -math.inf, 0.0, peak)


@final
@dataclass(frozen=True)
class Binomial(UnivariateFamily):
    """Binomial probabilities, ``f_k(x) = C(N, x) p_k^x (1 - p_k)^(N - x)``, x = 0 .. total = N.

    The parameter is the logit of p; the probabilities start uniform in (0, 1).
    """

    total: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", whole_number("total", self.total, 0))

    @property
    def fold_key(self) -> Hashable:
        return Binomial, self.total

    @property
    def is_non_negative(self) -> bool:
        return True

    @property
    def num_states(self) -> int:
        return self.total + 1

    def check(self, column: Tensor, variable: int) -> None:
        check_states(column, variable, self.num_states)

    def parameters(
        self, size: int, num_units: int, generator: torch.Generator | None
    ) -> dict[str, Tensor]:
        probability = torch.rand(num_units, generator=generator, dtype=torch.float64)
        return {"logit": probability.logit(eps=1e-6)}

    def constants(self, size: int, num_units: int) -> dict[str, Tensor]:
        return {}

    def values(self, p: Tensors, x: Tensor) -> Unscaled:
        logit = p["logit"]
        exponent = binomial_log_prob(logit[:, None, :], self.total, x[..., :1])  # (f, n, i)
        return Unscaled(None, exponent.to(logit.dtype))

    def integral(self, p: Tensors, window: Window) -> Unscaled:
        table = self._table(p)
        weights = state_weights(window, self.num_states, table)
        return Unscaled(None, log_table_integral(table, weights).to(p["logit"].dtype))

    def gram(self, p: Tensors, q: Tensors, window: Window) -> Unscaled:
        left = self._table(p)
        right = left if q is p else self._table(q)
        weights = state_weights(window, self.num_states, left)
        width = chunk_width(p["logit"], q["logit"])
        exponent = log_table_gram(left, right, weights, width)
        return Unscaled(None, exponent.to(p["logit"].dtype))

    def overlap(self, p: Tensors) -> Tensor:
        num_regions, num_units = p["logit"].shape
        shape = (num_regions, num_units, num_units)
        return torch.ones(shape, dtype=torch.bool, device=p["logit"].device)

    def _table(self, p: Tensors) -> Tensor:
        """All log-probabilities, (f, i, v) in float64."""
        states = torch.arange(self.num_states, device=p["logit"].device)
        return binomial_log_prob(p["logit"][..., None], self.total, states)
