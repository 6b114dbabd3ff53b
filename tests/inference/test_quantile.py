"""Quantiles: distribution functions inverted."""

import math

import pytest
import torch
from registry import CONTINUOUS, DISCRETE, build
from scipy import stats

import subtractive as sub
from subtractive.inference.quantile import quantiles, state_quantiles

LEVELS = torch.tensor([1e-9, 1e-3, 0.1, 0.5, 0.77, 0.999, 1 - 1e-9], dtype=torch.float64)


def squared(family, **options):
    return sub.SquaredCircuit(build("binary", family, **options))


def monotonic(family, **options):
    return sub.MonotonicCircuit(build("linear", family, weights="positive", **options))


DENSITIES = {
    **{f"squared {name}": (lambda name=name: squared(name, outputs=3)) for name in CONTINUOUS},
    "complex": lambda: squared("gaussian", weights="complex", layer="kronecker"),
    "monotonic": lambda: monotonic("gaussian"),
    "mixture": lambda: sub.Mixture([squared("gaussian"), monotonic("gaussian")]),
    "conditional": lambda: squared("spline", d=5).condition({4: 0.5}),
}


@pytest.mark.parametrize("make", DENSITIES.values(), ids=DENSITIES)
@torch.no_grad()
def test_quantiles_invert_the_distribution_function(make):
    p = make()
    for variable, given in ((0, None), (2, {1: 0.3})):
        found = p.quantile(variable, LEVELS, given)
        torch.testing.assert_close(p.cdf(variable, found, given), LEVELS, rtol=0, atol=1e-12)
        assert bool((found.diff() > 0).all())


@pytest.mark.parametrize("family", DISCRETE)
@pytest.mark.parametrize("make", [squared, monotonic])
def test_discrete_quantiles_are_the_smallest_states_that_reach_the_level(make, family):
    if make is monotonic and family == "embedding":
        family = "categorical"
    p = make(family)
    levels = torch.linspace(0.01, 0.99, 50, dtype=torch.float64)
    for given in (None, {1: 2.0}):
        heights = p.cdf(0, torch.arange(3), given)
        expected = [min(v for v in range(3) if heights[v] >= level) for level in levels]
        assert p.quantile(0, levels, given).tolist() == expected


def test_a_level_that_a_state_reaches_exactly_is_that_state():
    chances = torch.tensor([0.25, 0.0, 0.5, 0.25], dtype=torch.float64)
    levels = torch.tensor([0.1, 0.25, 0.26, 0.75, 0.76, 0.999], dtype=torch.float64)
    assert state_quantiles(chances, levels).tolist() == [0, 0, 2, 2, 3, 3]
    # Rounding may leave the sum short of one.
    assert state_quantiles(chances * (1 - 1e-9), levels[-1:] + 1e-3 - 1e-12).tolist() == [3]


@pytest.mark.parametrize(("mean", "scale"), [(0.0, 1.0), (1e9, 1.0), (-3e5, 1e-4), (0.0, 1e-30)])
def test_one_gaussian_has_the_quantiles_of_scipy(mean, scale):
    """Also where the mean exceeds the standard deviation so far that x² has lost it."""
    circuit = sub.Circuit(
        sub.flat(1), sub.Gaussian(), num_units=1, weights=sub.positive_weights, dtype=torch.float64
    )
    with torch.no_grad():
        circuit.input_layers[0].mean.fill_(mean)
        circuit.input_layers[0].log_scale.fill_(math.log(scale))
    found = sub.MonotonicCircuit(circuit).quantile(0, LEVELS)
    expected = torch.from_numpy(stats.norm.ppf(LEVELS.numpy(), mean, scale))
    torch.testing.assert_close(found, expected, rtol=4e-15, atol=1e-7 * scale)


def test_modes_far_apart_leave_a_plateau_between_them():
    circuit = sub.Circuit(
        sub.flat(1), sub.Gaussian(), num_units=2, weights=sub.positive_weights, dtype=torch.float64
    )
    with torch.no_grad():
        circuit.input_layers[0].mean.copy_(torch.tensor([[-1e3, 1e3]]))
        circuit.sum_layers[0].weights.log_value.zero_()
    p = sub.MonotonicCircuit(circuit)
    low, high = p.quantile(0, torch.tensor([0.25, 0.75])).tolist()
    torch.testing.assert_close(low, -1e3, rtol=1e-3, atol=0)
    torch.testing.assert_close(high, 1e3, rtol=1e-3, atol=0)
    middle = p.quantile(0, [0.5])
    torch.testing.assert_close(p.cdf(0, middle)[0].item(), 0.5, rtol=0, atol=1e-12)


def test_quantiles_widen_their_bracket_and_pass_no_gradient():
    found = quantiles(lambda t: torch.sigmoid(t - 500), LEVELS[2:5], 0.0, 1.0)
    torch.testing.assert_close(found, LEVELS[2:5].logit() + 500, rtol=1e-14, atol=1e-12)
    assert not squared("gaussian").quantile(0, LEVELS).requires_grad


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        ([0.5, 1.0], r"levels must be numbers between 0 and 1, got \[0\.5, 1\.0\]"),
        ([0.0], "levels must be numbers between 0 and 1"),
        ([-0.1], "levels must be numbers between 0 and 1"),
        (0.5, r"levels must be one row of numbers, got shape \(\). For a single one"),
        ([[0.5]], r"levels must be one row of numbers, got shape \(1, 1\)"),
        ([math.nan], "levels must be numbers, got NaN among them"),
        ("half", "levels must be one row of numbers, got str"),
    ],
)
@pytest.mark.parametrize("family", ["gaussian", "categorical"])
def test_levels_outside_the_unit_interval_are_refused(family, levels, message):
    with pytest.raises(ValueError, match=message):
        squared(family).quantile(0, levels)


@pytest.mark.parametrize("family", ["gaussian", "categorical"])
def test_variables_without_a_distribution_are_refused(family):
    p = squared(family)
    with pytest.raises(ValueError, match="variable 0 is given: it has no distribution left"):
        p.quantile(0, [0.5], {0: 1.0})
    with pytest.raises(ValueError, match="unknown variable 4"):
        p.quantile(4, [0.5])
    assert p.quantile(0, torch.zeros(0)).shape == (0,)
