"""Covariances as second derivatives of a cumulant generating function."""

import itertools
import math

import pytest
import torch
from oracles import all_states
from registry import FAMILIES, GRAPHS, NUM_STATES, build, every_kind, points

import subtractive as sub
from subtractive.inference import covariance as module
from subtractive.inference.covariance import cumulants, log_tilted_plain, log_tilted_square
from subtractive.inference.evidence import make_evidence
from subtractive.inference.marginal import log_integral, log_square_integral


def gaussian(mean, factor):
    """One multivariate Gaussian density as an additive circuit."""
    circuit = sub.Circuit(
        sub.flat([range(len(mean))]),
        sub.MultivariateGaussian(),
        num_units=1,
        weights=sub.positive_weights,
        dtype=torch.float64,
    )
    layer = circuit.input_layers[0]
    with torch.no_grad():
        layer.mean.copy_(mean)
        layer.log_diagonal.copy_(factor.diagonal().log())
        layer.lower.copy_(factor)
    return circuit


def random_gaussian(size, seed=0):
    generator = torch.Generator().manual_seed(seed)
    mean = torch.randn(size, generator=generator, dtype=torch.float64)
    factor = torch.randn(size, size, generator=generator, dtype=torch.float64).tril()
    return mean, factor - factor.diagonal().diag() + torch.eye(size, dtype=torch.float64)


def test_cumulants_are_gradient_and_hessian_at_zero():
    def function(t):
        return (t[0] + 2 * t[1] + t[0] * t[1] + 3 * t[1].square()).exp().log1p()

    mean, covariance = cumulants(function, 2)
    # log(1 + exp u) has derivative 1/2 and curvature 1/4 at u = 0.
    grad = torch.tensor([1.0, 2.0], dtype=torch.float64)
    curvature = torch.tensor([[0.0, 1.0], [1.0, 6.0]], dtype=torch.float64)
    torch.testing.assert_close(mean, 0.5 * grad, rtol=1e-12, atol=0)
    expected = 0.5 * curvature + 0.25 * grad[:, None] * grad
    torch.testing.assert_close(covariance, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("given", [None, {1: 0.4}, {0: -0.2, 3: 1.1}])
def test_a_gaussian_has_the_covariance_it_is_made_of(given):
    mean, factor = random_gaussian(5)
    sigma = factor @ factor.T
    plain = sub.MonotonicCircuit(gaussian(mean, factor))
    square = sub.SquaredCircuit(gaussian(mean, factor * math.sqrt(2)))  # N² has half of its Σ
    known = list(given or {})
    free = [v for v in range(5) if v not in known]
    blocks = {"uu": (free, free), "uo": (free, known), "oo": (known, known)}
    cov = {name: sigma[rows][:, columns] for name, (rows, columns) in blocks.items()}
    expected = torch.zeros(5, 5, dtype=torch.float64)
    reduced = cov["uu"] - cov["uo"] @ torch.linalg.solve(cov["oo"], cov["uo"].T)
    expected[torch.tensor(free)[:, None], torch.tensor(free)] = reduced
    for p in (plain, square):
        torch.testing.assert_close(p.covariance(given), expected, rtol=0, atol=1e-12)
        torch.testing.assert_close(p.variance(given), expected.diagonal(), rtol=0, atol=1e-12)


@every_kind(("graph", "family"), list(itertools.product(GRAPHS, FAMILIES)), together=1)
def test_a_tilt_of_zero_changes_nothing(graph, family):
    circuit = build(graph, family, weights="positive", d=3)
    x = points(family, 1, 3)
    x[0, 1] = math.nan
    for row in (x, torch.full((1, 3), math.nan, dtype=torch.float64)):
        evidence = make_evidence(row, None, circuit.families, circuit.device)
        zero = torch.zeros(3, dtype=torch.float64)
        square = log_tilted_square(circuit, evidence, zero)
        torch.testing.assert_close(
            square, log_square_integral(circuit, evidence)[0], rtol=1e-12, atol=1e-12
        )
        if circuit.is_non_negative:
            plain = log_tilted_plain(circuit, evidence, zero)
            torch.testing.assert_close(
                plain, log_integral(circuit, evidence)[0], rtol=1e-12, atol=1e-12
            )


@pytest.mark.parametrize("weights", ["real", "positive", "complex"])
@pytest.mark.parametrize("layer", ["hadamard", "kronecker"])
@pytest.mark.parametrize("outputs", [1, 3])
@torch.no_grad()
def test_covariances_equal_enumeration(weights, layer, outputs):
    options = {"weights": weights, "layer": layer, "outputs": outputs}
    p = sub.SquaredCircuit(build("linear", "embedding", **options))
    x = all_states([NUM_STATES] * 4)
    for given in (None, {2: 1.0}, {0: 2.0, 3: 0.0}):
        inside = torch.stack([x[:, v] == value for v, value in (given or {0: x[:, 0]}).items()])
        mass = p.log_prob(x).exp() * inside.all(0)
        expected = torch.cov(x.T, aweights=mass, correction=0)
        torch.testing.assert_close(p.covariance(given), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("rows", [1, 2, 64])
def test_rows_of_the_hessian_may_be_computed_in_any_number(rows, monkeypatch):
    p = sub.SquaredCircuit(build("binary", "gaussian"))
    whole = p.covariance()
    monkeypatch.setattr(module, "_ROWS", rows)
    torch.testing.assert_close(p.covariance(), whole, rtol=0, atol=1e-14)


def test_covariances_are_symmetric_positive_and_detached():
    mixture = sub.Mixture(
        [
            sub.SquaredCircuit(build("binary", "gaussian")),
            sub.MonotonicCircuit(build("flat", "gaussian", weights="positive")),
        ]
    )
    for p in (mixture, mixture.condition({1: 0.3}), mixture.marginal([3, 0])):
        covariance = p.covariance()
        assert torch.equal(covariance, covariance.T)
        assert bool((torch.linalg.eigvalsh(covariance) > 0).all())
        assert not covariance.requires_grad
        with torch.no_grad():
            assert torch.equal(p.covariance(), covariance)


@torch.no_grad()
def test_the_law_of_total_covariance_holds():
    """Cov[x] = E[Cov[x | y]] + Cov[E[x | y]], y being a discrete variable."""
    families = [sub.Categorical(3), sub.Gaussian(), sub.Spline(6, domain=(-2.0, 2.0))]
    p = sub.SquaredCircuit(
        sub.Circuit(sub.linear_tree(3), families, num_units=3, seed=0, dtype=torch.float64)
    )
    chances = p.pdf(0, torch.arange(3))
    means = torch.stack([p.mean({0: v}) for v in range(3)])
    within = sum(chances[v] * p.covariance({0: v}) for v in range(3))
    between = torch.cov(means.T, aweights=chances, correction=0)
    torch.testing.assert_close(p.covariance(), within + between, rtol=0, atol=1e-10)


def test_many_variables_and_far_evidence_stay_finite():
    p = sub.SquaredCircuit(build("linear", "gaussian", d=40))
    covariance = p.covariance({v: 50.0 * (-1) ** v for v in range(0, 40, 2)})
    free = torch.arange(1, 40, 2)
    assert covariance.isfinite().all()
    assert bool((torch.linalg.eigvalsh(covariance[free][:, free]) > 0).all())


def test_variances_keep_digits_where_means_are_large():
    """The mean is 10,000 standard deviations away: half of the sixteen digits are left."""
    near = sub.SquaredCircuit(build("binary", "gaussian"))
    far = sub.SquaredCircuit(build("binary", "gaussian"))
    with torch.no_grad():
        for layer in far.circuit.input_layers:
            layer.mean += 1e4
    torch.testing.assert_close(far.variance(), near.variance(), rtol=1e-6, atol=0)
    torch.testing.assert_close(far.covariance(), near.covariance(), rtol=1e-6, atol=1e-6)
