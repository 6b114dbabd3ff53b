"""Shallow squares written out have the density of the square, and weights that sum to one."""

import numpy as np
import pytest
import torch
from oracles import all_states
from scipy import stats

import subtractive as sub


def shallow(family, d=2, k=4, seed=0, groups=None, **options):
    circuit = sub.Circuit(
        sub.flat(groups or d),
        family,
        num_units=k,
        initialise=sub.init.normal(),
        seed=seed,
        dtype=torch.float64,
        **options,
    )
    return sub.SquaredCircuit(circuit)


POINTS = torch.linspace(-1.5, 1.5, 4)
GAUSSIANS = {
    "Gaussian": shallow(sub.Gaussian()),
    "one variable": shallow(sub.Gaussian(), d=1),
    "three outputs": shallow(sub.Gaussian(), num_outputs=3),
    "complex": shallow(sub.Gaussian(), weights=sub.complex_weights),
    "RBF": shallow([sub.RBF(POINTS, 0.8), sub.RBF(-POINTS, torch.tensor([0.5, 0.6, 0.7, 0.8]))]),
    "multivariate": shallow(sub.MultivariateGaussian(), groups=[[0, 1]]),
    "norm two": shallow(sub.MultivariateGaussian(2), groups=[[0, 1]]),
    "regions of both kinds": shallow(
        [sub.MultivariateGaussian(), sub.Gaussian(), sub.MultivariateGaussian()],
        groups=[[0, 2], [1]],
    ),
}
every_gaussian = pytest.mark.parametrize("density", GAUSSIANS.values(), ids=GAUSSIANS)


def rows(d, n=100):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@every_gaussian
def test_the_mixture_has_the_density_of_the_square(density):
    mixture, x = sub.reductions.signed_mixture(density), rows(density.num_variables)
    assert len(mixture.weights) == 4 * 5 // 2
    assert mixture.weights.sum().item() == pytest.approx(1.0, abs=1e-12)
    expected = density.log_prob(x).exp().detach()
    sums = mixture.log_components(x).exp() @ mixture.weights
    torch.testing.assert_close(sums, expected, rtol=1e-10, atol=1e-13)
    torch.testing.assert_close(mixture.log_prob(x).exp(), expected, rtol=1e-10, atol=1e-13)


@every_gaussian
def test_gaussian_components_and_their_marginals_are_those_of_scipy(density):
    d = density.num_variables
    weights, means, covariances = (
        part.numpy() for part in sub.reductions.signed_mixture(density).gaussians()
    )
    x = rows(d)
    for kept in (list(range(d)), [d - 1]):
        parts = [
            stats.multivariate_normal(mean[kept], covariance[np.ix_(kept, kept)]).pdf(x[:, kept])
            for mean, covariance in zip(means, covariances, strict=True)
        ]
        expected = torch.from_numpy(weights @ np.array(parts))
        observed = torch.tensor([variable in kept for variable in range(d)])
        actual = density.log_marginal(x, observed).exp().detach()
        torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-12)


def test_a_subtracted_component_has_negative_weight():
    circuit = sub.Circuit(sub.flat(1), sub.Gaussian(), num_units=2, dtype=torch.float64)
    with torch.no_grad():
        circuit.sum_layers[-1].weights.value.copy_(torch.tensor([[[1.0, -0.7]]]))
        circuit.input_layers[0].mean.copy_(torch.zeros(1, 2))
        circuit.input_layers[0].log_scale.copy_(torch.tensor([[0.0, -1.0]]))
    mixture = sub.reductions.signed_mixture(sub.SquaredCircuit(circuit))
    assert mixture.pairs.tolist() == [[0, 0], [0, 1], [1, 1]]
    assert mixture.weights.sign().tolist() == [1, -1, 1]


def test_discrete_components_sum_to_one_and_add_up_to_the_square():
    density = shallow([sub.Categorical(3), sub.Binomial(2)])
    mixture, x = sub.reductions.signed_mixture(density), all_states([3, 3])
    components = mixture.log_components(x).exp()
    totals = torch.ones(10, dtype=torch.float64)
    torch.testing.assert_close(components.sum(0), totals, rtol=0, atol=1e-12)
    expected = density.log_prob(x).exp().detach()
    torch.testing.assert_close(components @ mixture.weights, expected, rtol=1e-10, atol=1e-14)


def test_components_that_never_meet_are_left_out():
    density = shallow(sub.Categorical(2), d=1, k=2)
    with torch.no_grad():
        table = torch.tensor([[[0.0, -torch.inf], [-torch.inf, 0.0]]])
        density.circuit.input_layers[0].logits.copy_(table)
    mixture, x = sub.reductions.signed_mixture(density), all_states([2])
    assert mixture.pairs.tolist() == [[0, 0], [1, 1]]
    expected = density.log_prob(x).detach()
    torch.testing.assert_close(mixture.log_prob(x), expected, rtol=1e-12, atol=1e-12)


def test_components_of_very_different_heights_keep_their_weights():
    # Squares of densities in 80 variables with scales e^-4 and e^4 differ in mass by e^640.
    circuit = sub.Circuit(sub.flat(80), sub.Gaussian(), num_units=2, dtype=torch.float64)
    with torch.no_grad():
        circuit.input_layers[0].mean.zero_()
        circuit.input_layers[0].log_scale.copy_(torch.tensor([-4.0, 4.0]).expand(80, 2))
        weight = torch.tensor([[[-160.0, 160.0]]], dtype=torch.float64).exp()
        circuit.sum_layers[-1].weights.value.copy_(weight)
    weights = sub.reductions.signed_mixture(sub.SquaredCircuit(circuit)).weights
    # The weights balance that; the product of both has next to no mass.
    expected = torch.tensor([0.5, 0.0, 0.5], dtype=torch.float64)
    torch.testing.assert_close(weights, expected, rtol=0, atol=1e-12)


def test_deep_circuits_and_inputs_of_any_sign_are_refused():
    deep = sub.Circuit(sub.random_binary_tree(4), sub.Gaussian(), num_units=2)
    with pytest.raises(ValueError, match="the circuit is deep: 2 layers of sums over a tree of"):
        sub.reductions.signed_mixture(sub.SquaredCircuit(deep))
    wide = sub.Circuit(sub.flat(2), sub.Gaussian(), num_units=2, product=sub.KroneckerLayer)
    with pytest.raises(ValueError, match="one sum over Hadamard products"):
        sub.reductions.signed_mixture(sub.SquaredCircuit(wide))
    with pytest.raises(ValueError, match=r"variable 1 \(Embedding\) may be negative"):
        sub.reductions.signed_mixture(shallow([sub.Categorical(2), sub.Embedding(2)]))
    added = sub.Circuit(sub.flat(2), sub.Gaussian(), num_units=2, weights=sub.positive_weights)
    with pytest.raises(ValueError, match="expected a SquaredCircuit, got MonotonicCircuit"):
        sub.reductions.signed_mixture(sub.MonotonicCircuit(added))


def test_components_need_rows_without_gaps_and_gaussians_need_gaussian_inputs():
    with pytest.raises(ValueError, match="rows without gaps"):
        sub.reductions.signed_mixture(GAUSSIANS["Gaussian"]).log_components(
            torch.tensor([[0.0, torch.nan]])
        )
    with pytest.raises(ValueError, match="products of Categorical inputs are no Gaussians"):
        sub.reductions.signed_mixture(shallow(sub.Categorical(3))).gaussians()
