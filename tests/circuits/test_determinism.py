"""Determinism, by enumeration, and the squares that stay as small as their circuits."""

import itertools
import math

import pytest
import torch
from oracles import all_states, input_of_region, layer_of_region
from registry import LAYERS, build

import subtractive as sub
from subtractive.circuits.layers import KroneckerLayer
from subtractive.inference.partition import log_plain_partition

REAL = torch.float64


def brute_force_is_deterministic(circuit):
    """Evaluate every unit at every state; look for two inputs of one sum that are not zero."""
    inputs, layers = input_of_region(circuit), layer_of_region(circuit)
    for row in all_states([family.num_states for family in circuit.families]).tolist():
        units = {}
        for region, node in enumerate(circuit.graph.regions):
            if node.partitions:
                children = [units[child] for child in node.partitions[0].children]
            else:
                _, p, scope = inputs[region]
                children = [p["table"][:, int(row[scope[0]])]]
                if region not in layers:
                    units[region] = children[0]
                    continue
            layer, weight = layers[region]
            join = itertools.product if isinstance(layer, KroneckerLayer) else zip
            products = [math.prod(combination) for combination in join(*children)]
            terms = [[w * v for w, v in zip(line, products, strict=True)] for line in weight]
            if any(sum(term != 0 for term in line) > 1 for line in terms):
                return False
            units[region] = [sum(line) for line in terms]
    return True


def embeddings(graph, layer="hadamard", states=3, **options):
    settings = {"num_units": 3, "seed": 0, "dtype": REAL, "initialise": sub.init.normal()}
    return sub.Circuit(graph, sub.Embedding(states), product=LAYERS[layer], **(settings | options))


def owners(count, owned, generator):
    """Which of ``count`` owners each of ``owned`` things has: all get one, if there are enough."""
    some = torch.randperm(count, generator=generator)[:owned]
    others = torch.randint(count, (max(0, owned - count),), generator=generator)
    return torch.cat([some, others])


def make_deterministic(circuit, seed=0):
    """Every state, and every product, belongs to one unit; the root may take all products."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for layer in circuit.input_layers:
            layer.table.sub_(0.5)
            for table in layer.table:
                units, states = table.shape
                table.mul_(owners(units, states, generator) == torch.arange(units)[:, None])
        for k in range(len(circuit.layers) - 1):
            for weight in circuit.sum_layers[k].weights.value:
                outputs, products = weight.shape
                weight.mul_(owners(outputs, products, generator) == torch.arange(outputs)[:, None])
    return circuit


CASES = [
    (graph, layer, outputs, seed)
    for graph in ("binary", "linear", "flat", "nested")
    for layer in LAYERS
    for outputs in (1, 2)
    for seed in range(3)
    if (graph, layer) != ("flat", "kronecker")
]
GRAPHS = {
    "binary": sub.random_binary_tree(4, seed=1),
    "linear": sub.linear_tree(4, seed=2),
    "flat": sub.flat(3),
    "nested": sub.RegionGraph.from_nested(((0, 1, 2), 3)),
}


@pytest.mark.parametrize(("graph", "layer", "outputs", "seed"), CASES)
def test_deterministic_circuits_square_to_monotonic_ones_of_the_same_size(
    graph, layer, outputs, seed
):
    circuit = make_deterministic(
        embeddings(GRAPHS[graph], layer, num_outputs=outputs, seed=seed), seed
    )
    assert brute_force_is_deterministic(circuit)
    assert sub.circuits.is_deterministic(circuit)
    squared = sub.circuits.square_deterministic(circuit)
    assert squared.is_non_negative
    assert squared.size == circuit.size - (outputs - 1) * circuit.sum_layers[-1].weights().shape[2]
    assert squared.num_parameters <= circuit.num_parameters
    x = all_states([3] * circuit.num_variables)
    plain = circuit(x).square().sum(1)
    assert (plain > 0).any()
    torch.testing.assert_close(squared(x)[:, 0], plain, rtol=1e-12, atol=1e-300)
    p, q = sub.SquaredCircuit(circuit), sub.MonotonicCircuit(squared)
    torch.testing.assert_close(log_plain_partition(squared), p.log_partition(), rtol=0, atol=1e-12)
    torch.testing.assert_close(q.log_prob(x), p.log_prob(x), rtol=0, atol=1e-11)


@pytest.mark.parametrize(("layer", "share"), [("hadamard", 0.4), ("kronecker", 0.07)])
def test_the_answer_is_that_of_enumeration(layer, share):
    answers = []
    for seed in range(60):
        generator = torch.Generator().manual_seed(seed)
        circuit = make_deterministic(
            embeddings(sub.RegionGraph.from_nested(((0, 1), 2)), layer, num_units=2, seed=seed),
            seed,
        )
        with torch.no_grad():  # spoil it here and there
            for parameter in circuit.parameters():
                added = torch.rand(parameter.shape, generator=generator) < share
                parameter.copy_(torch.where(added, 1.0, parameter))
        answers.append(sub.circuits.is_deterministic(circuit))
        assert answers[-1] == brute_force_is_deterministic(circuit)
    assert 10 < sum(answers) < 50


def test_every_circuit_of_one_unit_is_deterministic():
    circuit = embeddings(sub.linear_tree(3), num_units=1)
    assert sub.circuits.is_deterministic(circuit)
    gaussian = build("linear", "gaussian", num_units=1)
    assert sub.circuits.is_deterministic(gaussian)
    x = torch.randn(5, 4, dtype=REAL)
    torch.testing.assert_close(
        sub.circuits.square_deterministic(gaussian)(x), gaussian(x).square(), rtol=1e-12, atol=0
    )


def test_complex_weights_are_squared_to_their_magnitudes():
    circuit = embeddings(sub.linear_tree(3), weights=sub.complex_weights)
    real = make_deterministic(embeddings(sub.linear_tree(3)))
    circuit.input_layers[0].load_state_dict(real.input_layers[0].state_dict())
    with torch.no_grad():
        for k in range(len(circuit.layers)):
            circuit.sum_layers[k].weights.parts.mul_(
                (real.sum_layers[k].weights.value != 0)[..., None]
            )
    assert sub.circuits.is_deterministic(circuit)
    x = all_states([3] * 3)
    torch.testing.assert_close(
        sub.circuits.square_deterministic(circuit)(x),
        circuit(x).abs().square(),
        rtol=1e-12,
        atol=1e-300,
    )


def test_probabilities_of_zero_separate_categories():
    circuit = sub.Circuit(
        sub.flat(2), sub.Categorical(2), num_units=2, weights=sub.positive_weights, dtype=REAL
    )
    assert not sub.circuits.is_deterministic(circuit)
    with torch.no_grad():
        circuit.input_layers[0].logits[0] = torch.tensor([[0.0, -math.inf], [-math.inf, 0.0]])
    assert sub.circuits.is_deterministic(circuit)
    p, q = (
        sub.SquaredCircuit(circuit),
        sub.MonotonicCircuit(sub.circuits.square_deterministic(circuit)),
    )
    x = all_states([2, 2])
    torch.testing.assert_close(q.log_prob(x), p.log_prob(x), rtol=0, atol=1e-12)


def test_splines_on_different_spans_are_deterministic():
    circuit = sub.Circuit(
        sub.flat(1), sub.Spline(6, order=1, domain=(0.0, 1.0)), num_units=2, seed=0, dtype=REAL
    )
    with torch.no_grad():
        circuit.input_layers[0].coefficient.copy_(
            torch.tensor([[[1.0, 2.0, 0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 3.0, -1.0, 2.0]]])
        )
    assert sub.circuits.is_deterministic(circuit)
    x = torch.linspace(0, 1, 101, dtype=REAL)[:, None]
    torch.testing.assert_close(
        sub.circuits.square_deterministic(circuit)(x), circuit(x).square(), rtol=1e-12, atol=1e-300
    )
    with torch.no_grad():
        circuit.input_layers[0].coefficient[0, 0, 2] = 1.0
    assert not sub.circuits.is_deterministic(circuit)


def test_a_circuit_that_is_zero_everywhere_is_deterministic():
    circuit = embeddings(sub.flat(2), num_units=2, states=2)
    with torch.no_grad():
        circuit.input_layers[0].table[0, 0] = circuit.input_layers[0].table[1, 1] = 0
    assert brute_force_is_deterministic(circuit)
    assert sub.circuits.is_deterministic(circuit)
    assert not sub.circuits.square_deterministic(circuit)(all_states([2, 2])).any()


@pytest.mark.parametrize("family", ["gaussian", "rbf", "binomial", "embedding", "spline"])
def test_overlapping_inputs_are_not_deterministic(family):
    circuit = build("linear", family, d=3)
    assert not sub.circuits.is_deterministic(circuit)
    with pytest.raises(
        ValueError, match=r"not deterministic: two inputs .* Use materialise_square\(circuit\)"
    ):
        sub.circuits.square_deterministic(circuit)


def test_asking_changes_nothing():
    circuit = make_deterministic(embeddings(sub.linear_tree(3)))
    before = {name: value.clone() for name, value in circuit.state_dict().items()}
    state = torch.get_rng_state()
    sub.circuits.is_deterministic(circuit)
    sub.circuits.square_deterministic(circuit)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(before[name], value) for name, value in circuit.state_dict().items())
