import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import subtractive as sub
from subtractive.inference.contraction_schedule import reroot
from subtractive.regions.folding import (
    ABOVE_ROOT,
    CHECKED_EVERY,
    CONTRACTION,
    RESCALED_EVERY,
    SUM,
    TRANSPOSED,
    Places,
    fold,
    upward,
)


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
    """For each call, the regions found at the places it reads, by child slot."""
    tensors = [call.regions for call in (*schedule.leaves, *schedule.calls)]
    return [
        [tensors[source][places] for source, places in zip(call.sources, call.places, strict=True)]
        for call in schedule.calls
    ]


@pytest.mark.parametrize("every", [0, 1, 2])
@given(tree=nested(), seed=st.integers(0, 3))
@settings(max_examples=60)
def test_every_region_has_one_place_and_reads_its_children(tree, seed, every):
    graph = sub.RegionGraph.from_nested(tree)
    labels = {region: region % (seed + 1) for region in graph.input_regions}
    summed = graph.input_regions[::every] if every else ()
    schedule = fold(upward(graph, labels, summed=summed))
    split = [r for r, node in enumerate(graph.regions) if node.partitions]
    with_sums = summed if split else graph.input_regions
    placed = [region for leaf in schedule.leaves for region in leaf.regions]
    assert sorted(placed) == list(graph.input_regions)
    done = [region for call in schedule.calls for region in call.regions]
    assert sorted(done) == sorted([*split, *with_sums])
    for leaf in schedule.leaves:
        assert {labels[region] for region in leaf.regions} == {leaf.label}
    for call, read in zip(schedule.calls, read_regions(schedule), strict=True):
        for at, region in enumerate(call.regions):
            partitions = graph.regions[region].partitions
            expected = partitions[0].children if partitions else (region,)
            assert tuple(slot[at] for slot in read) == expected


@given(tree=nested(), sum_inputs=st.booleans())
@settings(max_examples=60)
def test_children_come_before_parents_and_the_root_last(tree, sum_inputs):
    graph = sub.RegionGraph.from_nested(tree)
    summed = graph.input_regions if sum_inputs else ()
    schedule = fold(upward(graph, same_label(graph), summed=summed))
    for number, call in enumerate(schedule.calls):
        assert all(source < len(schedule.leaves) + number for source in call.sources)
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
def test_balanced_trees_take_one_call_per_level(power):
    graph = sub.random_binary_tree(2**power, seed=power)
    schedule = fold(upward(graph, same_label(graph)))
    assert len(schedule.leaves) == 1
    assert [len(call.regions) for call in schedule.calls] == [
        2**level for level in reversed(range(power))
    ]


@pytest.mark.parametrize("d", [2, 3, 5, 17, 100])
def test_linear_trees_take_one_call_per_partition(d):
    graph = sub.linear_tree(d, seed=d)
    schedule = fold(upward(graph, same_label(graph)))
    assert len(schedule.calls) == d - 1
    assert all(len(call.regions) == 1 for call in schedule.calls)


@pytest.mark.parametrize("d", [3, 5, 6, 7, 9, 23, 100, 1000])
def test_uneven_binary_trees_take_at_most_two_calls_per_level(d):
    graph = sub.random_binary_tree(d, seed=0)
    schedule = fold(upward(graph, same_label(graph)))
    assert graph.depth <= len(schedule.calls) <= 2 * graph.depth


def test_flat_graph_is_one_call_with_one_slot_per_variable():
    schedule = fold(upward(sub.flat(5), dict.fromkeys(range(5), "same")))
    (call,) = schedule.calls
    assert call.sources == (0,) * 5
    assert call.places == tuple(slice(k, k + 1) for k in range(5))


def test_a_single_region_gets_a_sum():
    schedule = fold(upward(sub.flat(1), {0: "same"}))
    (leaf,) = schedule.leaves
    assert leaf.regions == (0,)
    (call,) = schedule.calls
    assert call.regions == (0,)
    assert call.sources == (0,)


def test_different_labels_keep_equal_shapes_apart():
    graph = sub.RegionGraph.from_nested(((0, 1), (2, 3)))
    variables = {region: min(graph.regions[region].scope) for region in graph.input_regions}
    by_half = fold(upward(graph, {region: v // 2 for region, v in variables.items()}))
    assert len(by_half.leaves) == 2
    assert [len(call.regions) for call in by_half.calls] == [1, 1, 1]
    by_side = fold(upward(graph, {region: v % 2 for region, v in variables.items()}))
    assert len(by_side.leaves) == 2
    assert [len(call.regions) for call in by_side.calls] == [2, 1]


def test_sums_over_inputs_are_calls_of_one_child():
    graph = sub.random_binary_tree(4, seed=0)
    schedule = fold(upward(graph, same_label(graph), summed=graph.input_regions))
    assert [len(call.sources) for call in schedule.calls] == [1, 2, 2]
    assert sorted(schedule.calls[0].regions) == list(graph.input_regions)


@given(tree=nested(), seed=st.integers(0, 3), sum_inputs=st.booleans())
@settings(max_examples=60)
def test_readers_share_each_tensor_without_gaps(tree, seed, sum_inputs):
    graph = sub.RegionGraph.from_nested(tree)
    labels = {region: region % (seed + 1) for region in graph.input_regions}
    schedule = fold(upward(graph, labels, summed=graph.input_regions if sum_inputs else ()))
    tensors = [*schedule.leaves, *schedule.calls]
    for call, parts in zip(tensors[:-1], schedule.parts[:-1], strict=True):
        ends = [0, *(part.stop for part in parts)]
        assert [part.start for part in parts] == ends[:-1]
        assert ends[-1] == len(call.regions)
    assert schedule.parts[-1] == ()


@given(tree=nested(), seed=st.integers(1, 3), sum_inputs=st.booleans())
@settings(max_examples=60)
def test_a_circuit_folded_for_other_labels_finds_its_regions(tree, seed, sum_inputs):
    graph = sub.RegionGraph.from_nested(tree)
    summed = graph.input_regions[::2] if sum_inputs else ()
    built = fold(upward(graph, same_label(graph), summed=summed))
    labels = {region: region % (seed + 1) for region in graph.input_regions}
    other = fold(upward(graph, labels, summed=summed), Places.of(built))
    for made, asked in ((built.leaves, other.leaves), (built.calls, other.calls)):
        for call in asked:
            layer = np.array(made[call.layer].regions)
            assert tuple(layer[call.folds]) == call.regions


@given(tree=nested(least=2), sum_inputs=st.booleans(), data=st.data())
@settings(max_examples=60)
def test_a_tree_with_another_root_sends_every_message_once(tree, sum_inputs, data):
    graph = sub.RegionGraph.from_nested(tree)
    summed = graph.input_regions[::2] if sum_inputs else ()
    nodes = upward(graph, same_label(graph), summed=summed)
    inner = [number for number, node in enumerate(nodes) if node.children]
    centre = data.draw(st.sampled_from(inner))
    turned = reroot(nodes, centre)
    read = [child for node in turned for child in node.children]
    assert sorted(read) == list(range(len(turned) - 1))  # every message but the last, once
    assert all(child < number for number, node in enumerate(turned) for child in node.children)
    assert turned[-1].kind == CONTRACTION
    assert turned[-1].region == nodes[centre].region
    kinds = [node.kind for node in turned]
    assert kinds.count(ABOVE_ROOT) == kinds.count(CONTRACTION) == 1
    # Each sum is used once, upwards or downwards.
    used = sorted(node.region for node in turned if node.kind in (SUM, TRANSPOSED))
    assert used == sorted(node.region for node in nodes if node.kind == SUM)
    leaves = sorted(node.region for node in turned if node.kind == "same")
    assert leaves == list(graph.input_regions)


def test_messages_are_rescaled_and_checked_in_turn():
    graph = sub.linear_tree(30)
    schedule = fold(upward(graph, same_label(graph)))
    number = len(schedule.calls)
    for flags, every in (
        (schedule.is_rescaled, RESCALED_EVERY),
        (schedule.is_checked, CHECKED_EVERY),
    ):
        assert [k for k in range(number) if flags[k]] == sorted(
            {*range(every - 1, number, every), number - 1}
        )


def test_one_label_for_all_leaves_keeps_the_schedule():
    graph = sub.random_binary_tree(5)
    schedule = fold(upward(graph, same_label(graph)))
    renamed = schedule.with_label("observed")
    assert {leaf.label for leaf in renamed.leaves} == {"observed"}
    assert renamed.calls == schedule.calls
