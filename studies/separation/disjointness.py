"""Unique disjointness: small as a square, large as a sum (paper: Sec. 4.1, App. B.5).

For a graph with vertices V and edges E the function

    UDISJ(x) = (1 - Σ_{uv ∈ E} x_u x_v)²,   x ∈ {0, 1}^V

is the square of a circuit with 1 + |E| products. How large a monotonic circuit must be is told by
its communication matrix for a split of the variables into (Y, Z): one row for each assignment of
Y, one column for each of Z. Structured-decomposable monotonic circuits of size N make it a sum of
N non-negative matrices of rank one, for some balanced split.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch
from numpy.typing import NDArray

from subtractive.circuits.circuit import Circuit
from subtractive.circuits.weights import RealWeights
from subtractive.densities.squared import SquaredCircuit
from subtractive.inputs.embedding import Embedding
from subtractive.numerics.validation import whole_number
from subtractive.regions.trees import flat

# Matrices with more rows are not written out.
MOST_ROWS = 2**12


@dataclass(frozen=True)
class UndirectedGraph:
    """An undirected graph over the vertices 0 .. num_vertices - 1, without loops.

    >>> UndirectedGraph(3, ((1, 0), (1, 2))).edges
    ((0, 1), (1, 2))
    """

    num_vertices: int
    edges: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        count = whole_number("num_vertices", self.num_vertices, 1)
        edges = sorted({(min(edge), max(edge)) for edge in self.edges})
        for u, v in edges:
            if not 0 <= u < v < count:
                raise ValueError(
                    f"edges join two different vertices in 0..{count - 1}, got {(u, v)}."
                )
        object.__setattr__(self, "edges", tuple(edges))

    @property
    def adjacency(self) -> NDArray[np.int64]:
        """The symmetric matrix (v, v) of zeros and ones."""
        matrix = np.zeros((self.num_vertices, self.num_vertices), dtype=np.int64)
        for u, v in self.edges:
            matrix[u, v] = matrix[v, u] = 1
        return matrix

    @property
    def max_degree(self) -> int:
        """The largest number of edges at one vertex."""
        return int(self.adjacency.sum(0).max())

    @property
    def spectral_gap(self) -> float:
        """The second smallest eigenvalue μ of the Laplacian.

        At least μ |S| (|V| - |S|) / |V| edges leave any set S: with μ bounded from below for
        graphs of growing size and bounded degree, these are expanders.
        """
        adjacency = self.adjacency
        laplacian = np.diag(adjacency.sum(0)) - adjacency
        return float(np.linalg.eigvalsh(laplacian)[1]) if self.num_vertices > 1 else 0.0


def matching_graph(num_edges: int) -> UndirectedGraph:
    """The edges (k, n + k): a split into the first and the second n vertices cuts all of them."""
    count = whole_number("num_edges", num_edges, 1)
    return UndirectedGraph(2 * count, tuple((k, count + k) for k in range(count)))


def margulis_graph(side: int) -> UndirectedGraph:
    """The expander of Margulis, Gabber and Galil on side² vertices (x, y), degrees up to eight.

    Neighbours are (x ± 2y, y), (x ± (2y + 1), y), (x, y ± 2x) and (x, y ± (2x + 1)), modulo the
    side; loops and repeated edges are left out.
    """
    m = whole_number("side", side, 2)
    edges = set()
    for x in range(m):
        for y in range(m):
            steps = [((x + 2 * y) % m, y), ((x + 2 * y + 1) % m, y)]
            steps += [(x, (y + 2 * x) % m), (x, (y + 2 * x + 1) % m)]
            edges |= {(x * m + y, a * m + b) for a, b in steps if (a, b) != (x, y)}
    return UndirectedGraph(m * m, tuple(edges))


def random_regular_graph(num_vertices: int, degree: int, seed: int = 0) -> UndirectedGraph:
    """A graph with equal degrees, drawn uniformly among pairings without loops and repetitions.

    Almost all of them are expanders; ``spectral_gap`` says whether this one is.
    """
    count = whole_number("num_vertices", num_vertices, 2)
    each = whole_number("degree", degree, 1)
    if each >= count or count * each % 2 != 0:
        raise ValueError(
            f"no graph on {count} vertices has {each} edges at each of them: the degree must be "
            "smaller than the number of vertices, and their product even."
        )
    rng = np.random.default_rng(seed)
    edges: list[tuple[int, int]] | None = None
    while edges is None:
        edges = _pairing(count, each, rng)
    return UndirectedGraph(count, tuple(edges))


def _pairing(count: int, degree: int, rng: np.random.Generator) -> list[tuple[int, int]] | None:
    """Pair the ends of edges at random, those that do not fit again (Steger and Wormald)."""
    ends = np.repeat(np.arange(count), degree)
    edges: set[tuple[int, int]] = set()
    while len(ends) > 0:
        rng.shuffle(ends)
        left = []
        for u, v in ends.reshape(-1, 2).tolist():
            edge = (min(u, v), max(u, v))
            if u == v or edge in edges:
                left += [u, v]
            else:
                edges.add(edge)
        distinct = set(left)
        if len(left) == len(ends) and all(
            pair in edges for pair in combinations(sorted(distinct), 2)
        ):
            return None  # nothing that is left can be paired
        ends = np.array(left, dtype=np.int64)
    return sorted(edges)


def unique_disjointness(
    graph: UndirectedGraph, *, dtype: torch.dtype | None = None
) -> SquaredCircuit:
    """The density UDISJ(x) / Z as a squared circuit of size (1 + |E|) (1 + |V|).

    The first product is the constant one; each other one is x_u x_v for an edge.

    >>> p = unique_disjointness(matching_graph(1), dtype=torch.float64)
    >>> p.log_square(torch.tensor([[0, 0], [0, 1], [1, 1]])).exp().detach()
    tensor([1., 1., 0.], dtype=torch.float64)
    """
    units = 1 + len(graph.edges)
    circuit = Circuit(
        flat(graph.num_vertices), Embedding(2), num_units=units, seed=0, dtype=torch.float64
    )
    tables = torch.ones(graph.num_vertices, units, 2, dtype=torch.float64)  # (f, i, v)
    for number, edge in enumerate(graph.edges, 1):
        tables[list(edge), number, 0] = 0  # x as a function of x: zero at zero
    weight = torch.full((1, 1, units), -1.0, dtype=torch.float64)
    weight[..., 0] = 1
    inputs = circuit.input_layers[0]
    with torch.no_grad():
        inputs.get_tensor("table").copy_(tables[inputs.variables[:, 0]])
    circuit.sum_layers[-1].weights = RealWeights(weight)
    return SquaredCircuit(circuit.to(dtype or torch.get_default_dtype()))


def communication_matrix(graph: UndirectedGraph, first: Sequence[int]) -> NDArray[np.int64]:
    """UDISJ for all assignments of the vertices ``first`` (rows) and of the others (columns).

    Rows and columns count in binary, the last vertex fastest.
    """
    part = sorted(set(first))
    other = [v for v in range(graph.num_vertices) if v not in set(part)]
    if not set(part) <= set(range(graph.num_vertices)) or max(len(part), len(other)) > math.log2(
        MOST_ROWS
    ):
        raise ValueError(
            f"the split must consist of vertices, and have at most {int(math.log2(MOST_ROWS))} of "
            f"them on either side, got {len(part)} and {len(other)}."
        )
    rows, columns = _assignments(part, graph), _assignments(other, graph)
    adjacency = graph.adjacency
    inside = [np.einsum("ru,uv,rv->r", x, adjacency, x) // 2 for x in (rows, columns)]
    across = rows @ adjacency @ columns.T
    matrix: NDArray[np.int64] = (1 - inside[0][:, None] - inside[1][None] - across) ** 2
    return matrix


def _assignments(vertices: Iterable[int], graph: UndirectedGraph) -> NDArray[np.int64]:
    """All zeros and ones at some vertices, (2^k, v), zero at the others."""
    places = list(vertices)
    numbers = np.arange(2 ** len(places))[:, None]
    table = np.zeros((len(numbers), graph.num_vertices), dtype=np.int64)
    table[:, places] = (numbers >> np.arange(len(places))[::-1]) & 1
    return table
