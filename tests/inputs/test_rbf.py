import dataclasses
import math

import numpy as np
import pytest
import torch
from scipy import integrate
from torch.autograd import gradcheck, gradgradcheck

from subtractive.inputs.base import EVERYWHERE, Window
from subtractive.inputs.rbf import RBF

CLOSE = {"rtol": 1e-10, "atol": 1e-12}
FAMILIES = (RBF((-1.0, 0.5), (0.7, 1.3)), RBF((2.0, 2.5), 0.4))  # one per region
OTHERS = (RBF((0.0, 0.1, 3.0), 1.0), RBF((-2.0, 2.0, 1.0), (0.5, 0.6, 2.0)))


def tensors(families):
    """The constants of regions, stacked as a layer does, (f, i)."""
    constants = [family.constants(len(family.centres)) for family in families]
    return {name: torch.stack([c[name] for c in constants]) for name in constants[0]}


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


def kernel(family, k, x):
    return np.exp(-((x - family.centres[k]) ** 2) / (2 * family.bandwidth[k] ** 2))


def quadrature(function, lower, upper):
    lower, upper = max(lower, -15.0), min(upper, 15.0)
    return integrate.quad(function, lower, upper, epsabs=0, epsrel=1e-12, limit=200)[0]


def test_values_are_kernels():
    x = torch.linspace(-4, 4, 10, dtype=torch.float64).reshape(2, 5, 1)
    found = FAMILIES[0].values(tensors(FAMILIES), x)
    assert found.mantissa is None
    for f, family in enumerate(FAMILIES):
        expected = np.stack([kernel(family, k, x[f, :, 0].numpy()) for k in range(2)], -1)
        torch.testing.assert_close(found.exponent[f].exp(), torch.from_numpy(expected), **CLOSE)


@pytest.mark.parametrize("power", [0, 1, 2])
@pytest.mark.parametrize(("lower", "upper"), [(-math.inf, math.inf), (-0.5, 2.2)])
def test_integrals_agree_with_quadrature(lower, upper, power):
    window = Window(tensor([[lower]] * 2), tensor([[upper]] * 2), power)
    found = FAMILIES[0].integral(tensors(FAMILIES), window).value()
    for f, family in enumerate(FAMILIES):
        for k in range(2):
            expected = quadrature(
                lambda x, family=family, k=k: x**power * kernel(family, k, x), lower, upper
            )
            torch.testing.assert_close(found[f, 0, k], tensor(expected), **CLOSE)


@pytest.mark.parametrize("power", [0, 1, 2])
@pytest.mark.parametrize("bounds", [None, ([[-0.5, 0.0]] * 2, [[2.2, 0.01]] * 2)])
def test_cross_grams_agree_with_quadrature(bounds, power):
    lower, upper = bounds or ([[-math.inf]] * 2, [[math.inf]] * 2)
    window = Window(power=power) if bounds is None else Window(tensor(lower), tensor(upper), power)
    found = FAMILIES[0].gram(tensors(FAMILIES), tensors(OTHERS), window).value()
    assert found.shape == (2, len(lower[0]), 2, 3)
    for f, m, i, j in np.ndindex(*found.shape):
        expected = quadrature(
            lambda x, f=f, i=i, j=j: (
                x**power * kernel(FAMILIES[f], i, x) * kernel(OTHERS[f], j, x)
            ),
            lower[f][m],
            upper[f][m],
        )
        torch.testing.assert_close(found[f, m, i, j], tensor(expected), **CLOSE)


def test_a_total_integral_is_the_bandwidth_times_a_constant():
    found = FAMILIES[0].integral(tensors(FAMILIES), EVERYWHERE)
    expected = tensor([[[0.7, 1.3]], [[0.4, 0.4]]]) * math.sqrt(2 * math.pi)
    torch.testing.assert_close(found.value(), expected, rtol=1e-14, atol=0)


def test_kernels_are_differentiable_twice_in_x_and_in_bounds():
    p = tensors(FAMILIES)

    def function(x, lower, upper):
        gram = FAMILIES[0].gram(p, p, Window(lower, upper, power=1))
        return FAMILIES[0].values(p, x).exponent, gram.value()

    points = (tensor([[[0.1]], [[2.0]]]), tensor([[-1.0], [2.0]]), tensor([[0.3], [2.001]]))
    inputs = [t.requires_grad_() for t in points]
    assert gradcheck(function, inputs)
    assert gradgradcheck(function, inputs, fast_mode=True)


@pytest.mark.parametrize(
    "same",
    [
        RBF([0.0, 1.0], [0.5, 0.5]),
        RBF(np.array([0.0, 1.0]), 0.5),
        RBF(torch.tensor([0.0, 1.0]), torch.tensor(0.5)),
        RBF((0, 1), np.array([0.5])),
    ],
)
def test_equal_kernels_are_equal_families(same):
    family = RBF((0.0, 1.0), 0.5)
    assert family == same
    assert hash(family) == hash(same)
    assert dataclasses.replace(family, bandwidth=0.5) == family
    assert family != RBF((0.0, 1.0), 0.6)


def test_nothing_is_learned():
    family = RBF((0.0, 1.0), 0.5)
    assert family.init(2, None) == {}
    constants = family.constants(2)
    assert torch.equal(constants["centre"], tensor([0.0, 1.0]))
    torch.testing.assert_close(constants["log_scale"], tensor([0.5, 0.5]).log(), rtol=0, atol=0)


def test_the_facts_of_the_family():
    family = FAMILIES[0]
    assert family.is_non_negative
    assert family.num_states is None
    assert torch.equal(family.overlap(tensors(FAMILIES)), torch.ones(2, 2, 2, dtype=torch.bool))
    # Centres are constants of a region, so that regions with other centres fold together.
    assert family.fold_key == FAMILIES[1].fold_key
    family.check(tensor([0.0, 1e300]), 0)


def test_another_number_of_units_is_refused():
    with pytest.raises(ValueError, match=r"one unit per centre: expected 2 units, got 3"):
        FAMILIES[0].constants(3)


@pytest.mark.parametrize("centres", [(), (0.0, math.inf), (math.nan,)])
def test_missing_and_infinite_centres_are_refused(centres):
    with pytest.raises(ValueError, match=r"at least one centre, all finite, got centres"):
        RBF(centres, 1.0)


@pytest.mark.parametrize("bandwidth", [0.0, -1.0, math.inf, math.nan, (1.0, 0.0)])
def test_bandwidths_that_are_not_positive_are_refused(bandwidth):
    with pytest.raises(ValueError, match=r"positive, finite bandwidths, got"):
        RBF((0.0, 1.0), bandwidth)


def test_another_number_of_bandwidths_is_refused():
    with pytest.raises(ValueError, match=r"one per centre: expected 2, got 3"):
        RBF((0.0, 1.0), (1.0, 1.0, 1.0))


def test_infinite_values_are_refused():
    with pytest.raises(ValueError, match=r"variable 2 .* finite values, got inf"):
        FAMILIES[0].check(tensor([math.inf]), 2)
