"""Binomial inputs: one probability per unit (paper: Sec. 5, binomials on discrete data)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from subtractive.inputs.base import Tensors, Window, state_weights
from subtractive.inputs.statistics import Sample, quantiles, shuffled_levels
from subtractive.inputs.univariate import UnivariateFamily
from subtractive.numerics.messages import LeafMessage, safe_log
from subtractive.numerics.validation import whole_number

# exp(-600) and its products with numbers of moderate size are far from the underflow of float64.
SAFE_EXPONENT = 600.0


def log_choose(total: int, device: torch.device) -> Tensor:
    """``log C(total, x)`` for x = 0 .. total, (v,) in float64."""
    log_factorial = torch.lgamma(torch.arange(1, total + 2, dtype=torch.float64, device=device))
    return log_factorial[-1] - log_factorial - log_factorial.flip(0)


def binomial_log_prob(logit: Tensor, total: int, x: Tensor) -> Tensor:
    r"""Logarithms of binomial probabilities, (f, n, i), of logits (f, i) at x (f, n) or (1, n).

    .. math:: \log C(N, x) + x \log σ(θ) + (N - x) \log σ(-θ)

    They are in float64, as the terms are much larger than their sum.

    >>> binomial_log_prob(torch.zeros(1, 1), 2, torch.tensor([[0, 1, 2]])).exp().flatten()
    tensor([0.2500, 0.5000, 0.2500], dtype=torch.float64)
    """
    logit, x = logit.double(), x.long()
    counts = torch.stack([x, total - x], -1).double()  # (f, n, 2)
    logs = torch.stack([logsigmoid(logit), logsigmoid(-logit)], -2)  # (f, 2, i)
    return log_choose(total, x.device)[x][..., None] + counts @ logs


def log_table_integral(table: Tensor, weights: Tensor) -> Tensor:
    """``log Σ_v w_v exp(T_iv)``, (f, m, i), of a table (f, i, v) and weights (f, m, v) >= 0."""
    mantissa, peak = _shifted(table, weights)
    return safe_log((mantissa @ weights[..., None])[..., 0]) + _finite(peak)


def log_table_gram(left: Tensor, right: Tensor, weights: Tensor, width: int) -> Tensor:
    """``log Σ_v w_v exp(S_iv + T_jv)``, (f, m, i, j): matrix products of ``width`` states each.

    ``left`` is (f, i, v), ``right`` (f, j, v), ``weights`` (f, m, v) >= 0.
    """
    mantissas, exponents = [], []
    chunks = (tensor.split(width, -1) for tensor in (left, right, weights))
    for left_chunk, right_chunk, share in zip(*chunks, strict=True):
        left_mantissa, left_peak = _shifted(left_chunk, share)
        right_mantissa, right_peak = left_mantissa, left_peak
        if right is not left:
            right_mantissa, right_peak = _shifted(right_chunk, share)
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
    the two at least. ``left`` and ``right`` are logits, (f, i) and (f, j).
    """
    logits = torch.cat([left, right], -1).detach()  # (f, i + j)
    spread = float((logits.amax(-1) - logits.amin(-1)).max())
    return max(1, int(2 * SAFE_EXPONENT / max(spread, 1e-3)))


def _shifted(table: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """``exp(table - peak)``, (f, m, i, v), zero without weight, and the peaks (f, m, i)."""
    ignored = (weights == 0)[:, :, None, :]
    masked = table[:, None].masked_fill(ignored, -math.inf)
    peak = masked.detach().amax(-1)
    return (masked - _finite(peak)[..., None]).exp(), peak


def _finite(peak: Tensor) -> Tensor:
    """Replace the peak of an empty sum by zero: it multiplies zeros."""
    return torch.where(peak == -math.inf, 0.0, peak)


@final
@dataclass(frozen=True)
class Binomial(UnivariateFamily):
    """Binomial probabilities, ``f_k(x) = C(N, x) p_k^x (1 - p_k)^(N - x)``, x = 0 .. total = N.

    The parameter is the logit of p; the probabilities start uniform in (0, 1).

    >>> circuit = sub.Circuit(sub.linear_tree(2), sub.Binomial(10), num_units=3, seed=0)
    >>> p = sub.SquaredCircuit(circuit)
    >>> round(p.pdf(0, torch.arange(11)).sum().item(), 6)
    1.0
    """

    total: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", whole_number("total", self.total, 0))

    @property
    def is_non_negative(self) -> bool:
        return True

    @property
    def num_states(self) -> int:
        return self.total + 1

    def init(self, num_units: int, generator: torch.Generator | None) -> dict[str, Tensor]:
        probability = torch.rand(num_units, generator=generator, dtype=torch.float64)
        return {"logit": probability.logit(eps=1e-6)}

    def init_from_data(
        self, sample: Sample, num_units: int, power: int, generator: torch.Generator | None
    ) -> dict[str, Tensor]:
        states, shares = sample.column(0)
        if len(states) == 0:
            return self.init(num_units, generator)
        chosen = quantiles(states, shares, shuffled_levels(num_units, generator))
        noise = torch.randn(num_units, generator=generator, dtype=torch.float64)
        # Off the ends, where a logit is infinite.
        return {"logit": ((chosen + 0.5) / (self.total + 1)).logit() + 0.1 * noise}

    def values(self, p: Tensors, x: Tensor) -> LeafMessage:
        exponent = binomial_log_prob(p["logit"], self.total, x[..., 0])
        return LeafMessage(None, exponent.to(p["logit"].dtype))

    def integral(self, p: Tensors, window: Window) -> LeafMessage:
        table = self._table(p)
        weights = state_weights(window, self.num_states, table)
        return LeafMessage(None, log_table_integral(table, weights).to(p["logit"].dtype))

    def gram(self, p: Tensors, q: Tensors, window: Window) -> LeafMessage:
        left = self._table(p)
        right = left if q is p else self._table(q)
        weights = state_weights(window, self.num_states, left)
        width = chunk_width(p["logit"], q["logit"])
        exponent = log_table_gram(left, right, weights, width)
        return LeafMessage(None, exponent.to(p["logit"].dtype))

    def _table(self, p: Tensors) -> Tensor:
        """All log-probabilities, (f, i, v) in float64."""
        states = torch.arange(self.num_states, device=p["logit"].device)
        return binomial_log_prob(p["logit"], self.total, states[None]).mT
