"""Sizes that circuits for unique disjointness must have, and proofs of them (paper: App. B.5).

*Matchings.* For the split that cuts all n edges, entries with exactly one common element are zero,
and the 3^n pairs of disjoint sets are not. A non-negative matrix of rank one that is zero where it
must be covers at most 2^n disjoint pairs, so that the non-negative rank is at least (3/2)^n
(Fiorini et al. 2015, which the paper cites; the count of 2^n is due to Kaibel and Weltge 2015, and
:func:`most_disjoint_pairs` checks it by brute force). The rank is only 1 + n + n (n - 1) / 2.

*Any graph.* Where all edges but those of a matching across the split have an end at zero, the
function is that of the matching. This needs an *induced* matching: no other edge may join its
ends. Bounded degree and spectral gap guarantee one for every balanced split.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import reduce
from operator import and_
from typing import NamedTuple

import numpy as np

from studies.separation.disjointness import (
    UndirectedGraph,
    communication_matrix,
    matching_graph,
)
from subtractive.numerics.validation import whole_number

MOST_EDGES_FOR_COVER = 4  # 2^(2^n) sets of rows


class MatchingRow(NamedTuple):
    """Unique disjointness on a matching of n edges, split so that all are cut."""

    num_edges: int
    num_variables: int
    circuit_size: int  # of c, whose square is the function
    square_size: int  # of c² written out as a circuit
    rank: int  # of the communication matrix
    least_nonnegative_rank: int  # proven: ⌈(3/2)^n⌉
    most_nonnegative_rank: int  # trivial: 2^n, the number of rows


class GraphRow(NamedTuple):
    """Unique disjointness on a graph, over one split and over all balanced ones."""

    num_variables: int
    num_edges: int
    max_degree: int
    spectral_gap: float
    circuit_size: int
    square_size: int
    split_matching: int  # edges of an induced matching across the split into two halves
    split_bound: int  # proven for circuits over that split: ⌈(3/2)^split_matching⌉
    every_matching: float  # edges that every balanced split has, by the spectral gap
    every_bound: int  # proven for all structured-decomposable monotonic circuits


def separation_table(sizes: Iterable[int]) -> list[MatchingRow]:
    """Sizes, ranks and bounds for matchings of n edges.

    >>> for row in separation_table([2, 4, 8]):
    ...     print(row.num_edges, row.circuit_size, row.rank, row.least_nonnegative_rank)
    2 15 4 3
    4 45 11 6
    8 153 37 26
    """
    rows = []
    for size in sizes:
        n = whole_number("sizes", size, 1)
        graph = matching_graph(n)
        rows.append(
            MatchingRow(
                n,
                2 * n,
                circuit_size(graph),
                square_size(graph),
                matching_rank(n),
                nonnegative_rank_bound(n),
                2**n,
            )
        )
    return rows


def expander_table(graphs: Iterable[UndirectedGraph]) -> list[GraphRow]:
    """Sizes and bounds for graphs of any kind; for expanders the bounds grow exponentially.

    >>> from studies.separation.disjointness import random_regular_graph
    >>> graphs = [random_regular_graph(n, 6) for n in (20, 80, 320)]
    >>> [row.split_bound > row.circuit_size for row in expander_table(graphs)]
    [False, False, True]
    """
    rows = []
    for graph in graphs:
        half = range(graph.num_vertices // 2)
        across = len(induced_matching(graph, half))
        every = matching_of_every_split(graph)
        rows.append(
            GraphRow(
                graph.num_vertices,
                len(graph.edges),
                graph.max_degree,
                graph.spectral_gap,
                circuit_size(graph),
                square_size(graph),
                across,
                nonnegative_rank_bound(across),
                every,
                nonnegative_rank_bound(math.ceil(every)),
            )
        )
    return rows


def circuit_size(graph: UndirectedGraph) -> int:
    """The size |c| of the circuit: 1 + |E| products of |V| inputs each, and their sum."""
    return (1 + len(graph.edges)) * (1 + graph.num_vertices)


def square_size(graph: UndirectedGraph) -> int:
    """The size |c²| of its square written out: pairs of products, (1 + |E|)² of them."""
    return (1 + len(graph.edges)) ** 2 * (1 + graph.num_vertices)


def matching_rank(num_edges: int) -> int:
    """The rank of the communication matrix of a matching: 1 + n + n (n - 1) / 2.

    (1 - Σ y_k z_k)² = 1 - Σ y_k z_k + 2 Σ_{k<l} y_k y_l z_k z_l, and monomials are independent.
    """
    return 1 + num_edges + num_edges * (num_edges - 1) // 2


def nonnegative_rank_bound(num_edges: int) -> int:
    """⌈(3/2)^n⌉, a lower bound on the non-negative rank for a matching of n cut edges."""
    bound: int = -(-(3**num_edges) // 2**num_edges)
    return bound


def most_disjoint_pairs(num_edges: int) -> int:
    """The most pairs of disjoint sets in a rectangle without an entry of zero, by brute force.

    The covering bound is 3^n over this number.

    >>> [most_disjoint_pairs(n) for n in (1, 2, 3)]
    [2, 4, 8]
    """
    n = whole_number("num_edges", num_edges, 1)
    if n > MOST_EDGES_FOR_COVER:
        raise ValueError(
            f"brute force tries 2^(2^n) sets of rows: at most {MOST_EDGES_FOR_COVER} edges, got "
            f"{n}."
        )
    matrix = communication_matrix(matching_graph(n), range(n)).tolist()
    sets = range(2**n)
    # Sets of columns as bits: where the entries of a row are not zero, and where it is disjoint.
    positive = [sum(1 << b for b in sets if matrix[a][b] > 0) for a in sets]
    disjoint = [sum(1 << b for b in sets if a & b == 0) for a in sets]
    best = 0
    for chosen in range(1, 2 ** len(sets)):
        rows = [a for a in sets if chosen >> a & 1]
        columns = reduce(and_, (positive[a] for a in rows))  # the widest rectangle over these rows
        best = max(best, sum((columns & disjoint[a]).bit_count() for a in rows))
    return best


def induced_matching(graph: UndirectedGraph, first: Sequence[int]) -> list[tuple[int, int]]:
    """Edges across a split no two of whose ends are joined by another edge, found greedily.

    Edges are taken where they exclude the fewest others.
    """
    inside = set(first)
    around = [set(np.flatnonzero(row).tolist()) | {v} for v, row in enumerate(graph.adjacency)]
    cut = [edge for edge in graph.edges if (edge[0] in inside) != (edge[1] in inside)]
    chosen = []
    while cut:
        degrees = np.bincount(np.array(cut).ravel(), minlength=graph.num_vertices)
        u, v = min(
            cut, key=lambda edge: int(degrees[list(around[edge[0]] | around[edge[1]])].sum())
        )
        chosen.append((u, v))
        blocked = around[u] | around[v]
        cut = [edge for edge in cut if not blocked & set(edge)]
    return chosen


def matching_of_every_split(graph: UndirectedGraph) -> float:
    """A lower bound on the largest induced matching across every balanced split.

    A part with a third to two thirds of the vertices has at least 2 μ |V| / 9 edges to the rest,
    and a chosen edge excludes at most 2 Δ (Δ - 1) others: those that meet a neighbour of its ends.
    """
    degree = graph.max_degree
    if degree == 0:
        return 0.0
    edges = 2 * graph.spectral_gap * graph.num_vertices / 9
    return edges / (2 * degree * (degree - 1) + 1)
