import math

import mpmath
import pytest
import torch
from torch.autograd import gradcheck

import subtractive.numerics.signed_log as module
from subtractive.numerics.messages import LeafMessage, multiply, to_scaled
from subtractive.numerics.signed_log import (
    SignedLog,
    kronecker_signed,
    mix_signed,
    multiply_signed,
    signed_log,
)

CLOSE = {"rtol": 1e-12, "atol": 1e-14}
REAL, COMPLEX = torch.float64, torch.complex128


def draw(*shape, seed=0, dtype=REAL):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def plain(message):
    return message.sign * message.log_abs.exp()


def sparse(*shape, seed=0, dtype=REAL):
    """About half of the numbers exactly zero."""
    return draw(*shape, seed=seed, dtype=dtype) * (draw(*shape, seed=seed + 100) > 0)


def inputs_of(shape, dtype=REAL):
    mantissa, exponent = sparse(*shape, seed=1, dtype=dtype), draw(*shape, seed=2)
    return {
        "mantissa": LeafMessage(mantissa, None),
        "exponent": LeafMessage(None, exponent),
        "both": LeafMessage(mantissa, exponent),
    }


KINDS = ["mantissa", "exponent", "both"]
SHAPES = {"vector": (2, 3, 4), "gram": (2, 3, 4, 4)}


@pytest.mark.parametrize("dtype", [REAL, COMPLEX])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_inputs_become_signs_and_logarithms(kind, shape, dtype):
    message = inputs_of(shape, dtype)[kind]
    converted = signed_log(message)
    torch.testing.assert_close(plain(converted), message.value(), **CLOSE)
    zero = message.value() == 0
    assert (converted.log_abs[zero] == -math.inf).all()
    assert not converted.sign[zero].any()
    assert converted.log_abs.dtype == REAL
    assert converted.is_gram == (len(shape) == 4)


def test_single_precision_becomes_double():
    for parts in ((torch.ones(1, 1, 2), None), (None, torch.ones(1, 1, 2))):
        converted = signed_log(LeafMessage(*parts))
        assert converted.sign.dtype == converted.log_abs.dtype == REAL


@pytest.mark.parametrize("dtype", [REAL, COMPLEX])
@pytest.mark.parametrize("first", KINDS)
@pytest.mark.parametrize("second", KINDS)
@pytest.mark.parametrize("shapes", [("vector", "vector"), ("vector", "gram"), ("gram", "gram")])
def test_products_equal_the_scaled_ones(first, second, shapes, dtype):
    messages = [
        inputs_of(SHAPES[shape], dtype)[kind]
        for shape, kind in zip(shapes, (first, second), strict=True)
    ]
    scaled = multiply(messages)
    scale = scaled.log_scale.exp()
    expected = scaled.mantissa * scale.reshape(scale.shape + (1,) * (scaled.mantissa.dim() - 2))
    signed = [signed_log(message) for message in messages]
    torch.testing.assert_close(plain(multiply_signed(signed)), expected, **CLOSE)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_kronecker_products_equal_plain_ones(shape):
    first, second, third = (
        LeafMessage(
            sparse(*shape[:2], *([size] * (len(shape) - 2)), seed=size, dtype=COMPLEX), None
        )
        for size in (2, 3, 4)
    )
    product = plain(kronecker_signed([signed_log(m) for m in (first, second, third)]))
    for f in range(2):
        for n in range(3):
            a, b, c = (message.mantissa[f, n] for message in (first, second, third))
            expected = torch.kron(torch.kron(a, b), c)
            torch.testing.assert_close(product[f, n], expected, **CLOSE)


def test_kronecker_of_a_vector_and_a_gram_is_a_gram():
    vector, gram = draw(1, 2, 2, dtype=COMPLEX), draw(1, 2, 3, 3, seed=1)
    messages = [signed_log(LeafMessage(mantissa, None)) for mantissa in (vector, gram)]
    product = plain(kronecker_signed(messages))
    outer = vector[..., :, None] * vector[..., None, :].conj()
    expected = torch.stack([torch.kron(outer[0, n], gram[0, n]) for n in range(2)])
    torch.testing.assert_close(product[0], expected, **CLOSE)


@pytest.mark.parametrize("weights", [REAL, COMPLEX])
@pytest.mark.parametrize("values", [REAL, COMPLEX])
@pytest.mark.parametrize("chunk", [1, 2**22])
def test_sums_equal_plain_ones(weights, values, chunk, monkeypatch):
    monkeypatch.setattr(module, "_CHUNK", chunk)
    weight = sparse(2, 5, 4, seed=3, dtype=weights)
    weight[0, 2] = 0
    vector, gram = sparse(2, 3, 4, seed=4, dtype=values), sparse(2, 3, 4, 4, seed=5, dtype=values)
    dtype = torch.promote_types(weights, values)
    mixed = mix_signed(weight, signed_log(LeafMessage(vector, None)))
    expected = torch.einsum("foi,fni->fno", weight.to(dtype), vector.to(dtype))
    torch.testing.assert_close(plain(mixed), expected, **CLOSE)
    mixed = mix_signed(weight, signed_log(LeafMessage(gram, None)))
    wide = weight.to(dtype)
    expected = torch.einsum("foi,fnij,fpj->fnop", wide, gram.to(dtype), wide.conj())
    torch.testing.assert_close(plain(mixed), expected, **CLOSE)


@pytest.mark.parametrize("dtype", [REAL, COMPLEX])
def test_every_output_has_all_its_digits_however_far_units_are_apart(dtype):
    log_abs = torch.tensor([[[0.0, -400.0, -5000.0, 3000.0, -math.inf]]], dtype=REAL)
    sign = sparse(1, 1, 5, seed=7, dtype=dtype).sgn()
    sign = torch.where(sign == 0, 1.0, sign) * (log_abs > -math.inf)
    weight = sparse(1, 40, 5, seed=8, dtype=dtype) * 10 ** (100 * draw(1, 40, 5, seed=9))
    mixed = mix_signed(weight, SignedLog(sign, log_abs))
    for o in range(40):
        with mpmath.workdps(50):
            terms = [
                mpmath.mpmathify(complex(w)) * mpmath.mpmathify(complex(s)) * mpmath.exp(float(a))
                for w, s, a in zip(weight[0, o], sign[0, 0], log_abs[0, 0], strict=True)
                if w != 0 and s != 0
            ]
            total = mpmath.fsum(terms)
            expected = float(mpmath.log(abs(total))) if total != 0 else -math.inf
            phase = complex(total / abs(total)) if total != 0 else 0j
        torch.testing.assert_close(mixed.log_abs[0, 0, o].item(), expected, rtol=1e-13, atol=0)
        assert abs(complex(mixed.sign[0, 0, o]) - phase) < 1e-13


@pytest.mark.parametrize("size", [1e-300, 1e-200, 1e-40, 1e-30, 1.0, 1e30, 1e200])
def test_units_that_see_only_small_ones_are_exact_for_weights_of_any_size(size):
    message = SignedLog(
        torch.ones(1, 1, 2, dtype=REAL), torch.tensor([[[0.0, -900.0]]], dtype=REAL)
    )
    weight = size * torch.eye(2, dtype=REAL)[None]
    expected = torch.tensor([0.0, -900.0], dtype=REAL) + math.log(size)
    torch.testing.assert_close(
        mix_signed(weight, message).log_abs[0, 0], expected, rtol=1e-14, atol=1e-14
    )


def test_exact_cancellation_is_an_exact_zero_and_not_nan():
    message = signed_log(LeafMessage(torch.tensor([[[0.7, 0.7, 3.0]]], dtype=REAL), None))
    weight = torch.tensor([[[1.0, -1.0, 0.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]], dtype=REAL)
    mixed = mix_signed(weight, message)
    assert mixed.log_abs[0, 0, :2].tolist() == [-math.inf, -math.inf]
    assert mixed.sign[0, 0].tolist() == [0.0, 0.0, 1.0]
    empty = mix_signed(weight, signed_log(LeafMessage(torch.zeros(1, 1, 3, dtype=REAL), None)))
    assert empty.log_abs.tolist() == [[[-math.inf] * 3]]


def test_nothing_passes_gradients_that_are_not_numbers():
    mantissa = torch.tensor([[[0.0, 1.0, 1.0]]], dtype=REAL, requires_grad=True)
    exponent = torch.tensor([[[1.0, -800.0, -900.0]]], dtype=REAL, requires_grad=True)
    weight = torch.tensor(
        [[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, -1.0], [0.0, 0.0, 0.0]]],
        dtype=REAL,
        requires_grad=True,
    )
    for message in (
        signed_log(LeafMessage(mantissa, exponent)),
        signed_log(LeafMessage(mantissa, exponent)).outer(),
    ):
        mixed = mix_signed(weight, message)
        total = mixed.log_abs[mixed.log_abs > -math.inf].sum()
        grads = torch.autograd.grad(total, [mantissa, exponent, weight])
        assert all(grad.isfinite().all() for grad in grads)


@pytest.mark.parametrize("dtype", [REAL, COMPLEX])
@pytest.mark.parametrize("spread", [1.0, 1000.0])
def test_sums_are_differentiable(dtype, spread):
    exponent = (spread * torch.linspace(-1, 0, 6, dtype=REAL)).reshape(1, 2, 3).requires_grad_()
    mantissa = draw(1, 2, 3, seed=1, dtype=dtype).requires_grad_()
    # Both outputs see one unit only: with a large spread, one of them by a peak of its own.
    mask = torch.tensor([[[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]], dtype=REAL)
    weight = (draw(1, 2, 3, seed=2, dtype=dtype) * mask).requires_grad_()

    def vectors(weight, mantissa, exponent):
        mixed = mix_signed(weight * mask, signed_log(LeafMessage(mantissa, exponent)))
        return mixed.log_abs, mixed.sign

    def grams(weight, mantissa, exponent):
        mixed = mix_signed(weight * mask, signed_log(LeafMessage(mantissa, exponent)).outer())
        return mixed.log_abs, mixed.sign

    for function in (vectors, grams):
        assert gradcheck(function, (weight, mantissa, exponent), rtol=1e-6, atol=1e-7)


def test_messages_of_regions_can_be_picked_and_scaled_again():
    message = inputs_of((4, 5, 2), COMPLEX)["both"]
    converted = signed_log(message)
    torch.testing.assert_close(
        plain(converted.take(torch.tensor([3, 1]))), message.value()[[3, 1]], **CLOSE
    )
    scaled = to_scaled(LeafMessage(*converted))
    numbers = scaled.mantissa * scaled.log_scale.exp()[..., None]
    torch.testing.assert_close(numbers, message.value(), **CLOSE)
    assert converted.outer().is_gram
