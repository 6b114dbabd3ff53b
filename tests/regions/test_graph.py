"""Region graphs: what is accepted, what is refused and why, and what a graph says about itself."""

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subtractive.regions.graph import Partition, Region, RegionGraph
from subtractive.regions.trees import linear_tree


@st.composite
def nested_trees(draw):
    """Random trees of any arity over random groups of variables, as nested tuples."""
    size = draw(st.integers(1, 12))
    variables = draw(st.permutations(range(size)))
    cuts = sorted(draw(st.sets(st.integers(1, size - 1)))) if size > 1 else []
    groups = [variables[a:b] for a, b in zip([0, *cuts], [*cuts, size], strict=True)]
    nodes = [group[0] if len(group) == 1 else frozenset(group) for group in groups]
    while len(nodes) > 1:
        arity = draw(st.integers(2, len(nodes)))
        start = draw(st.integers(0, len(nodes) - arity))
        nodes[start : start + arity] = [tuple(nodes[start : start + arity])]
    return nodes[0]


def recursive_scope(nested):
    if isinstance(nested, tuple):
        return frozenset().union(*map(recursive_scope, nested))
    return frozenset([nested]) if isinstance(nested, int) else nested


def recursive_depth(nested):
    return 1 + max(map(recursive_depth, nested)) if isinstance(nested, tuple) else 0


def recursive_regions(nested):
    """The scopes of a nested tree, children before parents."""
    below = nested if isinstance(nested, tuple) else ()
    return [s for child in below for s in recursive_regions(child)] + [recursive_scope(nested)]


def diamond(*partitions):
    """Three variables, both {0, 1} and {1, 2}, and a root that is split as told."""
    return RegionGraph(
        (
            Region({0}),
            Region({1}),
            Region({2}),
            Region({0, 1}, [Partition((0, 1))]),
            Region({1, 2}, [Partition((1, 2))]),
            Region({0, 1, 2}, [Partition(children) for children in partitions]),
        )
    )


@given(nested_trees())
def test_a_nested_tree_survives_the_round_trip(nested):
    graph = RegionGraph.from_nested(nested)
    assert graph.to_nested() == nested
    assert RegionGraph.from_nested(graph.to_nested()) == graph


@given(nested_trees())
def test_a_tree_says_what_a_recursive_walk_finds(nested):
    graph = RegionGraph.from_nested(nested)
    assert [region.scope for region in graph.regions] == recursive_regions(nested)
    assert graph.depth == recursive_depth(nested)
    assert graph.num_variables == len(recursive_scope(nested))
    assert graph.root == len(graph.regions) - 1
    assert graph.input_regions == tuple(
        i for i, region in enumerate(graph.regions) if region.partitions == ()
    )


@given(nested_trees())
def test_a_tree_has_every_property(nested):
    graph = RegionGraph.from_nested(nested)
    assert graph.is_tree
    assert graph.is_smooth
    assert graph.is_decomposable
    assert graph.is_structured_decomposable
    inputs = [graph.regions[i].scope for i in graph.input_regions]
    assert sum(map(len, inputs)) == graph.num_variables


@pytest.mark.parametrize(
    ("nested", "regions", "depth"),
    [(0, 1, 0), ({0, 1, 2}, 1, 0), (((0, 1), 2), 5, 2), ((0, {1, 2}), 3, 1), ([0, 1, 2], 4, 1)],
)
def test_nested_examples(nested, regions, depth):
    graph = RegionGraph.from_nested(nested)
    assert (len(graph.regions), graph.depth) == (regions, depth)


def test_the_children_of_a_partition_keep_their_order():
    graph = RegionGraph.from_nested((2, (1, 3), 0))
    children = graph.regions[graph.root].partitions[0].children
    scopes = [set(graph.regions[child].scope) for child in children]
    assert scopes == [{2}, {1, 3}, {0}]


def test_a_linear_tree_of_5000_variables_is_no_problem():
    nested = 4999
    for variable in reversed(range(4999)):
        nested = (variable, nested)
    graph = RegionGraph.from_nested(nested)
    assert graph.depth == 4999
    assert graph.is_tree
    assert graph.is_structured_decomposable
    assert RegionGraph.from_nested(graph.to_nested()) == graph
    assert copy.deepcopy(graph) == graph
    assert pickle.loads(pickle.dumps(graph)) == graph


def test_a_scope_reads_as_a_frozenset():
    region = Region([3, 70, 3])
    assert region.scope == frozenset({3, 70})
    assert isinstance(region.scope, frozenset)
    assert {type(variable) for variable in region.scope} == {int}


def test_graphs_are_equal_and_hash_by_value():
    graph, same, other = (RegionGraph.from_nested(n) for n in ((0, 1), [0, 1], (1, 0)))
    assert graph == same
    assert hash(graph) == hash(same)
    assert graph != other
    assert len({graph, same, other}) == 2


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (Partition((0, 1)), "children"),
        (Region({0}), "partitions"),
        (RegionGraph.from_nested(0), "regions"),
    ],
)
def test_nothing_can_be_changed(value, name):
    with pytest.raises(AttributeError):
        setattr(value, name, ())


def test_lists_become_tuples():
    graph = RegionGraph([Region([0]), Region([1]), Region([0, 1], [Partition([0, 1])])])
    assert graph == RegionGraph.from_nested((0, 1))
    assert isinstance(hash(graph), int)


def test_representations_are_short():
    graph = RegionGraph.from_nested((((0, 1), (2, 3)), ((4, 5), (6, 7))))
    assert repr(graph) == "RegionGraph(8 variables, 15 regions, depth 3)"
    assert repr(Region({0, 1})) == "Region({0, 1}, ())"
    assert len(repr(linear_tree(1000).regions[-1])) < 100


def test_two_different_splits_of_one_scope_are_not_structured_decomposable():
    graph = diamond((3, 2), (0, 4))
    assert graph.is_smooth
    assert graph.is_decomposable
    assert not graph.is_structured_decomposable
    assert not graph.is_tree


@pytest.mark.parametrize(("second", "agree"), [((4, 2), True), ((2, 4), True), ((0, 1, 2), False)])
def test_splits_of_one_scope_must_agree_across_regions(second, agree):
    leaves = [Region({variable}) for variable in range(4)]
    pair = Region({0, 1}, [Partition((0, 1))])
    triples = [Region({0, 1, 2}, [Partition(split)]) for split in ((4, 2), second)]
    root = Region(range(4), [Partition((5, 3)), Partition((6, 3))])
    graph = RegionGraph([*leaves, pair, *triples, root])
    assert graph.is_structured_decomposable == agree


def test_a_region_with_two_parents_makes_no_tree():
    leaves = [Region({0}), Region({1}), Region({2})]
    pairs = [Region({0, 1}, [Partition((0, 1))]) for _ in range(2)]
    root = Region({0, 1, 2}, [Partition((3, 2)), Partition((4, 2))])
    graph = RegionGraph([*leaves, *pairs, root])
    assert not graph.is_tree
    with pytest.raises(ValueError, match="only a tree can be written as nested tuples"):
        graph.to_nested()


def test_a_region_with_two_partitions_makes_no_tree():
    leaves = [Region({variable}) for variable in (0, 1, 0, 1)]
    root = Region({0, 1}, [Partition((0, 1)), Partition((2, 3))])
    graph = RegionGraph([*leaves, root])
    assert not graph.is_tree
    assert graph.is_structured_decomposable


def test_the_depth_of_a_graph_is_its_longest_path():
    leaves = [Region({0}), Region({1}), Region({2})]
    pair = Region({0, 1}, [Partition((0, 1))])
    root = Region({0, 1, 2}, [Partition((0, 1, 2)), Partition((3, 2))])
    assert RegionGraph([*leaves, pair, root]).depth == 2


REFUSED = {
    "nothing": (lambda: RegionGraph(()), "at least one region, got none"),
    "child after parent": (
        lambda: RegionGraph([Region({0, 1}, [Partition((1, 2))]), Region({0}), Region({1})]),
        "children come before their parents: region 0 has the child 1",
    ),
    "its own child": (
        lambda: RegionGraph([Region({0}), Region({0, 1}, [Partition((0, 1))])]),
        "region 1 has the child 1",
    ),
    "negative child": (
        lambda: RegionGraph([Region({0}), Region({0, 1}, [Partition((0, -1))])]),
        "region 1 has the child -1",
    ),
    "empty scope": (lambda: Region(()), "at least one variable, got an empty scope"),
    "empty nested set": (lambda: RegionGraph.from_nested((0, set())), "got an empty scope"),
    "negative variable": (lambda: Region({-1}), r"numbered 0\.\.d-1, got -1"),
    "absurd variable": (lambda: RegionGraph.from_nested((0, 10**12)), "got 1000000000000"),
    "gap": (lambda: RegionGraph.from_nested((0, 2)), r"\{0, 2\} lacks \{1\}"),
    "counting from one": (lambda: RegionGraph.from_nested((1, 2)), r"\{1, 2\} lacks \{0\}"),
    "unused region": (
        lambda: RegionGraph([Region({0}), Region({0})]),
        "must be the child of some partition: region 0 is not",
    ),
    "overlap": (
        lambda: RegionGraph.from_nested(({0, 1}, {1, 2})),
        r"disjoint \(decomposable\): those of region 2 share the variables \{1\}",
    ),
    "overlap before the last child": (
        lambda: RegionGraph.from_nested(({0, 1}, {1, 2}, 3)),
        r"those of region 3 share the variables \{1\}",
    ),
    "repeated child": (
        lambda: RegionGraph([Region({0}), Region({0}, [Partition((0, 0))])]),
        r"region 1 share the variables \{0\}",
    ),
    "not covered": (
        lambda: diamond((0, 1)),
        r"make up their region \(smooth\): region 5 is \{0, 1, 2\}, its children cover \{0, 1\}",
    ),
    "one child": (lambda: Partition((0,)), "at least two children, got 1"),
    "nested one child": (lambda: RegionGraph.from_nested((0, (1,))), "two children, got 1"),
    "nested no child": (lambda: RegionGraph.from_nested((0, ())), "two children, got 0"),
    "text": (lambda: RegionGraph.from_nested((0, "one")), "cannot read 'one' as a region"),
    "fraction": (lambda: RegionGraph.from_nested((0, 1.5)), r"cannot read 1\.5 as a region"),
    "set of text": (lambda: RegionGraph.from_nested((0, {"a"})), r"cannot read \{'a'\}"),
}


@pytest.mark.parametrize(("build", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_wrong_is_refused_with_a_reason(build, message):
    with pytest.raises(ValueError, match=message):
        build()
