import pytest
from registry import GRAPHS

import subtractive as sub


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_readers_share_each_tensor_without_gaps(graph):
    circuit = sub.Circuit(graph(7), sub.Gaussian(), num_units=2, seed=0)
    regions = circuit.graph.input_regions
    for labels in (dict.fromkeys(regions), {r: r % 2 for r in regions}):
        route = circuit.route(labels)
        schedule = route.schedule
        tensors = [*schedule.leaves, *(step.regions for step in schedule.calls)]
        for members, parts in zip(tensors[:-1], route.parts[:-1], strict=True):
            ends = [0, *(part.stop for part in parts)]
            assert [part.start for part in parts] == ends[:-1]
            assert ends[-1] == len(members)
        assert route.parts[-1] == ()


def test_one_label_for_all_inputs_is_the_straight_way():
    circuit = sub.Circuit(sub.random_binary_tree(5), sub.Gaussian(), num_units=2, seed=0)
    route = circuit.route(dict.fromkeys(circuit.graph.input_regions, "observed"))
    assert route.schedule is circuit.straight.schedule
    assert {entry.label for entry in route.entries} == {"observed"}
