"""Checks of what users pass: whole numbers, states, finite columns and row weights."""

from __future__ import annotations

import math
import operator
from typing import SupportsIndex

import numpy as np
import torch
from torch import Tensor


def whole_number(name: str, value: SupportsIndex, least: int) -> int:
    """``value`` as an ``int``; ``ValueError`` unless a whole number of at least ``least``."""
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}.")
    return number


def check_states(column: Tensor, variable: int, num_states: int) -> None:
    """Raise ``ValueError`` unless a column (n,) holds whole numbers in 0 .. num_states - 1."""
    wrong = (column != column.floor()) | ~((column >= 0) & (column < num_states))
    if wrong.any():
        raise ValueError(
            f"variable {variable} must hold whole numbers in 0..{num_states - 1}, got "
            f"{column[wrong][0].item():g}. Number its states from 0 (numpy.unique(column, "
            "return_inverse=True) does), or give the variable a family with more states."
        )


def check_finite(
    column: Tensor, variable: int, support: tuple[float, float] = (-math.inf, math.inf)
) -> None:
    """Raise ``ValueError`` if a value of ``variable``, all in (n,), is infinite or outside."""
    infinite = column[~column.isfinite()]
    if infinite.numel() > 0:
        raise ValueError(
            f"variable {variable} is continuous and needs finite values, got "
            f"{infinite[0].item()}. Drop the row, or write NaN to integrate the value out."
        )
    lower, upper = support
    if (lower, upper) == (-math.inf, math.inf):
        return
    outside = column[(column < lower) | (column > upper)]
    if outside.numel() > 0:
        raise ValueError(
            f"variable {variable} must lie between {lower:g} and {upper:g}, got "
            f"{outside[0].item():g}."
        )


def check_weights(weights: object | None, num_rows: int, name: str = "weights") -> Tensor:
    """One non-negative number per row, (n,) in float64; ones if none are given.

    >>> check_weights(None, 2), check_weights([1, 0.5], 2)
    (tensor([1., 1.], dtype=torch.float64), tensor([1.0000, 0.5000], dtype=torch.float64))
    """
    if weights is None:
        return torch.ones(num_rows, dtype=torch.float64)
    try:
        given = (
            weights.detach().cpu().double()
            if isinstance(weights, Tensor)
            else torch.from_numpy(np.array(weights, dtype=np.float64))
        )
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(
            f"{name} must be numbers, one per row, got {type(weights).__name__}."
        ) from None
    if given.dim() == 0:
        given = given.expand(num_rows)
    if given.shape != (num_rows,):
        raise ValueError(
            f"{name} needs one number per row: expected shape {(num_rows,)}, got "
            f"{tuple(given.shape)}."
        )
    if not bool(((given >= 0) & given.isfinite()).all()):
        raise ValueError(f"{name} must be finite and not negative.")
    return given
