"""The drawing of a circuit has all of its layers, and nothing else."""

import matplotlib.pyplot as plt
import pytest

import subtractive as sub
from subtractive.plots.layers import INPUT, PRODUCT, SUM, layer_nodes

NESTED = sub.RegionGraph.from_nested(((0, 1), 2))


def drawn(circuit):
    """Nodes as (kind, variables, text, units), and edges between them."""
    nodes, edges = layer_nodes(circuit)
    named = [
        (node.kind, tuple(sorted(circuit.graph.regions[node.region].scope)), node.text)
        for node in nodes
    ]
    return {(*name, node.num_units) for name, node in zip(named, nodes, strict=True)}, {
        (named[low][:2], named[high][:2]) for low, high in edges
    }


EDGES = {
    ((INPUT, (0,)), (PRODUCT, (0, 1))),
    ((INPUT, (1,)), (PRODUCT, (0, 1))),
    ((PRODUCT, (0, 1)), (SUM, (0, 1))),
    ((SUM, (0, 1)), (PRODUCT, (0, 1, 2))),
    ((INPUT, (2,)), (PRODUCT, (0, 1, 2))),
    ((PRODUCT, (0, 1, 2)), (SUM, (0, 1, 2))),
}


@pytest.mark.parametrize(
    ("product", "sign", "widths"),
    [(sub.HadamardLayer, "⊙", (3, 3)), (sub.KroneckerLayer, "⊗", (9, 9))],
)
def test_a_small_circuit_is_drawn_as_it_is_written_down_by_hand(product, sign, widths):
    circuit = sub.Circuit(
        NESTED, sub.Gaussian(), num_units=3, num_outputs=2, product=product, seed=0
    )
    low, high = widths
    nodes, edges = drawn(circuit)
    assert nodes == {
        *((INPUT, (v,), str(v), 3) for v in range(3)),
        (PRODUCT, (0, 1), sign, low),
        (SUM, (0, 1), f"3 × {low}", 3),
        (PRODUCT, (0, 1, 2), sign, high),
        (SUM, (0, 1, 2), f"2 × {high}", 2),
    }
    assert edges == EDGES


def test_the_square_has_the_same_layers_with_pairs_of_units():
    circuit = sub.Circuit(NESTED, sub.Gaussian(), num_units=3, num_outputs=2, seed=0)
    nodes, edges = drawn(sub.materialise_square(circuit))
    assert edges == EDGES
    assert {(kind, scope, units) for kind, scope, _, units in nodes} == {
        *((INPUT, (v,), 9) for v in range(3)),
        (PRODUCT, (0, 1), 9),
        (SUM, (0, 1), 9),
        (PRODUCT, (0, 1, 2), 9),
        (SUM, (0, 1, 2), 1),  # the sum of both squares
    }


def test_sums_over_inputs_are_drawn():
    circuit = sub.Circuit(sub.flat(2), sub.Gaussian(), num_units=4, num_input_units=2, seed=0)
    nodes, edges = drawn(circuit)
    assert {(SUM, (0,), "4 × 2", 4), (SUM, (1,), "4 × 2", 4)} < nodes
    assert ((INPUT, (0,)), (SUM, (0,))) in edges
    assert ((SUM, (0,)), (PRODUCT, (0, 1))) in edges


@pytest.mark.parametrize(
    "graph",
    [sub.flat(5), sub.linear_tree(5), sub.random_binary_tree(6, seed=0), sub.flat([[0, 1], [2]])],
    ids=["flat", "linear", "binary", "regions"],
)
def test_everything_is_drawn_once_and_above_what_it_reads(graph):
    family = sub.MultivariateGaussian() if graph.num_variables == 3 else sub.Gaussian()
    circuit = sub.Circuit(graph, family, num_units=2, seed=0)
    nodes, edges = layer_nodes(circuit)
    inner = [region for region in graph.regions if region.partitions]
    assert len(nodes) == len(graph.input_regions) + 2 * len(inner)
    assert len(edges) == len(nodes) - 1  # a tree
    assert all(low < high for low, high in edges)
    ax = sub.plots.circuit(circuit)
    texts = [text for text in ax.texts if text.get_text() in {node.text for node in nodes}]
    places = {text.get_position() for text in texts if text.get_bbox_patch() is not None}
    assert len(places) == len(nodes)
    assert len(ax.lines) == len(edges)
    assert all(line.get_ydata()[0] < line.get_ydata()[1] for line in ax.lines)
    plt.close("all")


def test_what_cannot_be_drawn_is_refused():
    wide = sub.Circuit(sub.flat(17), sub.Gaussian(), num_units=1, seed=0)
    with pytest.raises(ValueError, match="too wide to be drawn"):
        sub.plots.circuit(wide)
    with pytest.raises(ValueError, match="one name per variable"):
        sub.plots.circuit(sub.Circuit(NESTED, sub.Gaussian(), num_units=1), names=["a"])
    _, ax = plt.subplots()
    assert sub.plots.circuit(sub.Circuit(NESTED, sub.Gaussian(), num_units=1), ax=ax) is ax
    plt.close("all")
