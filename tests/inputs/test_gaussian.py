import math

import mpmath
import pytest
import torch
from scipy import stats
from torch.autograd import gradcheck, gradgradcheck

from subtractive.inputs.base import EVERYWHERE, Window
from subtractive.inputs.gaussian import Gaussian, pair_product
from subtractive.inputs.truncated_normal import log_tail
from subtractive.numerics.messages import to_scaled

CLOSE = {"rtol": 1e-12, "atol": 1e-12}
FAMILY = Gaussian()
INF = math.inf


def random_tensors(regions=2, units=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    mean = torch.randn(regions, units, generator=generator, dtype=torch.float64)
    log_scale = torch.randn(regions, units, generator=generator, dtype=torch.float64) * 0.5
    return {"mean": mean, "log_scale": log_scale}


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


def one_gaussian(mean, scale):
    return {"mean": tensor([[mean]]), "log_scale": tensor([[math.log(scale)]])}


def integrate(factors, lower, upper, power):
    """∫ x^power Π N(x; μ, σ) over an interval, with 30 digits, by quadrature between marks."""
    with mpmath.workdps(30):
        marks = {mpmath.mpf(m) + k * s for m, s in factors for k in (-40, -8, -3, 0, 3, 8, 40)}
        inside = sorted(mark for mark in marks if lower < mark < upper)
        ends = [e for e in (lower, upper) if math.isfinite(e)]
        points = sorted([*inside, *ends])

        def integrand(x):
            exponent = sum(((x - m) / s) ** 2 for m, s in factors) / -2
            return x**power * mpmath.exp(exponent)

        norm = mpmath.fprod(s * mpmath.sqrt(2 * mpmath.pi) for _, s in factors)
        return float(mpmath.quad(integrand, points) / norm)


def exact_window(lower, upper, mean, scale):
    """Log-mass and the moments E[x], E[x²] in a window, as differences with 300 digits."""
    with mpmath.workdps(300):
        mean, scale = mpmath.mpf(mean), mpmath.mpf(scale)
        a, b = ((mpmath.mpf(bound) - mean) / scale for bound in (lower, upper))
        mass = mpmath.ncdf(b) - mpmath.ncdf(a)
        at_a, at_b = mpmath.npdf(a), mpmath.npdf(b)
        first = (at_a - at_b) / mass
        rise = [z * height if mpmath.isfinite(z) else 0 for z, height in ((a, at_a), (b, at_b))]
        second = 1 + (rise[0] - rise[1]) / mass
        moments = mean + scale * first, mean**2 + 2 * mean * scale * first + scale**2 * second
        return mpmath.log(mass), *moments


def factors_of(p, f, i):
    return [(p["mean"][f, i].item(), p["log_scale"][f, i].exp().item())]


# Bounds (f, m), m = 3 rows: central, one-sided, narrow and far windows.
LOWER = [[-1.0, 0.2, -INF], [-0.5, 3.0, -9.0]]
UPPER = [[1.5, 0.21, 0.4], [INF, 4.0, -6.0]]


def test_values_agree_with_scipy():
    p = random_tensors()
    x = torch.linspace(-5, 5, 14, dtype=torch.float64).reshape(2, 7, 1)
    found = FAMILY.values(p, x)
    expected = stats.norm.logpdf(
        x.numpy(), p["mean"][:, None].numpy(), p["log_scale"].exp()[:, None].numpy()
    )
    assert found.mantissa is None
    torch.testing.assert_close(found.exponent, torch.from_numpy(expected), **CLOSE)


def test_a_density_integrates_to_exactly_one():
    found = FAMILY.integral(random_tensors(), EVERYWHERE)
    assert found.mantissa is None
    assert torch.equal(found.exponent, torch.zeros(2, 1, 3, dtype=torch.float64))


@pytest.mark.parametrize("power", [1, 2])
def test_raw_moments_agree_with_scipy(power):
    p = random_tensors()
    found = FAMILY.integral(p, Window(power=power)).value()
    for f in range(2):
        for i in range(3):
            ((mean, scale),) = factors_of(p, f, i)
            expected = stats.norm.moment(power, loc=mean, scale=scale)
            torch.testing.assert_close(found[f, 0, i], tensor(expected), **CLOSE)


@pytest.mark.parametrize("power", [0, 1, 2])
def test_integrals_over_windows_agree_with_quadrature(power):
    p = random_tensors(units=2)
    found = FAMILY.integral(p, Window(tensor(LOWER), tensor(UPPER), power)).value()
    assert found.shape == (2, 3, 2)
    for f in range(2):
        for m in range(3):
            for i in range(2):
                expected = integrate(factors_of(p, f, i), LOWER[f][m], UPPER[f][m], power)
                torch.testing.assert_close(
                    found[f, m, i], tensor(expected), rtol=1e-11, atol=1e-300
                )


@pytest.mark.parametrize("power", [0, 1, 2])
@pytest.mark.parametrize("bounds", ["everywhere", "windows"])
def test_cross_grams_agree_with_quadrature(power, bounds):
    p, q = random_tensors(units=2), random_tensors(units=3, seed=1)
    lower, upper = ([[-INF]] * 2, [[INF]] * 2) if bounds == "everywhere" else (LOWER, UPPER)
    window = Window(tensor(lower), tensor(upper), power)
    found = FAMILY.gram(p, q, Window(power=power) if bounds == "everywhere" else window).value()
    assert found.shape == (2, len(lower[0]), 2, 3)
    for f in range(2):
        for m in range(len(lower[0])):
            for i, j in ((0, 1), (1, 2)):
                factors = factors_of(p, f, i) + factors_of(q, f, j)
                expected = integrate(factors, lower[f][m], upper[f][m], power)
                torch.testing.assert_close(
                    found[f, m, i, j], tensor(expected), rtol=1e-11, atol=1e-300
                )


def test_a_gram_is_exactly_symmetric_in_every_window():
    p = random_tensors(units=5)
    for window in (EVERYWHERE, Window(tensor([[-0.3], [0.1]]), tensor([[0.4], [9.0]]), power=2)):
        for part in FAMILY.gram(p, p, window):
            assert part is None or torch.equal(part, part.mT)


@pytest.mark.parametrize("centre", [0.0, 1e-3, -0.7, 5.0, -8.0, 30.0, -30.0])
@pytest.mark.parametrize("width", [1e-9, 1e-4, 0.01, 0.1, 0.5, 3.0, 70.0, INF])
def test_mass_and_moments_keep_their_digits_in_narrow_and_far_windows(centre, width):
    mean, scale = 0.25, 0.5
    lower = mean + scale * (centre - min(width, 1.0) / 2)
    upper = lower + scale * width
    p = one_gaussian(mean, scale)
    log_mass, *moments = exact_window(lower, upper, mean, scale)
    for power in (0, 1, 2):
        found = FAMILY.integral(p, Window(tensor([[lower]]), tensor([[upper]]), power))
        error = mpmath.expm1(mpmath.mpf(found.exponent.item()) - log_mass)
        assert abs(error) < 1e-12
        if power > 0:
            # The first moment may vanish: its error is one of the size of x.
            size = mpmath.sqrt(moments[1]) ** power
            assert abs(found.mantissa.item() - moments[power - 1]) < 1e-12 * size


@pytest.mark.parametrize("distance", [0.0, 0.5, 5.0, 30.0, 1e4])
def test_one_sided_windows_agree_with_exact_tails(distance):
    p = one_gaussian(1.0, 2.0)
    above = FAMILY.integral(p, Window(lower=tensor([[1.0 + 2 * distance]]))).exponent
    below = FAMILY.integral(p, Window(upper=tensor([[1.0 - 2 * distance]]))).exponent
    with mpmath.workdps(50):
        expected = float(mpmath.log(mpmath.erfc(distance / mpmath.sqrt(2)) / 2))
    torch.testing.assert_close(above.squeeze(), tensor(expected), rtol=1e-14, atol=1e-15)
    torch.testing.assert_close(below, above, rtol=0, atol=0)


def test_two_sides_of_a_point_make_up_the_gram():
    p = random_tensors()
    cut = tensor([[-2.0, 0.1, 0.7], [0.3, 0.0, 25.0]])
    for power in (0, 1, 2):
        left = FAMILY.gram(p, p, Window(upper=cut, power=power)).value()
        right = FAMILY.gram(p, p, Window(lower=cut, power=power)).value()
        whole = FAMILY.gram(p, p, Window(power=power)).value()
        torch.testing.assert_close(left + right, whole.expand_as(left), **CLOSE)


def test_bounds_of_one_row_and_of_many_rows_broadcast():
    p = random_tensors()
    lower, upper = tensor([[-1.0], [-2.0]]), tensor([[0.0, 1.0], [0.5, 2.0]])
    found = FAMILY.gram(p, p, Window(lower, upper)).exponent
    same = FAMILY.gram(p, p, Window(lower.expand(2, 2), upper)).exponent
    torch.testing.assert_close(found, same, rtol=0, atol=0)


@pytest.mark.parametrize("power", [0, 1, 2])
@pytest.mark.parametrize(
    ("lower", "upper"), [(0.3, 0.3), (1.0, -1.0), (INF, INF), (-INF, -INF), (9e9, 9e9), (INF, 0.0)]
)
def test_an_empty_window_is_exactly_zero_with_a_zero_gradient(lower, upper, power):
    p = {name: value.requires_grad_() for name, value in random_tensors().items()}
    window = Window(tensor([[lower], [-1.0]]), tensor([[upper], [1.0]]), power)
    found = FAMILY.gram(p, p, window)
    assert (found.exponent[0] == -INF).all()
    assert found.exponent[1].isfinite().all()
    settled = to_scaled(found)
    assert (settled.log_scale[0] == -INF).all()
    settled.mantissa.sum().backward()
    for value in p.values():
        assert torch.equal(value.grad[0], torch.zeros(3, dtype=torch.float64))
        assert value.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("power", [0, 1, 2])
def test_an_empty_window_at_infinity_is_zero_in_any_precision(dtype, power):
    p = {name: value.to(dtype) for name, value in random_tensors().items()}
    bound = tensor([[INF], [-INF]])
    found = FAMILY.gram(p, p, Window(bound, bound, power))
    assert (to_scaled(found).log_scale == -INF).all()
    # What is multiplied by zero must not overflow when other inputs multiply it first.
    assert found.mantissa is None or (found.mantissa.abs() < 100).all()


@pytest.mark.parametrize("side", ["lower", "upper"])
def test_nothing_lies_beyond_infinity(side):
    bound = tensor([[INF if side == "lower" else -INF]])
    found = FAMILY.integral(one_gaussian(0.0, 1.0), Window(**{side: bound}))
    assert found.exponent.item() == -INF


@pytest.mark.parametrize("power", [0, 1, 2])
def test_infinite_bounds_are_open_ends(power):
    p = {name: value.requires_grad_() for name, value in random_tensors().items()}
    ends = Window(tensor([[-INF]] * 2), tensor([[INF]] * 2), power)
    found = FAMILY.gram(p, p, ends).value()
    expected = FAMILY.gram(p, p, Window(power=power)).value()
    torch.testing.assert_close(found, expected, **CLOSE)
    gradients = [torch.autograd.grad(v.sum(), tuple(p.values())) for v in (found, expected)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, **CLOSE)


def test_values_are_differentiable_twice():
    p, x = random_tensors(units=2), tensor([[[0.3], [-2.0]], [[1.0], [0.0]]])

    def function(x, mean, log_scale):
        return FAMILY.values({"mean": mean, "log_scale": log_scale}, x).exponent

    inputs = [t.requires_grad_() for t in (x, p["mean"], p["log_scale"])]
    assert gradcheck(function, inputs)
    assert gradgradcheck(function, inputs)


@pytest.mark.parametrize(
    ("lower", "upper"),
    [
        (None, None),
        (-0.4, None),
        pytest.param(None, -0.4, marks=pytest.mark.slow),
        (-1.0, 1.5),  # around the mean
        pytest.param(-1.0, 1.0, marks=pytest.mark.slow),  # exactly around it
        (4.0, 6.0),  # in one tail
        pytest.param(-6.0, -4.0, marks=pytest.mark.slow),  # in the other
        pytest.param(0.7, 0.72, marks=pytest.mark.slow),  # narrow
        (-0.01, 0.01),  # narrow, exactly around the mean
        (-INF, 1.0),
    ],
)
def test_windows_are_differentiable_twice(lower, upper):
    def function(mean, log_scale, *bounds):
        given = iter(bounds)
        ends = [None if end is None else next(given) for end in (lower, upper)]
        p = {"mean": mean, "log_scale": log_scale}
        # The second moment is made of the first, and brings the mass along.
        results = FAMILY.integral(p, Window(*ends)), FAMILY.gram(p, p, Window(*ends, power=2))
        parts = [part.flatten() for result in results for part in result if part is not None]
        # One number that depends on all of them: checking each entry alone takes seconds.
        return (torch.cat(parts) * torch.arange(1, 1 + sum(map(len, parts))).cos()).sum()

    bounds = [tensor([[end]]) for end in (lower, upper) if end is not None]
    inputs = [t.requires_grad_() for t in (tensor([[0.0, 0.5]]), tensor([[0.0, 0.3]]))] + [
        bound.requires_grad_(bool(bound.isfinite().all())) for bound in bounds
    ]
    options = {"fast_mode": True, "check_undefined_grad": False}
    assert gradcheck(function, inputs, rtol=1e-6, atol=1e-7, **options)
    assert gradgradcheck(function, inputs, rtol=1e-5, atol=1e-6, **options)


def test_slopes_of_far_tails_are_hazard_rates():
    near = tensor([-30.0, 0.0, 30.0, 1e4]).requires_grad_()
    (slope,) = torch.autograd.grad(log_tail(near).sum(), near)
    with mpmath.workdps(50):
        expected = [
            float(-mpmath.npdf(z) / (mpmath.erfc(mpmath.mpf(z) / mpmath.sqrt(2)) / 2))
            for z in near.tolist()
        ]
    torch.testing.assert_close(slope, tensor(expected), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("power", [0, 1, 2])
def test_narrow_gaussians_and_distant_points_stay_finite(power):
    mean = tensor([[-3.0, 0.0, 3.0]]).requires_grad_()
    log_scale = tensor([[-6.0, 0.0, -6.0]]).requires_grad_()
    p = {"mean": mean, "log_scale": log_scale}
    away = 1e4 * math.exp(-6)
    lower, upper = tensor([[-3 - away, 0.0, away, -INF]]), tensor([[-away, 1e-9, INF, 1e9]])
    x = tensor([[[1e4], [-away], [0.0]]]).requires_grad_()
    results = [
        FAMILY.values(p, x),
        FAMILY.integral(p, Window(lower, upper, power)),
        FAMILY.gram(p, p, Window(lower, upper, power)),
        FAMILY.gram(p, p, Window(power=power)),
        FAMILY.gram(p, p, Window(upper=upper, power=power)),
    ]
    parts = [part for result in results for part in result if part is not None]
    assert all(part.isfinite().all() for part in parts)
    sum(part.sum() for part in parts).backward()
    assert all(t.grad.isfinite().all() for t in (x, mean, log_scale))


def test_the_gram_of_distant_narrow_gaussians_keeps_its_digits():
    p = {"mean": tensor([[0.0, 24.0]]), "log_scale": tensor([[-6.0, -5.0]])}
    found = FAMILY.gram(p, p, EVERYWHERE).exponent[0, 0, 0, 1]
    with mpmath.workdps(50):
        scale = mpmath.sqrt(mpmath.exp(-12) + mpmath.exp(-10))
        expected = -((24 / scale) ** 2) / 2 - mpmath.log(scale * mpmath.sqrt(2 * mpmath.pi))
    torch.testing.assert_close(found, tensor(float(expected)), rtol=1e-14, atol=0)


def test_scales_of_any_ratio_multiply():
    p = {"mean": tensor([[1.0, 5.0]]), "log_scale": tensor([[-300.0, 300.0]])}
    mean, log_scale, log_weight = pair_product(p, p)
    torch.testing.assert_close(mean[0, 0, 0, 1], tensor(1.0), rtol=1e-15, atol=0)
    torch.testing.assert_close(log_scale[0, 0, 0, 1], tensor(-300.0), rtol=1e-15, atol=0)
    assert log_weight.isfinite().all()


def test_results_have_the_dtype_of_the_parameters():
    p = {name: value.float() for name, value in random_tensors().items()}
    window = Window(tensor(LOWER), tensor(UPPER), power=2)
    for result in (FAMILY.integral(p, window), FAMILY.gram(p, p, window)):
        assert result.mantissa.dtype == result.exponent.dtype == torch.float32
        assert result.exponent.isfinite().all()
        assert result.mantissa.isfinite().all()


def test_parameters_start_from_the_given_generator():
    first, second = (FAMILY.init(2000, torch.Generator().manual_seed(3)) for _ in range(2))
    assert first.keys() == {"mean", "log_scale"}
    for name, spread in (("mean", 1.0), ("log_scale", 0.1)):
        assert first[name].dtype == torch.float64
        assert torch.equal(first[name], second[name])
        # Ten standard errors of an estimated standard deviation.
        assert abs(first[name].std().item() - spread) < spread * 10 / math.sqrt(2 * 2000)
    assert FAMILY.constants(2000) == {}


def test_the_facts_of_the_family():
    assert FAMILY == Gaussian()
    assert FAMILY.fold_key == Gaussian().fold_key
    assert hash(FAMILY) == hash(Gaussian())
    assert FAMILY.is_non_negative
    assert FAMILY.num_states is None
    assert torch.equal(FAMILY.overlap(random_tensors()), torch.ones(2, 3, 3, dtype=torch.bool))
    FAMILY.check_scope(1)
    FAMILY.check(tensor([1.0, -1e300]), 0)


def test_infinite_values_are_refused():
    with pytest.raises(ValueError, match=r"variable 4 .* finite values, got -inf\. Drop the row"):
        FAMILY.check(tensor([0.0, -INF, INF]), 4)


@pytest.mark.parametrize("power", range(8))
def test_moments_of_all_orders_are_those_of_scipy(power):
    p = random_tensors()
    found = FAMILY.integral(p, Window(power=power)).value()[:, 0]
    mean, scale = p["mean"], p["log_scale"].exp()
    expected = [
        [stats.norm(m, s).moment(power) for m, s in zip(*row, strict=True)]
        for row in zip(mean.tolist(), scale.tolist(), strict=True)
    ]
    torch.testing.assert_close(found, tensor(expected), rtol=1e-12, atol=1e-12)


def test_higher_moments_in_a_window_are_refused():
    window = Window(upper=torch.zeros(2, 1), power=3)
    with pytest.raises(ValueError, match=r"moments of power 0, 1 and 2, got power 3"):
        FAMILY.integral(random_tensors(), window)


def test_regions_of_two_variables_are_refused():
    with pytest.raises(ValueError, match=r"Gaussian takes input regions of one variable"):
        FAMILY.check_scope(2)
