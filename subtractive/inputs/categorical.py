"""Categorical inputs: a table of probabilities per unit (paper: Sec. 5, monotonic circuits)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import final

import torch
from torch import Tensor

from subtractive.inputs.base import Tensors, Window
from subtractive.inputs.embedding import (
    look_up,
    share_states,
    table_gram,
    table_integral,
    window_weights,
)
from subtractive.inputs.statistics import Sample, histogram
from subtractive.inputs.univariate import UnivariateFamily
from subtractive.numerics.messages import LeafMessage
from subtractive.numerics.validation import whole_number


def window_table(logits: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Probabilities (f, i, v) of the states that count, each over exp(peak), and the peaks (f, i).

    States of weights (f, m, v) that are zero in every row do not count: the rarest of states is
    as exact in a window of its own as the most frequent one.
    """
    log_table = logits.log_softmax(-1)
    ignored = ~(weights != 0).any(1)[:, None, :]  # (f, 1, v)
    log_table = log_table.masked_fill(ignored, -math.inf)
    peak = log_table.detach().amax(-1)  # (f, i)
    peak = torch.where(peak == -math.inf, 0.0, peak)
    return (log_table - peak[..., None]).exp(), peak


@final
@dataclass(frozen=True, slots=True)  # slots: the field then stands in for the abstract property
class Categorical(UnivariateFamily):
    """Categorical probabilities, ``f_k(x) = softmax(logits_k)_x``, x = 0 .. num_states - 1.

    Non-negative, for monotonic circuits. The tables start uniform on the simplex.

    >>> positive = {"weights": sub.positive_weights, "seed": 0}
    >>> circuit = sub.Circuit(sub.linear_tree(2), sub.Categorical(4), num_units=3, **positive)
    >>> sub.MonotonicCircuit(circuit).sample(5).shape
    torch.Size([5, 2])
    """

    num_states: int = field()

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_states", whole_number("num_states", self.num_states, 1))

    @property
    def is_non_negative(self) -> bool:
        return True

    def init(self, num_units: int, generator: torch.Generator | None) -> dict[str, Tensor]:
        # Normalised exponential variables are a flat Dirichlet draw; they are never exactly zero.
        draw = torch.empty(num_units, self.num_states, dtype=torch.float64)
        return {"logits": draw.exponential_(generator=generator).log()}

    def init_from_data(
        self, sample: Sample, num_units: int, power: int, generator: torch.Generator | None
    ) -> dict[str, Tensor]:
        states, shares = sample.column(0)
        frequency = histogram(states, shares, self.num_states)
        noise = self.init(num_units, generator)["logits"]
        return {"logits": frequency.log() / power + noise}

    def values(self, p: Tensors, x: Tensor) -> LeafMessage:
        return LeafMessage(None, look_up(p["logits"].log_softmax(-1), x[..., 0].long()))

    def integral(self, p: Tensors, window: Window) -> LeafMessage:
        logits = p["logits"]
        weights = window_weights(window, logits)
        if weights is None:  # probabilities sum to one, whatever the parameters
            return LeafMessage(logits.new_ones(logits.shape[0], 1, logits.shape[1]), None)
        table, peak = window_table(logits, weights)
        mantissa = table_integral(table, weights)
        return LeafMessage(mantissa, peak[:, None, :].expand_as(mantissa))

    def gram(self, p: Tensors, q: Tensors, window: Window) -> LeafMessage:
        weights = window_weights(window, p["logits"])
        if weights is None:
            left = p["logits"].softmax(-1)
            right = left if q is p else q["logits"].softmax(-1)
            return LeafMessage(table_gram(left, right, None), None)
        left, left_peak = window_table(p["logits"], weights)
        right, right_peak = (left, left_peak) if q is p else window_table(q["logits"], weights)
        mantissa = table_gram(left, right, weights)
        exponent = left_peak[:, None, :, None] + right_peak[:, None, None, :]  # (f, 1, i, j)
        return LeafMessage(mantissa, exponent.expand_as(mantissa))

    def overlap(self, p: Tensors) -> Tensor:
        return share_states(p["logits"] > -math.inf)
