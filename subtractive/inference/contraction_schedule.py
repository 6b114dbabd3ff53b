"""Where the messages of a marginal should meet: the cheapest root of the region tree.

A square is linear in the form that each side of a region contributes, so that messages need not
end at the root. An observed side sends a vector for each row, a missing one a gram for all rows,
both at little cost; a gram for each row costs K³. Which regions must send one depends on
where messages meet: none must on a linear tree of which one end is observed.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import reduce

from subtractive.circuits.circuit import Circuit
from subtractive.regions.folding import (
    ABOVE_ROOT,
    CONTRACTION,
    TRANSPOSED,
    FoldedSchedule,
    Node,
    fold,
)

# What a message is: the same for all rows and a vector, then as flags: a vector for each row, a
# gram for all rows. Both together are a gram for each row.
_CONSTANT, _VECTOR, _SHARED, _MIXED = 0, 1, 2, 3


def contraction_schedule(
    circuit: Circuit, schedule: FoldedSchedule, *, observed: Hashable, missing: Hashable
) -> FoldedSchedule:
    """The schedule with its messages sent to where they meet at least cost.

    It stays as it is where nothing is mixed, or where a product is not element-wise.
    """
    kinds = {observed: _VECTOR, missing: _SHARED}
    labels = {region: call.label for call in schedule.leaves for region in call.regions}
    found = {kinds.get(label, _MIXED) for label in labels.values()}
    if reduce(int.__or__, found) != _MIXED:
        return schedule
    if not all(layer.is_elementwise for layer in circuit.sum_layers):
        return schedule
    nodes = circuit.nodes(labels)
    up = [kinds.get(node.kind, _MIXED) for node in nodes]
    for number, node in enumerate(nodes):
        if node.children:
            up[number] = reduce(int.__or__, (up[child] for child in node.children))
    return fold(reroot(nodes, contraction_root(circuit, nodes, up)), circuit.places)


def contraction_root(circuit: Circuit, nodes: Sequence[Node], up: Sequence[int]) -> int:
    """The node at which messages meet at least cost, given what each node sends ``up``."""
    last = len(nodes) - 1
    above = [_CONSTANT] * len(nodes)  # what comes down to each node
    above[last] = _CONSTANT if circuit.num_outputs == 1 else _SHARED
    costs = [0] * len(nodes)  # of a meeting at each node, relative to one at the root
    best = last
    for number in range(last, -1, -1):
        for child in nodes[number].children:
            if not nodes[child].children or up[child] != _MIXED:
                continue
            siblings = (up[other] for other in nodes[number].children if other != child)
            above[child] = reduce(int.__or__, siblings, above[number])
            size = _num_weights(circuit, nodes[child].region)
            costs[child] = costs[number] + (_cost(above[child]) - _cost(_MIXED)) * size
            best = child if costs[child] < costs[best] else best
    return best


def reroot(nodes: Sequence[Node], centre: int) -> list[Node]:
    """The same tree with its messages sent to the node ``centre`` instead of the last one.

    Messages on the way from the old root go down. All products must be element-wise; what arrives
    at the centre is multiplied and summed over all units.
    """
    parents = {child: n for n, node in enumerate(nodes) for child in node.children}
    path = [centre]  # from the centre to the old root
    while path[-1] in parents:
        path.append(parents[path[-1]])
    number: dict[int, int] = {}  # old node -> new node
    result: list[Node] = []
    turned = set(path)
    for old, node in enumerate(nodes):
        if old not in turned:
            children = tuple(number[child] for child in node.children)
            number[old] = len(result)
            result.append(node._replace(children=children))
    result.append(Node(nodes[path[-1]].region, (), ABOVE_ROOT))
    arriving: tuple[int, ...] = ()  # at the node before, but for what it sends down to this one
    for old in reversed(path):
        result.append(Node(nodes[old].region, (len(result) - 1, *arriving), TRANSPOSED))
        arriving = tuple(number[child] for child in nodes[old].children if child in number)
    result.append(Node(nodes[centre].region, (len(result) - 1, *arriving), CONTRACTION))
    return result


def _cost(kind: int) -> int:
    """The order of what a sum costs: a gram for each row is all that counts."""
    return 1 if kind == _MIXED else 0


def _num_weights(circuit: Circuit, region: int) -> int:
    """The number of weights of a region."""
    _, outputs, inputs = circuit.weight_shapes[circuit.places.sums[region][0]]
    return outputs * inputs
