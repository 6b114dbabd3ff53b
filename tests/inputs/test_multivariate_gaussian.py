import math

import mpmath
import numpy as np
import pytest
import torch
from scipy import stats
from torch.autograd import gradcheck, gradgradcheck

from subtractive.inputs import normals
from subtractive.inputs.base import EVERYWHERE, Window
from subtractive.inputs.gaussian import Gaussian
from subtractive.inputs.multivariate_gaussian import MultivariateGaussian
from subtractive.inputs.normals import cholesky_factor

CLOSE = {"rtol": 1e-11, "atol": 1e-11}
FAMILY = MultivariateGaussian()
PATTERNS = [
    (True, False, False),
    (False, True, False),
    (True, False, True),
    (False, True, True),
    (True, True, False),
]


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


def random_tensors(size, regions=2, units=3, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(regions, units, *shape, generator=generator, dtype=torch.float64)

    # The part of ``lower`` on and above the diagonal must not matter: it is random as well.
    return {"mean": normal(size), "log_diagonal": 0.4 * normal(size), "lower": normal(size, size)}


def random_points(size, regions=2, rows=4, seed=5):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(regions, rows, size, generator=generator, dtype=torch.float64) * 2


def moments(p, f, i):
    """Mean and covariance of one unit, made from its parameters entry by entry."""
    size = p["mean"].shape[-1]
    factor = np.zeros((size, size))
    for row in range(size):
        factor[row, :row] = p["lower"][f, i, row, :row].detach()
        factor[row, row] = math.exp(p["log_diagonal"][f, i, row])
    return p["mean"][f, i].detach().numpy(), factor @ factor.T


def log_pdf(x, mean, covariance):
    return float(stats.multivariate_normal.logpdf(x, mean, covariance))


def product_on_grid(p, q, f, i, j, axes):
    """f_i g_j of region f on the product of some axes, flattened, by scipy."""
    points = np.stack([a.ravel() for a in np.meshgrid(*axes, indexing="ij")], -1)
    factors = (moments(p, f, i), moments(q, f, j))
    return np.prod([stats.multivariate_normal.pdf(points, *factor) for factor in factors], 0)


def with_gradients(p):
    return {name: value.requires_grad_() for name, value in p.items()}


@pytest.mark.parametrize("size", [1, 2, 5])
def test_values_agree_with_scipy(size):
    p, x = random_tensors(size), random_points(size)
    found = FAMILY.values(p, x)
    assert found.mantissa is None
    assert found.exponent.shape == (2, 4, 3)
    for f, n, i in np.ndindex(2, 4, 3):
        expected = log_pdf(x[f, n].numpy(), *moments(p, f, i))
        torch.testing.assert_close(found.exponent[f, n, i], tensor(expected), **CLOSE)


def test_a_density_integrates_to_exactly_one():
    found = FAMILY.integral(random_tensors(3), EVERYWHERE)
    assert found.mantissa is None
    assert torch.equal(found.exponent, torch.zeros(2, 1, 3, dtype=torch.float64))


@pytest.mark.parametrize("size", [2, 5])
def test_grams_agree_with_scipy(size):
    p, q = random_tensors(size), random_tensors(size, units=2, seed=1)
    for one, other in ((p, p), (p, q), (q, p)):
        found = FAMILY.gram(one, other, EVERYWHERE).exponent
        assert found.shape == (2, 1, one["mean"].shape[1], other["mean"].shape[1])
        for f, m, i, j in np.ndindex(*found.shape):
            (mean, covariance), (other_mean, more) = moments(one, f, i), moments(other, f, j)
            expected = log_pdf(mean, other_mean, covariance + more)
            torch.testing.assert_close(found[f, m, i, j], tensor(expected), **CLOSE)


def test_a_gram_agrees_with_quadrature_over_the_plane():
    p, q = random_tensors(2, units=2), random_tensors(2, units=1, seed=1)
    found = FAMILY.gram(p, q, EVERYWHERE).value()
    axis = np.linspace(-12, 12, 241)
    for f, i in np.ndindex(2, 2):
        expected = product_on_grid(p, q, f, i, 0, (axis, axis)).sum() * (axis[1] - axis[0]) ** 2
        torch.testing.assert_close(found[f, 0, i, 0], tensor(expected), rtol=1e-9, atol=1e-12)


def test_a_gram_with_itself_is_symmetric_and_equals_the_cross_gram_with_a_copy():
    p = random_tensors(4, units=5)
    found = FAMILY.gram(p, p, EVERYWHERE).exponent
    assert torch.equal(found, found.mT)
    torch.testing.assert_close(FAMILY.gram(p, dict(p), EVERYWHERE).exponent, found, **CLOSE)


def test_chunks_of_pairs_make_no_difference(monkeypatch):
    p, x, observed = random_tensors(3), random_points(3), (False, True, False)

    def results():
        for value in with_gradients(p).values():
            value.grad = None
        parts = [FAMILY.gram(p, p, EVERYWHERE), FAMILY.partial_gram(p, p, x, observed)]
        sum(part.exponent.sin().sum() for part in parts).backward()
        return [part.exponent for part in parts] + [value.grad for value in p.values()]

    whole = results()
    for entries in (1, 60, 200):
        monkeypatch.setattr(normals, "ENTRIES", entries)
        for found, expected in zip(results(), whole, strict=True):
            torch.testing.assert_close(found, expected, **CLOSE)


@pytest.mark.parametrize("observed", PATTERNS)
def test_partial_integrals_are_marginals(observed):
    p, x = random_tensors(3), random_points(3)
    hidden = torch.where(torch.tensor(observed), x, math.nan)
    found = FAMILY.partial_integral(p, hidden, observed).exponent
    seen = np.flatnonzero(observed)
    for f, n, i in np.ndindex(2, 4, 3):
        mean, covariance = moments(p, f, i)
        expected = log_pdf(x[f, n, seen].numpy(), mean[seen], covariance[np.ix_(seen, seen)])
        torch.testing.assert_close(found[f, n, i], tensor(expected), **CLOSE)


@pytest.mark.parametrize("observed", PATTERNS)
def test_partial_grams_agree_with_quadrature(observed):
    p, q = random_tensors(3, units=2), random_tensors(3, units=1, seed=1)
    x = random_points(3, rows=2) * 0.5
    hidden = torch.where(torch.tensor(observed), x, math.nan)
    found = FAMILY.partial_gram(p, q, hidden, observed).value()
    assert found.shape == (2, 2, 2, 1)
    axis = np.linspace(-14, 14, 281)
    step = (axis[1] - axis[0]) ** (3 - sum(observed))
    for f, n, i in ((0, 0, 0), (0, 1, 1), (1, 1, 0)):
        axes = [np.array([x[f, n, k]]) if observed[k] else axis for k in range(3)]
        expected = product_on_grid(p, q, f, i, 0, axes).sum() * step
        torch.testing.assert_close(found[f, n, i, 0], tensor(expected), rtol=1e-8, atol=1e-14)


@pytest.mark.parametrize("observed", PATTERNS)
def test_a_partial_gram_with_itself_equals_one_with_a_copy(observed):
    p, x = random_tensors(3), random_points(3)
    found = FAMILY.partial_gram(p, p, x, observed).exponent
    assert torch.equal(found, found.mT)
    copy = FAMILY.partial_gram(p, dict(p), x, observed).exponent
    torch.testing.assert_close(found, copy, **CLOSE)


def test_partial_evidence_that_is_all_or_nothing():
    p, x = random_tensors(3), random_points(3)
    everything, nothing = (True,) * 3, (False,) * 3
    values, gram = FAMILY.values(p, x), FAMILY.gram(p, p, EVERYWHERE).exponent.expand(2, 4, 3, 3)
    for found, expected in (
        (FAMILY.partial_integral(p, x, everything).exponent, values.exponent),
        (FAMILY.partial_gram(p, p, x, everything).exponent, values.outer().exponent),
        (FAMILY.partial_integral(p, x, nothing).exponent, torch.zeros_like(values.exponent)),
        (FAMILY.partial_gram(p, p, x, nothing).exponent, gram),
    ):
        torch.testing.assert_close(found, expected, **CLOSE)


def test_with_one_variable_it_is_the_univariate_family():
    p, q, x = random_tensors(1), random_tensors(1, units=2, seed=1), random_points(1)
    one, other = (
        {"mean": t["mean"][..., 0], "log_scale": t["log_diagonal"][..., 0]} for t in (p, q)
    )
    torch.testing.assert_close(
        FAMILY.values(p, x).exponent, Gaussian().values(one, x).exponent, **CLOSE
    )
    bounds = tensor([[-1.0, 0.0], [0.5, -math.inf]]), tensor([[1.0, 0.1], [math.inf, 0.0]])
    for power in (0, 1, 2):
        for window in (Window(power=power), Window(*bounds, power=power)):
            for found, expected in (
                (FAMILY.integral(p, window), Gaussian().integral(one, window)),
                (FAMILY.gram(p, q, window), Gaussian().gram(one, other, window)),
            ):
                torch.testing.assert_close(found.value(), expected.value(), **CLOSE)


def checked(function, *inputs):
    """Check first and second derivatives of one number that depends on all results."""

    def number(*inputs):
        found = function(*inputs).flatten()
        return (found * torch.arange(1, 1 + len(found)).cos()).sum()

    inputs = [t.detach().requires_grad_() for t in inputs]
    assert gradcheck(number, inputs, rtol=1e-6, atol=1e-7, check_undefined_grad=False)
    options = {"fast_mode": True, "check_undefined_grad": False}
    return gradgradcheck(number, inputs, rtol=1e-5, atol=1e-6, **options)


def test_values_are_differentiable_twice():
    p, x = random_tensors(2, units=2), random_points(2, rows=2)

    def function(x, *values):
        return FAMILY.values(dict(zip(p, values, strict=True)), x).exponent

    assert checked(function, x, *p.values())


def test_grams_are_differentiable_twice():
    p, q = random_tensors(3, 1, units=2), random_tensors(3, 1, units=1, seed=1)

    def with_itself(*values):
        one = dict(zip(p, values, strict=True))
        return FAMILY.gram(one, one, EVERYWHERE).exponent

    def with_another(*values):
        one, other = (dict(zip(p, half, strict=True)) for half in (values[:3], values[3:]))
        return FAMILY.gram(one, other, EVERYWHERE).exponent

    assert checked(with_itself, *p.values())
    assert checked(with_another, *p.values(), *q.values())


@pytest.mark.parametrize("observed", [(True, False, False), (False, True, False)])
def test_partial_evidence_is_differentiable_twice(observed):
    p, x = random_tensors(3, 1, units=2), random_points(3, 1, rows=2)

    def function(x, *values):
        one = dict(zip(p, values, strict=True))
        integral = FAMILY.partial_integral(one, x, observed).exponent
        gram = FAMILY.partial_gram(one, one, x, observed).exponent
        return torch.cat([integral.flatten(), gram.flatten()])

    assert checked(function, x, *p.values())


def test_unobserved_values_that_are_nan_leave_gradients_finite():
    p, x = with_gradients(random_tensors(3)), random_points(3)
    x = torch.where(torch.tensor([True, False, True]), x, math.nan).requires_grad_()
    FAMILY.partial_gram(p, p, x, (True, False, True)).exponent.sum().backward()
    assert all(t.grad.isfinite().all() for t in (x, *p.values()))
    assert (x.grad[..., 1] == 0).all()


def nearly_singular(size, ratio, units=3, seed=0):
    """Covariances that are nearly singular along one common direction."""
    generator = np.random.default_rng(seed)
    common = np.linalg.qr(generator.normal(size=(size, size)))[0]
    factors = []
    for unit in range(units):
        turn = np.eye(size)
        turn[1:, 1:] = np.linalg.qr(generator.normal(size=(size - 1, size - 1)))[0]
        scales = np.r_[ratio * (1 + unit), generator.uniform(0.5, 1.5, size - 1)]
        factor = np.linalg.qr((common @ turn * scales).T)[1].T
        factors.append(factor * np.sign(factor.diagonal()))
    lower = torch.from_numpy(np.stack(factors))[None]
    diagonal = lower.diagonal(dim1=-2, dim2=-1)
    return {"mean": torch.zeros_like(diagonal), "log_diagonal": diagonal.log(), "lower": lower}


@pytest.mark.parametrize("ratio", [1e-3, 1e-6, 1e-10])
def test_nearly_singular_covariances_keep_their_digits(ratio):
    p = with_gradients(nearly_singular(5, ratio))
    found = FAMILY.gram(p, p, EVERYWHERE).exponent
    with mpmath.workdps(60):
        factors = [mpmath.matrix(factor.tolist()) for factor in cholesky_factor(p)[0].detach()]
        for i, j in np.ndindex(3, 3):
            total = factors[i] * factors[i].T + factors[j] * factors[j].T
            expected = -mpmath.log(mpmath.det(2 * mpmath.pi * total)) / 2
            assert abs(found[0, 0, i, j].item() - expected) < 1e-7
    found.sum().backward()
    assert all(value.grad.isfinite().all() for value in p.values())


def test_the_slower_decomposition_has_the_same_derivatives(monkeypatch):
    p = random_tensors(3, 1, units=2)

    def function(*values):
        one = dict(zip(p, values, strict=True))
        return FAMILY.gram(one, one, EVERYWHERE).exponent

    expected = function(*p.values())
    monkeypatch.setattr(
        normals,
        "magnification",
        lambda factor: torch.full(factor.shape[:-2], 1e10, dtype=torch.float64),
    )
    torch.testing.assert_close(function(*p.values()), expected, **CLOSE)
    assert checked(function, *p.values())


def test_covariances_that_rounding_makes_singular_are_not_a_number():
    p = nearly_singular(5, 1e-18)
    assert FAMILY.gram(p, p, EVERYWHERE).exponent.isnan().all()


def test_narrow_gaussians_and_distant_points_stay_finite():
    p = with_gradients(random_tensors(4))
    log_diagonal = (p["log_diagonal"] - 6).detach().requires_grad_()
    p["log_diagonal"] = log_diagonal
    lower = (p["lower"] * math.exp(-6)).detach().requires_grad_()
    p["lower"] = lower
    x = (1e4 * math.exp(-6) * random_points(4)).requires_grad_()
    observed = (False, True, False, True)
    results = [
        FAMILY.values(p, x),
        FAMILY.gram(p, p, EVERYWHERE),
        FAMILY.partial_integral(p, x, observed),
        FAMILY.partial_gram(p, p, x, observed),
    ]
    assert all(result.exponent.isfinite().all() for result in results)
    sum(result.exponent.sum() for result in results).backward()
    assert all(t.grad.isfinite().all() for t in (x, *p.values()))


def test_parameters_start_near_standard_normals():
    p = FAMILY.init(3, 4, torch.Generator().manual_seed(0))
    again = FAMILY.init(3, 4, torch.Generator().manual_seed(0))
    assert {name: tuple(value.shape) for name, value in p.items()} == {
        "mean": (4, 3),
        "log_diagonal": (4, 3),
        "lower": (4, 3, 3),
    }
    assert all(value.dtype == torch.float64 for value in p.values())
    assert all(torch.equal(p[name], again[name]) for name in p)
    identity = torch.eye(3, dtype=torch.float64).expand(4, 3, 3)
    torch.testing.assert_close(cholesky_factor(p), identity, rtol=0, atol=0.5)
    assert FAMILY.constants(3, 4) == {}


def test_the_facts_of_the_family():
    assert FAMILY == MultivariateGaussian()
    assert hash(FAMILY) == hash(MultivariateGaussian())
    assert FAMILY.fold_key == MultivariateGaussian().fold_key
    assert FAMILY.fold_key != Gaussian().fold_key
    assert FAMILY.is_non_negative
    assert FAMILY.num_states is None
    assert torch.equal(FAMILY.overlap(random_tensors(2)), torch.ones(2, 3, 3, dtype=torch.bool))
    FAMILY.check_scope(1)
    FAMILY.check_scope(7)
    FAMILY.check(tensor([0.0]), 0)


def test_results_have_the_dtype_of_the_parameters():
    p = {name: value.float() for name, value in random_tensors(3).items()}
    x = random_points(3).float()
    for result in (
        FAMILY.values(p, x),
        FAMILY.integral(p, EVERYWHERE),
        FAMILY.gram(p, p, EVERYWHERE),
        FAMILY.partial_gram(p, p, x, (False, True, False)),
    ):
        assert result.exponent.dtype == torch.float32


@pytest.mark.parametrize("window", [Window(power=1), Window(lower=tensor([[0.0]]))])
def test_boxes_and_moments_of_several_variables_are_refused(window):
    p = random_tensors(3)
    message = r"no closed form for boxes and moments of a region of 3 variables"
    with pytest.raises(ValueError, match=message):
        FAMILY.integral(p, window)
    with pytest.raises(ValueError, match=message):
        FAMILY.gram(p, p, window)


def test_infinite_values_are_refused():
    with pytest.raises(ValueError, match=r"variable 1 .* finite values, got inf"):
        FAMILY.check(tensor([0.0, math.inf]), 1)


def test_empty_regions_are_refused():
    with pytest.raises(ValueError, match=r"at least one variable, got 0"):
        FAMILY.check_scope(0)
