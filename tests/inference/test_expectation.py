"""Expectations of polynomials, products of functions and circuits, against sums and quadrature."""

import math

import numpy as np
import pytest
import torch
from oracles import all_states, gauss_legendre, grid
from registry import ATOMS, DISCRETE, NUM_STATES, axis, build

import subtractive as sub
from subtractive.inference import product_expectations
from subtractive.inference.integration_points import integration_points

CLOSE = {"rtol": 1e-9, "atol": 1e-10}
DENSITIES = {
    "squared": lambda family, **options: sub.SquaredCircuit(
        build("binary", family, outputs=2, d=3, **options)
    ),
    "complex": lambda family, **options: sub.SquaredCircuit(
        build("linear", family, weights="complex", layer="kronecker", d=3, **options)
    ),
    "monotonic": lambda family, **options: sub.MonotonicCircuit(
        build("binary", family, weights="positive", outputs=2, d=3, **options)
    ),
}


def rule(family):
    """Nodes and weights for functions of x times products of a family's functions."""
    if family == "spline":
        spans = [gauss_legendre(a, a + 0.75, 12) for a in (-1.0, -0.25, 0.5, 1.25)]
        return tuple(np.concatenate(parts) for parts in zip(*spans, strict=True))
    if family in DISCRETE:
        return axis(family)
    # Of Gaussians this wide the trapezoidal rule has twelve digits; no node is an atom.
    nodes = np.linspace(-9.2, 9.4, 63)
    weights = np.full(63, nodes[1] - nodes[0])
    if family == "atoms":
        return np.append(nodes, ATOMS), np.append(weights, np.ones(len(ATOMS)))
    return nodes, weights


def expected(p, f, family, given=None):
    """∑ w f(x) p(x) / ∑ w p(x) over the whole domain, or over what is not given."""
    nodes = [rule(family)] * 3
    for variable, value in (given or {}).items():
        nodes[variable] = ([value], [1.0])
    points, weights = grid(nodes)
    with torch.no_grad():
        shares = weights * p.log_prob(points).exp()
    return (shares * f(points)).sum(-1) / shares.sum()


FAMILIES = ["embedding", "gaussian", "spline", "rbf", "atoms", "binomial"]
KINDS = [("squared", family) for family in FAMILIES] + [
    ("complex", "embedding"),
    ("complex", "gaussian"),
    ("monotonic", "categorical"),
    ("monotonic", "gaussian"),
]


@pytest.mark.parametrize(("kind", "family"), KINDS)
@pytest.mark.parametrize("given", [None, {1: 1.0}])
def test_products_of_functions_against_the_whole_domain(kind, family, given):
    p = DENSITIES[kind](family)
    found = p.expectation({0: 3, 1: 2, 2: torch.sin}, given)
    exact = expected(p, lambda x: x[:, 0] ** 3 * x[:, 1] ** 2 * x[:, 2].sin(), family, given)
    torch.testing.assert_close(found, exact, **CLOSE)


@pytest.mark.parametrize("kind", DENSITIES)
def test_polynomials_against_the_whole_domain(kind):
    p = DENSITIES[kind]("gaussian")
    terms = [(2.0, {0: 1, 2: 4}), (-1.5, {1: 2}), (0.25, {}), (1.0, {0: torch.cos, 1: 1})]

    def f(x):
        return 2 * x[:, 0] * x[:, 2] ** 4 - 1.5 * x[:, 1] ** 2 + 0.25 + x[:, 0].cos() * x[:, 1]

    torch.testing.assert_close(p.expectation(terms), expected(p, f, "gaussian"), **CLOSE)


def test_moments_and_covariances_are_special_cases():
    p = DENSITIES["squared"]("gaussian")
    first = torch.stack([p.expectation({v: 1}) for v in range(3)])
    torch.testing.assert_close(first, p.mean(), **CLOSE)
    second = p.expectation({0: 1, 2: 1}) - first[0] * first[2]
    torch.testing.assert_close(second, p.covariance()[0, 2], **CLOSE)


def test_many_terms_are_integrated_in_parts(monkeypatch):
    monkeypatch.setattr(product_expectations, "_TERMS", 4)
    p = DENSITIES["squared"]("embedding")
    terms = [(1.0 / (1 + t), {t % 3: t % 4, (t + 1) % 3: 1}) for t in range(10)]
    one_by_one = sum(coefficient * p.expectation(product) for coefficient, product in terms)
    torch.testing.assert_close(p.expectation(terms), one_by_one, **CLOSE)


def test_an_odd_function_has_no_expectation_under_an_even_density():
    """The integral cancels exactly: its sign must not be lost on the way."""
    circuit = sub.Circuit(sub.flat(2), sub.Gaussian(), num_units=2, dtype=torch.float64)
    with torch.no_grad():
        circuit.input_layers[0].mean.copy_(torch.tensor([[-1.0, 1.0], [0.0, 0.0]]))
        circuit.input_layers[0].log_scale.zero_()
        circuit.sum_layers[0].weights.value.fill_(1.0)
    p = sub.SquaredCircuit(circuit)
    torch.testing.assert_close(p.expectation({0: 3}).item(), 0.0, rtol=0, atol=1e-14)
    shifted = p.expectation({0: lambda x: x - 5.0})
    torch.testing.assert_close(shifted.item(), -5.0, rtol=1e-12, atol=0)


def test_narrow_functions_far_apart_are_integrated():
    circuit = sub.Circuit(sub.flat(1), sub.Gaussian(), num_units=3, dtype=torch.float64)
    mean, scale = torch.tensor([-1e4, 0.0, 7.0]), torch.tensor([1e-3, 50.0, 0.02])
    with torch.no_grad():
        circuit.input_layers[0].mean.copy_(mean[None])
        circuit.input_layers[0].log_scale.copy_(scale.log()[None])
        circuit.sum_layers[0].weights.value.copy_(torch.tensor([[[0.01, 1.0, 0.1]]]))
    p = sub.SquaredCircuit(circuit)
    torch.testing.assert_close(
        p.expectation({0: lambda x: x**2}), p.expectation({0: 2}), rtol=1e-10, atol=0
    )


def test_mixtures_weigh_their_members():
    members = [DENSITIES["squared"]("gaussian"), DENSITIES["complex"]("gaussian")]
    p = sub.Mixture(members, weights=[1.0, 3.0])
    found = p.expectation({0: 1, 1: 2}, {2: 0.5})
    exact = expected(p, lambda x: x[:, 0] * x[:, 1] ** 2, "gaussian", {2: 0.5})
    torch.testing.assert_close(found, exact, **CLOSE)


def test_marginals_and_conditionals_number_their_own_variables():
    p = DENSITIES["squared"]("gaussian")
    torch.testing.assert_close(
        p.condition({1: 0.3}).expectation({0: 1, 1: 2}), p.expectation({0: 1, 2: 2}, {1: 0.3})
    )
    torch.testing.assert_close(p.marginal([2]).expectation({0: 3}), p.expectation({2: 3}))


def test_expectations_of_products_are_differentiable():
    p = DENSITIES["squared"]("gaussian")
    parameters = list(p.parameters())
    with torch.no_grad():
        old = parameters[0].flatten()[0].item()
        values = []
        for step in (1e-5, -1e-5):
            parameters[0].view(-1)[0] = old + step
            values.append(p.expectation({0: 2, 1: torch.sin}).item())
        parameters[0].view(-1)[0] = old
    p.expectation({0: 2, 1: torch.sin}).backward()
    slope = (values[0] - values[1]) / 2e-5
    torch.testing.assert_close(parameters[0].grad.flatten()[0].item(), slope, rtol=1e-5, atol=1e-8)


CIRCUITS = [
    ("squared", "embedding", {}),
    ("squared", "categorical", {}),
    ("squared", "gaussian", {}),
    ("squared", "spline", {}),
    ("squared", "rbf", {}),
    ("squared", "atoms", {}),
    ("squared", "gaussian", {"layer": "kronecker"}),
    ("squared", "gaussian", {"num_input_units": 2}),
    ("monotonic", "categorical", {}),
    ("monotonic", "gaussian", {"layer": "kronecker", "num_input_units": 2}),
]


@pytest.mark.parametrize(("kind", "family", "options"), CIRCUITS)
@pytest.mark.parametrize("given", [None, {1: 1.0}])
def test_circuits_against_the_whole_domain(kind, family, options, given):
    p = DENSITIES[kind](family, **options)
    num_units = 3 if family == "rbf" else 4
    other = build("binary", family, outputs=3, d=3, seed=5, **(options | {"num_units": num_units}))
    found = p.expectation(other, given)
    assert found.shape == (3,)
    with torch.no_grad():
        exact = expected(p, lambda x: other(x).T, family, given)
    torch.testing.assert_close(found, exact, **CLOSE)


def test_complex_circuits_against_enumeration():
    p = sub.SquaredCircuit(build("linear", "embedding", weights="complex", layer="kronecker", d=3))
    other = build("linear", "categorical", weights="complex", layer="kronecker", d=3, seed=7)
    x = all_states([NUM_STATES] * 3)
    exact = (p.log_prob(x).exp()[:, None] * other(x)).sum(0)
    torch.testing.assert_close(p.expectation(other), exact, **CLOSE)


def test_the_expectation_of_a_circuit_under_a_monotonic_one_is_an_inner_product():
    p = DENSITIES["monotonic"]("gaussian")
    other = build("binary", "gaussian", d=3, seed=3)
    inner = sub.inner(p.circuit, other).sum(0) / p.log_partition().exp()
    torch.testing.assert_close(p.expectation(other), inner, **CLOSE)


def test_expectations_of_circuits_are_differentiable():
    p = DENSITIES["squared"]("embedding")
    other = build("binary", "embedding", d=3, seed=5)
    p.expectation(other).sum().backward()
    x = all_states([NUM_STATES] * 3)
    own = [parameter.grad.clone() for parameter in (*p.parameters(), *other.parameters())]
    for parameter in (*p.parameters(), *other.parameters()):
        parameter.grad = None
    (p.log_prob(x).exp()[:, None] * other(x)).sum().backward()
    for parameter, grad in zip((*p.parameters(), *other.parameters()), own, strict=True):
        torch.testing.assert_close(grad, parameter.grad, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(
    ("f", "message"),
    [
        ({5: 1}, "unknown variable 5"),
        ({0: -1}, "a power 0, 1, 2, ... or a function of a tensor, got -1"),
        ({0: 1.5}, "a power 0, 1, 2, ... or a function of a tensor, got 1.5"),
        ({0: lambda x: x.sum()}, "must return a tensor of the shape of its argument"),
        ([(1.0, 2.0)], "a term is a pair"),
        ([], "takes a product"),
        (3, "takes a product .* got int"),
    ],
)
def test_impossible_functions_are_refused(f, message):
    with pytest.raises(ValueError, match=message):
        DENSITIES["squared"]("gaussian").expectation(f)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda: build("linear", "gaussian", d=3), "on the region graph of the density"),
        (
            lambda: build("binary", "gaussian", layer="kronecker", d=3),
            "same kind of product layer",
        ),
        (lambda: build("binary", "embedding", d=3), "the same states and atoms"),
    ],
)
def test_circuits_that_do_not_meet_are_refused(other, message):
    p = DENSITIES["squared"]("gaussian")
    with pytest.raises(ValueError, match=message):
        p.expectation(other())


def test_circuits_are_refused_by_densities_over_some_of_their_variables():
    p = DENSITIES["squared"]("gaussian")
    with pytest.raises(ValueError, match="needs a density over all of its variables"):
        p.marginal([0, 1]).expectation(p.circuit)


def test_functions_of_shared_regions_are_refused():
    circuit = sub.Circuit(sub.flat([[0, 1], [2]]), sub.MultivariateGaussian(), num_units=2, seed=0)
    p = sub.SquaredCircuit(circuit)
    with pytest.raises(
        ValueError, match=r"no closed form for functions of the variables \[0, 1\]"
    ):
        p.expectation({0: 1})


def test_points_of_a_family_that_says_nothing_are_on_its_support():
    circuit = sub.Circuit(sub.flat(1), sub.Gaussian(), num_units=3, dtype=torch.float64, seed=0)
    p = circuit.input_layers[0].tensors(slice(0, 1))
    points, weights = integration_points([(sub.Gaussian(), p)])
    density = torch.distributions.Normal(p["mean"][0], p["log_scale"][0].exp())
    total = (weights[:, None] * density.log_prob(points[:, None]).exp()).sum(0)
    torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=1e-13)
    assert math.isfinite(points.abs().max())
