"""Squared tensor trains over spline bases as circuits: TTDE (paper: Sec. 4, App. B.4).

The cores A_t (left, b, right) of a tensor train are the coefficients of products of B-splines::

    c(x) = F_0(x_0) F_1(x_1) ... F_{d-1}(x_{d-1}),   F_t(x) = Σ_b A_t[:, b, :] B_b(x)

and the density is c(x)² / Z: a Born machine whose states are basis functions.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from subtractive.circuits.layers import HadamardLayer, Layer
from subtractive.densities.squared import SquaredCircuit
from subtractive.inputs.spline import Spline
from subtractive.reductions.matrix_product_state import Cores, checked_cores, squared_chain


def squared_tensor_train(
    cores: Cores,
    bases: Spline | Sequence[Spline],
    *,
    product: type[Layer] = HadamardLayer,
    dtype: torch.dtype | None = None,
) -> SquaredCircuit:
    """The density c(x)² / Z of a tensor train in B-splines; one basis, or one per variable.

    Bonds and sizes are those of :func:`squared_matrix_product_state`, and
    :func:`matrix_product_state` gives cores back.

    >>> p = sub.reductions.squared_tensor_train(
    ...     [torch.ones(4, 2), torch.ones(2, 4)], sub.Spline(4)
    ... )
    >>> p.log_prob(torch.tensor([[0.3, 0.8]])).exp().detach()  # splines add up to one
    tensor([1.0000], dtype=torch.float64)
    """
    arrays = checked_cores(cores)
    splines = [bases] * len(arrays) if isinstance(bases, Spline) else list(bases)
    if len(splines) != len(arrays) or not all(isinstance(s, Spline) for s in splines):
        raise ValueError(
            f"bases needs one Spline, or a list of one per core: expected {len(arrays)}, got "
            f"{splines}."
        )
    for number, (core, spline) in enumerate(zip(arrays, splines, strict=True)):
        if core.shape[1] != spline.num_bases:
            raise ValueError(
                f"core {number} has {core.shape[1]} coefficients for {spline.num_bases} basis "
                f"functions. Give it a Spline of num_bases={core.shape[1]}."
            )
        if spline.non_negative:
            raise ValueError(
                "the splines of a tensor train have coefficients of any sign: leave out "
                "non_negative=True."
            )
    return squared_chain(arrays, splines, product=product, dtype=dtype)
