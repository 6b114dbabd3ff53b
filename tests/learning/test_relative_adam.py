"""Steps in the units of the inputs: the same training for data in other units."""

import math

import pytest
import torch
from registry import FAMILIES, build, points

import subtractive as sub


def gaussian(units=4, seed=0):
    circuit = sub.Circuit(
        sub.random_binary_tree(3, seed=0),
        sub.Gaussian(),
        num_units=units,
        num_outputs=2,
        seed=seed,
        dtype=torch.float64,
    )
    return sub.SquaredCircuit(circuit)


def table(n=200):
    return torch.randn(n, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def one_step(density, x, rate=0.01):
    optimizer = sub.learning.relative_adam(density, learning_rate=rate)
    (-density.log_prob(x).mean()).backward()
    before = {name: value.detach().clone() for name, value in density.named_parameters()}
    optimizer.step()
    return {name: value.detach() - before[name] for name, value in density.named_parameters()}


def test_a_mean_moves_by_the_rate_times_its_scale_and_all_else_by_the_rate():
    density = gaussian()
    sub.initialise(density, table())
    layer = density.circuit.input_layers[0]
    scale = layer.get_tensor("log_scale").detach().exp()
    moved = one_step(density, table())
    # The first step of Adam is the rate times the sign, but for its epsilon of 1e-8.
    for name, change in moved.items():
        expected = 0.01 * scale if name.endswith("mean") else torch.full_like(change, 0.01)
        torch.testing.assert_close(change.abs(), expected, rtol=1e-3, atol=0)


def test_a_mean_of_several_variables_moves_by_its_scale_given_the_others():
    factor = torch.tensor([[[1.0, 0.0], [2.0, 0.1]]], dtype=torch.float64)
    covariances = factor @ factor.mT
    density = sub.reductions.squared_gaussian_mixture(
        torch.ones(1), torch.zeros(1, 2), covariances, dtype=torch.float64
    )
    moved = one_step(density, table()[:, :2])
    precision = torch.linalg.inv(2 * covariances)  # N(μ, Σ)^½ is a Gaussian of covariance 2Σ
    expected = 0.01 * precision.diagonal(dim1=-2, dim2=-1).rsqrt()
    actual = moved["circuit.inputs.0.mean"][0].abs()
    torch.testing.assert_close(actual, expected, rtol=1e-3, atol=0)
    lower = moved["circuit.inputs.0.lower"][0, 0, 1, 0].abs().item()
    assert lower == pytest.approx(0.01 * math.sqrt(2) * 0.1, rel=1e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_can_be_trained_in_its_units(family):
    x = points(family, 100, 4)
    density = sub.SquaredCircuit(build("binary", family, weights="positive"))
    sub.initialise(density, x)
    before = density.log_prob(x).mean()
    optimizer = sub.learning.relative_adam(density, learning_rate=0.03)
    sub.fit(density, x, optimizer=optimizer, max_epochs=5, progress=False)
    assert density.log_prob(x).mean() > before


def test_training_does_not_depend_on_the_units_of_the_data():
    scores = []
    for unit in (1.0, 1e-5):
        # One column that another one nearly determines, in two units of everything.
        x = table(400)
        x[:, 1] = x[:, 0] + 0.01 * x[:, 1]
        components = sub.learning.fit_gaussian_mixture(unit * x, 3)
        density = sub.reductions.squared_gaussian_mixture(*components, dtype=torch.float64)
        optimizer = sub.learning.relative_adam(density, learning_rate=0.01)
        sub.fit(density, unit * x, optimizer=optimizer, max_epochs=3, progress=False)
        scores.append(density.log_prob(unit * x).mean().item() + 3 * math.log(unit))
    # The gradients, and with them the epsilon of Adam, do depend on them a little.
    assert scores[0] == pytest.approx(scores[1], abs=2e-3)


def test_mixtures_are_trained_in_units_too():
    density = sub.Mixture([gaussian(seed=0), gaussian(seed=1)])
    sub.initialise(density, table())
    moved = one_step(density, table())
    means = [change for name, change in moved.items() if name.endswith("mean")]
    scales = [
        module.log_scale.detach().exp()
        for module in density.modules()
        if hasattr(module, "log_scale")
    ]
    assert len(means) == len(scales) == 2
    for change, scale in zip(means, scales, strict=True):
        # The log_scales have moved too, by 0.01.
        torch.testing.assert_close(change.abs(), 0.01 * scale, rtol=0.02, atol=0)
