"""Marginals that are prepared once answer as the density itself does."""

import pytest
import torch

import subtractive as sub
from subtractive.inference.evidence import Evidence
from subtractive.inputs.test_functions import CumulativeAt, DensityAt, Moments
from subtractive.tables.marginal_forms import Marginals

ATOMS = sub.WithAtoms(sub.Gaussian(), atoms=(0.5,))
POSITIVE = sub.WithAtoms(sub.Gaussian(), atoms=(0.5,), non_negative=True)
TREE = sub.RegionGraph.from_nested(((0, 1), (2, 3)))
GROUP = sub.flat([[0, 1], [2], [3]])
DOUBLE = {"num_units": 3, "dtype": torch.float64}


def squared(graph, families, seed, **settings):
    circuit = sub.Circuit(graph, families, seed=seed, **DOUBLE, **settings)
    return sub.SquaredCircuit(circuit)


def monotonic(graph, families, seed):
    circuit = sub.Circuit(graph, families, seed=seed, weights=sub.positive_weights, **DOUBLE)
    return sub.MonotonicCircuit(circuit)


LINE = [sub.Gaussian(), sub.Gaussian(), ATOMS, sub.Gaussian()]
SUMS = [sub.Gaussian(), sub.Gaussian(), POSITIVE, sub.Gaussian()]
GROUPED = [sub.MultivariateGaussian(), sub.MultivariateGaussian(), POSITIVE, sub.Gaussian()]
SQUARE = squared(TREE, LINE, 0, num_outputs=2)
COMPLEX = squared(sub.linear_tree(4), LINE, 1, weights=sub.complex_weights)
FULL = squared(sub.flat([[0, 1, 2, 3]]), sub.MultivariateGaussian(norm=2), 2)
TREES = [monotonic(TREE, SUMS, 3), monotonic(sub.linear_tree(4), SUMS, 4)]
DENSITIES = {
    "square of a tree": SQUARE,
    "complex weights": COMPLEX,
    "full covariance": FULL,
    "a tree beside a group of columns": sub.Mixture([TREES[0], monotonic(GROUP, GROUPED, 5)]),
    "trees with other families": sub.Mixture([*TREES, SQUARE]),
    "a mixture in a mixture": sub.Mixture([sub.Mixture(TREES, weights=[0.2, 0.8]), COMPLEX]),
}


@pytest.mark.parametrize("functions", ["below", "density", "moments"])
@pytest.mark.parametrize("name", DENSITIES)
def test_prepared_marginals_are_those_of_the_density(name, functions):
    density = DENSITIES[name]
    x = torch.tensor([[0.0, 0.3, 0.0, 0.0]], dtype=torch.float64)
    given = Evidence(x, torch.tensor([[False, True, False, False]]))
    points = torch.linspace(-2.0, 2.0, 9, dtype=torch.float64)
    kinds = {"below": CumulativeAt(points), "density": DensityAt(points), "moments": Moments()}
    asked = [kinds[functions], None, kinds[functions], kinds[functions]]
    marginals = Marginals(density, given)
    for _ in range(2):
        found = marginals.expectations(asked)
        with torch.no_grad():
            expected = density.expectations(given, asked)
        assert found[1] is None
        for variable in (0, 2, 3):
            torch.testing.assert_close(found[variable], expected[variable], rtol=1e-10, atol=1e-12)
