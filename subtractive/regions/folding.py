"""The schedule of a circuit, folded into few tensors, and the traversal of its messages.

Messages are nodes of a tree: one for each input region, one for each sum. (Nodes of other graphs
have several readers; see :mod:`subtractive.regions.graph_traversal`.) Nodes whose children
live in the same tensors are evaluated together, as one tensor with a region axis ``f``. Equally
shaped subtrees therefore cost one matrix product per level.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, TypeVar

from subtractive.regions.graph import RegionGraph

Index = slice | list[int]


class Splittable(Protocol):
    """A message that can be split into those of consecutive groups of regions."""

    def split(self, sizes: list[int], /) -> Sequence[Any]:
        """The messages of consecutive groups of these sizes."""


M = TypeVar("M", bound=Splittable)
Piece = tuple[int, int]  # a tensor, and the first region of a part that one call reads
Waiting = dict[Piece, M]

# What a node does with the product of its children: W p, Wᵀ p, or nothing.
SUM, TRANSPOSED, CONTRACTION = "sum", "transposed sum", "contraction"
# The sum over the products of several partitions, whose children follow each other.
SUM_OF_PARTITIONS = "sum over partitions"
# Messages are rescaled after so many calls in a row, because each call may square the range of
# their exponents, and checked for underflow after so many.
RESCALED_EVERY, CHECKED_EVERY = 2, 8
# The label of the leaf above the root: the square is summed over the root's outputs.
ABOVE_ROOT = "above the root"


class Node(NamedTuple):
    """A message: of an input region if it has no children, else of the product of its children.

    ``kind`` is the label of a leaf, or says what happens to the product, with the weights of
    ``region``.
    """

    region: int
    children: tuple[int, ...]
    kind: Hashable


class LeafCall(NamedTuple):
    """Some regions of one input layer: ``folds`` are their places in it."""

    regions: tuple[int, ...]
    layer: int
    folds: Index
    label: Hashable


class LayerCall(NamedTuple):
    """Some regions of one layer, and for each child slot ``h`` where to read their children."""

    regions: tuple[int, ...]
    layer: int
    folds: Index
    sources: tuple[int, ...]  # (h,): leaves are numbered first, then the calls
    places: tuple[slice, ...]  # (h,)
    kind: Hashable = SUM
    picks: tuple[list[int], ...] = ()  # (h,), in place of slices where there are other readers

    @property
    def reads(self) -> tuple[Index, ...]:
        """Where to read the children of each slot, whether or not others read them, too."""
        return self.picks or self.places


@dataclass(frozen=True)
class FoldedSchedule:
    """The leaves, then the calls, children before parents: each makes one tensor.

    In a tree every node has one parent: each tensor falls into the consecutive ``parts`` that its
    readers take.
    """

    leaves: tuple[LeafCall, ...]
    calls: tuple[LayerCall, ...]
    parts: tuple[tuple[slice, ...], ...] = field(compare=False)
    only_leaves: tuple[tuple[bool, ...], ...] = field(compare=False)  # of the reader of each part
    is_rescaled: tuple[bool, ...] = field(compare=False)  # of each call
    is_checked: tuple[bool, ...] = field(compare=False)  # of each call
    is_tree: bool = field(default=True, compare=False)  # whether each message has one reader

    def with_label(self, label: Hashable) -> FoldedSchedule:
        """The same schedule with one label for all leaves."""
        leaves = tuple(leaf._replace(label=label) for leaf in self.leaves)
        return replace(self, leaves=leaves)


class Places(NamedTuple):
    """Where each region is stored: (number of the layer, place in it)."""

    inputs: Mapping[int, tuple[int, int]]
    sums: Mapping[int, tuple[int, int]]

    @classmethod
    def of(cls, schedule: FoldedSchedule) -> Places:
        """The places in the layers of a circuit that was built by a schedule."""
        return cls(
            _numbered([leaf.regions for leaf in schedule.leaves]),
            _numbered([call.regions for call in schedule.calls]),
        )


def upward(
    graph: RegionGraph, labels: Mapping[int, Hashable], *, summed: Collection[int] = ()
) -> list[Node]:
    """The nodes whose messages go from the input regions to the root, children first.

    A sum follows each input region that is among those ``summed``, and that is the whole graph:
    a node with a single child.
    """
    nodes: list[Node] = []
    last: dict[int, int] = {}  # region -> its last node
    for region, node in enumerate(graph.regions):
        if node.partitions:
            children = tuple(last[c] for part in node.partitions for c in part.children)
            kind = SUM if len(node.partitions) == 1 else SUM_OF_PARTITIONS
            nodes.append(Node(region, children, kind))
        else:
            nodes.append(Node(region, (), labels[region]))
            if region in summed or region == graph.root:
                nodes.append(Node(region, (len(nodes) - 1,), SUM))
        last[region] = len(nodes) - 1
    return nodes


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


def fold(nodes: Sequence[Node], places: Places | None = None) -> FoldedSchedule:
    """Group nodes into tensors.

    ``places`` are those of the circuit that shall be evaluated; without them its layers are to be
    made, one for each tensor.
    """
    home = [0] * len(nodes)  # node -> the tensor with its message
    members: list[list[int]] = []
    tensors: dict[Hashable, int] = {}
    for is_leaf in (True, False):  # leaves are numbered first
        for number, node in enumerate(nodes):
            if bool(node.children) == is_leaf:
                continue
            key = _layer_of(node, places), node.kind, tuple(home[c] for c in node.children)
            if key not in tensors:
                tensors[key] = len(members)
                members.append([])
            home[number] = tensors[key]
            members[home[number]].append(number)
    is_tree = not any(node.children and node.kind is SUM_OF_PARTITIONS for node in nodes)
    ordered = _in_reading_order(members, nodes, home) if is_tree else members
    at = {node: place for tensor in ordered for place, node in enumerate(tensor)}
    leaves: list[LeafCall] = []
    calls: list[LayerCall] = []
    for tensor in ordered:
        first = nodes[tensor[0]]
        regions = tuple(nodes[number].region for number in tensor)
        if not first.children:
            layer, folds = _located(regions, places and places.inputs, len(leaves))
            leaves.append(LeafCall(regions, layer, folds, first.kind))
            continue
        layer, folds = _located(regions, places and places.sums, len(calls))
        sources = tuple(home[child] for child in first.children)
        if not is_tree:
            slots = zip(*(nodes[number].children for number in tensor), strict=True)
            picks = tuple([at[child] for child in slot] for slot in slots)
            calls.append(LayerCall(regions, layer, folds, sources, (), first.kind, picks))
            continue
        begins = [at[child] for child in first.children]
        read = tuple(slice(begin, begin + len(tensor)) for begin in begins)
        calls.append(LayerCall(regions, layer, folds, sources, read, first.kind))
    if not is_tree:
        return FoldedSchedule(tuple(leaves), tuple(calls), (), (), (), (), is_tree=False)
    read_parts = _parts(calls, len(ordered))
    return FoldedSchedule(
        tuple(leaves),
        tuple(calls),
        tuple(tuple(part for part, _ in parts) for parts in read_parts),
        tuple(
            tuple(all(source < len(leaves) for source in call.sources) for _, call in parts)
            for parts in read_parts
        ),
        _in_turn(calls, len(leaves), RESCALED_EVERY),
        _in_turn(calls, len(leaves), CHECKED_EVERY),
    )


def _in_turn(calls: Sequence[LayerCall], num_leaves: int, every: int) -> tuple[bool, ...]:
    """Whether a call is the last of ``every`` calls in a row, or the root."""
    ages, turns = [0] * num_leaves, []
    for call in calls:
        age = 1 + max(ages[source] for source in call.sources)
        turns.append(age >= every or call is calls[-1])
        ages.append(0 if turns[-1] else age)
    return tuple(turns)


def _layer_of(node: Node, places: Places | None) -> int | None:
    """Nodes of different layers are not evaluated together."""
    if places is None or node.kind in (ABOVE_ROOT, CONTRACTION):
        return None
    return (places.sums if node.children else places.inputs)[node.region][0]


def _located(
    regions: Sequence[int], places: Mapping[int, tuple[int, int]] | None, number: int
) -> tuple[int, Index]:
    """The layer of some regions and their places in it; a slice where they are consecutive."""
    if places is None or regions[0] not in places:
        return number, slice(0, len(regions))
    at = [places[region][1] for region in regions]
    is_consecutive = at == list(range(at[0], at[0] + len(at)))
    return places[regions[0]][0], slice(at[0], at[0] + len(at)) if is_consecutive else at


def _numbered(tensors: Sequence[Sequence[int]]) -> dict[int, tuple[int, int]]:
    return {r: (k, at) for k, regions in enumerate(tensors) for at, r in enumerate(regions)}


def _in_reading_order(
    members: Sequence[Sequence[int]], nodes: Sequence[Node], home: Sequence[int]
) -> list[list[int]]:
    """Order each tensor as its readers read it, so that reading is a slice and not a copy."""
    ordered: list[dict[int, None]] = [{} for _ in members]
    ordered[-1] = dict.fromkeys(members[-1])
    for tensor in reversed(range(len(members))):
        some = next(iter(ordered[tensor]))
        for h in range(len(nodes[some].children)):
            for number in ordered[tensor]:
                child = nodes[number].children[h]
                ordered[home[child]][child] = None
    return [list(numbers) for numbers in ordered]


def _parts(calls: Sequence[LayerCall], num_tensors: int) -> list[list[tuple[slice, LayerCall]]]:
    """The parts of each tensor, in their order, and the call that reads each."""
    read: list[list[tuple[slice, LayerCall]]] = [[] for _ in range(num_tensors)]
    for call in calls:
        for source, places in zip(call.sources, call.places, strict=True):
            read[source].append((places, call))
    return [sorted(parts, key=lambda part: part[0].start) for parts in read]


def traverse(
    schedule: FoldedSchedule,
    waiting: Mapping[Piece, M],
    rule: Callable[[int, Sequence[M]], M],
    calls: Iterable[int] | None = None,
) -> Waiting[M]:
    """Send messages through some calls, or through all, and return those that were not read.

    ``rule(number, children)`` makes the message of a call. What was read is dropped.
    """
    left = dict(waiting)
    for number in range(len(schedule.calls)) if calls is None else calls:
        call = schedule.calls[number]
        children = [
            left.pop((source, places.start))
            for source, places in zip(call.sources, call.places, strict=True)
        ]
        left.update(_pieces(schedule, len(schedule.leaves) + number, rule(number, children)))
    return left


def waiting_leaves(schedule: FoldedSchedule, leaves: Sequence[M]) -> Waiting[M]:
    """The leaves in the pieces in which they are read."""
    waiting: Waiting[M] = {}
    for tensor, leaf in enumerate(leaves):
        waiting.update(_pieces(schedule, tensor, leaf))
    return waiting


def root_of(schedule: FoldedSchedule, left: Mapping[Piece, M]) -> M:
    """The root's message."""
    return left[len(schedule.leaves) + len(schedule.calls) - 1, 0]


def _pieces(schedule: FoldedSchedule, tensor: int, message: M) -> Waiting[M]:
    """A tensor in the parts that its readers take; the root is one piece."""
    parts = schedule.parts[tensor]
    if len(parts) < 2:
        return {(tensor, 0): message}
    pieces = split(message, [part.stop - part.start for part in parts])
    return {(tensor, part.start): piece for part, piece in zip(parts, pieces, strict=True)}


def split(message: M, sizes: Sequence[int]) -> Sequence[M]:
    """A message in consecutive groups of regions."""
    # Not sliced: in the backward pass the parts are joined, not added to zeros.
    return [message] if len(sizes) == 1 else message.split(list(sizes))
