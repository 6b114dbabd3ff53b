"""Embedding inputs: a real number per state and unit (paper: Sec. 5, embeddings of discrete data).

The functions above the class serve the other families of states too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import Tensor

from subtractive.inputs.base import EVERYWHERE, Tensors, Window, state_weights
from subtractive.inputs.statistics import Sample, histogram
from subtractive.inputs.univariate import UnivariateFamily
from subtractive.numerics.messages import LeafMessage
from subtractive.numerics.transforms import is_transformed
from subtractive.numerics.validation import whole_number

# How many states are widened at a time: few enough for a processor's cache.
_STATES_AT_ONCE = 2**11


def look_up(table: Tensor, index: Tensor) -> Tensor:
    """The columns of a table (f, i, v) at the states ``index`` (f, n): a view of shape (f, n, i).

    >>> look_up(torch.tensor([[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]]), torch.tensor([[2, 0]]))
    tensor([[[3., 6.],
             [1., 4.]]])
    """
    # Gathering along the stored axis copies no table, and its backward is one scatter into it.
    return table.gather(2, index[:, None, :].expand(-1, table.shape[1], -1)).mT


def window_weights(window: Window, table: Tensor) -> Tensor | None:
    """The weights (f, m, v) or (1, 1, v) of a table's states; ``None`` if all of them are one."""
    limits = (window.lower, window.upper, window.states)
    if window.power == 0 and all(limit is None for limit in limits):
        return None
    return state_weights(window, table.shape[-1], table).to(table.dtype)


def table_integral(table: Tensor, weights: Tensor | None) -> Tensor:
    """Weighted sums over the states, ``Σ_v w_v T_iv``, (f, m, i)."""
    return table.sum(-1)[:, None] if weights is None else weights @ table.mT


def table_gram(left: Tensor, right: Tensor, weights: Tensor | None) -> Tensor:
    """Weighted sums of products over the states, ``Σ_v w_v S_iv T_jv``, (f, m, i, j).

    >>> identity = torch.eye(2)[None]
    >>> table_gram(identity, identity, torch.tensor([[[3.0, 4.0]]]))
    tensor([[[[3., 0.],
              [0., 4.]]]])
    """
    if weights is None:
        return (left @ right.mT)[:, None]
    if weights.shape[1] <= right.shape[1]:
        weighted = left[:, None] * weights[:, :, None, :]  # (f, m, i, v)
        return weighted @ right[:, None].mT
    # With more rows than units the table of all products is the smaller one.
    products = left[:, :, None, :] * right[:, None, :, :]  # (f, i, j, v)
    sums = weights @ products.flatten(1, 2).mT  # (f, m, i j)
    return sums.view(*sums.shape[:2], left.shape[1], right.shape[1])


def wide_gram(table: Tensor) -> Tensor:
    """``T Tᵀ``, (f, i, j) in float64, of a table (f, i, v) in float32."""
    if is_transformed():
        return table.double() @ table.double().mT
    return WideGram.apply(table)  # type: ignore[no-any-return, no-untyped-call]


class WideGram(torch.autograd.Function):
    """``T Tᵀ``, (f, i, j) in float64, of a table (f, i, v) in float32, a part of it at a time.

    Neither way makes a wide copy of the table; its gradient ``(G + Gᵀ) T`` is as precise as the
    table itself.
    """

    @staticmethod
    def forward(ctx: Any, table: Tensor) -> Tensor:  # noqa: ANN401 - torch does not say
        ctx.save_for_backward(table)
        regions, units, states = table.shape
        gram = torch.zeros(regions, units, units, dtype=torch.float64, device=table.device)
        for region in range(regions):
            for part in table[region].split(_STATES_AT_ONCE, 1):
                wide = part.double()
                gram[region] += wide @ wide.mT
        return gram

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # noqa: ANN401
        (table,) = ctx.saved_tensors
        both = (gradient + gradient.mT).to(table.dtype)
        return both @ table  # type: ignore[no-any-return]


def share_states(present: Tensor) -> Tensor:
    """Whether two rows of a bool table (f, i, v) are both true at some state, (f, i, j)."""
    counts = present.float()
    return counts @ counts.mT > 0


@final
@dataclass(frozen=True, slots=True)  # slots: the field then stands in for the abstract property
class Embedding(UnivariateFamily):
    """A table of real numbers, ``f_k(x) = T_kx``, for the states x = 0 .. num_states - 1.

    The entries may have any sign, so these inputs are for squared circuits. They start uniform in
    [0, 1): the square begins as a non-negative model and learns what to subtract.

    >>> circuit = sub.Circuit(sub.linear_tree(3), sub.Embedding(4), num_units=2, seed=0)
    >>> p = sub.SquaredCircuit(circuit)
    >>> states = torch.cartesian_prod(*[torch.arange(4)] * 3)
    >>> round(p.log_prob(states).exp().sum().item(), 6)
    1.0
    """

    num_states: int = field()

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_states", whole_number("num_states", self.num_states, 1))

    @property
    def gram_dtype(self) -> torch.dtype | None:
        return None  # a table of many states is large enough without a wide copy of it

    def init(self, num_units: int, generator: torch.Generator | None) -> dict[str, Tensor]:
        shape = (num_units, self.num_states)
        return {"table": torch.rand(shape, generator=generator, dtype=torch.float64)}

    def init_from_data(
        self, sample: Sample, num_units: int, power: int, generator: torch.Generator | None
    ) -> dict[str, Tensor]:
        states, shares = sample.column(0)
        frequency = histogram(states, shares, self.num_states)
        height = (self.num_states * frequency) ** (1 / power)
        return {"table": height * self.init(num_units, generator)["table"]}

    def values(self, p: Tensors, x: Tensor) -> LeafMessage:
        return LeafMessage(look_up(p["table"], x[..., 0].long()), None)

    def integral(self, p: Tensors, window: Window) -> LeafMessage:
        return LeafMessage(table_integral(p["table"], window_weights(window, p["table"])), None)

    def gram(self, p: Tensors, q: Tensors, window: Window) -> LeafMessage:
        if q is p and window is EVERYWHERE and p["table"].dtype == torch.float32:
            return LeafMessage(wide_gram(p["table"])[:, None], None)
        left = p["table"].double()
        right = left if q is p else q["table"].double()
        return LeafMessage(table_gram(left, right, window_weights(window, left)), None)

    def overlap(self, p: Tensors) -> Tensor:
        return share_states(p["table"] != 0)
