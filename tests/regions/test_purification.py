"""Purified trees: grams Σ_a W_a P W_aᴴ at every region, against that recursion written out."""

import numpy as np
import pytest
import torch
from oracles import all_states, input_of_region, input_values, layer_of_region
from registry import GRAPHS, LAYERS

import subtractive as sub
from subtractive.regions.purification import purified

D, NUM_STATES, NUM_TERMS = 4, 3, 2


def model(graph, layer, weights=sub.real_weights):
    larger = purified(GRAPHS[graph](D))
    families = [sub.Embedding(NUM_STATES)] * D
    families += [sub.Embedding(NUM_TERMS)] * (larger.num_variables - D)
    circuit = sub.Circuit(
        larger,
        families,
        num_units=2,
        product=LAYERS[layer],
        weights=weights,
        initialise=sub.init.normal(),
        seed=0,
        dtype=torch.float64,
    )
    return sub.SquaredCircuit(circuit).marginal(range(D))


def kraus(weight, table, children, layer):
    """The operators W_a of one split, from its weights (o, ...) and the table (i, a)."""
    if layer == "hadamard":
        return [weight * column for column in table.T]
    blocks = weight.reshape(len(weight), -1, len(table))  # the purifier is the last factor
    return [blocks @ column for column in table.T]


def weight_of_row(p, row, layer):
    """Σ of squares at every region: p(x) without its normalisation, one row."""
    circuit = p.density.circuit
    inputs, layers = input_of_region(circuit), layer_of_region(circuit)
    grams = {}
    for region, node in enumerate(circuit.graph.regions):
        if not node.partitions:
            family, numbers, (variable,) = inputs[region]
            if variable < D:
                values = input_values(family, numbers, [row[variable]])
                grams[region] = np.outer(values, values)
            continue
        *children, purifier = node.partitions[0].children
        product = np.ones((1, 1))
        for child in children:
            gram = grams[child]
            product = product * gram if layer == "hadamard" else np.kron(product, gram)
        table, weight = inputs[purifier][1]["table"], layers[region][1]
        operators = kraus(weight, table, children, layer)
        grams[region] = sum(w @ product @ w.conj().T for w in operators)
    return np.trace(grams[circuit.graph.root]).real


@pytest.mark.parametrize("weights", [sub.real_weights, sub.complex_weights])
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("graph", ["binary", "linear", "quad"])
def test_a_purified_square_is_a_sum_of_squares_at_every_region(graph, layer, weights):
    p = model(graph, layer, weights)
    x = all_states([NUM_STATES] * D)
    expected = np.array([weight_of_row(p, row, layer) for row in x.tolist()])
    found = p.log_prob(x).exp()
    torch.testing.assert_close(
        found, torch.from_numpy(expected / expected.sum()), rtol=1e-10, atol=1e-14
    )


def test_all_queries_are_those_of_every_density():
    p = model("binary", "hadamard")
    x = all_states([NUM_STATES] * D)
    shares = p.log_prob(x).exp().detach()
    mean = (shares[:, None] * x).sum(0)
    torch.testing.assert_close(p.mean(), mean, rtol=1e-10, atol=1e-12)
    inside = shares[(x[:, 0] == 1) & (x[:, 2] >= 1)].sum() / shares[x[:, 0] == 1].sum()
    found = p.probability({2: (1.0, 2.0)}, given={0: 1.0})
    torch.testing.assert_close(found, inside, rtol=1e-10, atol=1e-12)
    drawn = p.sample(3000, generator=torch.Generator().manual_seed(0))
    counts = (drawn[:, None] == x).all(-1).sum(0).double()
    # Chi-square with 80 degrees of freedom: beyond 125 in one of a thousand seeds.
    assert ((counts - 3000 * shares).square() / (3000 * shares)).sum() < 125


def test_one_purifier_stands_at_every_split():
    graph = sub.random_binary_tree(5, seed=0)
    larger = purified(graph)
    splits = sum(1 for region in graph.regions if region.partitions)
    assert larger.num_variables == 5 + splits
    assert larger.is_tree
    for region in larger.regions:
        for partition in region.partitions:
            scopes = [larger.regions[child].scope for child in partition.children]
            assert [min(scope) >= 5 and len(scope) == 1 for scope in scopes].count(True) == 1


def test_graphs_that_are_no_trees_are_refused():
    from subtractive.regions.graph import Partition, Region, RegionGraph

    leaves = [Region([v]) for v in (0, 1, 2)]
    pairs = [Region([0, 1], [Partition((0, 1))]), Region([1, 2], [Partition((1, 2))])]
    root = Region([0, 1, 2], [Partition((3, 2)), Partition((0, 4))])
    with pytest.raises(ValueError, match="only a region tree can be purified"):
        purified(RegionGraph((*leaves, *pairs, root)))
