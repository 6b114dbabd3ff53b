"""What a region looks like from above: the environment of its units in |c|².

With all outside a region fixed or integrated out, |c|² is a quadratic form Σ_ij E_ij a_i a_j*
of the region's units a. E is kept as ``left rightᴴ`` with r columns: below a root of S outputs,
while nothing is integrated out beside the way, r = S and a step down costs K·K·S, not K³.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from subtractive.numerics.scaled import normalise_rows


class Environment(NamedTuple):
    """E = left rightᴴ up to a positive factor for each row: (n, i, r) and (n or 1, i, r)."""

    left: Tensor
    right: Tensor

    @classmethod
    def of_root(cls, num_rows: int, num_outputs: int, dtype: torch.dtype) -> Environment:
        """Σ_s |c_s|²: the identity."""
        eye = torch.eye(num_outputs, dtype=dtype)[None]
        return cls(eye.expand(num_rows, -1, -1), eye)

    @classmethod
    def of_matrix(cls, matrix: Tensor) -> Environment:
        """A full matrix (n, i, j)."""
        eye = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)[None]
        return cls(normalise_rows(matrix), eye)

    def matrix(self) -> Tensor:
        """E, (n, i, j)."""
        return normalise_rows(self.left @ self.right.mH)

    def below_sum(self, weight: Tensor) -> Environment:
        """The environment ``Wᵀ E W*`` of the inputs of a sum with weights (o, i)."""
        weight = weight.to(self.left.dtype)
        return Environment(
            normalise_rows(weight.mT @ self.left), normalise_rows(weight.mT @ self.right)
        )


def below_hadamard(above: Environment, siblings: Sequence[Tensor]) -> Environment:
    """The environment of one factor of ``a ⊙ b ⊙ ...`` given the others.

    A sibling is the vector (n, i) of its units where it is known, or their gram (n, i, j) where
    it is integrated out: ``E ⊙ b bᴴ`` or ``E ⊙ B``.
    """
    left, right = above
    for sibling in siblings:
        if sibling.dim() == 2:
            left = normalise_rows(left * sibling[..., None])
            right = normalise_rows(right * sibling[..., None])
    grams = [sibling for sibling in siblings if sibling.dim() == 3]
    if not grams:
        return Environment(left, right)
    matrix = left @ right.mH
    for gram in grams:
        matrix = normalise_rows(matrix * gram)
    return Environment.of_matrix(matrix)


def below_kronecker(above: Environment, siblings: Sequence[Tensor], slot: int) -> Environment:
    """The environment of factor ``slot`` of ``a ⊗ b ⊗ ...`` given the others, in their order."""
    widths = [sibling.shape[1] for sibling in siblings]
    widths.insert(slot, above.left.shape[1] // math.prod(widths))
    # (n, sibling, sibling, ..., own, r): each sibling's axis is foremost in its turn.
    left, right = (
        side.reshape(side.shape[0], *widths, -1).movedim(1 + slot, -2) for side in above
    )
    for sibling in siblings:
        if sibling.dim() == 2:
            left, right = _contract(sibling, left), _contract(sibling, right)
        else:
            left, right = _join_columns(_apply(sibling.mT, left)), _join_columns(right)
    if all(sibling.dim() == 2 for sibling in siblings):
        return Environment(normalise_rows(left), normalise_rows(right))
    return Environment.of_matrix(left @ right.mH)


def _apply(matrix: Tensor, side: Tensor) -> Tensor:
    """A matrix (n, k, g) on the foremost axis of (n, g, ...)."""
    return torch.unflatten(matrix @ side.flatten(2), 2, side.shape[2:])


def _contract(vector: Tensor, side: Tensor) -> Tensor:
    """A vector (n, g) against the foremost axis of (n, g, ...)."""
    return _apply(vector[:, None, :], side)[:, 0]


def _join_columns(side: Tensor) -> Tensor:
    """From (n, g, ..., own, r) to (n, ..., own, r·g): what is integrated adds columns."""
    return side.movedim(1, -1).flatten(-2)
