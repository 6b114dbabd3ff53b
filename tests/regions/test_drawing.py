"""Pictures of region graphs as text and as DOT."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subtractive.regions.drawing import scope_label, text
from subtractive.regions.graph import Partition, Region, RegionGraph
from subtractive.regions.trees import flat, linear_tree, random_binary_tree

DIAMOND = RegionGraph(
    (
        Region({0}),
        Region({1}),
        Region({2}),
        Region({0, 1}, [Partition((0, 1))]),
        Region({1, 2}, [Partition((1, 2))]),
        Region({0, 1, 2}, [Partition((3, 2)), Partition((0, 4))]),
    )
)


def nodes_and_edges(source):
    """A crude reader of DOT: every line is a node, an edge or a bracket."""
    first, *lines, last = source.split("\n")
    assert (first, last) == ("digraph RegionGraph {", "}")
    nodes, edges = [], []
    for line in lines:
        node = re.fullmatch(r'  (\w+) \[label="([^"]*)", shape=\w+\];', line)
        edge = re.fullmatch(r"  (\w+) -> (\w+);", line)
        assert (node is None) != (edge is None), line
        if node:
            nodes.append(node.groups())
        else:
            edges.append(edge.groups())
    return dict(nodes), edges


def test_a_tree_is_drawn_root_first():
    assert str(RegionGraph.from_nested(((0, {1, 3}), 2, 4))) == "\n".join(
        [
            "{0, 1, 2, 3, 4}",
            "├── {0, 1, 3}",
            "│   ├── {0}",
            "│   └── {1, 3}",
            "├── {2}",
            "└── {4}",
        ]
    )


def test_a_single_region_is_one_line():
    assert str(flat(1)) == "{0}"


def test_a_graph_shows_its_partitions_and_marks_what_was_drawn_before():
    assert str(DIAMOND) == "\n".join(
        [
            "{0, 1, 2} #5",
            "├── ×",
            "│   ├── {0, 1} #3",
            "│   │   ├── {0} #0",
            "│   │   └── {1} #1",
            "│   └── {2} #2",
            "└── ×",
            "    ├── {0} #0 (above)",
            "    └── {1, 2} #4",
            "        ├── {1} #1 (above)",
            "        └── {2} #2 (above)",
        ]
    )


@given(st.integers(1, 60), st.integers(0, 100))
def test_a_tree_has_one_line_per_region(size, seed):
    graph = random_binary_tree(size, seed)
    assert len(str(graph).split("\n")) == len(graph.regions)


def test_a_long_drawing_is_cut():
    graph = linear_tree(1000)
    lines = str(graph).split("\n")
    assert lines[-1] == "… (200 lines drawn of a graph of 1999 regions)"
    assert len(lines) == 201
    assert text(graph.regions, max_lines=3).split("\n")[:3] == lines[:3]


def test_a_drawing_that_just_fits_is_not_cut():
    assert "…" not in text(flat(3).regions, max_lines=4)
    assert "…" in text(flat(3).regions, max_lines=3)


def test_a_tree_of_1000_levels_can_be_drawn_in_full():
    graph = linear_tree(1000)
    lines = text(graph.regions, max_lines=None).split("\n")
    assert len(lines) == len(graph.regions)
    assert lines[-1] == " " * 4 * 998 + "└── {999}"


def test_a_drawing_of_a_shared_chain_does_not_explode():
    """Every level has two partitions into the level below: 2^40 paths."""
    regions = [Region({0}), Region({1})]
    below, scope = 0, {0}
    for variable in range(1, 41):
        if variable > 1:
            regions.append(Region({variable}))
        leaf, scope = (1 if variable == 1 else len(regions) - 1), scope | {variable}
        regions.append(Region(scope, [Partition((below, leaf)), Partition((leaf, below))]))
        below = len(regions) - 1
    assert len(text(regions, max_lines=None).split("\n")) == 1 + 40 * 6


@pytest.mark.parametrize(
    ("scope", "label"),
    [
        ({5}, "{5}"),
        (range(8), "{0, 1, 2, 3, 4, 5, 6, 7}"),
        (range(9), "{0, 1, 2, 3, 4, 5, 6, …, 8: 9 variables}"),
    ],
)
def test_long_scopes_are_abbreviated(scope, label):
    assert scope_label(frozenset(scope)) == label


@pytest.mark.parametrize(
    "graph", [DIAMOND, flat(1), flat(20), linear_tree(50), random_binary_tree(33)], ids=repr
)
def test_dot_has_a_node_per_region_and_partition_and_an_edge_per_link(graph):
    nodes, edges = nodes_and_edges(graph.to_dot())
    expected = {f"r{i}": scope_label(region.scope) for i, region in enumerate(graph.regions)}
    links = []
    for i, region in enumerate(graph.regions):
        for number, partition in enumerate(region.partitions):
            expected[f"p{i}_{number}"] = "×"
            links.append((f"r{i}", f"p{i}_{number}"))
            links.extend((f"p{i}_{number}", f"r{child}") for child in partition.children)
    assert nodes == expected
    assert sorted(edges) == sorted(links)
