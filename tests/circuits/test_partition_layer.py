"""Monotonic circuits over region graphs that are not trees, against sums written out."""

import itertools
import math

import numpy as np
import pytest
import torch
from oracles import all_states, gauss_legendre, grid, input_of_region, input_values
from scipy import stats

import subtractive as sub
from subtractive.regions import Partition, Region

STATES = 3


def overlapping(d=4):
    """Every interval of a line of variables, split everywhere: regions with 1 to d - 1 splits."""
    regions, number = [], {}
    for size in range(1, d + 1):
        for first in range(d - size + 1):
            splits = [
                Partition((number[first, cut], number[cut, first + size]))
                for cut in range(first + 1, first + size)
            ]
            number[first, first + size] = len(regions)
            regions.append(Region(range(first, first + size), splits))
    return sub.RegionGraph(regions)


GRAPHS = {
    "quad": sub.regions.quad_graph(2, 2),
    "odd": sub.regions.quad_graph(1, 4),
    "intervals": overlapping(),
}
GRAPHS["six"] = sub.regions.quad_graph(3, 2)


def model(graph, inputs=None, seed=0, **options):
    circuit = sub.Circuit(
        graph,
        inputs or sub.Categorical(STATES),
        num_units=2,
        weights=sub.positive_weights,
        seed=seed,
        dtype=torch.float64,
        **options,
    )
    return sub.MonotonicCircuit(circuit)


def naive_value(circuit, row):
    """c(x) of one row by recursion over the regions, a loop over partitions and units."""
    inputs, values = input_of_region(circuit), {}
    for region, node in enumerate(circuit.graph.regions):
        if not node.partitions:
            family, numbers, scope = inputs[region]
            values[region] = np.asarray(input_values(family, numbers, [row[v] for v in scope]))
            continue
        products = [
            math.prod(values[child][unit] for child in partition.children)
            for partition in node.partitions
            for unit in range(2)
        ]
        values[region] = circuit.weight_of(region).detach().numpy() @ products
    return values[circuit.graph.root].sum()


def probabilities(p, states):
    values = np.array([naive_value(p.circuit, row) for row in states.tolist()])
    return torch.from_numpy(values / values.sum())


@pytest.mark.parametrize("graph", GRAPHS)
def test_log_probabilities_are_those_of_the_sums_written_out(graph):
    p = model(GRAPHS[graph])
    states = all_states([STATES] * p.num_variables)[::7]
    values = torch.tensor([naive_value(p.circuit, row) for row in states.tolist()])
    found = p.log_prob(states) + p.log_partition()
    torch.testing.assert_close(found, values.log(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("graph", ["quad", "intervals"])
def test_marginals_and_moments_are_sums_over_all_states(graph):
    p = model(GRAPHS[graph])
    states = all_states([STATES] * 4)
    share = probabilities(p, states)
    assert math.isclose(p.log_prob(states).exp().sum().item(), 1.0, rel_tol=1e-12)
    for seen in itertools.product([False, True], repeat=4):
        mask = torch.tensor(seen)
        same = (states[:, None] == states[None])[..., mask].all(-1).double()  # (x, y)
        rows = torch.where(mask, states, math.nan)
        torch.testing.assert_close(p.log_prob(rows).exp(), same @ share, rtol=0, atol=1e-13)
    mean = share @ states
    torch.testing.assert_close(p.mean(), mean, rtol=0, atol=1e-12)
    second = states.mT @ (share[:, None] * states)
    torch.testing.assert_close(p.covariance(), second - mean.outer(mean), rtol=0, atol=1e-12)
    product = share @ (states[:, 0].square() * (states[:, 2] - 1.5))
    found = p.expectation([(1.0, {0: 2, 2: 1}), (-1.5, {0: 2})])
    torch.testing.assert_close(found, product, rtol=0, atol=1e-12)
    inside = ((states[:, 1] > 0) & (states[:, 3] <= 1)).double()
    found = p.probability({1: (1.0, None), 3: (None, 1.0)})
    torch.testing.assert_close(found, share @ inside, rtol=0, atol=1e-12)


@pytest.mark.parametrize("graph", ["quad", "intervals"])
def test_samples_given_evidence_have_the_conditional_probabilities(graph):
    p = model(GRAPHS[graph], seed=3)
    states = all_states([STATES] * 4)
    share = probabilities(p, states)
    given, count = states[:, 2] == 1, 20_000
    share = share[given] / share[given].sum()
    drawn = p.sample(count, given={2: 1.0}, generator=torch.Generator().manual_seed(0))
    seen = (drawn[:, None] == states[given][None]).all(-1).double().sum(0)
    assert seen.sum() == count
    # A false alarm once in 10,000 seeds.
    assert stats.chisquare(seen.numpy(), count * share.numpy()).pvalue > 1e-4


def test_every_row_may_have_its_own_gaps():
    p = model(GRAPHS["quad"])
    states = all_states([STATES] * 4)
    share = probabilities(p, states)
    table = states[:40].clone()
    table[torch.rand(40, 4, generator=torch.Generator().manual_seed(0)) < 0.5] = math.nan
    known = ~table.isnan()
    expected = torch.stack(
        [
            share[(states == row)[:, seen].all(1)].sum()
            for row, seen in zip(table, known, strict=True)
        ]
    )
    torch.testing.assert_close(p.log_prob(table).exp(), expected, rtol=0, atol=1e-13)
    drawn = p.sample(given=table, generator=torch.Generator().manual_seed(1))
    assert torch.equal(drawn[known], table[known])
    assert not drawn.isnan().any()


def test_gaussians_on_a_graph_integrate_to_one():
    p = model(overlapping(3), sub.Gaussian())
    points, weights = grid([gauss_legendre(-8.0, 8.0, 40)] * 3)
    heights = p.log_prob(points).exp()
    assert math.isclose((weights * heights).sum().item(), 1.0, rel_tol=1e-9)
    rows = torch.tensor([[0.3, math.nan, -0.5]], dtype=torch.float64)
    line, line_weights = gauss_legendre(-8.0, 8.0, 40)
    full = rows.repeat(40, 1)
    full[:, 1] = torch.from_numpy(line)
    expected = torch.from_numpy(line_weights) @ p.log_prob(full).exp()
    torch.testing.assert_close(p.log_prob(rows).exp()[0], expected, rtol=1e-9, atol=0)


def test_units_that_differ_by_more_than_a_float_holds_keep_their_digits():
    p = model(overlapping(3), sub.Gaussian())
    with torch.no_grad():
        for layer in p.circuit.input_layers:
            layer.log_scale.fill_(-6.0)
    x = torch.full((1, 3), 5.0, dtype=torch.float64)
    assert p.log_prob(x).isfinite().all()
    assert p.log_prob(x).item() < -1e6


def test_gradients_are_those_of_finite_differences():
    p = model(GRAPHS["quad"])
    x = all_states([STATES] * 4)[5:9]
    weight = next(p.circuit.sum_layers[-1].parameters())
    (gradient,) = torch.autograd.grad(p.log_prob(x).sum(), weight)
    step, flat = 1e-6, weight.data.view(-1)
    for place in range(len(flat)):
        sides = []
        for sign in (1, -1):
            flat[place] += sign * step
            sides.append(p.log_prob(x).sum().item())
            flat[place] -= sign * step
        slope = (sides[0] - sides[1]) / (2 * step)
        assert math.isclose(gradient.view(-1)[place].item(), slope, rel_tol=1e-6, abs_tol=1e-7)


@pytest.mark.parametrize("graph", ["quad", "intervals"])
def test_em_never_loses_likelihood_and_leaves_it_normalised(graph):
    p = model(GRAPHS[graph])
    x = model(GRAPHS[graph], seed=5).sample(300, generator=torch.Generator().manual_seed(0))
    scores = [p.log_prob(x).mean().item()]
    for _ in range(8):
        sub.learning.fit_em(p, x, max_epochs=1, batches_per_step=math.inf, progress=False)
        scores.append(p.log_prob(x).mean().item())
    assert all(after >= before - 1e-12 for before, after in itertools.pairwise(scores))
    assert scores[-1] > scores[0] + 0.01
    assert abs(p.log_partition().item()) < 1e-10


def test_it_is_trained_started_and_saved_as_others_are(tmp_path):
    p = model(GRAPHS["quad"])
    x = model(GRAPHS["quad"], seed=5).sample(300, generator=torch.Generator().manual_seed(0))
    sub.initialise(p, x, seed=0)
    assert abs(p.log_partition().item()) < 1e-6
    before = p.log_prob(x).mean().item()
    sub.fit(p, x, x, max_epochs=10, learning_rate=0.03, progress=False)
    assert p.log_prob(x).mean().item() > before
    p.save(tmp_path / "graph.safetensors")
    again = sub.load(tmp_path / "graph.safetensors")
    assert again.circuit.graph == p.circuit.graph
    assert torch.equal(again.log_prob(x), p.log_prob(x))


def test_a_chain_of_intervals_with_one_partition_alive_is_the_tree():
    """With the weights of all other partitions zero, a graph is the tree of what is left."""
    graph = overlapping(3)
    p = model(graph)
    tree = sub.RegionGraph.from_nested(((0, 1), 2))
    q = model(tree)
    with torch.no_grad():
        top = next(p.circuit.sum_layers[-1].parameters())
        number = graph.regions[graph.root].partitions.index(
            next(
                part
                for part in graph.regions[graph.root].partitions
                if graph.regions[part.children[0]].scope == {0, 1}
            )
        )
        kept = top[..., 2 * number : 2 * number + 2].clone()
        top.fill_(-math.inf)
        top[..., 2 * number : 2 * number + 2] = kept
        next(q.circuit.sum_layers[-1].parameters()).copy_(kept)
        pair = next(r for r in range(len(graph.regions)) if graph.regions[r].scope == {0, 1})
        layer, place = p.circuit.sum_of(pair)
        next(q.circuit.sum_layers[0].parameters()).copy_(next(layer.parameters())[place])
        for variable in range(3):
            (source, at), (target, to) = (
                c.input_of(
                    next(
                        r for r in c.graph.input_regions if c.graph.regions[r].scope == {variable}
                    )
                )
                for c in (p.circuit, q.circuit)
            )
            target.logits[to] = source.logits[at]
    x = all_states([STATES] * 3)
    torch.testing.assert_close(p.log_prob(x), q.log_prob(x), rtol=0, atol=1e-12)
    drawn = p.sample(100, generator=torch.Generator().manual_seed(0))
    assert drawn.shape == (100, 3)


def refused_graph(children):
    regions = [Region([v]) for v in range(3)]
    regions.append(Region([0, 1], [Partition((0, 1))]))
    return sub.RegionGraph([*regions, Region([0, 1, 2], [Partition(c) for c in children])])


def two_inputs():
    regions = [Region([0]), Region([1]), Region([0])]
    return sub.RegionGraph([*regions, Region([0, 1], [Partition((0, 1)), Partition((2, 1))])])


REFUSED = {
    "squares": (lambda p: sub.SquaredCircuit(p.circuit), "can be squared needs a region tree"),
    "written out": (lambda p: sub.materialise_square(p.circuit), "needs a region tree"),
    "inner": (lambda p: sub.inner(p.circuit, p.circuit), "inner product needs a region tree"),
    "expectation": (lambda p: p.expectation(p.circuit), "expectation of a circuit needs a region"),
    "determinism": (lambda p: sub.circuits.is_deterministic(p.circuit), "needs a region tree"),
    "root": (
        lambda p: sub.learning.square_root(p),
        "square root of a circuit needs a region tree",
    ),
    "purified": (lambda p: sub.regions.purified(p.circuit.graph), "only a region tree"),
    "libcirkit": (lambda p: sub.to_cirkit(p.circuit), "PartitionLayer has no counterpart"),
    "layers drawn": (
        lambda p: sub.plots.circuit(p.circuit),
        "drawing of a circuit needs a region",
    ),
    "regions drawn": (
        lambda p: sub.plots.region_graph(p.circuit.graph),
        "drawing of regions needs a region tree",
    ),
    "three": (
        lambda p: model(refused_graph([(3, 2), (0, 1, 2)])),
        r"needs two children.*region 4 has partitions into \[2, 3\] children",
    ),
    "two inputs": (lambda p: model(two_inputs()), "variable 0 has several input regions"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_needs_a_tree_is_refused(name):
    action, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        action(model(GRAPHS["quad"]))


def test_a_graph_is_described_and_read_again():
    graph = sub.regions.quad_graph(3, 4)
    assert sub.RegionGraph.from_description(graph.describe()) == graph
    assert graph.is_smooth
    assert graph.is_decomposable
    assert not graph.is_structured_decomposable
    # All pairs of a range of rows and one of columns that halving leads to: 5 of 3, 7 of 4.
    assert len(graph.regions) == 5 * 7
    assert sub.regions.quad_graph(1, 1) == sub.flat(1)
