"""Laws of additive circuits: graphs x non-negative families x layers."""

import itertools

import numpy as np
import pytest
import torch
from oracles import gauss_legendre, grid, naive_value
from registry import CONTINUOUS, DISCRETE, GRAPHS, LAYERS, NUM_STATES, axis, every_kind
from scipy import stats

import subtractive as sub

NON_NEGATIVE = {
    "categorical": DISCRETE["categorical"],
    "binomial": DISCRETE["binomial"],
    "gaussian": CONTINUOUS["gaussian"],
    "rbf": CONTINUOUS["rbf"],
    "spline": sub.Spline(6, order=2, domain=(-1.0, 2.0), non_negative=True),
}
every_density = every_kind(
    ("graph", "family", "layer"), list(itertools.product(GRAPHS, NON_NEGATIVE, LAYERS))
)


def build(graph, family, layer="hadamard", d=3, **options):
    """A random additive density of one kind."""
    settings = {"num_units": 3, "num_outputs": 2, "seed": 0, "dtype": torch.float64}
    circuit = sub.Circuit(
        GRAPHS[graph](d),
        NON_NEGATIVE[family],
        weights=sub.positive_weights,
        initialise=sub.init.log_normal(),
        product=LAYERS[layer],
        **(settings | options),
    )
    return sub.MonotonicCircuit(circuit)


def rows_of(family, n, d, seed=0):
    generator = torch.Generator().manual_seed(seed)
    if family in DISCRETE:
        return torch.randint(NUM_STATES, (n, d), generator=generator).double()
    return torch.rand(n, d, generator=generator, dtype=torch.float64) * 3 - 1


def short_axis(family):
    """Fewer nodes than the registry's: products of two functions never occur here."""
    return gauss_legendre(-7.0, 7.0, 32) if family in ("gaussian", "rbf") else axis(family)


@every_density
@torch.no_grad()
def test_probabilities_sum_to_one_and_marginals_are_sums_of_the_joint(graph, family, layer):
    p = build(graph, family, layer)
    nodes, weights = map(torch.from_numpy, short_axis(family))
    size = len(nodes)
    x, w = grid([short_axis(family)] * 3)
    joint = (p.log_prob(x).exp() * w).reshape(size, size, size)
    tolerance = 1e-10 if family in DISCRETE else 1e-6
    torch.testing.assert_close(joint.sum().item(), 1.0, rtol=0, atol=tolerance)
    for seen in ([0], [1], [0, 2], [1, 2]):
        table = torch.full((size ** len(seen), 3), torch.nan, dtype=torch.float64)
        table[:, seen], share = grid([(nodes.numpy(), weights.numpy())] * len(seen))
        expected = joint.sum([v for v in range(3) if v not in seen]).flatten()
        marginal = p.log_prob(table).exp() * share
        torch.testing.assert_close(marginal, expected, rtol=1e-6, atol=1e-9)


@every_density
def test_values_equal_naive_sums_of_the_outputs(graph, family, layer):
    p = build(graph, family, layer, d=4)
    x = rows_of(family, 3, 4)
    naive = torch.tensor([float(sum(naive_value(p.circuit, row))) for row in x.tolist()])
    torch.testing.assert_close(
        (p.log_prob(x) + p.log_partition()).exp(), naive.double(), rtol=1e-6, atol=0
    )


@every_density
@torch.no_grad()
def test_joint_is_the_product_of_conditionals_in_any_order(graph, family, layer):
    p = build(graph, family, layer, d=4)
    x = rows_of(family, 6, 4)
    order = torch.randperm(4, generator=torch.Generator().manual_seed(len(graph + family)))
    total = torch.zeros(6, dtype=torch.float64)
    known = torch.zeros(4, dtype=torch.bool)
    for variable in order.tolist():
        asked = torch.arange(4) == variable
        total = total + p.log_conditional(x, asked, known)
        known = known | asked
    torch.testing.assert_close(total, p.log_prob(x), rtol=0, atol=1e-8)


@every_density
@torch.no_grad()
def test_one_mask_per_row_equals_one_row_at_a_time(graph, family, layer):
    p = build(graph, family, layer, d=4)
    x = rows_of(family, 6, 4)
    observed = torch.rand(6, 4, generator=torch.Generator().manual_seed(1)) < 0.5
    observed[0], observed[1] = False, True
    alone = torch.cat([p.log_marginal(x[k : k + 1], observed[k]) for k in range(6)])
    torch.testing.assert_close(p.log_marginal(x, observed), alone, rtol=0, atol=1e-12)
    missing = torch.where(observed, x, torch.nan)
    torch.testing.assert_close(p.log_prob(missing), alone, rtol=0, atol=1e-12)
    torch.testing.assert_close(alone[0].item(), 0.0, rtol=0, atol=1e-12)


def test_the_flat_graph_is_an_additive_mixture():
    p = build("flat", "gaussian", num_outputs=1)
    layer = p.circuit.input_layers[0]
    mean, scale = layer.mean.detach().numpy(), layer.log_scale.detach().exp().numpy()  # (d, k)
    weight = p.circuit.sum_layers[0].weights().detach().numpy()[0, 0]
    x = rows_of("gaussian", 7, 3)
    place = {scope[0]: fold for fold, scope in enumerate(layer.scopes)}
    densities = np.ones((7, 3))
    for v in range(3):
        densities *= stats.norm.pdf(x[:, v, None], mean[place[v]], scale[place[v]])
    expected = np.log(densities @ (weight / weight.sum()))
    torch.testing.assert_close(p.log_prob(x), torch.from_numpy(expected), rtol=0, atol=1e-12)


def test_the_linear_tree_is_a_hidden_markov_model():
    graph = sub.linear_tree(4)
    circuit = sub.Circuit(
        graph,
        sub.Categorical(3),
        num_units=2,
        weights=sub.positive_weights,
        seed=0,
        dtype=torch.float64,
    )
    layer = circuit.input_layers[0]
    emission = {
        scope[0]: layer.logits.detach().softmax(-1)[fold].numpy()
        for fold, scope in enumerate(layer.scopes)
    }
    transition = [circuit.sum_layers[k].weights().detach().numpy()[0] for k in range(3)]  # upwards
    for row in ([0, 1, 2, 1], [2, 2, 0, 0]):
        message = emission[3][:, row[3]]
        for k, v in enumerate((2, 1, 0)):
            message = transition[k] @ (emission[v][:, row[v]] * message)
        value = circuit(torch.tensor([row]).double())[0, 0].item()
        torch.testing.assert_close(value, float(message[0]), rtol=1e-12, atol=0)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("family", NON_NEGATIVE)
def test_gradients_of_marginals_are_exact(family, layer):
    p = build("nested", family, layer, num_outputs=1)
    x = rows_of(family, 3, 3)
    x[0, 1] = x[1, 0] = x[1, 2] = torch.nan
    names, start = zip(*p.named_parameters(), strict=True)

    def log_prob(*tensors):
        state = dict(zip(names, tensors, strict=True))
        return torch.func.functional_call(p, state, (x,))

    p.forward = p.log_prob
    start = [t.detach().requires_grad_() for t in start]
    assert torch.autograd.gradcheck(log_prob, start, fast_mode=True)


def test_an_impossible_row_is_minus_infinity_and_its_gradients_are_finite():
    p = build("binary", "spline", d=4)
    x = rows_of("spline", 3, 4)
    x[1, 2] = 7.0  # outside the splines' domain
    result = p.log_prob(x)
    assert result.isinf().tolist() == [False, True, False]
    result[1].backward()
    assert all(t.grad is None or t.grad.isfinite().all() for t in p.parameters())
    p.zero_grad()
    p.log_prob(x).sum().backward()
    assert all(t.grad is None or t.grad.isfinite().all() for t in p.parameters())


@pytest.mark.parametrize("graph", [sub.random_binary_tree(1000), sub.linear_tree(1000)])
def test_a_thousand_variables_far_out_keep_all_digits(graph):
    circuit = sub.Circuit(
        graph,
        sub.Gaussian(),
        num_units=4,
        weights=sub.positive_weights,
        initialise=sub.init.dirichlet(),
        seed=0,
        dtype=torch.float64,
    )
    with torch.no_grad():
        for layer in circuit.input_layers:
            layer.mean.zero_()
            layer.log_scale.zero_()
    x = torch.full((2, 1000), 14.0, dtype=torch.float64)
    x[1, ::2] = torch.nan
    expected = stats.norm.logpdf(14.0) * np.array([1000, 500])
    result = sub.MonotonicCircuit(circuit).log_prob(x)
    torch.testing.assert_close(result, torch.from_numpy(expected), rtol=1e-12, atol=0)
    assert result[0] < -9e4


def test_units_that_differ_by_any_factor_are_not_lost():
    circuit = sub.Circuit(
        sub.RegionGraph.from_nested(((0, 1), (2, 3))),
        sub.Gaussian(),
        num_units=2,
        weights=sub.positive_weights,
        seed=0,
        dtype=torch.float64,
    )
    with torch.no_grad():
        circuit.input_layers[0].mean.copy_(torch.tensor([[0.0, 300.0]] * 4))
        circuit.input_layers[0].log_scale.zero_()
    p = sub.MonotonicCircuit(circuit)
    x = torch.tensor([[0.0, 0.0, 300.0, 300.0], [150.0, 150.0, 150.0, 150.0]]).double()
    weight = [circuit.sum_layers[k].weights().detach().log() for k in range(2)]

    def by_logsumexp(row):
        leaves = -0.5 * (row[:, None] - torch.tensor([0.0, 300.0])) ** 2 - 0.5 * np.log(2 * np.pi)
        left, right = leaves[0] + leaves[1], leaves[2] + leaves[3]
        scopes = [circuit.graph.regions[r].scope for r in circuit.schedule.calls[0].regions]
        first = scopes.index(frozenset({0, 1}))
        left = (weight[0][first] + left).logsumexp(-1)
        right = (weight[0][1 - first] + right).logsumexp(-1)
        return (weight[1][0] + left + right).logsumexp(-1)[0]

    expected = torch.stack([by_logsumexp(row) for row in x]) - p.log_partition()
    torch.testing.assert_close(p.log_prob(x), expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("layer", LAYERS)
def test_scaling_the_weights_changes_nothing(layer):
    p = build("chow-liu", "binomial", layer, d=4)
    x = rows_of("binomial", 5, 4)
    before = p.log_prob(x)
    with torch.no_grad():
        for k in range(len(p.circuit.layers)):
            p.circuit.sum_layers[k].weights.log_value.add_(3.0 * k - 400.0)
    torch.testing.assert_close(p.log_prob(x), before, rtol=0, atol=1e-11)


@pytest.mark.parametrize("family", NON_NEGATIVE)
def test_one_variable_and_one_unit_are_enough(family):
    units = 3 if family == "rbf" else 1
    p = sub.MonotonicCircuit(
        sub.Circuit(
            sub.flat(1),
            NON_NEGATIVE[family],
            num_units=units,
            weights=sub.positive_weights,
            seed=0,
            dtype=torch.float64,
        )
    )
    x, w = grid([short_axis(family)])
    total = (p.log_prob(x).exp() * w).sum().item()
    torch.testing.assert_close(total, 1.0, rtol=0, atol=1e-7)
    missing = torch.full((2, 1), torch.nan, dtype=torch.float64)
    torch.testing.assert_close(p.log_prob(missing).tolist(), [0.0, 0.0], rtol=0, atol=1e-12)
