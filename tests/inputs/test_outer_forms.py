"""Forms of one vector for each row draw what the same forms as matrices draw."""

import pytest
import torch

import subtractive as sub
from subtractive.inputs.outer_forms import OuterForm, draw_outer, products_of_pairs

FAMILIES = {
    "gaussian": sub.Gaussian(),
    "few states": sub.Embedding(5),
    "many states": sub.Embedding(50),
    "atoms": sub.WithAtoms(sub.Gaussian(), atoms=(0.0, 1.0)),
    "spline": sub.Spline(6, domain=(-1.0, 1.0)),
}


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def form_of(num_rows, units, *, with_gram):
    vectors = torch.randn(num_rows, units, generator=seeded(1), dtype=torch.float64)
    root = torch.randn(units, 2, generator=seeded(2), dtype=torch.float64)
    return OuterForm(vectors, root @ root.mT if with_gram else None)


def tensors_of(family, units):
    learned, fixed = family.start(1, units, seeded(3))
    return {name: tensor.double()[None] for name, tensor in (learned | fixed).items()}


@pytest.mark.parametrize("with_gram", [False, True])
@pytest.mark.parametrize("num_rows", [0, 1, 20, 400])
@pytest.mark.parametrize("name", FAMILIES)
def test_values_are_those_drawn_from_matrices(name, num_rows, with_gram):
    family, form = FAMILIES[name], form_of(num_rows, 4, with_gram=with_gram)
    p = tensors_of(family, 4)
    found = draw_outer(family, p, form, seeded())
    expected = family.draw_square(p, form.matrix(), seeded())
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("with_gram", [False, True])
def test_diagonals_and_pairs_are_those_of_the_matrix(with_gram):
    form = form_of(7, 3, with_gram=with_gram)
    matrix = form.matrix()
    torch.testing.assert_close(form.diagonal(), matrix.diagonal(dim1=1, dim2=2))
    values = torch.randn(3, 1, generator=seeded(4), dtype=torch.float64)
    pairs = products_of_pairs(form.vectors.mT) * form.factor()[:, None]  # (P, n)
    total = (pairs * products_of_pairs(values)).sum(0)
    expected = (values.mT @ matrix @ values)[:, 0, 0]
    torch.testing.assert_close(total, expected, rtol=1e-12, atol=1e-12)
