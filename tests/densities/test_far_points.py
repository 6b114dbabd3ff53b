"""Two thousand variables, and points a million standard deviations away, to fifty digits."""

import math

import pytest
import torch
from oracles import mp_log_partition, mp_log_square
from registry import LAYERS

import subtractive as sub

DOUBLE = torch.float64
TREES = {"linear": sub.linear_tree, "binary": lambda d: sub.random_binary_tree(d, seed=0)}


def squared(graph, **options):
    settings = {"num_units": 2, "seed": 0, "dtype": DOUBLE, "initialise": sub.init.normal()}
    return sub.SquaredCircuit(sub.Circuit(graph, sub.Gaussian(), **(settings | options)))


@pytest.mark.parametrize(
    ("tree", "weights", "size"),
    [
        ("binary", sub.real_weights, 500),
        pytest.param("binary", sub.real_weights, 2000, marks=pytest.mark.slow),
        pytest.param("binary", sub.complex_weights, 2000, marks=pytest.mark.slow),
        pytest.param("linear", sub.real_weights, 2000, marks=pytest.mark.slow),
        pytest.param("linear", sub.complex_weights, 2000, marks=pytest.mark.slow),
    ],
)
def test_thousands_of_variables_have_exact_log_densities(tree, weights, size):
    p = squared(TREES[tree](size), weights=weights)
    x = torch.randn(2, size, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
    x[1] *= 14  # of 2,000 variables, a log-density of minus several hundred thousand
    log_partition = mp_log_partition(p.circuit)
    torch.testing.assert_close(p.log_partition().item(), log_partition, rtol=1e-11, atol=1e-10)
    log_prob = p.log_prob(x)
    for row, value in zip(x.tolist(), log_prob.tolist(), strict=True):
        exact = mp_log_square(p.circuit, row) - log_partition
        torch.testing.assert_close(value, exact, rtol=1e-10, atol=0)
    assert log_prob[1] < -50 * size
    grads = torch.autograd.grad(log_prob.sum(), list(p.parameters()))
    assert all(grad.isfinite().all() for grad in grads)


@torch.no_grad()
def test_two_thousand_variables_have_marginals_and_conditionals():
    p = squared(TREES["binary"](2000), num_outputs=2)
    x = torch.randn(3, 2000, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
    half = torch.arange(2000) % 2 == 0
    chain = p.log_marginal(x, half) + p.log_conditional(x, ~half, half)
    torch.testing.assert_close(chain, p.log_prob(x), rtol=1e-10, atol=0)


@pytest.mark.slow
@torch.no_grad()
def test_two_thousand_variables_are_sampled_and_imputed():
    p = squared(TREES["binary"](2000), num_outputs=2)
    x = torch.randn(3, 2000, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
    drawn = p.sample(3, generator=torch.Generator().manual_seed(1))
    # What a model draws is far more likely under it than what another one draws.
    assert p.log_prob(drawn).min() > p.log_prob(3 * x).max()
    x[0, ::2] = math.nan
    assert p.impute(x[:1]).isfinite().all()


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("tree", [*TREES, "flat"])
def test_points_a_million_standard_deviations_away_have_exact_log_densities(tree, layer):
    graph = sub.flat(4) if tree == "flat" else TREES[tree](4)
    p = squared(graph, product=LAYERS[layer], num_outputs=2)
    far = 1e6
    x = torch.tensor([[far, -far, 0.0, far], [far] * 4, [0.0, 0.0, 0.0, -far]], dtype=DOUBLE)
    log_square = p.log_square(x)
    for row, value in zip(x.tolist(), log_square.tolist(), strict=True):
        exact = mp_log_square(p.circuit, row)
        assert exact < -1e11
        torch.testing.assert_close(value, exact, rtol=1e-14, atol=0)
    torch.testing.assert_close(p.log_prob(x), log_square - p.log_partition(), rtol=1e-14, atol=0)
    grads = torch.autograd.grad(log_square.sum(), list(p.parameters()))
    assert all(grad.isfinite().all() for grad in grads)


def test_points_a_million_standard_deviations_away_can_be_evidence():
    p = squared(sub.linear_tree(3), num_outputs=2)
    gap = torch.tensor([[1e6, math.nan, -1e6]], dtype=DOUBLE)
    nodes = torch.linspace(-12, 12, 4001, dtype=DOUBLE)
    rows = gap.repeat(len(nodes), 1)
    rows[:, 1] = nodes
    with torch.no_grad():
        given = p.condition({0: 1e6, 2: -1e6})
        # Near -1e12, two neighbouring numbers of double precision differ by 1e-4.
        densities = (p.log_prob(rows) - p.log_prob(gap)).exp()
        found = given.log_prob(nodes[:, None]).exp()
        torch.testing.assert_close(found, densities, rtol=1e-3, atol=0)
        torch.testing.assert_close(
            found.sum() * 24 / 4000, torch.ones_like(found[0]), rtol=1e-3, atol=0
        )
