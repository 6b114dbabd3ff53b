"""Region graphs that need no data: binary, linear, quad and flat trees (paper: App. F)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from operator import index
from typing import TypeAlias

import numpy as np

from subtractive.regions.graph import Nested, Partition, Region, RegionGraph

Leaf: TypeAlias = "int | frozenset[int]"
Groups: TypeAlias = Iterable[Collection[int]]


def random_binary_tree(num_variables: int | Groups, seed: int = 0) -> RegionGraph:
    """Shuffle the variables and split them into halves until one is left.

    In place of a number, groups such as ``[[0, 1], [2], [3]]`` name the input regions. The smaller
    half always comes first: trees of one size then differ only in the order of their leaves, and
    equally shaped subtrees can be evaluated together.

    >>> random_binary_tree(5, seed=0).to_nested()
    ((2, 4), (3, (0, 1)))
    """
    leaves = _leaves(num_variables)
    order = np.random.default_rng(seed).permutation(len(leaves))
    return RegionGraph.from_nested(_halved([leaves[i] for i in order]))


def linear_tree(
    num_variables: int | Groups, *, order: Sequence[int] | None = None, seed: int | None = None
) -> RegionGraph:
    """Split off one variable at a time: {X_1} | {X_2, ..., X_d}, then {X_2} | {X_3, ..., X_d}, ...

    In place of a number, groups name the input regions. ``order`` is a permutation of them, the
    first one meeting the others at the root; ``seed`` shuffles them instead.

    >>> linear_tree(4).to_nested()
    (0, (1, (2, 3)))
    """
    leaves = _leaves(num_variables)
    *others, last = [leaves[i] for i in _resolved_order(len(leaves), order, seed)]
    nested: Nested = last
    for leaf in reversed(others):
        nested = (leaf, nested)
    return RegionGraph.from_nested(nested)


def flat(num_variables: int | Groups) -> RegionGraph:
    """One product over all variables, or over groups of them: the graph of a shallow mixture.

    >>> flat(3).to_nested()
    (0, 1, 2)
    >>> flat([[0, 1], [2]]).to_nested()
    (frozenset({0, 1}), 2)
    """
    leaves = _leaves(num_variables)
    return RegionGraph.from_nested(tuple(leaves) if len(leaves) > 1 else leaves[0])


def quad_tree(height: int, width: int, *, num_children: int = 4) -> RegionGraph:
    """Split an image into quarters until one pixel is left.

    Pixel (r, c) is variable ``r * width + c``. With ``num_children=2`` only the longer side is
    halved, the height first: two levels for one of quarters. A side of odd length falls into a
    smaller and a larger half; a side of length one is not split.

    >>> quad_tree(2, 2).to_nested()
    (0, 1, 2, 3)
    >>> quad_tree(2, 2, num_children=2).to_nested()
    ((0, 1), (2, 3))
    """
    if num_children not in (2, 4):
        raise ValueError(
            f"a region of a quad tree has 2 or 4 children, got num_children={num_children!r}."
        )
    rows, columns = range(_positive(height)), range(_positive(width))
    pixel = np.arange(len(rows) * len(columns)).reshape(len(rows), len(columns))

    def nested(rows: range, columns: range) -> Nested:
        if len(rows) == len(columns) == 1:
            return int(pixel[rows.start, columns.start])
        halve_rows = len(rows) > 1 and (num_children == 4 or len(rows) >= len(columns))
        halve_columns = len(columns) > 1 and (num_children == 4 or not halve_rows)
        parts = [
            (some_rows, some_columns)
            for some_rows in (_halves(rows) if halve_rows else [rows])
            for some_columns in (_halves(columns) if halve_columns else [columns])
        ]
        return tuple(nested(*part) for part in parts)

    return RegionGraph.from_nested(nested(rows, columns))


def quad_graph(height: int, width: int) -> RegionGraph:
    """Halve an image across and along, and every half again, until one pixel is left.

    Every rectangle of more than one row and column has two partitions, and a pixel is the child
    of up to two rectangles: this is for monotonic circuits, which sum over the ways to cut. Pixel
    (r, c) is variable ``r * width + c``; see :func:`quad_tree` for a tree.

    >>> graph = quad_graph(2, 2)
    >>> graph.is_tree, len(graph.regions), len(graph.regions[graph.root].partitions)
    (False, 9, 2)
    """
    height, width = _positive(height), _positive(width)
    regions: list[Region] = []
    number: dict[tuple[range, range], int] = {}

    def visit(rows: range, columns: range) -> int:
        """The number of the region of a rectangle, after those below it."""
        if (rows, columns) in number:
            return number[rows, columns]
        partitions = []
        if len(rows) > 1:
            partitions.append([visit(half, columns) for half in _halves(rows)])
        if len(columns) > 1:
            partitions.append([visit(rows, half) for half in _halves(columns)])
        scope = [row * width + column for row in rows for column in columns]
        regions.append(Region(scope, [Partition(tuple(children)) for children in partitions]))
        number[rows, columns] = len(regions) - 1
        return number[rows, columns]

    visit(range(height), range(width))
    return RegionGraph(tuple(regions))


def _halves(side: range) -> tuple[range, range]:
    half = len(side) // 2
    return side[:half], side[half:]


def _halved(leaves: Sequence[Leaf]) -> Nested:
    if len(leaves) == 1:
        return leaves[0]
    half = len(leaves) // 2
    first, second = sorted((leaves[:half], leaves[half:]), key=_size)
    return (_halved(first), _halved(second))


def _size(leaves: Sequence[Leaf]) -> tuple[int, int]:
    return len(leaves), sum(1 if isinstance(leaf, int) else len(leaf) for leaf in leaves)


def _resolved_order(size: int, order: Sequence[int] | None, seed: int | None) -> list[int]:
    if order is None:
        if seed is None:
            return list(range(size))
        return [int(i) for i in np.random.default_rng(seed).permutation(size)]
    if seed is not None:
        raise ValueError("give either an order or a seed that draws one, not both.")
    if sorted(order) != list(range(size)):
        raise ValueError(
            f"order must be a permutation of 0..{size - 1}, one entry per input region, "
            f"got {list(order)}."
        )
    return list(order)


def _leaves(num_variables: int | Groups) -> list[Leaf]:
    """The input regions: single variables as ints, several as sets."""
    if not isinstance(num_variables, Iterable):
        return list(range(_positive(num_variables)))
    try:
        groups = [[index(variable) for variable in group] for group in num_variables]
    except TypeError:
        raise ValueError(
            f"expected groups of variables such as [[0, 1], [2]], got {num_variables!r}."
        ) from None
    variables = [variable for group in groups for variable in group]
    if not groups or not all(groups):
        raise ValueError(f"expected one or more groups, none of them empty, got {groups}.")
    if sorted(variables) != list(range(len(variables))):
        raise ValueError(
            f"the groups must hold each of the variables 0..d-1 exactly once, got {groups}."
        )
    return [group[0] if len(group) == 1 else frozenset(group) for group in groups]


def _positive(num_variables: int) -> int:
    try:
        number = index(num_variables)
    except TypeError:
        number = 0
    if number < 1:
        raise ValueError(
            f"expected a positive number of variables, or groups of them, got {num_variables!r}."
        )
    return number
