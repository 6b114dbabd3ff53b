"""The written-out square: its shape, its weights, and what it may be used for."""

import math

import numpy as np
import pytest
import torch
from registry import LAYERS, WEIGHTS, build, domain, points

import subtractive as sub
from subtractive.circuits.weights import ComplexWeights, PositiveWeights, RealWeights
from subtractive.inference.partition import log_plain_partition

REAL = torch.float64
KINDS = {"real": RealWeights, "positive": PositiveWeights, "complex": ComplexWeights}


def paper_permutation(widths):
    """R with (a ⊗ b ⊗ ..) ⊗ (a' ⊗ b' ⊗ ..) = R ((a ⊗ a') ⊗ (b ⊗ b') ⊗ ..), entry by entry."""
    size = math.prod(widths)
    matrix = np.zeros((size**2, size**2))
    for first in np.ndindex(*widths):
        for second in np.ndindex(*widths):
            row = np.ravel_multi_index(first, widths) * size
            row += np.ravel_multi_index(second, widths)
            pairs = [i * k + j for i, j, k in zip(first, second, widths, strict=True)]
            column = np.ravel_multi_index(pairs, [k * k for k in widths])
            matrix[row, column] = 1
    return matrix


@pytest.mark.parametrize("widths", [(2, 3), (2, 2, 3)])
def test_the_permutation_of_the_paper_turns_products_of_pairs_into_pairs_of_products(widths):
    rng = np.random.default_rng(0)
    vectors = [rng.normal(size=k) for k in widths]

    def kron(factors):
        product = np.ones(1)
        for factor in factors:
            product = np.kron(product, factor)
        return product

    pairs = kron([np.kron(v, v) for v in vectors])
    whole = kron(vectors)
    np.testing.assert_allclose(
        paper_permutation(widths) @ pairs, np.kron(whole, whole), rtol=1e-13, atol=0
    )


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("layer", LAYERS)
def test_every_layer_of_the_square_has_the_weights_of_the_paper(layer, weights):
    circuit = build("nested", "gaussian", layer=layer, weights=weights, num_units=2, outputs=3)
    squared = sub.materialise_square(circuit)
    widths = [2] * len(circuit.inputs)
    for k, step in enumerate(circuit.schedule.calls):
        weight = circuit.sum_layers[k].weights().detach().numpy()
        below = [widths[source] for source in step.sources]
        expected = np.stack([np.kron(w, w.conj()) for w in weight])
        if layer == "kronecker":
            expected = expected @ paper_permutation(below)
        outputs = weight.shape[1]
        if k == len(circuit.layers) - 1:
            expected = expected[:, :: outputs + 1].sum(1, keepdims=True)
        actual = squared.sum_layers[k].weights().detach().numpy()
        np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-300)
        assert type(squared.sum_layers[k]) is type(circuit.sum_layers[k])
        assert isinstance(squared.sum_layers[k].weights, KINDS[weights])
        widths.append(outputs)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("graph", ["binary", "linear", "nested", "flat"])
def test_the_square_has_the_units_of_the_paper_and_the_same_graph(graph, layer):
    circuit = build(graph, "embedding", layer=layer, num_units=3, outputs=2, d=3)
    squared = sub.materialise_square(circuit)
    assert squared.graph is circuit.graph
    assert squared.schedule == circuit.schedule
    assert [i.num_units for i in squared.input_layers] == [9] * len(circuit.inputs)
    for k in range(len(circuit.layers) - 1):
        before, after = (
            circuit.sum_layers[k].weights().shape,
            squared.sum_layers[k].weights().shape,
        )
        assert after == (before[0], before[1] ** 2, before[2] ** 2)
    regions, outputs, products = circuit.sum_layers[-1].weights().shape
    assert outputs == 2
    assert squared.sum_layers[-1].weights().shape == (regions, 1, products**2)
    assert squared.num_outputs == 1


def test_the_square_is_as_large_as_the_paper_says():
    circuit = build("linear", "gaussian", num_units=3, d=3)
    # Hadamard products: 2 K² inputs each; sums: K⁴ inside and K² at the root.
    assert circuit.size == (2 * 3 + 9) + (2 * 3 + 3)
    assert sub.materialise_square(circuit).size == (2 * 9 + 81) + (2 * 9 + 9)


@pytest.mark.parametrize(("units", "inputs", "outputs"), [(2, 3, 1), (3, 1, 4), (1, 2, 2)])
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("layer", LAYERS)
def test_squares_of_circuits_of_uneven_widths(layer, weights, units, inputs, outputs):
    circuit = build(
        "nested",
        "gaussian",
        layer=layer,
        weights=weights,
        num_units=units,
        num_input_units=inputs,
        outputs=outputs,
        d=3,
    )
    x = points("gaussian", 4, 3)
    squared = sub.materialise_square(circuit)
    torch.testing.assert_close(
        squared(x)[:, 0].real, circuit(x).abs().square().sum(1), rtol=1e-11, atol=0
    )
    log_z = sub.SquaredCircuit(circuit).log_partition()
    torch.testing.assert_close(log_plain_partition(squared), log_z, rtol=0, atol=1e-11)


@pytest.mark.parametrize("layer", LAYERS)
def test_squares_of_complex_circuits_are_real_and_positive(layer):
    squared = sub.materialise_square(
        build("linear", "gaussian", layer=layer, weights="complex", outputs=2)
    )
    values = squared(points("gaussian", 50, 4))[:, 0]
    assert (values.real > 0).all()
    assert (values.imag.abs() < 1e-12 * values.real).all()


@pytest.mark.parametrize("family", ["gaussian", "categorical", "binomial"])
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("graph", ["binary", "nested"])
def test_the_square_of_a_positive_circuit_is_a_monotonic_density(graph, layer, family):
    circuit = build(graph, family, layer=layer, weights="positive", outputs=2, d=3)
    p, q = sub.SquaredCircuit(circuit), sub.MonotonicCircuit(sub.materialise_square(circuit))
    x = points(family, 8, 3)
    x[0, 1] = x[1] = x[2, 0] = x[2, 2] = math.nan
    torch.testing.assert_close(q.log_prob(x), p.log_prob(x), rtol=0, atol=1e-10)
    torch.testing.assert_close(q.log_partition(), p.log_partition(), rtol=0, atol=1e-10)
    given = torch.tensor([True, False, True])
    x = points(family, 8, 3)
    torch.testing.assert_close(
        q.log_conditional(x, ~given, given),
        p.log_conditional(x, ~given, given),
        rtol=0,
        atol=1e-10,
    )


@pytest.mark.parametrize("weights", ["real", "complex"])
def test_the_square_of_a_subtractive_circuit_is_not_monotonic(weights):
    squared = sub.materialise_square(build("binary", "gaussian", weights=weights))
    assert not squared.is_non_negative
    with pytest.raises(ValueError, match="needs positive weights"):
        sub.MonotonicCircuit(squared)
    products = sub.materialise_square(build("binary", "embedding", weights="positive"))
    assert not products.is_non_negative


def test_regions_of_several_variables_can_be_squared():
    circuit = sub.Circuit(
        sub.flat([[0, 1], [2]]),
        sub.MultivariateGaussian(),
        num_units=2,
        weights=sub.positive_weights,
        seed=0,
        dtype=REAL,
    )
    p, q = sub.SquaredCircuit(circuit), sub.MonotonicCircuit(sub.materialise_square(circuit))
    x = points("gaussian", 4, 3)
    x[0, 1] = x[1, 0] = x[2, 2] = x[3] = math.nan
    torch.testing.assert_close(q.log_prob(x), p.log_prob(x), rtol=0, atol=1e-11)


def test_families_of_one_tensor_keep_their_own_facts():
    families = [sub.Spline(4, domain=(0.0, 1.0)), sub.Spline(4, domain=(-1.0, 3.0))]
    circuit = sub.Circuit(sub.flat(2), families, num_units=2, seed=0, dtype=REAL)
    x = torch.tensor([[0.5, 2.5], [0.1, -0.9]], dtype=REAL)
    squared = sub.materialise_square(circuit)
    torch.testing.assert_close(squared(x), circuit(x).square(), rtol=1e-12, atol=0)
    log_z = sub.SquaredCircuit(circuit).log_partition()
    torch.testing.assert_close(log_plain_partition(squared), log_z, rtol=0, atol=1e-12)


def test_the_square_owns_its_parameters_and_draws_no_random_numbers():
    circuit = build("linear", "gaussian")
    state = torch.get_rng_state()
    squared = sub.materialise_square(circuit)
    assert torch.equal(torch.get_rng_state(), state)
    x = points("gaussian", 3, 4)
    before = circuit(x).detach()
    with torch.no_grad():
        for parameter in squared.parameters():
            parameter.zero_()
    assert torch.equal(circuit(x), before)


def test_the_square_keeps_the_precision():
    squared = sub.materialise_square(
        build("linear", "gaussian", weights="complex").to(torch.float32)
    )
    assert {p.dtype for p in squared.parameters()} == {torch.float32}
    assert squared.dtype == torch.float32


def test_a_square_has_marginals_but_no_square():
    circuit = build("binary", "gaussian", weights="positive", d=2)
    squared = sub.materialise_square(circuit)
    nodes, w = domain("gaussian", 1)
    x = torch.cat([torch.full_like(nodes, 0.3), nodes], 1)
    total = (squared(x)[:, 0] * w).sum().log()
    q = sub.MonotonicCircuit(squared)
    row = torch.tensor([[0.3, math.nan]], dtype=REAL)
    marginal = q.log_prob(row)[0] + q.log_partition()
    torch.testing.assert_close(marginal, total, rtol=0, atol=1e-9)
    with pytest.raises(ValueError, match="neither squared again"):
        sub.SquaredCircuit(squared).log_partition()
