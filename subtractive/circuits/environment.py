"""The environment of a region: the quadratic form of its units that |c|² is.

With all outside a region fixed or integrated out, |c|² is a quadratic form Σ_ij E_ij a_i a_j*
of the region's units a. Below a root of S outputs, while nothing is integrated out beside the
way, E has rank S: kept as a product of two factors, a step down costs K·K·S, not K³.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from subtractive.numerics.messages import Message, multiply, normalise_rows


class Environment(NamedTuple):
    """E_ij = Σ_r left_ri right_rj*, (n or 1, r, i) each, up to a positive factor for each row.

    Without ``right``, E is ``left`` itself, (n or 1, i, j).
    """

    left: Tensor
    right: Tensor | None

    @classmethod
    def of_root(cls, num_outputs: int, dtype: torch.dtype) -> Environment:
        """Σ_s |c_s|²: the identity."""
        return cls(torch.eye(num_outputs, dtype=dtype)[None], None)

    def matrix(self) -> Tensor:
        """E, (n or 1, i, j)."""
        return self.left if self.right is None else _product(self.left, self.right)

    def factors(self) -> tuple[Tensor, Tensor]:
        """Left and right, both (n or 1, r, i)."""
        if self.right is not None:
            return self.left, self.right
        eye = torch.eye(self.left.shape[-1], dtype=self.left.dtype, device=self.left.device)
        return self.left.mT, eye[None]

    def below_sum(self, weight: Tensor) -> Environment:
        """The environment ``Wᵀ E W*`` of the inputs of a sum with weights (o, i)."""
        weight = normalise_rows(weight.to(self.left.dtype)[None])[0]
        if self.right is None:
            # E is Hermitian: its conjugate is its transpose.
            left, right = self.left.conj() @ weight, weight[None]
        else:
            left, right = self.left @ weight, self.right @ weight
        rank, width = left.shape[1:]
        if rank < width:
            return Environment(normalise_rows(left), normalise_rows(right))
        return Environment(_levelled(_product(left, right)), None)


def below_hadamard(above: Environment, siblings: Sequence[Message]) -> Environment:
    """The environment of one factor of ``a ⊙ b ⊙ ...`` given the others.

    The message of a sibling is the vector (1, n, i) of its units where it is known, or their gram
    (1, n, i, j) where it is integrated out: ``E ⊙ b bᴴ`` or ``E ⊙ B``.
    """
    # All siblings at once: inputs that disagree by more than a float can hold add their exponents.
    sibling = multiply(siblings).mantissa[0].to(above.left.dtype)
    if sibling.dim() == 3:
        return Environment(_levelled(above.matrix() * sibling), None)
    vector = sibling[:, None, :]  # (n, 1, i)
    if above.right is not None:
        left, right = above.left * vector, above.right * vector
        return Environment(normalise_rows(left), normalise_rows(right))
    # Small units may count, where large ones meet zeros: level first, then square.
    size = above.left.diagonal(dim1=-2, dim2=-1).real.clamp(min=0).sqrt()[:, None, :]
    peak = _or_one((size * vector).detach().abs().amax(-1, keepdim=True))
    vector = vector / peak
    return Environment(above.left * vector.mT * vector.conj(), None)


def below_kronecker(above: Environment, siblings: Sequence[Message], slot: int) -> Environment:
    """The environment of factor ``slot`` of ``a ⊗ b ⊗ ...`` given the others, in their order."""
    others = [multiply([sibling]).mantissa[0].to(above.left.dtype) for sibling in siblings]
    widths = [other.shape[1] for other in others]
    widths.insert(slot, above.left.shape[-1] // math.prod(widths))
    # (n, r, sibling, sibling, ..., own): each sibling's axis comes after r in its turn.
    left, right = (side.unflatten(2, widths).movedim(2 + slot, -1) for side in above.factors())
    for other in others:
        if other.dim() == 2:
            left, right = (_apply(other[:, None], side)[:, :, 0] for side in (left, right))
        else:
            # What is integrated adds terms to the sum over r.
            left, right = _apply(other.mT, left).flatten(1, 2), right.flatten(1, 2)
    if all(other.dim() == 2 for other in others):
        return Environment(normalise_rows(left), normalise_rows(right))
    return Environment(_levelled(_product(left, right)), None)


def _apply(matrix: Tensor, side: Tensor) -> Tensor:
    """A matrix (n, k, g) on the third axis of (n, r, g, ...)."""
    return torch.unflatten(matrix[:, None] @ side.flatten(3), 3, side.shape[3:])


def _product(left: Tensor, right: Tensor) -> Tensor:
    """E_ij = Σ_r left_ri right_rj*, (n, i, j)."""
    return left.mT @ right.conj()


def _levelled(form: Tensor) -> Tensor:
    """Divide positive semi-definite forms (n, i, j) by their largest entries, on the diagonal.

    In place: an environment of many rows is large, and nobody else holds it yet.
    """
    peak = form.detach().diagonal(dim1=-2, dim2=-1).real.amax(-1)
    return form.div_(_or_one(peak)[:, None, None])


def _or_one(peak: Tensor) -> Tensor:
    return torch.where(peak > 0, peak, 1.0)
