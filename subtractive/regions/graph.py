"""Regions, partitions and the graph they form: which variables meet when (paper: Def. 2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from operator import index
from typing import Any, TypeAlias

import numpy as np

from subtractive.regions.drawing import dot, scope_label, text

Nested: TypeAlias = "int | Set[int] | tuple[Nested, ...] | list[Nested]"

# Variable v takes v bits: a stray 10**12 would claim all memory before any check could see it.
_MOST_VARIABLES = 2**20


@dataclass(frozen=True)
class Partition:
    """One way to split a region; ``children`` are indices of regions in the graph.

    >>> sub.regions.Partition((0, 1)).children
    (0, 1)
    """

    children: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "children", tuple(index(child) for child in self.children))
        if len(self.children) < 2:
            raise ValueError(
                f"a partition needs at least two children, got {len(self.children)}. "
                "Where nothing is split, use the child itself."
            )


@dataclass(frozen=True, init=False, repr=False, slots=True)
class Region:
    """A set of variables and the ways it is split; a region without partitions is an input region.

    The scope is kept as an integer whose bit v is set if variable v is in it: a linear tree over
    d variables has d nested scopes, and as sets these would fill the memory.

    >>> sorted(sub.regions.Region([0, 2]).scope)
    [0, 2]
    """

    bits: int
    partitions: tuple[Partition, ...]

    def __init__(self, scope: Iterable[int], partitions: Iterable[Partition] = ()) -> None:
        object.__setattr__(self, "bits", _to_bits(scope))
        object.__setattr__(self, "partitions", tuple(partitions))

    @classmethod
    def joining(cls, children: Sequence[int], regions: Sequence[Region]) -> Region:
        """The region with one partition, into the ``regions`` whose indices are ``children``."""
        region = cls.__new__(cls)
        object.__setattr__(region, "bits", _union(children, regions))
        object.__setattr__(region, "partitions", (Partition(tuple(children)),))
        return region

    @property
    def scope(self) -> frozenset[int]:
        """The variables of the region."""
        return _to_scope(self.bits)

    def __repr__(self) -> str:
        return f"Region({scope_label(self.scope)}, {self.partitions})"


@dataclass(frozen=True, repr=False)
class RegionGraph:
    """A hierarchical split of the variables 0..d-1: children before parents, the root last.

    Regions may have several partitions and several parents. The constructor refuses whatever is
    not smooth and decomposable: the children of a partition are disjoint and make up the region.

    >>> graph = RegionGraph.from_nested(((0, 1), 2))
    >>> graph
    RegionGraph(3 variables, 5 regions, depth 2)
    >>> print(graph)
    {0, 1, 2}
    ├── {0, 1}
    │   ├── {0}
    │   └── {1}
    └── {2}
    """

    regions: tuple[Region, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "regions", tuple(self.regions))
        if not self.regions:
            raise ValueError("a region graph needs at least one region, got none.")
        for position in range(len(self.regions)):
            _check_children_come_first(self.regions, position)
            _check_splits(self.regions, position)
        _check_numbering(self.regions[-1])
        _check_all_used(self.regions)

    @classmethod
    def from_nested(cls, nested: Nested) -> RegionGraph:
        """A tree from nested tuples: ints and sets are input regions, tuples and lists partitions.

        >>> RegionGraph.from_nested((0, {1, 2})).num_variables
        3
        """
        parents_first: list[Nested] = []
        waiting = [nested]
        while waiting:  # no recursion: trees may be thousands of levels deep
            node = waiting.pop()
            parents_first.append(node)
            if isinstance(node, tuple | list):
                waiting.extend(node)
        regions: list[Region] = []
        orphans: list[int] = []  # regions whose parent is still to come
        for node in reversed(parents_first):
            if isinstance(node, tuple | list):
                first = len(orphans) - len(node)
                regions.append(Region.joining(orphans[first:], regions))
                del orphans[first:]
            else:
                regions.append(Region(_input_scope(node)))
            orphans.append(len(regions) - 1)
        return cls(tuple(regions))

    def to_nested(self) -> Nested:
        """The inverse of :meth:`from_nested`, for trees.

        >>> RegionGraph.from_nested([[0, 3], {1, 2}]).to_nested()
        ((0, 3), frozenset({1, 2}))
        """
        if not self.is_tree:
            raise ValueError(
                "only a tree can be written as nested tuples; in this graph a region has several "
                "partitions or several parents. Use graph.regions instead."
            )
        nested: list[Nested] = []
        for region in self.regions:
            if region.partitions:
                nested.append(tuple(nested[child] for child in region.partitions[0].children))
            else:
                scope = region.scope
                nested.append(min(scope) if len(scope) == 1 else scope)
        return nested[-1]

    def describe(self) -> list[dict[str, Any]]:
        """The graph as plain data, region by region, for files."""
        return [_described(region) for region in self.regions]

    @classmethod
    def from_description(cls, description: Sequence[Mapping[str, Any]]) -> RegionGraph:
        """The inverse of :meth:`describe`."""
        regions: list[Region] = []
        for entry in description:
            if "scope" in entry:
                regions.append(Region(entry["scope"]))
                continue
            splits = entry.get("partitions") or [entry["children"]]
            parts = [[*map(index, children)] for children in splits]
            if not all(0 <= child < len(regions) for part in parts for child in part):
                raise ValueError(f"region {len(regions)} has children that do not come before it.")
            one, several = Region.joining(parts[0], regions), [Partition((*p,)) for p in parts]
            regions.append(one if len(parts) == 1 else Region(one.scope, several))
        return cls(tuple(regions))

    @property
    def num_variables(self) -> int:
        """The number of variables d."""
        return self.regions[-1].bits.bit_length()

    @property
    def root(self) -> int:
        """The index of the region of all variables."""
        return len(self.regions) - 1

    @property
    def input_regions(self) -> tuple[int, ...]:
        """Indices of the regions that are not split."""
        return tuple(i for i, region in enumerate(self.regions) if not region.partitions)

    @property
    def depth(self) -> int:
        """The number of partitions on the longest way from the root to an input region."""
        depths: list[int] = []
        for region in self.regions:
            below = [depths[child] for part in region.partitions for child in part.children]
            depths.append(1 + max(below) if below else 0)
        return depths[-1]

    @property
    def is_smooth(self) -> bool:
        """Whether the children of every partition make up exactly their region."""
        return all(_union(p.children, self.regions) == r.bits for r, p in _splits(self.regions))

    @property
    def is_decomposable(self) -> bool:
        """Whether the children of every partition are disjoint."""
        return not any(_overlap(p.children, self.regions) for _, p in _splits(self.regions))

    @property
    def is_structured_decomposable(self) -> bool:
        """Whether partitions of the same scope split it the same way, as squaring requires."""
        known: dict[int, frozenset[int]] = {}
        for region, partition in _splits(self.regions):
            split = frozenset(self.regions[child].bits for child in partition.children)
            if known.setdefault(region.bits, split) != split:
                return False
        return self.is_decomposable

    @property
    def is_tree(self) -> bool:
        """Whether every region has at most one partition and at most one parent."""
        # One partition each is enough: two ways down to one region would part at a partition
        # whose children overlap there, and the constructor refuses that.
        return all(len(region.partitions) <= 1 for region in self.regions)

    def to_dot(self) -> str:
        """The graph in the DOT language, for Graphviz."""
        return dot(self.regions)

    def __repr__(self) -> str:
        counts = f"{self.num_variables} variables, {len(self.regions)} regions, depth {self.depth}"
        return f"RegionGraph({counts})"

    def __str__(self) -> str:
        return text(self.regions)


def _described(region: Region) -> dict[str, Any]:
    splits = [list(partition.children) for partition in region.partitions]
    if len(splits) > 1:
        return {"partitions": splits}
    return {"children": splits[0]} if splits else {"scope": sorted(region.scope)}


def _check_children_come_first(regions: Sequence[Region], position: int) -> None:
    for child in _children([regions[position]]):
        if not 0 <= child < position:
            raise ValueError(
                f"children come before their parents: region {position} has the child {child}, "
                "which does not. Reorder the regions, the root last."
            )


def _check_splits(regions: Sequence[Region], position: int) -> None:
    for region, partition in _splits([regions[position]]):
        twice = _overlap(partition.children, regions)
        if twice:
            raise ValueError(
                "the children of a partition must be disjoint (decomposable): those of region "
                f"{position} share the variables {scope_label(_to_scope(twice))}."
            )
        union = _union(partition.children, regions)
        if union != region.bits:
            raise ValueError(
                "the children of a partition must make up their region (smooth): region "
                f"{position} is {scope_label(region.scope)}, its children cover "
                f"{scope_label(_to_scope(union))}."
            )


def _check_numbering(root: Region) -> None:
    missing = ~root.bits & (1 << root.bits.bit_length()) - 1
    if missing:
        raise ValueError(
            f"the variables must be 0..d-1 without gaps: {scope_label(root.scope)} lacks "
            f"{scope_label(_to_scope(missing))}. Renumber them."
        )


def _check_all_used(regions: Sequence[Region]) -> None:
    unused = set(range(len(regions) - 1)).difference(_children(regions))
    if unused:
        raise ValueError(
            f"every region but the root must be the child of some partition: region {min(unused)} "
            "is not. Remove it, or move it to the end if it is the root."
        )


def _splits(regions: Sequence[Region]) -> list[tuple[Region, Partition]]:
    return [(region, partition) for region in regions for partition in region.partitions]


def _children(regions: Sequence[Region]) -> list[int]:
    return [child for _, partition in _splits(regions) for child in partition.children]


def _union(children: Sequence[int], regions: Sequence[Region]) -> int:
    bits = 0
    for child in children:
        bits |= regions[child].bits
    return bits


def _overlap(children: Sequence[int], regions: Sequence[Region]) -> int:
    covered = twice = 0
    for child in children:
        twice |= covered & regions[child].bits
        covered |= regions[child].bits
    return twice


def _to_bits(scope: Iterable[int]) -> int:
    bits = 0
    for variable in map(index, scope):
        if not 0 <= variable < _MOST_VARIABLES:
            raise ValueError(f"variables are numbered 0..d-1, got {variable}. Renumber them.")
        bits |= 1 << variable
    if not bits:
        raise ValueError("a region needs at least one variable, got an empty scope.")
    return bits


def _to_scope(bits: int) -> frozenset[int]:
    octets = np.frombuffer(bits.to_bytes((bits.bit_length() + 7) // 8, "little"), np.uint8)
    return frozenset(np.flatnonzero(np.unpackbits(octets, bitorder="little")).tolist())


def _input_scope(node: int | Set[int]) -> Set[int]:
    try:
        return {index(v) for v in node} if isinstance(node, Set) else {index(node)}
    except TypeError:
        raise ValueError(
            f"cannot read {node!r} as a region: expected an int or a set of ints (an input "
            "region), or a tuple or list of such things (a partition)."
        ) from None
