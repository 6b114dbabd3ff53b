import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import subtractive as sub
from subtractive.regions.folding import fold, upward


@st.composite
def nested(draw, least=1, most=12):
    """A random tree over the variables 0..d-1 with partitions of two to four children."""
    order = draw(st.permutations(range(draw(st.integers(least, most)))))

    def split(leaves):
        if len(leaves) == 1:
            return leaves[0]
        count = draw(st.integers(2, min(4, len(leaves))))
        cuts = draw(st.permutations(range(1, len(leaves))))[: count - 1]
        ends = [0, *sorted(cuts), len(leaves)]
        return tuple(split(leaves[a:b]) for a, b in zip(ends, ends[1:], strict=False))

    return split(list(order))


def same_label(graph):
    return dict.fromkeys(graph.input_regions, "same")


def read_regions(schedule):
    """For each step, the regions found at the places it reads, by child slot."""
    tensors = [*schedule.leaves, *(step.regions for step in schedule.calls)]
    return [
        [
            [tensors[source][place] for place in places]
            for source, places in zip(step.sources, step.places, strict=True)
        ]
        for step in schedule.calls
    ]


@pytest.mark.parametrize("sum_inputs", [False, True])
@given(tree=nested(), seed=st.integers(0, 3))
@settings(max_examples=60)
def test_every_region_has_one_place_and_reads_its_children(tree, seed, sum_inputs):
    graph = sub.RegionGraph.from_nested(tree)
    labels = {region: region % (seed + 1) for region in graph.input_regions}
    schedule = fold(upward(graph, labels, sum_inputs=sum_inputs))
    split = [r for r, node in enumerate(graph.regions) if node.partitions]
    summed = sum_inputs or not split
    placed = [
        region for regions in (leaf.regions for leaf in schedule.leaves) for region in regions
    ]
    assert sorted(placed) == list(graph.input_regions)
    done = [region for step in schedule.calls for region in step.regions]
    assert sorted(done) == sorted(split + (list(graph.input_regions) if summed else []))
    for regions in (leaf.regions for leaf in schedule.leaves):
        assert len({labels[region] for region in regions}) == 1
    for step, read in zip(schedule.calls, read_regions(schedule), strict=True):
        for at, region in enumerate(step.regions):
            partitions = graph.regions[region].partitions
            expected = partitions[0].children if partitions else (region,)
            assert tuple(slot[at] for slot in read) == expected


@given(tree=nested(), sum_inputs=st.booleans())
@settings(max_examples=60)
def test_children_come_before_parents_and_the_root_last(tree, sum_inputs):
    graph = sub.RegionGraph.from_nested(tree)
    schedule = fold(upward(graph, same_label(graph), sum_inputs=sum_inputs))
    for number, step in enumerate(schedule.calls):
        assert all(source < len(schedule.leaves) + number for source in step.sources)
    assert schedule.calls[-1].regions == (graph.root,)


@given(tree=nested(least=2))
@settings(max_examples=60)
def test_equal_shapes_are_folded(tree):
    graph = sub.RegionGraph.from_nested(tree)
    schedule = fold(upward(graph, same_label(graph)))

    def shape(node):
        return tuple(map(shape, node)) if isinstance(node, tuple) else None

    def subtrees(node):
        return [node, *(s for n in node for s in subtrees(n))] if isinstance(node, tuple) else []

    assert len(schedule.calls) == len({shape(node) for node in subtrees(tree)})


@pytest.mark.parametrize("power", range(1, 8))
def test_balanced_trees_take_one_step_per_level_and_read_slices(power):
    graph = sub.random_binary_tree(2**power, seed=power)
    schedule = fold(upward(graph, same_label(graph)))
    assert len(schedule.leaves) == 1
    assert [len(step.regions) for step in schedule.calls] == [
        2**level for level in reversed(range(power))
    ]
    for step in schedule.calls:
        for places in step.places:
            assert places == tuple(range(places[0], places[0] + len(places)))


@pytest.mark.parametrize("d", [2, 3, 5, 17, 100])
def test_linear_trees_take_one_step_per_partition(d):
    graph = sub.linear_tree(d, seed=d)
    schedule = fold(upward(graph, same_label(graph)))
    assert len(schedule.calls) == d - 1
    assert all(len(step.regions) == 1 for step in schedule.calls)


@pytest.mark.parametrize("d", [3, 5, 6, 7, 9, 23, 100, 1000])
def test_uneven_binary_trees_take_at_most_two_steps_per_level(d):
    graph = sub.random_binary_tree(d, seed=0)
    schedule = fold(upward(graph, same_label(graph)))
    assert graph.depth <= len(schedule.calls) <= 2 * graph.depth


def test_flat_graph_is_one_step_with_one_slot_per_variable():
    schedule = fold(sub.flat(5), dict.fromkeys(range(5), "same"))
    (step,) = schedule.calls
    assert step.sources == (0,) * 5
    assert [len(places) for places in step.places] == [1] * 5


def test_a_single_region_gets_a_sum():
    schedule = fold(upward(sub.flat(1), {0: "same"}))
    assert schedule.leaves == ((0,),)
    (step,) = schedule.calls
    assert step.regions == (0,)
    assert step.sources == (0,)


def test_different_labels_keep_equal_shapes_apart():
    graph = sub.RegionGraph.from_nested(((0, 1), (2, 3)))
    variables = {region: min(graph.regions[region].scope) for region in graph.input_regions}
    by_half = fold(upward(graph, {region: v // 2 for region, v in variables.items()}))
    assert len(by_half.inputs) == 2
    assert [len(step.regions) for step in by_half.calls] == [1, 1, 1]
    by_side = fold(upward(graph, {region: v % 2 for region, v in variables.items()}))
    assert len(by_side.inputs) == 2
    assert [len(step.regions) for step in by_side.calls] == [2, 1]


def test_sums_over_inputs_are_steps_of_one_child():
    graph = sub.random_binary_tree(4, seed=0)
    schedule = fold(upward(graph, same_label(graph), sum_inputs=True))
    assert [len(step.sources) for step in schedule.calls] == [1, 2, 2]
    assert sorted(schedule.calls[0].regions) == list(graph.input_regions)
