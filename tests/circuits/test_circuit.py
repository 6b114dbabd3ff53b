"""Circuits: their sizes, their parameters, and their values to fifty digits."""

import copy
import itertools
import math

import mpmath
import numpy as np
import pytest
import torch
from oracles import (
    all_states,
    input_values,
    mp_gaussian,
    mp_log_partition,
    mp_log_square,
    mp_number,
    naive_value,
)
from registry import FAMILIES, GRAPHS, LAYERS, WEIGHTS, build, points

import subtractive as sub
from subtractive.circuits.evaluation import reference
from subtractive.inference.partition import log_square_partition, square_integrals

REAL = torch.float64


def gaussians(graph, **options):
    settings = {"num_units": 3, "seed": 0, "dtype": REAL, "initialise": sub.init.normal()}
    return sub.Circuit(graph, sub.Gaussian(), **(settings | options))


def count_connections(circuit):
    """Unit by unit, without the folding: inputs of all product units and of all sum units."""
    total, width = 0, {}
    summed = {r for call in circuit.schedule.calls for r in call.regions}
    for region, node in enumerate(circuit.graph.regions):
        below = [width[child] for part in node.partitions for child in part.children]
        if not node.partitions:
            width[region] = circuit.input_layers[0].num_units
            if region not in summed:
                continue
            products = width[region]
        elif isinstance(circuit.sum_layers[-1], sub.KroneckerLayer):
            products = math.prod(below)
            total += sum(len(below) for _ in range(products))
        else:
            (products,) = set(below)
            total += sum(len(below) for _ in range(products))
        width[region] = circuit.weight_of(region).shape[0]
        total += width[region] * products
    return total


# d, layer, K, S, input K -> |c| and the number of weights, counted by hand
SIZES = {
    "hadamard, binary tree": (sub.random_binary_tree(4), "hadamard", 3, 1, 3, 39, 21),
    "hadamard, linear tree": (sub.linear_tree(4), "hadamard", 3, 2, 3, 42, 24),
    "hadamard, flat": (sub.flat(4), "hadamard", 3, 1, 3, 15, 3),
    "hadamard, one variable": (sub.flat(1), "hadamard", 5, 2, 5, 10, 10),
    "hadamard, sums over inputs": (sub.linear_tree(3), "hadamard", 2, 1, 5, 44, 36),
    "kronecker, binary tree": (sub.random_binary_tree(4), "kronecker", 3, 1, 3, 117, 63),
    "kronecker, linear tree": (sub.linear_tree(3), "kronecker", 2, 1, 2, 28, 12),
    "kronecker, flat": (sub.flat(3), "kronecker", 2, 2, 2, 40, 16),
    "kronecker, other inputs": (sub.linear_tree(3), "kronecker", 2, 1, 3, 54, 24),
    "n-ary": (sub.RegionGraph.from_nested(((0, 1, 2), 3)), "hadamard", 3, 1, 3, 27, 12),
}


@pytest.mark.parametrize(
    ("graph", "layer", "units", "outputs", "inputs", "size", "weights"),
    SIZES.values(),
    ids=SIZES,
)
def test_size_and_parameters_are_those_counted_by_hand(
    graph, layer, units, outputs, inputs, size, weights
):
    circuit = gaussians(
        graph,
        product=LAYERS[layer],
        num_units=units,
        num_outputs=outputs,
        num_input_units=inputs,
    )
    assert circuit.size == count_connections(circuit) == size
    assert circuit.num_parameters == weights + 2 * inputs * graph.num_variables
    assert circuit.num_outputs == outputs
    assert circuit(torch.zeros(2, graph.num_variables)).shape == (2, outputs)


def test_complex_weights_are_two_parameters_and_one_connection():
    real, both = (
        gaussians(sub.flat(3), weights=w) for w in (sub.real_weights, sub.complex_weights)
    )
    assert real.size == both.size == 3 * 3 + 3
    assert both.num_parameters == real.num_parameters + 3


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("weights", ["real", "complex"])
@pytest.mark.parametrize("graph", GRAPHS)
def test_values_equal_fifty_digits_by_both_paths(graph, weights, outputs):
    for layer in LAYERS:
        circuit = build(
            graph, "gaussian", layer=layer, weights=weights, outputs=outputs, num_units=2
        )
        x = points("gaussian", 2, 4)
        fast = sub.SquaredCircuit(circuit).log_square(x)
        log_abs, sign = circuit.log_abs(x)
        for n, row in enumerate(x.tolist()):
            exact = mp_log_square(circuit, row)
            close = {"rtol": 0, "atol": 1e-10 * max(1, abs(exact))}
            torch.testing.assert_close(fast[n].item(), exact, **close)
            signed = (2 * log_abs[n]).logsumexp(0).item()
            torch.testing.assert_close(signed, exact, **close)
            with mpmath.workdps(50):
                outcome = naive_value(circuit, row, leaf=mp_gaussian, number=mp_number)
                expected = [complex(value) for value in outcome]
            numbers = (sign[n] * log_abs[n].exp()).tolist()
            np.testing.assert_allclose(numbers, expected, rtol=1e-10, atol=1e-14)
            np.testing.assert_allclose(
                circuit(x)[n].detach().numpy(), expected, rtol=1e-10, atol=1e-14
            )


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("weights", ["real", "complex"])
@pytest.mark.parametrize("graph", GRAPHS)
def test_partition_equals_fifty_digits_by_both_paths(graph, weights, outputs):
    circuit = build(graph, "gaussian", weights=weights, outputs=outputs, d=5)
    exact = mp_log_partition(circuit)
    close = {"rtol": 0, "atol": 1e-10 * max(1, abs(exact))}
    torch.testing.assert_close(log_square_partition(circuit).item(), exact, **close)
    root = reference(circuit.schedule, circuit.sum_layers, square_integrals(circuit))
    trace = (root.sign * root.log_abs.exp())[0, 0].diagonal().sum().real
    torch.testing.assert_close(trace.log().item(), exact, **close)


@pytest.mark.parametrize(
    ("units", "outputs", "inputs", "d"),
    [
        (1, 1, 1, 3),
        (1, 4, 1, 3),
        (2, 5, 2, 3),
        (2, 1, 5, 4),
        (5, 2, 2, 4),
        (3, 2, 3, 1),
        (2, 2, 4, 1),
    ],
)
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("graph", [sub.flat, sub.linear_tree, sub.random_binary_tree])
def test_any_numbers_of_units_outputs_and_variables(graph, layer, units, outputs, inputs, d):
    circuit = gaussians(
        graph(d),
        product=LAYERS[layer],
        num_units=units,
        num_outputs=outputs,
        num_input_units=inputs,
    )
    x = points("gaussian", 2, d)
    expected = np.array([naive_value(circuit, row) for row in x.tolist()])
    np.testing.assert_allclose(circuit(x).detach().numpy(), expected, rtol=1e-11, atol=1e-14)
    if layer == "hadamard":
        expected = mp_log_partition(circuit)
        torch.testing.assert_close(
            log_square_partition(circuit).item(), expected, rtol=1e-11, atol=1e-11
        )


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("graph", ["linear", "nested"])
def test_every_parameter_gets_a_gradient(graph, family, layer, weights):
    circuit = build(graph, family, layer=layer, weights=weights, outputs=2)
    x = points(family, 30, 4)
    (circuit.log_abs(x)[0].sum() + log_square_partition(circuit)).backward()
    for name, parameter in circuit.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert (parameter.grad != 0).all(), name


def test_one_family_per_variable_of_mixed_types():
    families = [
        sub.Gaussian(),
        sub.Categorical(3),
        sub.Embedding(2),
        sub.Binomial(4),
        sub.Spline(5, domain=(0.0, 1.0)),
        sub.Spline(5, domain=(-1.0, 3.0)),
        sub.RBF((-1.0, 1.0), 0.5),
        sub.Categorical(2),
        sub.Gaussian(),
    ]
    states = all_states([3, 2, 5, 2])[::7]
    reals = torch.rand(len(states), 5, generator=torch.Generator().manual_seed(0), dtype=REAL)
    x = torch.stack([reals[:, 0], *states.T[:3], *reals.T[1:4], states[:, 3], reals[:, 4]], -1)
    for graph, layer in itertools.product(("binary", "linear", "flat"), LAYERS):
        if (graph, layer) == ("flat", "kronecker"):
            continue
        circuit = sub.Circuit(
            GRAPHS[graph](9), families, num_units=2, product=LAYERS[layer], seed=0, dtype=REAL
        )
        assert circuit.families == tuple(families)
        expected = [naive_value(circuit, row, leaf=input_values) for row in x.tolist()]
        np.testing.assert_allclose(
            circuit(x).detach().numpy(), np.array(expected), rtol=1e-11, atol=1e-300
        )


def test_groups_of_variables_share_an_input_region():
    for graph in (
        sub.flat([[0, 2], [1]]),
        sub.flat([[0, 1, 2]]),
        sub.linear_tree([[1], [0, 2]]),
        sub.random_binary_tree([[2, 1], [0]], seed=0),
    ):
        circuit = sub.Circuit(
            graph, sub.MultivariateGaussian(), num_units=3, num_outputs=2, seed=0, dtype=REAL
        )
        with torch.no_grad():
            for layer in circuit.input_layers:
                layer.lower.normal_(generator=torch.Generator().manual_seed(1))
        x = points("gaussian", 3, 3)
        expected = np.array([naive_value(circuit, row) for row in x.tolist()])
        np.testing.assert_allclose(circuit(x).detach().numpy(), expected, rtol=1e-11, atol=0)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("layer", LAYERS)
def test_state_makes_a_round_trip(layer, weights):
    first, second = (
        build("binary", "spline", layer=layer, weights=weights, seed=seed) for seed in (0, 1)
    )
    x = points("spline", 5, 4)
    assert not torch.equal(first(x), second(x))
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(x), second(x))


@pytest.mark.parametrize("weights", WEIGHTS)
def test_precision_can_be_changed_and_complex_parts_stay(weights):
    circuit = build("binary", "gaussian", weights=weights, outputs=2)
    x = points("gaussian", 5, 4)
    before = circuit(x).detach()
    single = copy.deepcopy(circuit).to(torch.float32)
    assert circuit.dtype == REAL
    assert single.dtype == torch.float32
    assert single.sum_layers[0].weights().is_complex() == (weights == "complex")
    torch.testing.assert_close(single(x).to(before.dtype), before, rtol=1e-4, atol=1e-6)
    for back in (copy.deepcopy(single).double(), copy.deepcopy(single).to(REAL)):
        assert back.dtype == REAL
        assert back.sum_layers[0].weights().is_complex() == (weights == "complex")
        torch.testing.assert_close(back(x), before, rtol=1e-4, atol=1e-6)


def test_a_copy_shares_nothing():
    circuit = build("linear", "gaussian", weights="complex")
    twin = copy.deepcopy(circuit)
    x = points("gaussian", 3, 4)
    before = circuit(x).detach()
    assert torch.equal(twin(x), before)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
    assert torch.equal(circuit(x), before)


def test_seeds_decide_everything_and_nothing_else_does():
    def start(seed):
        return torch.cat(
            [p.flatten() for p in gaussians(sub.linear_tree(4), seed=seed).parameters()]
        )

    assert torch.equal(start(3), start(3))
    assert not torch.equal(start(3), start(4))
    assert torch.equal(start(3), start(torch.Generator().manual_seed(3)))
    generator = torch.Generator().manual_seed(3)
    assert not torch.equal(start(generator), start(generator))
    state = torch.get_rng_state()
    start(3)
    assert torch.equal(torch.get_rng_state(), state)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        first = start(None)
        torch.manual_seed(5)
        assert torch.equal(start(None), first)


def test_the_default_dtype_is_that_of_torch():
    assert gaussians(sub.flat(2), dtype=None).dtype == torch.get_default_dtype()


def test_weights_start_non_negative_by_default():
    circuit = sub.Circuit(sub.linear_tree(4), sub.Gaussian(), num_units=8, seed=0)
    for k in range(len(circuit.layers)):
        weight = circuit.sum_layers[k].weights()
        assert ((weight > 0) & (weight <= 1)).all()


def test_only_positive_weights_over_non_negative_inputs_are_non_negative():
    def circuit(families, weights):
        return sub.Circuit(sub.flat(2), families, num_units=2, weights=weights)

    assert circuit(sub.Gaussian(), sub.positive_weights).is_non_negative
    assert circuit([sub.Gaussian(), sub.Categorical(3)], sub.positive_weights).is_non_negative
    assert not circuit(sub.Gaussian(), sub.real_weights).is_non_negative
    assert not circuit(sub.Gaussian(), sub.complex_weights).is_non_negative
    assert not circuit([sub.Gaussian(), sub.Embedding(3)], sub.positive_weights).is_non_negative


def test_an_empty_batch_has_empty_values():
    circuit = gaussians(sub.linear_tree(3), num_outputs=2)
    assert circuit(torch.zeros(0, 3)).shape == (0, 2)
    assert [part.shape for part in circuit.log_abs(torch.zeros(0, 3))] == [(0, 2), (0, 2)]


def test_layers_of_different_kinds_of_weights_can_be_put_together():
    for layer in LAYERS:
        real = build("linear", "gaussian", layer=layer)
        both = build("linear", "gaussian", layer=layer, weights="complex")
        mixed = sub.Circuit.from_layers(
            real.graph,
            real.schedule,
            inputs=list(real.inputs),
            layers=[both.sum_layers[0], *list(real.layers)[1:]],
        )
        x = points("gaussian", 3, 4)
        expected = np.array([naive_value(mixed, row) for row in x.tolist()])
        np.testing.assert_allclose(mixed(x).detach().numpy(), expected, rtol=1e-11, atol=0)
        p = sub.SquaredCircuit(mixed)
        written_out = sub.materialise_square(mixed)
        torch.testing.assert_close(
            written_out(x)[:, 0].real, mixed(x)[:, 0].abs().square(), rtol=1e-11, atol=0
        )
        given = torch.tensor([True, False, False, True])
        product = p.log_marginal(x, given) + p.log_conditional(x, ~given, given)
        torch.testing.assert_close(product, p.log_prob(x), rtol=0, atol=1e-10)


def test_outputs_of_one_row_may_differ_by_any_factor():
    circuit = gaussians(sub.flat(2), num_units=3, num_outputs=3)
    with torch.no_grad():
        circuit.input_layers[0].mean.copy_(torch.tensor([0.0, 50.0, 1000.0]).expand(2, 3))
        circuit.input_layers[0].log_scale.zero_()
        circuit.sum_layers[0].weights.value.copy_(torch.diag(torch.tensor([1.0, -1.0, 0.0])))
    log_abs, sign = circuit.log_abs(torch.zeros(1, 2))
    expected = torch.tensor([0.0, -2500.0], dtype=REAL) - math.log(2 * math.pi)
    torch.testing.assert_close(log_abs[0, :2], expected, rtol=1e-14, atol=0)
    assert log_abs[0, 2] == -math.inf
    assert sign.tolist() == [[1.0, -1.0, 0.0]]
    log_abs[0, :2].sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in circuit.parameters())


@pytest.mark.parametrize(
    ("shape", "got"), [((3, 2), r"\(3, 2\)"), ((3, 4), r"\(3, 4\)"), ((3,), r"\(3,\)")]
)
def test_values_of_other_tables_are_refused(shape, got):
    circuit = gaussians(sub.flat(3))
    for ask in (circuit, circuit.log_abs):
        with pytest.raises(
            ValueError, match=r"shape \(rows, 3\), one column per variable, got " + got
        ):
            ask(torch.zeros(shape))


SHARED = sub.RegionGraph(
    (
        sub.regions.Region({0}),
        sub.regions.Region({1}),
        sub.regions.Region({0, 1}, [sub.regions.Partition((0, 1)), sub.regions.Partition((0, 1))]),
    )
)
GRAPH, FAMILY = sub.flat([[0, 1], [2]]), sub.Gaussian()
REFUSED = {
    "no graph": (((0, 1), FAMILY), {}, r"expected a RegionGraph, got tuple.*from_nested"),
    "no tree": (
        (SHARED, FAMILY),
        {"product": sub.KroneckerLayer},
        "not a tree needs Hadamard products, got product=KroneckerLayer",
    ),
    "no family": ((sub.flat(2), None), {}, "input family such as Gaussian.*got None"),
    "too few families": (
        (sub.flat(3), [FAMILY] * 2),
        {},
        "one family, or one per variable: expected 3, got 2",
    ),
    "not a family": (
        (sub.flat(2), [FAMILY, "gaussian"]),
        {},
        r"expected an input family such as Gaussian\(\), got 'gaussian' for variable 1",
    ),
    "two families in one region": (
        (GRAPH, [FAMILY, sub.MultivariateGaussian(), FAMILY]),
        {},
        r"the variables \[0, 1\] of one input region need the same family",
    ),
    "a region too large": (
        (GRAPH, FAMILY),
        {},
        "Gaussian takes input regions of one variable, got a region of 2.*MultivariateGaussian",
    ),
    "no units": (
        (sub.flat(2), FAMILY),
        {"num_units": 0},
        "num_.*units must be .* at least 1, got 0",
    ),
    "half a unit": ((sub.flat(2), FAMILY), {"num_units": 2.5}, "units must be a whole.*got 2.5"),
    "no outputs": ((sub.flat(2), FAMILY), {"num_outputs": 0}, "num_outputs must be .*, got 0"),
    "no inputs": ((sub.flat(2), FAMILY), {"num_input_units": -1}, "num_input_units must .*got -1"),
    "kernels and units": (
        (sub.flat(2), sub.RBF((0.0, 1.0, 2.0), 1.0)),
        {},
        "one unit per centre: expected 3 units, got 2",
    ),
    "positive weights of any sign": (
        (sub.flat(2), FAMILY),
        {"weights": sub.positive_weights, "initialise": sub.init.normal()},
        "positive weights need a positive start",
    ),
    "a sum as product": (
        (sub.flat(2), FAMILY),
        {"product": sub.SumLayer},
        "a sum has one child and cannot multiply 2",
    ),
}


@pytest.mark.parametrize(("positional", "options", "message"), REFUSED.values(), ids=REFUSED)
def test_what_makes_no_circuit_is_refused(positional, options, message):
    with pytest.raises(ValueError, match=message):
        sub.Circuit(*positional, **({"num_units": 2, "seed": 0} | options))
