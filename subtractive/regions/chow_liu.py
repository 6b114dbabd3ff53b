"""A region tree learned from data: the spanning tree of largest mutual information.

Chow and Liu's tree joins the variables that say most about each other. Information is counted, not
modelled: states of discrete columns, quantile bins of the others. So every kind of dependence is
seen, not only the linear one, and rescaling a column changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import index
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.special import xlogy

from subtractive.regions.graph import Nested, RegionGraph

Floats: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int64]
Measure: TypeAlias = Callable[[Floats, Integers, Integers], Floats]

MISSING = -1
_MOST_STATES = 32  # integer columns with more distinct values are binned, as if continuous
_ROWS_PER_CELL = 5  # with fewer, the cells of a two-way table are mostly noise
_STATES_AT_ONCE, _ROWS_AT_ONCE = 1024, 4096  # bound the memory of the one-hot matrices


def chow_liu_tree(data: npt.ArrayLike, *, bins: int = 16) -> RegionGraph:
    """The Chow-Liu tree of the columns of ``data`` (n, d), rooted at its centre, as a region tree.

    A node of the spanning tree becomes a partition: the variable itself, then the subtrees below
    it, from small to large and equal shapes side by side. NaN says missing: a pair of columns is
    judged by the rows in which both are there. Columns of at most 32 whole numbers are taken as
    states; others fall into up to ``bins`` quantile bins, fewer if there are few rows.

    >>> x, y, z = np.random.default_rng(0).normal(size=(3, 2000))
    >>> chow_liu_tree(np.stack([x, x + y, x + y + z], axis=1)).to_nested()
    (1, 0, 2)
    """
    table = _checked(data)
    if index(bins) < 2:
        raise ValueError(f"a column needs at least two bins to say anything, got bins={bins}.")
    codes = np.stack([discretise(column, bins) for column in table.T], axis=1)
    edges = maximum_spanning_tree(pairwise(corrected_information, codes))
    return RegionGraph.from_nested(_nested_at_centre(edges, table.shape[1]))


def discretise(column: Floats, bins: int) -> Integers:
    """States 0, 1, ... of a column (n,): its values if they are few whole numbers, else bins.

    Equal values share a bin, so a column with ties may use fewer bins than there are.

    >>> discretise(np.array([0.1, 0.4, np.nan, 0.2, 0.3] * 10), bins=2)[:5]
    array([ 0,  1, -1,  0,  1])
    """
    seen = ~np.isnan(column)
    values, states, counts = np.unique(column[seen], return_inverse=True, return_counts=True)
    if len(values) > _MOST_STATES or (values != np.floor(values)).any():
        affordable = int((len(states) / _ROWS_PER_CELL) ** 0.5)
        middle = (np.cumsum(counts) - counts / 2) / len(states)  # the quantile of each value
        binned = np.floor(middle * max(2, min(bins, affordable)))
        states = np.unique(binned, return_inverse=True)[1][states]
    codes = np.full(len(column), MISSING)
    codes[seen] = states
    return codes


def pairwise(measure: Measure, codes: Integers) -> Floats:
    """A measure of dependence, (d, d), between all columns of ``codes`` (n, d)."""
    num_columns = codes.shape[1]
    values = np.zeros((num_columns, num_columns))
    step = max(1, _STATES_AT_ONCE // (int(codes.max()) + 2))
    for start in range(0, num_columns, step):
        left, right = codes[:, start : start + step], codes[:, start:]
        counts, rows, columns = _joint_counts(left, right), _offsets(left), _offsets(right)
        values[start : start + step, start:] = measure(counts, rows[:-1], columns[:-1])
    upper = np.triu(values, 1)
    return np.diag(values.diagonal()) + upper + upper.T


def mutual_information(counts: Floats, rows: Integers, columns: Integers) -> Floats:
    r"""Information between pairs of variables, in nats, from their two-way tables.

    .. math:: I = \sum_{uv} \frac{n_{uv}}{n} \log \frac{n \, n_{uv}}{n_u n_v}

    ``counts`` (Σ states, Σ states) holds the tables side by side; ``rows`` (a,) and ``columns``
    (b,) say where each variable begins. The result is (a, b), zero for empty tables.
    """
    left = np.add.reduceat(counts, columns, axis=1)  # (Σ states, b)
    right = np.add.reduceat(counts, rows, axis=0)  # (a, Σ states)
    total = np.maximum(np.add.reduceat(left, rows, axis=0), 1.0)  # (a, b)
    joint = np.add.reduceat(np.add.reduceat(xlogy(counts, counts), columns, axis=1), rows, axis=0)
    single = np.add.reduceat(xlogy(left, left), rows, axis=0)
    single = single + np.add.reduceat(xlogy(right, right), columns, axis=1)
    information: Floats = np.maximum((joint - single) / total + np.log(total), 0.0)
    return information


def corrected_information(counts: Floats, rows: Integers, columns: Integers) -> Floats:
    r"""Mutual information less its bias (Miller and Madow), zero at least.

    .. math:: I - \frac{\#_{uv} - \#_u - \#_v + 1}{2 n}

    where # counts the states that occur. Independent columns of many states seem to inform each
    other when rows are few; uncorrected, columns of many states would attract all edges.
    """
    left = np.add.reduceat(counts, columns, axis=1)
    right = np.add.reduceat(counts, rows, axis=0)
    total = np.maximum(np.add.reduceat(left, rows, axis=0), 1.0)
    occur = (counts > 0).astype(np.float64)
    cells = np.add.reduceat(np.add.reduceat(occur, columns, axis=1), rows, axis=0)
    states = np.add.reduceat((left > 0).astype(np.float64), rows, axis=0)
    states = states + np.add.reduceat((right > 0).astype(np.float64), columns, axis=1)
    bias = (cells - states + 1) / (2 * total)
    corrected: Floats = np.maximum(mutual_information(counts, rows, columns) - bias, 0.0)
    return corrected


def maximum_spanning_tree(weights: Floats) -> list[tuple[int, int]]:
    """Edges of the heaviest tree over all nodes, ``weights`` being (d, d) and symmetric.

    Of equally good edges the one between the earliest nodes wins; without information it is a
    star.
    """
    rows, columns = np.triu_indices(len(weights), 1)
    order = np.argsort(-weights[rows, columns], kind="stable")
    ranks = np.empty(len(order))
    ranks[order] = np.arange(1, len(order) + 1)  # all different, and none is zero: no edge
    # Older versions of scipy know the tree of graphs with short numbers of nodes only.
    places = rows.astype(np.int32), columns.astype(np.int32)
    graph = csr_array((ranks, places), shape=weights.shape)
    tree = minimum_spanning_tree(graph).tocoo()
    return sorted(zip(tree.row.tolist(), tree.col.tolist(), strict=True))


def _checked(data: npt.ArrayLike) -> Floats:
    try:
        table = np.asarray(data, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"data must be numbers, with NaN where one is missing: {error}"
        ) from error
    if table.ndim != 2 or 0 in table.shape:
        raise ValueError(
            f"data needs the shape (rows, variables), at least one of each, got {table.shape}."
        )
    if np.isinf(table).any():
        variable = int(np.isinf(table).any(0).argmax())
        raise ValueError(f"data must be finite, or NaN where missing: column {variable} is not.")
    return table


def _offsets(codes: Integers) -> Integers:
    """Where the states of each column begin in a one-hot row, and where the last ones end."""
    # One place at least, even for a column with no value at all.
    return np.concatenate([[0], np.cumsum(np.maximum(codes.max(axis=0) + 1, 1))])


def _joint_counts(left: Integers, right: Integers) -> Floats:
    """How often each state of ``left`` meets each of ``right``, in rows where both are there."""
    rows, columns = _offsets(left), _offsets(right)
    counts = np.zeros((rows[-1], columns[-1]))
    for start in range(0, len(left), _ROWS_AT_ONCE):
        some = slice(start, start + _ROWS_AT_ONCE)
        counts += _one_hot(left[some], rows).T @ _one_hot(right[some], columns)
    return counts


def _one_hot(codes: Integers, offsets: Integers) -> npt.NDArray[np.float32]:
    # What is missing goes to one more place at the end, which is cut off.
    places = np.where(codes == MISSING, offsets[-1], codes + offsets[:-1])
    ones = np.zeros((len(codes), offsets[-1] + 1), dtype=np.float32)
    np.put_along_axis(ones, places, 1.0, axis=1)
    return ones[:, :-1]


def _nested_at_centre(edges: Sequence[tuple[int, int]], num_variables: int) -> Nested:
    neighbours: list[list[int]] = [[] for _ in range(num_variables)]
    for first, second in edges:
        neighbours[first].append(second)
        neighbours[second].append(first)
    centre = _centre(neighbours)
    below: list[list[int]] = [[] for _ in range(num_variables)]
    nested: list[Nested] = list(range(num_variables))
    sizes = [1] * num_variables
    shapes = [0] * num_variables
    known: dict[tuple[int, ...], int] = {(): 0}  # the shapes below a node -> its own shape
    for node, parent in reversed(_breadth_first(neighbours, centre).items()):
        order = sorted(below[node], key=lambda child: (sizes[child], shapes[child], child))
        if order:
            nested[node] = (node, *(nested[child] for child in order))
        sizes[node] += sum(sizes[child] for child in order)
        shapes[node] = known.setdefault(tuple(shapes[child] for child in order), len(known))
        below[parent].append(node)
    return nested[centre]


def _centre(neighbours: Sequence[Sequence[int]]) -> int:
    """The middle of the longest path: from there the tree is as shallow as it can be."""
    *_, end = _breadth_first(neighbours, 0)
    parents = _breadth_first(neighbours, end)
    *_, other = parents
    path = [other]
    while path[-1] != end:
        path.append(parents[path[-1]])
    return path[len(path) // 2]


def _breadth_first(neighbours: Sequence[Sequence[int]], start: int) -> dict[int, int]:
    """Every node's parent, in the order of the visit; the start is its own parent."""
    parents = {start: start}
    queue = [start]
    for node in queue:
        for neighbour in neighbours[node]:
            if neighbour not in parents:
                parents[neighbour] = node
                queue.append(neighbour)
    return parents
