import itertools
import math

import pytest
import torch
from torch.autograd import gradcheck

from subtractive.numerics.leaf_operations import choose
from subtractive.numerics.messages import (
    LeafMessage,
    Scaled,
    divide,
    double,
    log_sum,
    log_sum_of_squares,
    multiply,
    pick,
    safe_log,
    to_scaled,
)
from subtractive.numerics.signed_log import SignedLog

CLOSE = {"rtol": 1e-13, "atol": 0}
REAL, COMPLEX = torch.float64, torch.complex128


def draw(*shape, seed=0, dtype=REAL):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def plain(message):
    """The numbers a moderate message stands for."""
    scale = message.log_scale.exp()
    return message.mantissa * scale.reshape(scale.shape + (1,) * (message.mantissa.dim() - 2))


def of_layer(mantissa):
    """The message of a layer whose scale is one."""
    return Scaled(mantissa, torch.zeros(mantissa.shape[:2], dtype=REAL))


def tensor(*units, dtype=REAL):
    """One region, one row."""
    return torch.tensor([[units]], dtype=dtype)


def kinds_of_input(shape, dtype=REAL):
    mantissa, exponent = draw(*shape, seed=1, dtype=dtype), draw(*shape, seed=2)
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
def test_scaling_keeps_the_numbers_and_brings_the_largest_to_one(kind, shape, dtype):
    message = kinds_of_input(shape, dtype)[kind]
    scaled = to_scaled(message)
    torch.testing.assert_close(plain(scaled), message.value(), **CLOSE)
    peak = scaled.mantissa.abs().flatten(2).amax(-1)
    torch.testing.assert_close(peak, torch.ones_like(peak), rtol=1e-14, atol=0)
    assert scaled.log_scale.dtype == torch.float64


@pytest.mark.parametrize(
    "message",
    [
        LeafMessage(tensor(0.0, 0.0), None),
        LeafMessage(None, tensor(-math.inf, -math.inf)),
        LeafMessage(tensor(0.0, 1.0), tensor(3.0, -math.inf)),
        LeafMessage(tensor(0.0, 0.0), tensor(1e300, -1e300)),
    ],
)
def test_a_message_of_zeros_has_the_scale_minus_infinity(message):
    scaled = to_scaled(message)
    assert scaled.log_scale.tolist() == [[-math.inf]]
    assert scaled.mantissa.tolist() == [[[0.0, 0.0]]]
    divided = divide(scaled.mantissa, scaled.mantissa.abs().amax(-1))
    assert divided.log_scale.tolist() == [[-math.inf]]
    assert not divided.mantissa.isnan().any()


@pytest.mark.parametrize("exponent", [-1e5, 1e5, 700.0, -745.0])
def test_scaling_takes_no_exponential_of_a_large_number(exponent):
    scaled = to_scaled(LeafMessage(None, tensor(exponent, exponent - 1)))
    torch.testing.assert_close(scaled.mantissa, tensor(1.0, math.exp(-1)), **CLOSE)
    assert scaled.log_scale.item() == exponent


@pytest.mark.parametrize("exponent", [0.5, 300.0, 5000.0, 1e300])
def test_the_exponent_of_an_impossible_unit_is_irrelevant(exponent):
    mantissa = tensor(0.0, 2.0).requires_grad_()
    power = tensor(exponent, -1.0).requires_grad_()
    scaled = to_scaled(LeafMessage(mantissa, power))
    torch.testing.assert_close(plain(scaled), tensor(0.0, 2 * math.exp(-1)), **CLOSE)
    scaled.mantissa.sum().backward()
    assert mantissa.grad.isfinite().all()
    assert power.grad.tolist() == [[[0.0, 1.0]]]


def test_a_mantissa_of_zero_still_has_a_gradient():
    mantissa = tensor(0.0, 2.0).requires_grad_()
    scaled = to_scaled(LeafMessage(mantissa, tensor(0.5, -1.0)))
    (scaled.mantissa[..., 0] * scaled.log_scale.exp()).sum().backward()
    torch.testing.assert_close(mantissa.grad, tensor(math.exp(0.5), 0.0), **CLOSE)


@pytest.mark.parametrize("dtype", [torch.float32, REAL])
@pytest.mark.parametrize("power", [1.0, 0.99, 0.5])
def test_a_tiny_mantissa_beside_an_exponent_keeps_its_size(dtype, power):
    tiny = torch.finfo(dtype).tiny ** power
    message = LeafMessage(tensor(tiny, dtype=dtype), tensor(100.0, dtype=dtype))
    scaled = to_scaled(message)
    total = scaled.mantissa.double().log() + scaled.log_scale[..., None]
    rounding = torch.finfo(dtype).eps * 1000
    torch.testing.assert_close(total.item(), math.log(tiny) + 100, rtol=rounding, atol=0)


@pytest.mark.parametrize("dtype", [REAL, COMPLEX])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_dividing_keeps_the_numbers(shape, dtype):
    mantissa = 1e-20 * draw(*shape, dtype=dtype)
    divided = divide(mantissa, mantissa.abs().flatten(2).amax(-1))
    torch.testing.assert_close(plain(divided), mantissa, **CLOSE)
    peak = divided.mantissa.abs().flatten(2).amax(-1)
    torch.testing.assert_close(peak, torch.ones_like(peak), rtol=1e-14, atol=0)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("dtype", [REAL, COMPLEX])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_multiplying_multiplies(shape, dtype, count):
    inputs = list(kinds_of_input(shape, dtype).values())
    layers = [of_layer(inputs[k].value()) for k in (2, 0)]
    messages = [inputs[0], layers[0], inputs[1], layers[1], inputs[2]][:count]
    values = [inputs[k].value() for k in (0, 2, 1, 0, 2)[:count]]
    expected = values[0]
    for value in values[1:]:
        expected = expected * value
    torch.testing.assert_close(plain(multiply(messages)), expected, **CLOSE)


@pytest.mark.parametrize("vector", KINDS)
@pytest.mark.parametrize("gram", KINDS)
@pytest.mark.parametrize("plain_ones", list(itertools.product([False, True], repeat=2)))
def test_vectors_beside_grams_become_grams(vector, gram, plain_ones):
    small = kinds_of_input((2, 3, 4), COMPLEX)[vector]
    large = kinds_of_input((2, 1, 4, 4), COMPLEX)[gram]
    value = small.value()
    square = value[..., :, None] * value[..., None, :].conj()
    messages = [
        of_layer(m.value()) if s else m for m, s in zip((small, large), plain_ones, strict=True)
    ]
    product = multiply([messages[0], messages[1], messages[0]])
    torch.testing.assert_close(plain(product), square * square * large.value(), rtol=1e-12, atol=0)


@pytest.mark.parametrize("message", kinds_of_input((2, 3, 4), COMPLEX).values(), ids=KINDS)
def test_outer_products_are_hermitian_and_double(message):
    value = message.value()
    expected = value[..., :, None] * value[..., None, :].conj()
    torch.testing.assert_close(message.outer().value(), expected, **CLOSE)
    torch.testing.assert_close(plain(to_scaled(message).outer()), expected, **CLOSE)
    single = LeafMessage(torch.ones(1, 1, 2), torch.zeros(1, 1, 2)).outer()
    assert {part.dtype for part in single} == {REAL}
    assert of_layer(torch.ones(1, 1, 2)).outer().dtype == REAL


def test_exponents_of_inputs_are_added_before_the_exponential():
    first, second = tensor(0.0, -5000.0), tensor(-5000.0, -1.0)
    product = multiply([LeafMessage(None, first), LeafMessage(None, second)])
    torch.testing.assert_close(product.mantissa, tensor(1.0, math.exp(-1)), **CLOSE)
    assert product.log_scale.item() == -5000
    gram = LeafMessage(None, torch.full((1, 1, 2, 2), -7.0, dtype=REAL))
    product = multiply([LeafMessage(None, first), gram, LeafMessage(None, second)])
    assert product.log_scale.item() == -10007


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("dtype", [torch.float32, REAL])
def test_a_product_of_many_mantissas_neither_underflows_nor_overflows(dtype, size):
    mantissas = [size * draw(1, 1, 3, seed=k, dtype=dtype) for k in range(400)]
    product = multiply([LeafMessage(mantissa, None) for mantissa in mantissas])
    expected = sum(mantissa.double().abs().log() for mantissa in mantissas)
    largest = expected.argmax().item()
    mantissa = product.mantissa[0, 0, largest].double()
    actual = mantissa.abs().log() + product.log_scale[0, 0]
    torch.testing.assert_close(
        actual, expected[0, 0, largest], rtol=100 * torch.finfo(dtype).eps, atol=0
    )
    assert mantissa.sign() == torch.stack(mantissas).sign().prod(0)[0, 0, largest]


def test_rows_that_are_shared_are_broadcast():
    shared, rows = LeafMessage(None, draw(2, 1, 4)), LeafMessage(draw(2, 3, 4, seed=1), None)
    torch.testing.assert_close(
        plain(multiply([shared, rows])), shared.value() * rows.value(), **CLOSE
    )


def test_messages_of_regions_and_rows_can_be_picked():
    message = kinds_of_input((4, 5, 2))["both"]
    regions, rows = torch.tensor([2, 0]), torch.tensor([4, 1])
    torch.testing.assert_close(message.take(regions).value(), message.value()[regions], **CLOSE)
    torch.testing.assert_close(message.rows(rows).value(), message.value()[:, rows], **CLOSE)
    for kind in ("mantissa", "exponent"):
        part = kinds_of_input((4, 5, 2))[kind]
        assert part.take(regions).some.shape == (2, 5, 2)
        assert [tensor is None for tensor in part.rows(rows)] == [t is None for t in part]


@pytest.mark.parametrize("yes", KINDS)
@pytest.mark.parametrize("no", KINDS)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_choosing_picks_entry_by_entry(yes, no, shape):
    first = kinds_of_input(shape)[yes]
    second = kinds_of_input((shape[0], 1, *shape[2:]))[no]
    mask = torch.tensor([[True, False, True], [False, False, True]])
    chosen = choose(mask, first, second)
    wide = mask.reshape(mask.shape + (1,) * (len(shape) - 2))
    expected = torch.where(wide, first.value(), second.value())
    torch.testing.assert_close(chosen.value(), expected, **CLOSE)
    assert (chosen.mantissa is None) == (yes == no == "exponent")
    assert (chosen.exponent is None) == (yes == no == "mantissa")


def test_what_is_not_chosen_does_no_harm():
    first = LeafMessage(None, torch.full((1, 2, 2), -math.inf, dtype=REAL))
    second = LeafMessage(torch.zeros(1, 1, 2, dtype=REAL), None)
    mask = torch.tensor([[True, False]])
    assert to_scaled(choose(mask, first, second)).log_scale.tolist() == [[-math.inf, -math.inf]]


def test_magnitude_of_vectors_and_grams():
    vector = draw(1, 3, 4, dtype=COMPLEX)
    message = Scaled(vector, draw(1, 3))
    expected = plain(message).abs().square().sum(-1).log()
    gram = message.outer()
    for one in (message, gram):
        torch.testing.assert_close(log_sum_of_squares(one), expected, rtol=1e-12, atol=0)
    positive = Scaled(vector.abs(), message.log_scale)
    torch.testing.assert_close(
        log_sum(positive), plain(positive).sum(-1).log(), rtol=1e-12, atol=0
    )
    far = Scaled(tensor(1.0, 1e-200), torch.tensor([[-1e6]], dtype=REAL))
    assert log_sum_of_squares(far).item() == -2e6


def test_magnitude_of_nothing_is_minus_infinity_with_no_gradient():
    for shape in ((1, 1, 2), (1, 1, 2, 2)):
        mantissa = torch.zeros(shape, dtype=REAL, requires_grad=True)
        for scale in (0.0, -math.inf):
            message = Scaled(mantissa, torch.tensor([[scale]], dtype=REAL))
            value = log_sum_of_squares(message)
            assert value.tolist() == [[-math.inf]]
            (grad,) = torch.autograd.grad(value.sum(), mantissa)
            assert not grad.any()


def test_safe_logarithm_has_no_gradient_at_zero():
    x = torch.tensor([0.0, -2.0, 4.0, 1e-320], dtype=REAL, requires_grad=True)
    value = safe_log(x)
    assert value[0] == -math.inf
    torch.testing.assert_close(value[1:], x[1:].abs().log(), **CLOSE)
    value[:3].sum().backward()
    torch.testing.assert_close(
        x.grad, torch.tensor([0.0, -0.5, 0.25, 0.0], dtype=REAL), rtol=1e-14, atol=0
    )
    phase = torch.tensor([0.0, 3 + 4j], dtype=COMPLEX)
    torch.testing.assert_close(safe_log(phase)[1].item(), math.log(5), **CLOSE)


def test_scales_are_constant_and_do_not_spoil_derivatives():
    def function(mantissa, exponent):
        first = LeafMessage(mantissa, exponent)
        product = multiply([first, of_layer(mantissa), LeafMessage(mantissa, None)])
        return log_sum_of_squares(Scaled(product.mantissa, product.log_scale))

    inputs = [draw(1, 2, 3, seed=k).requires_grad_() for k in range(2)]
    assert gradcheck(function, inputs, rtol=1e-6, atol=1e-8)
    message = to_scaled(LeafMessage(*inputs))
    assert not message.log_scale.requires_grad


def test_doubles_of_the_same_kind():
    assert double(torch.float32) == double(torch.float64) == torch.float64
    assert double(torch.complex64) == torch.complex128
    single = divide(torch.ones(1, 1, 2), torch.ones(1, 1))
    assert single.mantissa.dtype == torch.float32
    assert single.log_scale.dtype == torch.float64


@pytest.mark.parametrize(
    "message",
    [
        LeafMessage(None, draw(6, 2, 3)),
        LeafMessage(draw(6, 2, 3), None),
        LeafMessage(draw(6, 2, 3, 3), draw(6, 2, 3, 3)),
        SignedLog(draw(6, 2, 3).sign(), draw(6, 2, 3)),
        Scaled(draw(6, 2, 3), draw(6, 2)),
    ],
)
@pytest.mark.parametrize("sizes", [(1, 2, 3), (6,)])
def test_splitting_a_message_takes_every_part(message, sizes):
    start = 0
    for size, piece in zip(sizes, message.split(sizes), strict=True):
        for found, expected in zip(piece, message.take(slice(start, start + size)), strict=True):
            both = found, expected
            assert torch.equal(*both) if isinstance(found, torch.Tensor) else found == expected
        start += size


def test_picking_all_regions_is_no_copy():
    numbers = draw(6, 2)
    assert pick(numbers, slice(None)) is numbers
    assert pick(numbers, slice(0, 6)) is numbers
    assert torch.equal(pick(numbers, slice(1, 6)), numbers[1:])
    assert torch.equal(pick(numbers, [3, 1]), numbers[[3, 1]])


def test_errors_of_underflow_are_counted_for_every_factor():
    leaf, layer = LeafMessage(draw(1, 2, 3), None), of_layer(draw(1, 2, 3, seed=1))
    gram = of_layer(draw(1, 2, 3, 3, seed=2))
    assert multiply([layer]).num_errors == 1
    assert multiply([layer, layer]).num_errors == 3  # one of each factor, one of the product
    assert multiply([layer, leaf]).num_errors == 3
    assert multiply([gram, layer]).num_errors == 4  # the vector is squared


def test_factors_that_were_divided_by_small_numbers_have_more_errors():
    small = of_layer(torch.tensor([[[1e-100, 1e-200]]], dtype=REAL))
    product = multiply([small, small, small, small])
    # Pairs have a peak of 1e-200, so that each may be off by 3e200 times the smallest number.
    torch.testing.assert_close(product.num_errors.item(), 6e200, rtol=1e-12, atol=0)
    nothing = multiply([of_layer(tensor(1.0, 0.0)), of_layer(tensor(0.0, 1.0))] * 2)
    assert nothing.num_errors.tolist() == [[math.inf]]
