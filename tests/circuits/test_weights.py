import math

import pytest
import torch
from scipy import stats

import subtractive as sub
from subtractive.circuits.weights import ComplexWeights, PositiveWeights, RealWeights

SHAPE = (2, 3, 4)
INITIALISERS = {
    "uniform": sub.init.uniform(),
    "uniform in an interval": sub.init.uniform(-2.0, 3.0),
    "normal": sub.init.normal(),
    "log-normal": sub.init.log_normal(),
    "dirichlet": sub.init.dirichlet(),
}
KINDS = {
    "real": sub.real_weights,
    "positive": sub.positive_weights,
    "complex": sub.complex_weights,
}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("initialise", INITIALISERS.values(), ids=INITIALISERS)
def test_initialisers_are_reproducible_and_double(initialise):
    first, second = (initialise(SHAPE, generator(3)) for _ in range(2))
    assert first.shape == SHAPE
    assert first.dtype == torch.float64
    assert torch.equal(first, second)
    assert not torch.equal(first, initialise(SHAPE, generator(4)))
    assert initialise(SHAPE, None).shape == SHAPE


@pytest.mark.parametrize(
    ("initialise", "distribution"),
    [
        (sub.init.uniform(), stats.uniform()),
        (sub.init.uniform(-2.0, 3.0), stats.uniform(-2, 5)),
        (sub.init.normal(), stats.norm()),
        (sub.init.normal(1.0, 0.1), stats.norm(1, 0.1)),
        (sub.init.log_normal(), stats.lognorm(1)),
        (sub.init.log_normal(-1.0, 0.5), stats.lognorm(0.5, scale=math.exp(-1))),
        (sub.init.dirichlet(), stats.beta(1, 3)),
        (sub.init.dirichlet(0.5), stats.beta(0.5, 1.5)),
    ],
)
def test_initialisers_follow_their_distributions(initialise, distribution):
    draws = initialise((50, 10, 4), generator(1))[..., 0].flatten().numpy()
    # Eight fixed draws, each wrongly rejected once in 10,000.
    assert stats.kstest(draws, distribution.cdf).pvalue > 1e-4


def test_uniform_weights_are_never_zero():
    draws = sub.init.uniform()((10, 100, 100), generator())
    assert draws.min() > 0
    assert draws.max() <= 1


@pytest.mark.parametrize("concentration", [0.1, 1.0, 10.0])
def test_rows_of_dirichlet_weights_sum_to_one(concentration):
    draws = sub.init.dirichlet(concentration)((5, 6, 7), generator())
    assert (draws >= 0).all()
    total = draws.sum(-1)
    torch.testing.assert_close(total, torch.ones_like(total), rtol=1e-14, atol=0)


@pytest.mark.parametrize("name", KINDS)
def test_weights_start_where_the_initialiser_says(name):
    weights = KINDS[name](SHAPE, sub.init.uniform(), generator(2))
    expected = sub.init.uniform()(SHAPE, generator(2))
    start = weights()
    assert start.is_complex() == (name == "complex")
    torch.testing.assert_close(
        start.real if name == "complex" else start, expected, rtol=1e-15, atol=0
    )
    assert weights.is_non_negative == (name == "positive")


def test_real_and_imaginary_parts_are_drawn_alike_but_not_equal():
    draws = sub.complex_weights((50, 10, 4), sub.init.normal(), generator())()
    for part in (draws.real, draws.imag):
        assert stats.kstest(part.detach().flatten().numpy(), stats.norm.cdf).pvalue > 1e-4
    assert (
        abs(torch.corrcoef(torch.stack([draws.real.flatten(), draws.imag.flatten()]))[0, 1]) < 0.1
    )


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_changing_the_dtype_keeps_the_kind(name, dtype):
    weights = KINDS[name](SHAPE, sub.init.uniform(), generator())
    before = weights().detach()
    after = weights.to(dtype)()
    kind = {torch.float32: torch.complex64, torch.float64: torch.complex128}[dtype]
    assert after.dtype == (kind if name == "complex" else dtype)
    torch.testing.assert_close(after.to(before.dtype), before, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", KINDS)
def test_every_part_of_a_weight_is_learned(name):
    weights = KINDS[name](SHAPE, sub.init.uniform(), generator())
    value = weights()
    (value.real.sum() + 2 * value.imag.sum() if name == "complex" else value.sum()).backward()
    (parameter,) = weights.parameters()
    assert parameter.is_floating_point()
    assert (parameter.grad != 0).all()
    if name == "complex":
        assert parameter.shape == (*SHAPE, 2)
        torch.testing.assert_close(
            parameter.grad[..., 1], 2 * parameter.grad[..., 0], rtol=0, atol=0
        )


@pytest.mark.parametrize("size", [1e-300, 1e-30, 1.0, 1e30, 1e300])
def test_positive_weights_are_exact_at_every_size(size):
    weights = PositiveWeights(torch.full(SHAPE, size, dtype=torch.float64))
    torch.testing.assert_close(
        weights(), torch.full(SHAPE, size, dtype=torch.float64), rtol=1e-12, atol=0
    )


def test_positive_weights_may_be_exactly_zero_and_stay_there():
    weights = PositiveWeights(torch.tensor([[[0.0, 1.0]]], dtype=torch.float64))
    assert weights().tolist() == [[[0.0, 1.0]]]
    weights().sum().backward()
    assert weights.log_value.grad.tolist() == [[[0.0, 1.0]]]


def test_weights_own_a_copy_of_complex_numbers():
    value = torch.ones(SHAPE, dtype=torch.complex128)
    weights = ComplexWeights(value)
    value.zero_()
    assert (weights() == 1).all()
    assert RealWeights(torch.ones(SHAPE))().requires_grad


@pytest.mark.parametrize(
    "initialise",
    [
        sub.init.normal(),
        sub.init.uniform(-1.0, 1.0),
        sub.init.uniform(0.0, 0.0),
        sub.init.normal(math.nan),
    ],
)
def test_positive_weights_refuse_a_start_that_is_not(initialise):
    with pytest.raises(
        ValueError, match=r"need a positive start.*Use uniform\(\), log_normal\(\)"
    ):
        sub.positive_weights(SHAPE, initialise, generator())
