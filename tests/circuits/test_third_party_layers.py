"""A layer from outside the package is honoured by every query, or refused."""

import copy
import itertools
import math

import pytest
import torch
from oracles import all_states
from registry import every_kind
from scipy import stats
from third_party_layers import Added, Gated, Neighbours, Squared, TooNarrow, Tripled

import subtractive as sub

REAL = torch.float64
STATES = all_states([3] * 4)
GRAPHS = {
    "linear": sub.linear_tree(4),
    "binary": sub.random_binary_tree(4, seed=1),
    "flat": sub.flat(4),
    "nested": sub.RegionGraph.from_nested(((0, 1, 2), 3)),
}
LAYERS = {"tripled": Tripled, "gated": Gated, "neighbours": Neighbours}
WEIGHTS = {"real": sub.real_weights, "complex": sub.complex_weights}
every_layer = pytest.mark.parametrize("layer", LAYERS)
every_graph = pytest.mark.parametrize("graph", GRAPHS)
# What takes long: every graph and every layer once.
each_once = every_kind(("graph", "layer"), list(itertools.product(GRAPHS, LAYERS)), together=1)


def make(graph, layer, family=None, **options):
    settings = {"num_units": 3, "num_outputs": 2, "seed": 0, "dtype": REAL} | options
    product = LAYERS.get(layer, sub.HadamardLayer)
    return sub.Circuit(GRAPHS[graph], family or sub.Embedding(3), product=product, **settings)


def units_by_hand(name, layer, fold, children):
    """The product units of one row, as a list of numbers."""
    units = range(len(children[0]))
    if name == "neighbours":
        count = len(units)
        shifts = [[0] * len(children), range(len(children))]
        return [
            math.prod(
                child[(i + shift) % count] for child, shift in zip(children, some, strict=True)
            )
            for some in shifts
            for i in units
        ]
    gates = [3.0] * len(units) if name == "tripled" else layer.gate[fold].tolist()
    return [gates[i] * math.prod(child[i] for child in children) for i in units]


def value_by_hand(circuit, name, row):
    """c(x) of one row by recursion over the regions, in Python numbers."""
    place = {
        region: (layer, fold)
        for layer, call in zip(circuit.sum_layers, circuit.schedule.calls, strict=True)
        for fold, region in enumerate(call.regions)
    }

    def message(region):
        partitions = circuit.graph.regions[region].partitions
        if not partitions:
            (variable,) = circuit.graph.regions[region].scope
            (layer,) = circuit.input_layers
            fold = layer.scopes.index((variable,))
            return layer.table[fold, :, int(row[variable])].tolist()
        layer, fold = place[region]
        products = units_by_hand(name, layer, fold, list(map(message, partitions[0].children)))
        weight = layer.weights()[fold].tolist()
        return [sum(w * p for w, p in zip(line, products, strict=True)) for line in weight]

    return message(circuit.graph.root)


@every_kind(("graph", "layer", "weights"), list(itertools.product(GRAPHS, LAYERS, WEIGHTS)))
@torch.no_grad()
def test_values_squares_and_z_are_those_computed_by_hand(graph, layer, weights):
    circuit = make(graph, layer, weights=WEIGHTS[weights], initialise=sub.init.normal())
    rows = [value_by_hand(circuit, layer, row) for row in STATES.tolist()]
    by_hand = torch.tensor(rows, dtype=circuit(STATES).dtype)
    exact = by_hand.abs().square().sum(1)
    p = sub.SquaredCircuit(circuit)
    torch.testing.assert_close(circuit(STATES), by_hand, rtol=1e-11, atol=1e-13)
    torch.testing.assert_close(p.log_square(STATES).exp(), exact, rtol=1e-11, atol=0)
    torch.testing.assert_close(p.log_partition().exp(), exact.sum(), rtol=1e-11, atol=0)
    log_abs, sign = circuit.log_abs(STATES)
    torch.testing.assert_close(sign * log_abs.exp(), circuit(STATES), rtol=1e-11, atol=1e-13)
    written_out = sub.materialise_square(circuit)(STATES)[:, 0]
    written_out = written_out.real if written_out.is_complex() else written_out
    torch.testing.assert_close(written_out, exact, rtol=1e-10, atol=0)


@every_layer
@every_graph
@torch.no_grad()
def test_marginals_conditionals_and_moments_are_sums_over_all_states(graph, layer):
    p = sub.SquaredCircuit(make(graph, layer, initialise=sub.init.normal()))
    joint = p.circuit(STATES).square().sum(1)
    joint = joint / joint.sum()
    x = STATES[[5, 17, 40, 80]]
    for observed in ([1, 0, 1, 0], [0, 0, 0, 1], [0, 1, 1, 1], [0, 0, 0, 0]):
        known = torch.tensor(observed, dtype=torch.bool)
        fits = ((STATES[None] == x[:, None]) | ~known).all(-1)  # (n, states)
        expected = (fits * joint).sum(1)
        torch.testing.assert_close(p.log_marginal(x, known).exp(), expected, rtol=1e-10, atol=0)
        conditional = joint[(STATES[None] == x[:, None]).all(-1).double().argmax(1)] / expected
        found = p.log_conditional(x, ~known, known).exp()
        torch.testing.assert_close(found, conditional, rtol=1e-10, atol=0)
    mean = joint @ STATES
    covariance = (joint[:, None] * STATES).T @ STATES - torch.outer(mean, mean)
    torch.testing.assert_close(p.mean(), mean, rtol=1e-10, atol=0)
    torch.testing.assert_close(p.variance(), covariance.diagonal(), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(p.covariance(), covariance, rtol=1e-9, atol=1e-12)


@each_once
@torch.no_grad()
def test_samples_have_the_law_of_the_density(graph, layer):
    """A chi-square test at a level of 1e-6; the twelve fail together once in 80,000 seeds."""
    p = sub.SquaredCircuit(make(graph, layer, initialise=sub.init.normal()))
    drawn = p.sample(20_000, generator=torch.Generator().manual_seed(1))
    counts = torch.bincount((drawn @ torch.tensor([27.0, 9.0, 3.0, 1.0]).double()).long())
    found = torch.nn.functional.pad(counts, (0, 81 - len(counts))).double()
    expected = 20_000 * p.log_prob(STATES).exp()
    cell = torch.where(expected > 5, torch.arange(81), expected.argmin())  # rare states together
    found, expected = (torch.zeros(81).double().index_add(0, cell, t) for t in (found, expected))
    used = expected > 0
    assert stats.chisquare(found[used], expected[used]).pvalue > 1e-6


def hadamard_twin(circuit):
    """The same function by a Hadamard layer: gates are moved into the weights."""
    twin = make("linear", "hadamard", sub.Gaussian(), num_outputs=circuit.num_outputs)
    twin.inputs.load_state_dict(circuit.inputs.state_dict())
    with torch.no_grad():
        for layer, other in zip(circuit.sum_layers, twin.sum_layers, strict=True):
            gate = layer.gate[:, None] if isinstance(layer, Gated) else 3.0
            other.weights.value.copy_(layer.weights() * gate)
    return twin


@pytest.mark.parametrize("layer", ["tripled", "gated"])
def test_gaussian_circuits_are_those_with_gates_in_the_weights(layer):
    circuit = make("linear", layer, sub.Gaussian(), initialise=sub.init.normal())
    twin = hadamard_twin(circuit)
    p, q = sub.SquaredCircuit(circuit), sub.SquaredCircuit(twin)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(20, 4, generator=generator, dtype=REAL)
    x[::2, 1] = x[::3, 0] = math.nan
    close = {"rtol": 1e-9, "atol": 1e-11}
    torch.testing.assert_close(p.log_prob(x), q.log_prob(x), **close)
    torch.testing.assert_close(p.log_partition(), q.log_partition(), **close)
    torch.testing.assert_close(p.covariance(), q.covariance(), **close)
    torch.testing.assert_close(p.mean(given={1: 0.3}), q.mean(given={1: 0.3}), **close)
    torch.testing.assert_close(
        p.condition({2: 0.1}).log_prob(x[:, [0, 1, 3]]),
        q.condition({2: 0.1}).log_prob(x[:, [0, 1, 3]]),
        **close,
    )
    box = {0: (-1.0, 0.5), 3: (None, 1.0)}
    torch.testing.assert_close(p.probability(box), q.probability(box), **close)
    torch.testing.assert_close(sub.inner(circuit, circuit), sub.inner(twin, twin), **close)
    draws = [
        density.sample(50, given={1: 0.3}, generator=torch.Generator().manual_seed(3))
        for density in (p, q)
    ]
    torch.testing.assert_close(*draws, rtol=0, atol=1e-6)  # the same uniform numbers


@every_layer
@torch.no_grad()
def test_inner_products_are_sums_over_all_states(layer):
    first, second = (make("binary", layer, seed=seed) for seed in (0, 1))
    expected = first(STATES).T @ second(STATES)
    torch.testing.assert_close(sub.inner(first, second), expected, rtol=1e-10, atol=1e-12)
    hadamard = make("binary", "hadamard")
    with pytest.raises(ValueError, match="same kind of product layer"):
        sub.inner(first, hadamard)


@each_once
def test_gradients_reach_weights_gates_and_inputs(graph, layer):
    p = sub.SquaredCircuit(make(graph, layer, num_units=2, initialise=sub.init.normal()))
    x = STATES[[5, 17, 40]].clone()
    x[1, 2] = math.nan
    names, tensors = zip(*p.named_parameters(), strict=True)

    def function(*values):
        named = dict(zip(names, values, strict=True))
        return torch.func.functional_call(p, named, (x,))

    values = [tensor.detach().requires_grad_() for tensor in tensors]
    settings = {"rtol": 1e-5, "atol": 1e-7, "fast_mode": True, "check_undefined_grad": False}
    assert torch.autograd.gradcheck(function, values, **settings)
    assert any("gate" in name for name in names) == (layer == "gated")


@every_layer
def test_underflowing_rows_take_the_reference_path(layer):
    circuit = make("binary", layer, sub.Gaussian(), num_units=2)
    p = sub.SquaredCircuit(circuit)
    x = torch.zeros(3, 4, dtype=REAL)
    x[1] = torch.tensor([300.0, -300.0, 200.0, -200.0])
    exact = (2 * circuit.log_abs(x)[0]).logsumexp(-1)
    assert exact.isfinite().all()
    torch.testing.assert_close(p.log_square(x), exact, rtol=1e-12, atol=0)


@every_layer
def test_learned_layers_can_be_saved_copied_and_trained(layer, tmp_path):
    p = sub.SquaredCircuit(make("linear", layer))
    with torch.no_grad():
        for parameter in p.parameters():
            parameter.mul_(1.1)
    p.save(tmp_path / "model.safetensors")
    again = sub.load(tmp_path / "model.safetensors")
    assert torch.equal(again.log_prob(STATES), p.log_prob(STATES))
    twin = copy.deepcopy(p)
    optimiser = torch.optim.SGD(twin.parameters(), lr=1e-2)
    before = -twin.log_prob(STATES[:9]).mean()
    before.backward()
    optimiser.step()
    assert -twin.log_prob(STATES[:9]).mean() < before
    assert torch.equal(p.log_prob(STATES), again.log_prob(STATES))


@pytest.mark.parametrize("layer", [Added, Squared])
@every_graph
def test_a_product_that_is_not_linear_in_each_child_is_refused(graph, layer):
    with pytest.raises(ValueError, match=f"product of {layer.__name__} is not linear in each"):
        sub.Circuit(GRAPHS[graph], sub.Gaussian(), num_units=3, product=layer)


def test_a_product_of_another_width_is_refused():
    with pytest.raises(
        ValueError, match=r"TooNarrow.product must return 3 units.*got \(1, 3, 1\)"
    ):
        sub.Circuit(sub.flat(2), sub.Gaussian(), num_units=3, product=TooNarrow)


def test_a_layer_of_ones_own_is_not_taken_for_non_negative():
    circuit = make("linear", "tripled", sub.Gaussian(), weights=sub.positive_weights)
    assert not circuit.is_non_negative
    with pytest.raises(ValueError, match="non-negative"):
        sub.MonotonicCircuit(circuit)


@pytest.mark.parametrize("final", [sub.HadamardLayer, sub.KroneckerLayer, sub.SumLayer])
def test_layers_of_the_library_are_not_subclassed(final):
    with pytest.raises(TypeError, match=f"{final.__name__} cannot be subclassed.*Subclass Layer"):
        type("Mine", (final,), {})
