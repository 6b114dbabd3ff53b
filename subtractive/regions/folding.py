"""The schedule of a circuit, folded into few tensors, and the traversal of its messages.

Messages are nodes of a graph: one for each input region, one for each sum. Nodes whose children
live in the same tensors are evaluated together, as one tensor with a region axis ``f``. Equally
shaped subtrees therefore cost one matrix product per level.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeVar

from subtractive.regions.graph import RegionGraph

Index = slice | list[int]


class Divisible(Protocol):
    """A message of several regions."""

    def split(self, sizes: list[int], /) -> Sequence[Any]:
        """The messages of consecutive groups of these sizes."""

    def take(self, index: Index, /) -> Any:  # noqa: ANN401 - a message of the same kind
        """The messages of some regions."""


M = TypeVar("M", bound=Divisible)
Part = tuple[int, int]  # a tensor, and the number of a part of it that one call reads

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
    reads: tuple[Part, ...]  # (h,)
    places: tuple[Index, ...]  # (h,): where these parts are in their tensors
    kind: Hashable = SUM

    @property
    def sources(self) -> tuple[int, ...]:
        """The tensors that hold the children, (h,): leaves are numbered first, then the calls."""
        return tuple(tensor for tensor, _ in self.reads)


@dataclass(frozen=True)
class FoldedSchedule:
    """The leaves, then the calls, children before parents: each makes one tensor.

    A tensor falls into ``parts``, one for each time that it is read. In a tree they are
    consecutive and do not overlap, because every node has one parent.
    """

    leaves: tuple[LeafCall, ...]
    calls: tuple[LayerCall, ...]
    parts: tuple[tuple[Index, ...], ...] = field(compare=False)  # of each tensor
    is_rescaled: tuple[bool, ...] = field(compare=False)  # of each call
    is_checked: tuple[bool, ...] = field(compare=False)  # of each call
    is_tree: bool = field(default=True, compare=False)  # whether each message has one reader

    @cached_property
    def sizes(self) -> tuple[list[int], ...]:
        """The numbers of regions in the parts of each tensor of a tree."""
        return tuple(
            [part.stop - part.start for part in parts if isinstance(part, slice)]
            for parts in self.parts
        )

    @cached_property
    def among_leaves(self) -> frozenset[Part]:
        """The parts of leaves that are read together with other leaves only."""
        last = len(self.leaves)
        together = (c.reads for c in self.calls if all(source < last for source in c.sources))
        return frozenset(part for reads in together for part in reads)

    def with_label(self, label: Hashable) -> FoldedSchedule:
        """The same schedule with one label for all leaves."""
        return replace(self, leaves=tuple(leaf._replace(label=label) for leaf in self.leaves))

    def repeated(self, count: int) -> FoldedSchedule:
        """The schedule of ``count`` circuits side by side: each region that often in a row."""
        if count == 1:
            return self

        def repeated_all(places: Sequence[Index]) -> tuple[Index, ...]:
            return tuple(_repeated(place, count) for place in places)

        leaves = tuple(leaf._replace(folds=_repeated(leaf.folds, count)) for leaf in self.leaves)
        calls = tuple(
            call._replace(folds=_repeated(call.folds, count), places=repeated_all(call.places))
            for call in self.calls
        )
        return replace(
            self, leaves=leaves, calls=calls, parts=tuple(map(repeated_all, self.parts))
        )


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


def fold(nodes: Sequence[Node], places: Places | None = None) -> FoldedSchedule:
    """Group nodes into tensors.

    ``places`` are those of the circuit that shall be evaluated; without them its layers are to be
    made, one for each tensor.
    """
    is_tree = not any(node.children and node.kind is SUM_OF_PARTITIONS for node in nodes)
    home, members = _grouped(nodes, places)
    ordered, parts, reads = _read(nodes, home, members, is_tree=is_tree)
    leaves: list[LeafCall] = []
    calls: list[LayerCall] = []
    for tensor, read in zip(ordered, reads, strict=True):
        kind = nodes[tensor[0]].kind
        regions = tuple(nodes[number].region for number in tensor)
        if not read:
            layer, folds = _located(regions, places and places.inputs, len(leaves))
            leaves.append(LeafCall(regions, layer, folds, kind))
            continue
        layer, folds = _located(regions, places and places.sums, len(calls))
        where = tuple(parts[source][part] for source, part in read)
        calls.append(LayerCall(regions, layer, folds, tuple(read), where, kind))
    return FoldedSchedule(
        tuple(leaves),
        tuple(calls),
        tuple(map(tuple, parts)),
        _in_turn(calls, len(leaves), RESCALED_EVERY),
        _in_turn(calls, len(leaves), CHECKED_EVERY),
        is_tree,
    )


def _grouped(nodes: Sequence[Node], places: Places | None) -> tuple[list[int], list[list[int]]]:
    """The tensor with the message of each node, and the nodes of each tensor, leaves first."""
    home = [0] * len(nodes)
    members: list[list[int]] = []
    tensors: dict[Hashable, int] = {}
    for is_leaf in (True, False):
        for number, node in enumerate(nodes):
            if bool(node.children) == is_leaf:
                continue
            key = _layer_of(node, places), node.kind, tuple(home[c] for c in node.children)
            if key not in tensors:
                tensors[key] = len(members)
                members.append([])
            home[number] = tensors[key]
            members[home[number]].append(number)
    return home, members


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
    """The layer of some regions and their places in it."""
    if places is None or regions[0] not in places:
        return number, slice(0, len(regions))
    return places[regions[0]][0], _as_index([places[region][1] for region in regions])


def _as_index(places: list[int]) -> Index:
    """A slice where places are consecutive, which copies nothing."""
    whole = slice(places[0], places[0] + len(places))
    return whole if places == list(range(whole.start, whole.stop)) else places


def _repeated(places: Index, count: int) -> Index:
    if isinstance(places, slice):
        return slice(places.start * count, places.stop * count)
    return [place * count + copy for place in places for copy in range(count)]


def _numbered(tensors: Sequence[Sequence[int]]) -> dict[int, tuple[int, int]]:
    return {r: (k, at) for k, regions in enumerate(tensors) for at, r in enumerate(regions)}


def _read(
    nodes: Sequence[Node], home: Sequence[int], members: Sequence[list[int]], *, is_tree: bool
) -> tuple[list[list[int]], list[list[Index]], list[list[Part]]]:
    """The nodes of each tensor in their order, its parts, and the parts of others that it reads.

    In a tree, tensors are ordered as they are read, so that reading is a slice and not a copy.
    """
    ordered: list[list[int]] = [[] for _ in members[:-1]] if is_tree else [*members[:-1]]
    ordered.append(members[-1])
    at = {node: place for tensor in members for place, node in enumerate(tensor)}
    parts: list[list[Index]] = [[] for _ in members]
    reads: list[list[Part]] = [[] for _ in members]
    for tensor in reversed(range(len(members))):
        for slot in zip(*(nodes[number].children for number in ordered[tensor]), strict=True):
            source = home[slot[0]]
            if is_tree:
                begin = len(ordered[source])
                ordered[source].extend(slot)
                place: Index = slice(begin, len(ordered[source]))
            else:
                place = [at[child] for child in slot]
            reads[tensor].append((source, len(parts[source])))
            parts[source].append(place)
    return ordered, parts, reads


def traverse(
    schedule: FoldedSchedule,
    messages: Mapping[Part, M],
    rule: Callable[[int, Sequence[M]], M],
    calls: Iterable[int] | None = None,
) -> dict[Part, M]:
    """Send messages through some calls, or through all, and return those that were not read.

    ``rule(number, children)`` makes the message of a call. What was read is dropped.
    """
    left = dict(messages)
    for number in range(len(schedule.calls)) if calls is None else calls:
        children = [left.pop(part) for part in schedule.calls[number].reads]
        left.update(divide(schedule, len(schedule.leaves) + number, rule(number, children)))
    return left


def divide(schedule: FoldedSchedule, tensor: int, message: M) -> dict[Part, M]:
    """The message of a tensor in the parts in which it is read; the root's is one part."""
    if schedule.is_tree:
        pieces = split(message, schedule.sizes[tensor])
    else:
        pieces = [message.take(part) for part in schedule.parts[tensor]] or [message]
    return {(tensor, part): piece for part, piece in enumerate(pieces)}


def divide_leaves(schedule: FoldedSchedule, leaves: Sequence[M]) -> dict[Part, M]:
    """The messages of all leaves in the parts in which they are read."""
    found: dict[Part, M] = {}
    for tensor, leaf in enumerate(leaves):
        found.update(divide(schedule, tensor, leaf))
    return found


def root_of(schedule: FoldedSchedule, left: Mapping[Part, M]) -> M:
    """The root's message."""
    return left[len(schedule.leaves) + len(schedule.calls) - 1, 0]


def split(message: M, sizes: Sequence[int]) -> Sequence[M]:
    """A message in consecutive groups of regions."""
    # Not sliced: in the backward pass the parts are joined, not added to zeros.
    return [message] if len(sizes) < 2 else message.split([*sizes])
