"""Binary, linear, quad and flat region trees."""

import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subtractive.regions.trees import flat, linear_tree, quad_tree, random_binary_tree

TREES = {"binary": random_binary_tree, "linear": linear_tree, "flat": flat}
GROUPS = [[4, 1], [2], [0, 5, 3], [6]]
sizes = st.integers(1, 60)
seeds = st.integers(0, 2**32 - 1)


def splits(graph):
    """The scopes of the children of every partition."""
    return [
        [graph.regions[child].scope for child in region.partitions[0].children]
        for region in graph.regions
        if region.partitions
    ]


def levels(graph):
    """The sizes of the regions, by distance from the root."""
    found, level = [], [graph.root]
    while level:
        found.append([len(graph.regions[i].scope) for i in level])
        level = [c for i in level for p in graph.regions[i].partitions for c in p.children]
    return found


def shape(nested):
    return tuple(map(shape, nested)) if isinstance(nested, tuple) else "leaf"


def input_scopes(graph):
    return Counter(graph.regions[i].scope for i in graph.input_regions)


@pytest.mark.parametrize("build", TREES.values(), ids=TREES)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_every_tree_has_one_input_region_per_variable(build, size):
    graph = build(size)
    assert graph.is_tree
    assert graph.num_variables == size
    assert input_scopes(graph) == Counter(frozenset([i]) for i in range(size))


@pytest.mark.parametrize("build", TREES.values(), ids=TREES)
def test_every_tree_takes_groups_of_variables(build):
    graph = build(GROUPS)
    assert graph.is_tree
    assert graph.num_variables == 7
    assert input_scopes(graph) == Counter(map(frozenset, GROUPS))


@pytest.mark.parametrize("build", TREES.values(), ids=TREES)
def test_a_single_group_is_a_single_region(build):
    assert build([[0, 1, 2]]).to_nested() == {0, 1, 2}
    assert build(1).to_nested() == 0


@pytest.mark.parametrize("build", TREES.values(), ids=TREES)
def test_numpy_numbers_are_numbers(build):
    assert build(np.int64(5)) == build(5)
    assert build(np.arange(6).reshape(3, 2)) == build([[0, 1], [2, 3], [4, 5]])


@given(sizes, seeds)
def test_binary_splits_are_even_with_the_smaller_half_first(size, seed):
    for first, second in splits(random_binary_tree(size, seed=seed)):
        assert 0 <= len(second) - len(first) <= 1


@given(sizes, seeds)
def test_regions_of_one_level_differ_by_one_variable_at_most(size, seed):
    graph = random_binary_tree(size, seed=seed)
    assert all(max(level) - min(level) <= 1 for level in levels(graph))
    assert graph.depth == (size - 1).bit_length()


@given(sizes, seeds, seeds)
def test_binary_trees_of_one_size_have_one_shape(size, seed, other):
    tree, same = random_binary_tree(size, seed), random_binary_tree(size, other)
    assert shape(tree.to_nested()) == shape(same.to_nested())


@given(st.integers(1, 12), seeds, st.data())
def test_of_two_halves_with_as_many_groups_the_one_with_fewer_variables_is_first(
    num_groups, seed, data
):
    lengths = data.draw(st.lists(st.integers(1, 4), min_size=num_groups, max_size=num_groups))
    ends = np.cumsum(lengths)
    groups = [range(end - length, end) for end, length in zip(ends, lengths, strict=True)]
    graph = random_binary_tree(groups, seed)
    inputs = [graph.regions[i].scope for i in graph.input_regions]
    for children in splits(graph):
        keys = [(sum(i <= child for i in inputs), len(child)) for child in children]
        assert keys == sorted(keys)
        assert keys[1][0] - keys[0][0] <= 1


def test_the_seed_decides_the_binary_tree():
    assert random_binary_tree(20, seed=1) == random_binary_tree(20, 1)
    assert len({random_binary_tree(20, seed=seed) for seed in range(10)}) == 10


def test_every_pair_of_variables_meets_first_in_a_random_place():
    """Chi-square over the three ways to pair four variables; false-alarm rate 0.001."""
    pairings = Counter(
        frozenset(splits(random_binary_tree(4, seed=seed))[-1]) for seed in range(600)
    )
    assert len(pairings) == 3
    statistic = sum((count - 200) ** 2 / 200 for count in pairings.values())
    assert statistic < 13.8


@given(sizes)
def test_a_linear_tree_splits_off_the_variables_in_order(size):
    found = splits(linear_tree(size))[::-1]  # from the root down
    assert found == [[{i}, set(range(i + 1, size))] for i in range(size - 1)]


def test_a_linear_tree_follows_a_given_order():
    assert linear_tree(4, order=[2, 0, 3, 1]).to_nested() == (2, (0, (3, 1)))
    assert linear_tree(4, order=np.array([2, 0, 3, 1])) == linear_tree(4, order=(2, 0, 3, 1))
    assert linear_tree(GROUPS, order=[3, 1, 0, 2]).to_nested() == (6, (2, ({1, 4}, {0, 3, 5})))


@given(sizes, seeds)
def test_a_seed_shuffles_a_linear_tree(size, seed):
    graph = linear_tree(size, seed=seed)
    order = np.random.default_rng(seed).permutation(size)
    assert graph == linear_tree(size, order=order)
    assert graph.depth == size - 1


def test_linear_trees_of_different_seeds_differ():
    assert len({linear_tree(20, seed=seed) for seed in range(10)}) == 10


def test_a_linear_tree_of_3000_variables_is_built_and_drawn_at_once():
    start = time.perf_counter()
    graph = linear_tree(3000)
    drawn, source = str(graph), graph.to_dot()
    assert time.perf_counter() - start < 5
    assert graph.depth == 2999
    assert drawn.startswith("{0, 1, 2, 3, 4, 5, 6, …, 2999: 3000 variables}\n├── {0}\n└── {1,")
    assert source.count("->") == 3 * 2999


def test_a_flat_graph_is_one_product():
    assert flat(5).to_nested() == (0, 1, 2, 3, 4)
    assert flat([[0, 1], [2], [3, 4]]).to_nested() == ({0, 1}, 2, {3, 4})
    assert flat(100).depth == 1


@pytest.mark.parametrize("build", TREES.values(), ids=TREES)
@pytest.mark.parametrize("number", [0, -3, 2.0, None])
def test_the_number_of_variables_must_be_positive(build, number):
    with pytest.raises(ValueError, match="expected a positive number of variables, or groups"):
        build(number)


@pytest.mark.parametrize("build", TREES.values(), ids=TREES)
@pytest.mark.parametrize("groups", [[], [[]], [[0], []]])
def test_groups_must_not_be_empty(build, groups):
    with pytest.raises(ValueError, match="one or more groups, none of them empty"):
        build(groups)


@pytest.mark.parametrize("build", TREES.values(), ids=TREES)
@pytest.mark.parametrize("groups", [[[0, 0]], [[0], [0, 1]], [[0], [2]], [[1], [2]], [[-1], [0]]])
def test_groups_must_hold_every_variable_once(build, groups):
    with pytest.raises(ValueError, match="each of the variables 0..d-1 exactly once"):
        build(groups)


@pytest.mark.parametrize("order", [[0, 1], [0, 1, 1], [1, 2, 3], []])
def test_an_order_must_be_a_permutation(order):
    with pytest.raises(ValueError, match=r"a permutation of 0\.\.2, one entry per input region"):
        linear_tree(3, order=order)


def test_an_order_and_a_seed_contradict_each_other():
    with pytest.raises(ValueError, match="either an order or a seed"):
        linear_tree(3, order=[0, 1, 2], seed=0)


@pytest.mark.parametrize("build", TREES.values(), ids=TREES)
def test_groups_without_brackets_are_refused(build):
    with pytest.raises(
        ValueError, match=r"expected groups of variables such as \[\[0, 1\], \[2\]\]"
    ):
        build([0, 1, 2])


@given(st.integers(1, 9), st.integers(1, 9), st.sampled_from([2, 4]))
def test_regions_of_quad_trees_are_rectangles(height, width, num_children):
    graph = quad_tree(height, width, num_children=num_children)
    assert graph.is_tree
    assert graph.num_variables == height * width
    for region in graph.regions:
        rows, columns = zip(*(divmod(v, width) for v in region.scope), strict=True)
        sides = [max(side) - min(side) + 1 for side in (rows, columns)]
        assert sides[0] * sides[1] == len(region.scope)
        assert all(len(p.children) in (2, num_children) for p in region.partitions)


@pytest.mark.parametrize("num_children", [2, 4])
@pytest.mark.parametrize("height", [4, 8])
def test_quad_trees_of_squares_split_into_equal_parts(height, num_children):
    graph = quad_tree(height, height, num_children=num_children)
    assert all(len(set(map(len, scopes))) == 1 for scopes in splits(graph))
    assert all(len(scopes) == num_children for scopes in splits(graph))
    assert graph.depth == (height.bit_length() - 1) * (2 if num_children == 2 else 1)


def test_quad_trees_are_in_the_order_of_their_pixels():
    assert quad_tree(2, 3).to_nested() == (0, (1, 2), 3, (4, 5))
    assert quad_tree(3, 2, num_children=2).to_nested() == ((0, 1), ((2, 3), (4, 5)))
    assert quad_tree(1, 1).to_nested() == 0
    assert quad_tree(1, 3).to_nested() == (0, (1, 2))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((2, 2, 3), "has 2 or 4 children, got num_children=3"),
        ((0, 2, 4), "expected a positive number"),
        ((2, 1.5, 4), "expected a positive number"),
    ],
)
def test_impossible_quad_trees_are_refused(arguments, message):
    height, width, num_children = arguments
    with pytest.raises(ValueError, match=message):
        quad_tree(height, width, num_children=num_children)
