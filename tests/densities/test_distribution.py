"""Densities as torch.distributions, and leading axes of log_prob, against the densities."""

import math

import pytest
import torch
from oracles import all_states
from registry import NUM_STATES, build, points
from torch.distributions import Categorical as TorchCategorical
from torch.distributions import Distribution, Independent, MixtureSameFamily, Normal, constraints

import subtractive as sub


def gaussian_mixture():
    """An additive mixture of products of Gaussians, by this library and by torch."""
    circuit = sub.Circuit(
        sub.flat(2),
        sub.Gaussian(),
        num_units=3,
        weights=sub.positive_weights,
        seed=0,
        dtype=torch.float64,
    )
    tensors = [circuit.input_of(region)[0].tensors(slice(None)) for region in (0, 1)]
    mean = torch.cat([t["mean"] for t in tensors[:1]]).T.detach()  # (i, d)
    scale = torch.cat([t["log_scale"].exp() for t in tensors[:1]]).T.detach()
    weight = circuit.weight_of(circuit.graph.root)[0].detach()
    theirs = MixtureSameFamily(TorchCategorical(weight), Independent(Normal(mean, scale), 1))
    return sub.MonotonicCircuit(circuit).as_distribution(), theirs


def test_a_gaussian_mixture_answers_as_that_of_torch():
    ours, theirs = gaussian_mixture()
    x = torch.randn(4, 3, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    close = {"rtol": 1e-12, "atol": 1e-12}
    torch.testing.assert_close(ours.log_prob(x), theirs.log_prob(x), **close)
    torch.testing.assert_close(ours.mean, theirs.mean, **close)
    torch.testing.assert_close(ours.variance, theirs.variance, **close)
    torch.testing.assert_close(ours.stddev, theirs.stddev, **close)
    assert (ours.batch_shape, ours.event_shape) == (theirs.batch_shape, theirs.event_shape)


@pytest.mark.parametrize("family", ["gaussian", "embedding", "spline"])
@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (2, 0), (1, 2, 3)])
def test_log_prob_takes_leading_axes(family, shape):
    p = sub.SquaredCircuit(build("binary", family))
    x = points(family, math.prod(shape), 4).reshape(*shape, 4)
    assert p.log_prob(x).shape == shape
    expected = p.log_marginal(x.reshape(-1, 4)).reshape(shape)
    torch.testing.assert_close(p.log_prob(x), expected, rtol=0, atol=0)
    torch.testing.assert_close(p.log_prob(x.numpy()), expected, rtol=0, atol=0)
    torch.testing.assert_close(p.as_distribution().log_prob(x), expected, rtol=0, atol=0)


def test_missing_entries_are_integrated_out_under_leading_axes():
    p = sub.SquaredCircuit(build("linear", "gaussian"))
    x = points("gaussian", 6, 4)
    x[::2, 1] = math.nan
    expected = p.log_marginal(x)
    torch.testing.assert_close(p.log_prob(x.reshape(2, 3, 4)).flatten(), expected, rtol=0, atol=0)


def test_samples_have_torch_shapes_and_the_right_frequencies():
    p = sub.SquaredCircuit(build("binary", "categorical", d=2))
    distribution = p.as_distribution()
    assert distribution.sample().shape == (2,)
    assert distribution.sample((3, 1)).shape == (3, 1, 2)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        x = distribution.sample((4000,))
    states = all_states([NUM_STATES] * 2)
    counts = (x[:, None] == states).all(-1).sum(0).double()
    expected = 4000 * p.log_prob(states).exp().detach()
    # Chi-square with 8 degrees of freedom: beyond 26.1 in one of a thousand seeds.
    assert ((counts - expected).square() / expected).sum() < 26.1


@pytest.mark.parametrize("family", ["gaussian", "spline"])
def test_the_joint_distribution_function_is_a_box(family):
    p = sub.SquaredCircuit(build("binary", family, d=3))
    upper = points(family, 5, 3)
    expected = [p.probability({v: (None, float(t)) for v, t in enumerate(row)}) for row in upper]
    found = p.as_distribution().cdf(upper)
    torch.testing.assert_close(found, torch.stack(expected), rtol=1e-10, atol=1e-12)


def test_the_distribution_function_of_one_variable():
    p = sub.SquaredCircuit(build("binary", "gaussian", d=3))
    points = torch.linspace(-2, 2, 7, dtype=torch.float64)
    value = torch.full((7, 3), math.inf, dtype=torch.float64)
    value[:, 1] = points
    expected = p.cdf(1, points)
    torch.testing.assert_close(p.as_distribution().cdf(value), expected, rtol=1e-10, atol=1e-12)
    alone = p.marginal([1]).as_distribution().cdf(points[:, None])
    torch.testing.assert_close(alone, expected, rtol=1e-10, atol=1e-12)


def test_the_distribution_function_of_states_counts_them():
    p = sub.SquaredCircuit(build("binary", "embedding", d=2))
    states = all_states([NUM_STATES] * 2)
    inside = (states[:, None] >= states).all(-1).double()
    expected = inside @ p.log_prob(states).exp()
    torch.testing.assert_close(p.as_distribution().cdf(states), expected, rtol=1e-10, atol=1e-12)


def test_a_distribution_can_be_expanded():
    p = sub.SquaredCircuit(build("binary", "gaussian", d=3))
    batch = p.as_distribution().expand((2, 1))
    assert isinstance(batch, Distribution)
    assert (batch.batch_shape, batch.event_shape) == ((2, 1), (3,))
    assert batch.mean.shape == batch.variance.shape == batch.sample().shape == (2, 1, 3)
    assert batch.sample((4,)).shape == (4, 2, 1, 3)
    x = points("gaussian", 5, 3)
    assert batch.log_prob(x).shape == batch.cdf(x).shape == (2, 5)


def test_the_support_says_which_values_are_possible():
    families = [sub.Gaussian(), sub.Categorical(3)]
    circuit = sub.Circuit(sub.flat(2), families, num_units=2, seed=0)
    support = sub.SquaredCircuit(circuit).as_distribution().support
    assert isinstance(support, constraints.Constraint)
    x = torch.tensor([[0.5, 2.0], [0.5, 3.0], [math.nan, 1.0]])
    assert support.check(x).all(-1).tolist() == [True, False, False]


@pytest.mark.parametrize("value", [torch.zeros(4, 2), torch.full((1, 3), math.nan)])
def test_a_distribution_function_needs_complete_rows(value):
    p = sub.SquaredCircuit(build("binary", "gaussian", d=3))
    with pytest.raises(ValueError, match=r"cdf needs values of shape \(\.\.\., 3\) without NaN"):
        p.as_distribution().cdf(value)


def test_gradients_reach_the_parameters():
    p = sub.SquaredCircuit(build("binary", "gaussian", d=3))
    p.as_distribution().log_prob(points("gaussian", 4, 3).reshape(2, 2, 3)).sum().backward()
    assert all(parameter.grad is not None for parameter in p.parameters())
