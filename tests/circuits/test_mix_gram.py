import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from subtractive.circuits import sums
from subtractive.circuits.sums import mix_gram

CLOSE = {"rtol": 1e-12, "atol": 1e-12}
REAL, COMPLEX = torch.float64, torch.complex128


def draw(*shape, seed=0, dtype=REAL):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def gram_of(factor):
    """A gram, its own adjoint whatever the factor (f, n, i, r)."""
    return factor @ factor.mH


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("dtype", [REAL, COMPLEX])
def test_a_sandwich_is_two_matrix_products_even_of_what_is_no_gram(dtype, rows):
    weight, gram = draw(2, 5, 4, dtype=dtype), draw(2, rows, 4, 4, seed=1, dtype=dtype)
    expected = torch.einsum("foi,fnij,fpj->fnop", weight, gram, weight.conj())
    torch.testing.assert_close(mix_gram(weight, gram, weight), expected, **CLOSE)


def test_single_precision_weights_meet_grams_in_double_precision():
    weight, gram = draw(1, 2, 2).float(), draw(1, 1, 2, 2)
    mixed = mix_gram(weight, gram, weight)
    assert mixed.dtype == REAL
    expected = weight[0].double() @ gram[0, 0] @ weight[0].double().T
    torch.testing.assert_close(mixed[0, 0], expected, **CLOSE)


@pytest.mark.parametrize("shape", [(2, 1, 2, 3), (2, 2, 3, 2), (1, 1, 1, 1)])
@pytest.mark.parametrize("dtype", [REAL, COMPLEX])
@pytest.mark.parametrize("wide", [1, 64])
def test_gradients_in_weights_and_grams_are_right_twice(wide, dtype, shape, monkeypatch):
    regions, rows, outputs, width = shape
    monkeypatch.setattr(sums, "_WIDE", wide)  # by hand, and by autograd

    def function(weight, factor):
        return mix_gram(weight, gram_of(factor), weight)

    weight = draw(regions, outputs, width, dtype=dtype).requires_grad_()
    factor = draw(regions, rows, width, 2, seed=1, dtype=dtype).requires_grad_()
    assert gradcheck(function, (weight, factor), rtol=1e-6, atol=1e-7)
    assert gradgradcheck(function, (weight, factor), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rows", [1, 3])
def test_weights_of_zero_leave_nothing_and_have_finite_gradients(rows):
    weight = torch.zeros(1, 2, 2, dtype=REAL, requires_grad=True)
    gram = gram_of(draw(1, rows, 2, 2)).requires_grad_()
    mixed = mix_gram(weight, gram, weight)
    assert (mixed == 0).all()
    for grad in torch.autograd.grad(mixed.sum(), (weight, gram)):
        assert (grad == 0).all()


@pytest.mark.parametrize(("weights", "grams"), [(REAL, COMPLEX), (COMPLEX, REAL)])
def test_gradients_of_real_factors_beside_complex_ones_are_real(weights, grams):
    weight = draw(2, 3, 4, dtype=weights).requires_grad_()
    gram = gram_of(draw(2, 1, 4, 2, seed=1, dtype=grams)).requires_grad_()

    def trace(sandwich):
        total = sandwich.diagonal(dim1=-2, dim2=-1).sum().real
        return torch.autograd.grad(total, (weight, gram))

    found = trace(mix_gram(weight, gram, weight))
    wide = weight.to(COMPLEX)
    expected = trace(wide[:, None] @ gram.to(COMPLEX) @ wide[:, None].mH)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, **CLOSE)
