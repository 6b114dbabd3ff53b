"""Positive forms of a region's units for many rows: what a square looks like from one side.

The square of everything on one side of a region is a positive semi-definite form of its units: a
gram, or fewer vectors whose squares add up to it. One vector is a side that is observed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from scipy.linalg import lapack
from torch import Tensor


class Form(NamedTuple):
    """``Σ_r u_ri u_rj``, the vectors u as ``factor`` (n, r, i) or their sum as ``gram`` (n, i, j).

    One of them may be ``None``. One row may stand for all rows.
    """

    factor: Tensor | None
    gram: Tensor | None

    @property
    def some(self) -> Tensor:
        """Whichever tensor is there."""
        tensor = self.gram if self.factor is None else self.factor
        assert tensor is not None
        return tensor

    @property
    def width(self) -> int:
        """How many units there are."""
        return self.some.shape[-1]

    @property
    def rank(self) -> int | None:
        """How many vectors there are, ``None`` if only the gram is known."""
        return None if self.factor is None else self.factor.shape[1]

    def rows(self, start: int, stop: int) -> Form:
        """The forms of some rows."""
        parts = (t if t is None or len(t) == 1 else t[start:stop] for t in self)
        return Form(*parts)

    def expanded(self) -> Tensor:
        """The gram, (n, i, j)."""
        if self.gram is not None:
            return self.gram
        assert self.factor is not None
        if self.factor.shape[1] == 1:
            return self.factor.mT * self.factor
        return torch.bmm(self.factor.mT, self.factor)


def shared_form(gram: Tensor) -> Form:
    r"""A gram (1, i, j) for all rows, and as few vectors as make it up.

    Cholesky's method takes the unit with the largest remainder first and stops where all are
    below i·ε of what they were. The rest ΔG is positive and on the diagonal below i·ε·G_ii, so
    :math:`|ΔG_{ij}| ≤ iε \sqrt{G_{ii} G_{jj}}`: no more than what rounding does to a sum over i
    units. It stays that small all the way up, because what is made of G is linear in it and
    increases with it.
    """
    array = gram[0].cpu().numpy()  # whose functions take less time than torch's for so few numbers
    size = np.sqrt(array.diagonal().clip(min=0))
    size[~(size > 0)] = 1
    tolerance = len(size) * np.finfo(array.dtype).eps
    lower, order, rank, _ = lapack.dpstrf(array / size / size[:, None], tol=tolerance, lower=1)
    if not 0 < rank < len(size):
        return Form(None, gram)
    vectors = np.empty((rank, len(size)))
    vectors[:, order - 1] = np.tril(lower[:, :rank]).T
    return Form(torch.from_numpy(vectors * size)[None].to(gram.device), gram)


def product_rank(ranks: Sequence[int | None], width: int) -> int | None:
    """How many vectors the product of forms consists of, ``None`` if its gram is smaller."""
    rank = math.prod(width + 1 if rank is None else rank for rank in ranks)
    return rank if rank <= width else None


def product(forms: Sequence[Form]) -> Form:
    """The element-wise product of forms of the same units."""
    if len(forms) == 1:
        return forms[0]
    if product_rank([form.rank for form in forms], forms[0].width) is not None:
        return Form(_every_pair([form.factor for form in forms]), None)
    vectors = [form.factor for form in forms if form.rank == 1]
    others = [form for form in forms if form.rank != 1]
    if vectors:
        # Into the smallest of what is still to be expanded.
        at = min(range(len(others)), key=lambda k: _size(others[k], vectors[0]))
        others[at] = _times_vector(others[at], _every_pair(vectors))
    result, *rest = sorted((form.expanded() for form in others), key=len, reverse=True)
    for gram in rest:
        result = result * gram
    return Form(None, result)


def _size(form: Form, vector: Tensor | None) -> int:
    """How many numbers it takes to multiply a form by vectors."""
    assert vector is not None
    rows = max(len(form.some), len(vector))
    if form.gram is not None:
        return rows * form.gram[0].numel()
    return rows * form.some[0].numel()


def _times_vector(form: Form, vector: Tensor) -> Form:
    if form.gram is None:
        assert form.factor is not None
        return Form(form.factor * vector, None)
    if len(form.gram) < len(vector):
        return Form(None, (vector.mT * vector).mul_(form.gram))
    return Form(None, (form.gram * vector).mul_(vector.mT))


def _every_pair(factors: Sequence[Tensor | None]) -> Tensor:
    """All products of one vector of each factor, (n, r, i)."""
    result: Tensor | None = None
    for factor in factors:
        assert factor is not None
        if result is None:
            result = factor
        elif result.shape[1] == 1 or factor.shape[1] == 1:
            result = result * factor
        else:
            result = (result[:, :, None] * factor[:, None]).flatten(1, 2)
    assert result is not None
    return result


def summed(form: Form, weight: Tensor) -> Form:
    """``W F Wᵀ`` with weights (o, i)."""
    if form.factor is not None:
        return Form(form.factor @ weight.T, None)
    assert form.gram is not None
    return Form(None, weight @ (form.gram @ weight.T))


class Sandwich:
    """``L diag(v) R`` of matrices (r, i), (i, o) for all rows and a vector for each, (n, r, o).

    Many rows are one large product of matrices with ``L_ri R_io``, which is faster than a small
    one for each row, as long as that table is no larger than what is made by it.
    """

    def __init__(self, left: Tensor, right: Tensor, num_rows: int) -> None:
        self.left, self.right = left, right
        self.table: Tensor | None = None
        if len(right) <= num_rows:
            self.table = (left.T[:, :, None] * right[:, None, :]).flatten(1)

    def of(self, vector: Form) -> Tensor:
        """The product for the vectors (n, 1, i) of some rows."""
        assert vector.factor is not None
        if self.table is None:
            return self.left @ (vector.factor.mT * self.right)
        product = vector.factor[:, 0] @ self.table
        return product.view(-1, len(self.left), self.right.shape[1])


def inner(one: Form, other: Form) -> Tensor:
    """``Σ_ij A_ij B_ij``, (n,)."""
    if one.rank is None and other.rank is None:
        return _dot(one.expanded(), other.expanded())
    if one.rank is None:
        one, other = other, one
    assert one.factor is not None
    if other.factor is not None:
        between = one.factor @ other.factor.mT  # (n, r, s)
        return _dot(between, between)
    return _dot(one.factor, one.factor @ other.expanded())


def joint_inner(one: Form, other: Form, bridge: Tensor) -> Tensor:
    """``tr(A M B Mᵀ)`` with a bridge M (n, i, k) between the units of two forms, (n,)."""
    between = bridge[0] if len(bridge) == 1 else bridge
    return _dot(one.expanded() @ between, between @ other.expanded())


def _dot(one: Tensor, other: Tensor) -> Tensor:
    return (one * other).sum((1, 2))
