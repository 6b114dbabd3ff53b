import math

import pytest
import torch
from torch.autograd import gradcheck

from subtractive.numerics.leaf_message import LeafMessage, choose, double
from subtractive.numerics.scaled import (
    Scaled,
    joined,
    log_magnitude,
    log_sum,
    multiply,
    rescale,
    safe_log,
    to_scaled,
)

CLOSE = {"rtol": 1e-13, "atol": 0}
REAL, COMPLEX = torch.float64, torch.complex128
LEAST = torch.finfo(REAL).tiny / torch.finfo(REAL).eps  # smaller sums have lost digits


def draw(*shape, seed=0, dtype=REAL):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def plain(message):
    """The numbers a moderate message stands for."""
    scale = message.log_scale.exp()
    return message.mantissa * scale.reshape(scale.shape + (1,) * (message.mantissa.dim() - 2))


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
def test_settling_keeps_the_numbers_and_brings_the_largest_to_one(kind, shape, dtype):
    message = kinds_of_input(shape, dtype)[kind]
    settled = to_scaled(message)
    torch.testing.assert_close(plain(settled), message.value(), **CLOSE)
    peak = settled.mantissa.abs().flatten(2).amax(-1)
    torch.testing.assert_close(peak, torch.ones_like(peak), rtol=1e-14, atol=0)
    assert settled.log_scale.dtype == torch.float64
    assert to_scaled(settled) is settled


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
    settled = to_scaled(message)
    assert settled.log_scale.tolist() == [[-math.inf]]
    assert settled.mantissa.tolist() == [[[0.0, 0.0]]]
    summed = rescale(Scaled(settled.mantissa, settled.log_scale))
    assert summed.log_scale.tolist() == [[-math.inf]]
    assert not summed.mantissa.isnan().any()


@pytest.mark.parametrize("exponent", [-1e5, 1e5, 700.0, -745.0])
def test_settling_takes_no_exponential_of_a_large_number(exponent):
    settled = to_scaled(LeafMessage(None, tensor(exponent, exponent - 1)))
    torch.testing.assert_close(settled.mantissa, tensor(1.0, math.exp(-1)), **CLOSE)
    assert settled.log_scale.item() == exponent


@pytest.mark.parametrize("exponent", [0.5, 300.0, 5000.0, 1e300])
def test_the_exponent_of_an_impossible_unit_is_irrelevant(exponent):
    mantissa = tensor(0.0, 2.0).requires_grad_()
    power = tensor(exponent, -1.0).requires_grad_()
    settled = to_scaled(LeafMessage(mantissa, power))
    torch.testing.assert_close(plain(settled), tensor(0.0, 2 * math.exp(-1)), **CLOSE)
    settled.mantissa.sum().backward()
    assert mantissa.grad.isfinite().all()
    assert power.grad.tolist() == [[[0.0, 1.0]]]


def test_a_mantissa_of_zero_still_has_a_slope():
    mantissa = tensor(0.0, 2.0).requires_grad_()
    settled = to_scaled(LeafMessage(mantissa, tensor(0.5, -1.0)))
    (settled.mantissa[..., 0] * settled.log_scale.exp()).sum().backward()
    torch.testing.assert_close(mantissa.grad, tensor(math.exp(0.5), 0.0), **CLOSE)


@pytest.mark.parametrize("dtype", [torch.float32, REAL])
@pytest.mark.parametrize("power", [1.0, 0.99, 0.5])
def test_a_tiny_mantissa_beside_an_exponent_keeps_its_size(dtype, power):
    tiny = torch.finfo(dtype).tiny ** power
    message = LeafMessage(tensor(tiny, dtype=dtype), tensor(100.0, dtype=dtype))
    settled = to_scaled(message)
    total = settled.mantissa.double().log() + settled.log_scale[..., None]
    rounding = torch.finfo(dtype).eps * 1000
    torch.testing.assert_close(total.item(), math.log(tiny) + 100, rtol=rounding, atol=0)


@pytest.mark.parametrize("dtype", [REAL, COMPLEX])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_rescaling_keeps_the_numbers(shape, dtype):
    message = Scaled(1e-20 * draw(*shape, dtype=dtype), draw(2, 3))
    rescaled = rescale(message)
    torch.testing.assert_close(plain(rescaled), plain(message), **CLOSE)
    peak = rescaled.mantissa.abs().flatten(2).amax(-1)
    torch.testing.assert_close(peak, torch.ones_like(peak), rtol=1e-14, atol=0)


def test_a_sum_that_may_have_underflowed_is_marked_row_by_row():
    rows = [[1.0, 0.0], [0.0, 0.0], [LEAST / 100, 0.0], [0.0, LEAST * 100]]
    message = Scaled(torch.tensor([rows], dtype=REAL), torch.zeros(1, 4, dtype=REAL))
    assert rescale(message).log_scale.isnan().tolist() == [[False, True, True, False]]


@pytest.mark.parametrize("unit", [0.0, 1e-300, 1e-40, 1e-10, 1.0, 1e10, 1e150])
@pytest.mark.parametrize("dtype", [torch.float32, REAL])
def test_underflow_is_marked_whatever_the_size_of_the_weights(unit, dtype):
    message = Scaled(tensor(0.0, 0.0, dtype=dtype), torch.zeros(1, 1, dtype=REAL))
    assert rescale(message, torch.tensor([[unit]], dtype=REAL)).log_scale.isnan().all()


def test_a_mark_stays_on_the_way_up():
    lost = Scaled(tensor(1.0, 1.0), torch.tensor([[math.nan]], dtype=REAL))
    fine, zero = (
        to_scaled(LeafMessage(tensor(1.0, 2.0), None)),
        to_scaled(LeafMessage(tensor(0.0, 0.0), None)),
    )
    for other in (fine, zero, LeafMessage(None, tensor(0.0, 1.0))):
        assert multiply([lost, other]).log_scale.isnan().all()
        assert rescale(multiply([lost, other])).log_scale.isnan().all()
    assert lost.outer().log_scale.isnan().all()


def test_what_small_units_lost_is_remembered_until_they_are_large_again():
    one = torch.zeros(1, 1, dtype=REAL)
    uneven = rescale(Scaled(tensor(1.0, 0.0), one))
    assert 0 < float(uneven.lost) < 1e-300
    weaker = rescale(joined(tensor(1e-200, 0.0), [uneven]))
    assert not weaker.log_scale.isnan().any()
    assert rescale(joined(tensor(1e-100, 0.0), [weaker])).log_scale.isnan().all()
    even = rescale(joined(tensor(1.0, 1e-50), [weaker]))
    assert float(even.lost) == 0.0


def test_what_factors_lost_adds_up():
    log_scale = torch.zeros(2, 3, dtype=REAL)
    first = Scaled(draw(2, 3, 4), log_scale, torch.full((2, 3), 1e-30, dtype=REAL))
    second = Scaled(draw(2, 3, 4), log_scale, torch.full((2, 3), 2e-30, dtype=REAL))
    torch.testing.assert_close(multiply([first, second]).lost[0, 0].item(), 3e-30, **CLOSE)
    torch.testing.assert_close(first.outer().lost[0, 0].item(), 2e-30, **CLOSE)
    assert first.take(slice(0, 1)).lost.shape == (1, 3)
    assert Scaled(first.mantissa, log_scale).take(slice(0, 1)).lost == 0.0


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("dtype", [REAL, COMPLEX])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_multiplying_multiplies(shape, dtype, count):
    inputs = list(kinds_of_input(shape, dtype).values())
    messages = [inputs[0], to_scaled(inputs[2]), inputs[1], to_scaled(inputs[0]), inputs[2]][:count]
    values = [inputs[k].value() for k in (0, 2, 1, 0, 2)[:count]]
    expected = values[0]
    for value in values[1:]:
        expected = expected * value
    torch.testing.assert_close(plain(multiply(messages)), expected, **CLOSE)


@pytest.mark.parametrize("vector", KINDS)
@pytest.mark.parametrize("gram", KINDS)
@pytest.mark.parametrize("settled", [(False, False), (True, False), (False, True), (True, True)])
def test_vectors_beside_grams_become_grams(vector, gram, settled):
    small = kinds_of_input((2, 3, 4), COMPLEX)[vector]
    large = kinds_of_input((2, 1, 4, 4), COMPLEX)[gram]
    value = small.value()
    outer = value[..., :, None] * value[..., None, :].conj()
    messages = [to_scaled(m) if s else m for m, s in zip((small, large), settled, strict=True)]
    product = multiply([messages[0], messages[1], messages[0]])
    torch.testing.assert_close(plain(product), outer * outer * large.value(), rtol=1e-12, atol=0)


@pytest.mark.parametrize("message", kinds_of_input((2, 3, 4), COMPLEX).values(), ids=KINDS)
def test_outer_products_are_hermitian_and_double(message):
    value = message.value()
    expected = value[..., :, None] * value[..., None, :].conj()
    torch.testing.assert_close(message.outer().value(), expected, **CLOSE)
    torch.testing.assert_close(plain(to_scaled(message).outer()), expected, **CLOSE)
    single = LeafMessage(torch.ones(1, 1, 2), torch.zeros(1, 1, 2)).outer()
    assert {part.dtype for part in single} == {REAL}
    assert to_scaled(LeafMessage(torch.ones(1, 1, 2), None)).outer().mantissa.dtype == REAL


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
    torch.testing.assert_close(
        plain(to_scaled(message).take(slice(1, 3))), message.value()[1:3], **CLOSE
    )
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
    expected = plain(message)[0].abs().square().sum(-1).log()
    torch.testing.assert_close(log_magnitude(message), expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(log_magnitude(message.outer()), expected, rtol=1e-12, atol=0)
    positive = Scaled(vector.abs(), message.log_scale)
    torch.testing.assert_close(
        log_sum(positive), plain(positive)[0].sum(-1).log(), rtol=1e-12, atol=0
    )
    far = Scaled(tensor(1.0, 1e-200), torch.tensor([[-1e6]], dtype=REAL))
    assert log_magnitude(far).item() == -2e6


def test_magnitude_of_nothing_is_minus_infinity_with_no_slope():
    for shape in ((1, 1, 2), (1, 1, 2, 2)):
        mantissa = torch.zeros(shape, dtype=REAL, requires_grad=True)
        for scale in (0.0, -math.inf):
            message = Scaled(mantissa, torch.tensor([[scale]], dtype=REAL))
            value = log_magnitude(message)
            assert value.tolist() == [-math.inf]
            (slope,) = torch.autograd.grad(value.sum(), mantissa)
            assert not slope.any()


def test_safe_logarithm_has_no_slope_at_zero():
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
        product = multiply([first, to_scaled(first), LeafMessage(mantissa, None)])
        return log_magnitude(rescale(Scaled(product.mantissa, product.log_scale)))

    inputs = [draw(1, 2, 3, seed=k).requires_grad_() for k in range(2)]
    assert gradcheck(function, inputs, rtol=1e-6, atol=1e-8)
    message = to_scaled(LeafMessage(*inputs))
    assert not message.log_scale.requires_grad


def test_doubles_of_the_same_kind():
    assert double(torch.float32) == double(torch.float64) == torch.float64
    assert double(torch.complex64) == torch.complex128
    single = rescale(Scaled(torch.ones(1, 1, 2), torch.zeros(1, 1, dtype=REAL)))
    assert single.mantissa.dtype == torch.float32
    assert single.log_scale.dtype == torch.float64
