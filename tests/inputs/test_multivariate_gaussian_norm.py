"""Multivariate Gaussians of another norm are multiples of densities, in every query."""

import math

import pytest
import torch
from oracles import gauss_legendre, grid

import subtractive as sub
from subtractive.inputs.base import EVERYWHERE
from subtractive.inputs.multivariate_gaussian import MultivariateGaussian

GRAPHS = {
    "one region": sub.flat([[0, 1, 2]]),
    "with single variables": sub.RegionGraph.from_nested(({0, 2}, 1)),
}
CLOSE = {"rtol": 1e-9, "atol": 1e-9}


def build(graph, norm, *, weights=sub.real_weights):
    """Components of different volumes, in float64."""
    family = MultivariateGaussian(norm)
    settings = {"num_units": 3, "num_outputs": 2, "seed": 0, "dtype": torch.float64}
    circuit = sub.Circuit(graph, family, weights=weights, **settings)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for inputs in circuit.input_layers:
            for name, size in (("log_diagonal", 0.3), ("lower", 0.5)):
                value = inputs.get_tensor(name)
                value.copy_(size * torch.randn(value.shape, generator=generator).double())
    return circuit


def pair(graph, norm, weights=sub.real_weights):
    """The same function twice: densities, and multiples with weights that make up for it."""
    plain, other = build(graph, 1, weights=weights), build(graph, norm, weights=weights)
    height = 0.0
    for inputs in other.input_layers:
        p = inputs.tensors(slice(None))
        x = torch.zeros(len(inputs.scopes), 1, len(inputs.scopes[0]), dtype=torch.float64)
        difference = MultivariateGaussian(norm).values(p, x).exponent
        difference = difference - MultivariateGaussian().values(p, x).exponent  # (f, 1, i)
        height = height + difference.detach().sum((0, 1))
    with torch.no_grad():
        for name, value in other.sum_layers[-1].weights.named_parameters():
            value.copy_(value - height if name == "log_value" else value / height.exp())
    return plain, other


@pytest.mark.parametrize("norm", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 2])
def test_the_integral_of_a_power_is_one(size, norm):
    graph = sub.flat([list(range(size))])
    inputs = build(graph, norm).input_layers[0]
    x, weights = grid([gauss_legendre(-16.0, 16.0, 300)] * size)
    values = inputs.values(x, slice(None)).exponent[0].detach().exp()  # (n, i)
    total = weights @ values**norm
    torch.testing.assert_close(total, torch.ones_like(total), rtol=1e-8, atol=1e-8)


def test_grams_of_norm_two_have_a_diagonal_of_ones():
    for graph in GRAPHS.values():
        for inputs in build(graph, 2).input_layers:
            diagonal = inputs.gram(slice(None), EVERYWHERE).exponent.diagonal(dim1=-2, dim2=-1)
            torch.testing.assert_close(diagonal, torch.zeros_like(diagonal), **CLOSE)


@pytest.mark.parametrize("norm", [2, 3])
@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
@pytest.mark.parametrize("kind", ["squared", "monotonic"])
@torch.no_grad()
def test_every_query_answers_as_with_densities(graph, norm, kind):
    is_squared = kind == "squared"
    make = sub.SquaredCircuit if is_squared else sub.MonotonicCircuit
    weights = sub.real_weights if is_squared else sub.positive_weights
    plain, other = map(make, pair(graph, norm, weights))
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    x[1, 0] = x[2, 1] = x[3, 2] = x[4, 1:] = math.nan
    torch.testing.assert_close(other.log_prob(x), plain.log_prob(x), **CLOSE)
    torch.testing.assert_close(other.log_partition(), plain.log_partition(), **CLOSE)
    torch.testing.assert_close(other.mean(), plain.mean(), **CLOSE)
    torch.testing.assert_close(other.covariance(), plain.covariance(), **CLOSE)
    torch.testing.assert_close(other.impute(x), plain.impute(x), **CLOSE)
    drawn = [
        density.sample(20, given={1: 0.3}, generator=torch.Generator().manual_seed(2))
        for density in (plain, other)
    ]
    torch.testing.assert_close(drawn[1], drawn[0], rtol=1e-6, atol=1e-6)


def test_regions_of_different_norms_are_not_folded_together():
    assert MultivariateGaussian(2).fold_key != MultivariateGaussian().fold_key


@pytest.mark.parametrize("norm", [0, -1, 1.5])
def test_norms_are_whole_and_positive(norm):
    with pytest.raises(ValueError, match="norm must be a whole number of at least 1"):
        MultivariateGaussian(norm)
