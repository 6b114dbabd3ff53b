"""Quadratic forms E = v vᵀ ⊙ G of input functions, with one vector for each row.

Σ_ij E_ij f_i f_j is Σ_{i <= j} v_i v_j (G_ij f_i f_j), doubled off the diagonal: a mixture of
functions that are the same in all rows. Forms (n, i, j) of all rows need not exist.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from subtractive.inputs.base import Tensors
from subtractive.inputs.gaussian import Gaussian, pair_product
from subtractive.inputs.mixture_cells import Components, draw_in_cells
from subtractive.inputs.quadratic_form_sampling import uniforms
from subtractive.inputs.univariate import UnivariateFamily
from subtractive.numerics.inversion import choose_cell
from subtractive.numerics.leaf_operations import relative_values

# Of more states, ranges of them are drawn first.
_FEW_STATES = 32


class OuterForm(NamedTuple):
    """E = v vᵀ ⊙ G, or v vᵀ without ``gram``."""

    vectors: Tensor  # v, (n, i)
    gram: Tensor | None  # G, (i, j)

    def matrix(self) -> Tensor:
        """E, (n, i, j)."""
        form = self.vectors[:, :, None] * self.vectors[:, None, :]
        return form if self.gram is None else form.mul_(self.gram)

    def diagonal(self) -> Tensor:
        """E_ii, (n, i)."""
        squares = self.vectors.square()
        return squares if self.gram is None else squares.mul_(self.gram.diagonal())

    def factor(self) -> Tensor:
        """G_ij of the pairs i <= j, (P,), doubled off the diagonal."""
        units = self.vectors.shape[1]
        gram = torch.ones(units, units).to(self.vectors) if self.gram is None else self.gram
        i, j = torch.triu_indices(units, units)
        return gram[i, j] * torch.where(i == j, 1.0, 2.0)


def products_of_pairs(vectors: Tensor) -> Tensor:
    """v_i v_j of all pairs i <= j, (P, r), of vectors (i, r).

    >>> products_of_pairs(torch.tensor([[2.0], [3.0]])).flatten()
    tensor([4., 6., 9.])
    """
    units, rows = vectors.shape
    pairs = vectors.new_empty(units * (units + 1) // 2, rows)
    at = 0
    for unit in range(units):
        torch.mul(vectors[unit], vectors[unit:], out=pairs[at : at + units - unit])
        at += units - unit
    return pairs


def draw_outer(
    family: UnivariateFamily, p: Tensors, form: OuterForm, generator: torch.Generator | None
) -> Tensor:
    """A value (n,) from Σ_ij E_ij f_i f_j, as ``family.draw_square`` draws it."""
    if isinstance(family, Gaussian):
        return _draw_number(p, form, uniforms(len(form.vectors), generator))
    if family.num_states is not None and family.num_states <= _FEW_STATES:
        return _draw_state(family, p, form, uniforms(len(form.vectors), generator))
    return family.draw_square(p, form.matrix(), generator)


def _draw_number(p: Tensors, form: OuterForm, uniform: Tensor) -> Tensor:
    mean, log_scale, log_weight = (tensor[0, 0] for tensor in pair_product(p, p))
    i, j = torch.triu_indices(len(mean), len(mean))
    factor = form.factor() * (log_weight - log_weight.max()).exp()[i, j]
    vectors = form.vectors.mT.contiguous()  # (i, n)
    components = Components(mean[i, j], log_scale[i, j].exp(), factor)
    return draw_in_cells(
        components, lambda rows: products_of_pairs(vectors.index_select(1, rows)), uniform
    )


def _draw_state(family: UnivariateFamily, p: Tensors, form: OuterForm, uniform: Tensor) -> Tensor:
    states = torch.arange(family.num_states or 0, dtype=torch.float64)
    values = family.values(p, states[None, :, None])
    table = relative_values(values, values)[0].mT  # (i, v)
    products = products_of_pairs(table) * form.factor()[:, None]  # (P, v)
    masses = products.mT @ products_of_pairs(form.vectors.mT.contiguous())  # (v, n)
    return choose_cell(masses.mT.contiguous(), uniform)[0].double()
