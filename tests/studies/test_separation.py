"""Unique disjointness as a squared circuit agrees with brute force over all assignments."""

import itertools

import numpy as np
import pytest
import torch
from oracles import all_states

import subtractive as sub
from studies.separation.bounds import (
    expander_table,
    induced_matching,
    most_disjoint_pairs,
    separation_table,
)
from studies.separation.disjointness import (
    UndirectedGraph,
    communication_matrix,
    margulis_graph,
    matching_graph,
    random_regular_graph,
    unique_disjointness,
)

TRIANGLE = UndirectedGraph(4, ((0, 1), (1, 2), (2, 0)))
GRAPHS = {
    "one edge": matching_graph(1),
    "no edges": UndirectedGraph(3, ()),
    "matching": matching_graph(5),
    "triangle and a vertex": TRIANGLE,
    "cubic": random_regular_graph(10, 3),
    "margulis": margulis_graph(3),
}
every_graph = pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)


def by_hand(graph, row):
    return (1 - sum(row[u] * row[v] for u, v in graph.edges)) ** 2


@every_graph
def test_the_circuit_is_the_function_on_all_assignments(graph):
    density = unique_disjointness(graph, dtype=torch.float64)
    x = all_states([2] * graph.num_vertices)
    expected = torch.tensor([by_hand(graph, row) for row in x.tolist()], dtype=torch.float64)
    actual = density.log_square(x).exp().detach()
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=0)
    assert density.log_partition().exp().item() == pytest.approx(expected.sum().item(), rel=1e-12)


@pytest.mark.parametrize(
    "graph",
    [
        matching_graph(8),
        *(
            pytest.param(g, marks=pytest.mark.slow)
            for g in (margulis_graph(4), random_regular_graph(16, 4))
        ),
    ],
)
def test_sixteen_variables_agree_too(graph):
    x = all_states([2] * 16)
    adjacency = torch.from_numpy(graph.adjacency).double()
    expected = (1 - ((x @ adjacency) * x).sum(1) / 2).square()
    density = unique_disjointness(graph, dtype=torch.float64)
    actual = density.log_square(x).exp().detach()
    torch.testing.assert_close(actual, expected, rtol=1e-11, atol=0)


@every_graph
def test_the_sizes_in_tables_are_those_of_the_circuits(graph):
    circuit = unique_disjointness(graph).circuit
    row = expander_table([graph])[0]
    assert (row.circuit_size, row.square_size) == (
        circuit.size,
        sub.materialise_square(circuit).size,
    )
    assert (row.num_variables, row.num_edges) == (graph.num_vertices, len(graph.edges))


@every_graph
def test_the_communication_matrix_lists_the_function(graph):
    count = graph.num_vertices
    first = [v for v in range(count) if v % 2 == 0]
    other = [v for v in range(count) if v % 2 == 1]
    matrix = communication_matrix(graph, first)
    for (r, y), (c, z) in itertools.product(
        enumerate(itertools.product([0, 1], repeat=len(first))),
        enumerate(itertools.product([0, 1], repeat=len(other))),
    ):
        values = dict(zip(first + other, y + z, strict=True))
        assert matrix[r, c] == by_hand(graph, values)


def test_the_example_of_the_paper():
    matrix = communication_matrix(matching_graph(3), range(3))
    assert matrix[7].tolist() == [1, 0, 0, 1, 0, 1, 1, 4]  # columns count in binary
    assert matrix[0].tolist() == [1] * 8


def test_the_rank_in_the_table_is_that_of_the_matrix():
    for row in separation_table(range(1, 9)):
        matrix = communication_matrix(matching_graph(row.num_edges), range(row.num_edges))
        assert np.linalg.matrix_rank(matrix) == row.rank
        assert row.num_edges == 1 or row.rank <= row.most_nonnegative_rank == len(matrix)


@pytest.mark.parametrize("num_edges", [1, 2, 3, 4])
def test_rectangles_without_zeros_hold_two_to_the_n_disjoint_pairs(num_edges):
    matrix = communication_matrix(matching_graph(num_edges), range(num_edges))
    sets = range(2**num_edges)
    disjoint = [(a, b) for a in sets for b in sets if a & b == 0]
    assert len(disjoint) == 3**num_edges
    assert all(matrix[a, b] == 1 for a, b in disjoint)
    most = most_disjoint_pairs(num_edges)
    assert most == 2**num_edges
    bound = separation_table([num_edges])[0].least_nonnegative_rank
    assert (bound - 1) * most < len(disjoint) <= bound * most


def test_the_bound_grows_exponentially_and_the_circuit_does_not():
    rows = separation_table([10, 20, 40, 80])
    assert [row.least_nonnegative_rank for row in rows][:2] == [58, 3326]
    assert all(row.circuit_size == (row.num_edges + 1) * (2 * row.num_edges + 1) for row in rows)
    assert rows[1].least_nonnegative_rank > rows[1].circuit_size
    for once, twice in itertools.pairwise(rows):
        # Twice the edges: the bound is squared, sizes grow by powers of two.
        assert twice.least_nonnegative_rank > (once.least_nonnegative_rank - 1) ** 2
        assert twice.circuit_size < 4 * once.circuit_size
        assert twice.square_size < 8 * once.square_size


@pytest.mark.parametrize("seed", range(5))
def test_an_induced_matching_leaves_the_function_of_a_matching(seed):
    graph = random_regular_graph(14, 3, seed)
    first = sorted(np.random.default_rng(seed).permutation(14)[:7].tolist())
    edges = induced_matching(graph, first)
    assert all((u in first) != (v in first) for u, v in edges)
    # With all other vertices at zero only the edges of the matching are left.
    ends = {v for edge in edges for v in edge}
    assert len(ends) == 2 * len(edges) > 0
    assert {edge for edge in graph.edges if set(edge) <= ends} == set(edges)


def largest_induced_matching(graph, first):
    """By brute force over sets of cut edges."""
    cut = [edge for edge in graph.edges if (edge[0] in first) != (edge[1] in first)]
    for count in range(len(cut), 0, -1):
        for edges in itertools.combinations(cut, count):
            ends = {v for edge in edges for v in edge}
            if {e for e in graph.edges if set(e) <= ends} == set(edges):
                return count
    return 0


@pytest.mark.parametrize(
    "graph", [random_regular_graph(8, 3), margulis_graph(3)], ids=["cubic", "margulis"]
)
def test_every_balanced_split_has_the_matching_that_the_spectral_gap_promises(graph):
    count = graph.num_vertices
    row = expander_table([graph])[0]
    assert row.every_matching > 0
    for size in range(-(-count // 3), count // 2 + 1):
        for first in itertools.combinations(range(count), size):
            cut = sum((u in first) != (v in first) for u, v in graph.edges)
            assert cut >= graph.spectral_gap * size * (count - size) / count - 1e-9
            assert len(induced_matching(graph, first)) >= row.every_matching
    some = range(count // 2)
    assert len(induced_matching(graph, some)) <= largest_induced_matching(graph, some)


def test_random_graphs_are_regular_and_repeatable_and_keep_a_gap():
    graphs = [random_regular_graph(n, 4, seed=1) for n in (10, 50, 200)]
    for graph in graphs:
        assert set(graph.adjacency.sum(0).tolist()) == {4}
        assert graph.spectral_gap > 0.3
    assert random_regular_graph(50, 4, seed=1) == graphs[1]
    assert random_regular_graph(50, 4, seed=2) != graphs[1]
    assert set(random_regular_graph(5, 4).adjacency.sum(0).tolist()) == {4}  # complete


@pytest.mark.parametrize("side", [4, 8, 16])
def test_margulis_graphs_keep_their_gap(side):
    graph = margulis_graph(side)
    assert graph.num_vertices == side**2
    assert graph.max_degree <= 8
    # The gap of the graph with all eight edges at each vertex; leaving out repeated ones could
    # lower it, but does so for none of these.
    assert graph.spectral_gap > 8 - 5 * 2**0.5


def test_what_is_no_graph_is_refused():
    with pytest.raises(ValueError, match=r"vertices in 0..2, got \(1, 3\)"):
        UndirectedGraph(3, ((3, 1),))
    with pytest.raises(ValueError, match=r"two different vertices .* got \(1, 1\)"):
        UndirectedGraph(3, ((1, 1),))
    with pytest.raises(ValueError, match="no graph on 5 vertices has 3 edges"):
        random_regular_graph(5, 3)
    with pytest.raises(ValueError, match="num_edges must be a whole number"):
        matching_graph(0)
    with pytest.raises(ValueError, match="side must be a whole number"):
        margulis_graph(1)


def test_what_would_take_too_long_is_refused():
    with pytest.raises(ValueError, match=r"at most 12 of them on either side, got 20 and 20"):
        communication_matrix(matching_graph(20), range(20))
    with pytest.raises(ValueError, match="must consist of vertices"):
        communication_matrix(matching_graph(2), [7])
    with pytest.raises(ValueError, match="at most 4 edges, got 5"):
        most_disjoint_pairs(5)
