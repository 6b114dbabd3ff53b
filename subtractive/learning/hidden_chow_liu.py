"""Hidden Chow-Liu trees: a hidden variable for each column, arranged as the Chow-Liu tree.

The tree joins the columns that say most about each other. Every column x_v hangs on a hidden
variable z_v of K states, and the hidden variables form a tree of the same shape:

    p(x, z) = p(z_root) Π_v p(z_v | z_parent(v)) p(x_v | z_v)

As a circuit it is monotonic: sums have the tables p(z_v | z_parent), inputs are p(x_v | z_v).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from subtractive.circuits.building import (
    Widths,
    as_generator,
    build_inputs,
    build_layers,
    family_of_region,
    fold_labels,
)
from subtractive.circuits.circuit import Circuit
from subtractive.circuits.layers import HadamardLayer
from subtractive.circuits.weights import PositiveWeights
from subtractive.densities.monotonic import MonotonicCircuit
from subtractive.inputs.atoms import WithAtoms
from subtractive.inputs.base import InputFamily
from subtractive.learning.expected_flows import Flows, update
from subtractive.learning.sufficient_statistics import Statistics, count
from subtractive.regions.chow_liu import chow_liu_tree
from subtractive.regions.folding import fold, upward
from subtractive.regions.graph import RegionGraph

CLUSTERED_ROWS = 40  # of so many rows per cluster their centres are found,
LLOYD_STEPS = 6  # in so many steps
# The share of the start in which neighbours are independent: no transition is impossible.
MIXING = 0.5
# Of more columns than this, distant ones count less when rows are clustered.
NEAR_COLUMNS = 20
FARTHEST = 4.0  # codes beyond, in standard deviations, are as far as this
# Neighbours that share so much of the smaller entropy nearly determine each other.
DETERMINED = 0.9


def hidden_chow_liu_tree(
    data: Tensor,
    families: Sequence[InputFamily],
    num_states: int,
    *,
    weights: Tensor | None = None,
    graph: RegionGraph | None = None,
    distant: float = 1.0,
    seed: int = 0,
    dtype: torch.dtype | None = None,
) -> MonotonicCircuit:
    """A hidden Chow-Liu tree that starts from rows (n, d), NaN where missing.

    The states of z_v start as clusters of the rows, in which columns that are neither v nor its
    neighbours in the tree have the weight ``distant``, and transitions as the frequencies with
    which neighbouring clusters meet. Where v and a neighbour nearly determine each other, as codes
    and their names do, no cluster has rows of different states of v. ``graph`` is a Chow-Liu tree
    that is known already. Train it by :func:`fit_em`.

    >>> rows = torch.randn(500, 3, generator=torch.Generator().manual_seed(0)).cumsum(1)
    >>> density = sub.learning.hidden_chow_liu_tree(rows, [sub.Gaussian()] * 3, num_states=8)
    >>> history = sub.learning.fit_em(density, rows, max_epochs=5, progress=False)
    >>> density.sample(2).shape
    torch.Size([2, 3])
    """
    graph = graph or chow_liu_tree(data.numpy())
    tree = HiddenTree.of(graph)
    generator = as_generator(seed)
    circuit = _circuit(graph, families, num_states, tree, generator)
    circuit.to(dtype or torch.get_default_dtype())
    shares = torch.ones(len(data), dtype=torch.float64) if weights is None else weights.double()
    features = [coordinates(data[:, v], family) for v, family in enumerate(families)]
    together = torch.cat(features, 1)
    far, labels = distant * min(1.0, math.sqrt(NEAR_COLUMNS / len(families))), []
    determined = determined_variables(data, families, tree)
    for variable in range(len(families)):
        near = {variable, *tree.neighbours(variable)}
        widths = [1.0 if v in near else far for v in range(len(families))]
        scale = torch.cat(
            [torch.full(part.shape[1:], w) for part, w in zip(features, widths, strict=True)]
        )
        points, codes = together * scale, data[:, variable] if variable in determined else None
        labels.append(clusters_within(codes, points, num_states, generator))
    update(circuit, _start(circuit, tree, data, shares / shares.sum(), labels), 1 / len(data))
    return MonotonicCircuit(circuit)


class HiddenTree(NamedTuple):
    """For each variable, the region whose sum has its transitions, and the parent in the tree."""

    regions: tuple[int, ...]
    parents: tuple[int | None, ...]
    summed: frozenset[int]  # input regions of columns without children

    @classmethod
    def of(cls, graph: RegionGraph) -> HiddenTree:
        """Of a Chow-Liu tree, in which the first child of a region is the column of its own."""
        own: dict[int, int] = {}  # region -> its column
        for number, region in enumerate(graph.regions):
            if region.partitions:
                own[number] = own[region.partitions[0].children[0]]
            else:
                (own[number],) = region.scope
        regions, summed = [0] * graph.num_variables, []
        parents: list[int | None] = [None] * graph.num_variables
        regions[own[graph.root]] = graph.root
        for number, region in enumerate(graph.regions):
            for child in region.partitions[0].children[1:] if region.partitions else ():
                regions[own[child]], parents[own[child]] = child, own[number]
                if not graph.regions[child].partitions:
                    summed.append(child)
        return cls(tuple(regions), tuple(parents), frozenset(summed))

    def neighbours(self, variable: int) -> list[int]:
        """The parent and the children of a variable."""
        parent = self.parents[variable]
        children = [child for child, above in enumerate(self.parents) if above == variable]
        return children if parent is None else [parent, *children]


def _circuit(
    graph: RegionGraph,
    families: Sequence[InputFamily],
    num_states: int,
    tree: HiddenTree,
    generator: torch.Generator | None,
) -> Circuit:
    of_region = family_of_region(graph, families)
    schedule = fold(upward(graph, fold_labels(graph, of_region), summed=tree.summed))
    widths = Widths(num_states, num_states, 1)
    inputs = build_inputs(graph, schedule, of_region, widths, generator, is_shared=False)
    layers = build_layers(
        schedule, widths, HadamardLayer, lambda shape: PositiveWeights(torch.ones(*shape))
    )
    return Circuit.from_layers(graph, schedule, inputs=inputs, layers=layers)


def coordinates(column: Tensor, family: InputFamily) -> Tensor:
    """A column as coordinates (n, ...) in which near values are alike: zeros where missing."""
    known = ~column.isnan()
    x = torch.where(known, column, 0.0)
    if family.num_states is not None:
        states = torch.arange(family.num_states, dtype=x.dtype)
        hot = ((x[:, None] == states) & known[:, None]).float()
        return hot * math.sqrt(0.5)
    is_atom = family.is_atom(x) & known[:, None] if isinstance(family, WithAtoms) else None
    if is_atom is not None:
        known = known & ~is_atom.any(1)
    inside = x[known]
    centre, unit = inside.mean(), inside.std().clamp(min=1e-6)
    score = torch.where(known, ((x - centre) / unit).clamp(-FARTHEST, FARTHEST), 0.0)
    parts = [score[:, None].float()]
    if is_atom is not None:
        parts.append(is_atom.float())
    return torch.cat(parts, 1)


def determined_variables(
    data: Tensor, families: Sequence[InputFamily], tree: HiddenTree
) -> set[int]:
    """The discrete variables of which a neighbour tells nearly all, or which tell all of one."""
    found: set[int] = set()
    for child, parent in enumerate(tree.parents):
        sizes = [families[v].num_states for v in (child, parent) if v is not None]
        if parent is None or None in sizes:
            continue
        pair = data[:, [child, parent]]
        pair = pair[~pair.isnan().any(1)].long()
        joint = torch.zeros([size or 0 for size in sizes], dtype=torch.float64)
        joint.index_put_((pair[:, 0], pair[:, 1]), torch.ones(len(pair)).double(), accumulate=True)
        joint /= max(1, len(pair))
        single = [_entropy(joint.sum(axis)) for axis in (1, 0)]
        if sum(single) - _entropy(joint) > DETERMINED * min(single):
            found |= {child, parent}
    return found


def _entropy(shares: Tensor) -> float:
    return float(torch.special.entr(shares).sum())


def clusters_within(
    codes: Tensor | None, points: Tensor, count: int, generator: torch.Generator | None
) -> Tensor:
    """The clusters (n,) of points, none of which has rows of different codes (n,), if given.

    A code has clusters in proportion to the root of its rows, and one at least: those of rare
    codes would otherwise be part of others.
    """
    if codes is not None:
        levels, level, sizes = torch.unique(
            torch.nan_to_num(codes, nan=-1.0), return_inverse=True, return_counts=True
        )
    if codes is None or 2 * len(levels) > count:
        return clusters(points, count, generator)
    shares = sizes.double().sqrt()
    # At least one each, and no more than ``count`` together.
    each = 1 + ((count - len(levels)) * shares / shares.sum()).floor().long()
    labels = torch.empty(len(points), dtype=torch.long)
    for number, (first, size) in enumerate(
        zip((each.cumsum(0) - each).tolist(), each.tolist(), strict=True)
    ):
        rows = (level == number).nonzero()[:, 0]
        labels[rows] = first + clusters(points[rows], size, generator)
    return labels


def clusters(points: Tensor, count: int, generator: torch.Generator | None) -> Tensor:
    """The clusters (n,) of points (n, s) by k-means: Lloyd's steps for some of the points."""
    order = torch.randperm(len(points), generator=generator)[: CLUSTERED_ROWS * count]
    some = points[order]
    distinct = torch.unique(some, dim=0)
    picked = torch.randperm(len(distinct), generator=generator)[:count]
    centres = distinct[picked]
    for _ in range(LLOYD_STEPS):
        label = _nearest(some, centres)
        sums = torch.zeros_like(centres).index_add_(0, label, some)
        sizes = torch.bincount(label, minlength=len(centres))[:, None]
        centres = torch.where(sizes > 0, sums / sizes.clamp(min=1), centres)
    return _nearest(points, centres)


def _nearest(points: Tensor, centres: Tensor) -> Tensor:
    half = 0.5 * centres.square().sum(1)
    return torch.cat([(part @ centres.mT - half).argmax(1) for part in points.split(2**14)])


def _start(
    circuit: Circuit, tree: HiddenTree, data: Tensor, shares: Tensor, labels: Sequence[Tensor]
) -> Flows:
    """The flows if every hidden variable were its cluster."""
    num_states = circuit.input_layers[0].num_units
    sums = [
        torch.zeros(layer.weights().shape, dtype=torch.float64) for layer in circuit.sum_layers
    ]
    for variable, region in enumerate(tree.regions):
        number, place = circuit.places.sums[region]
        parent, own = tree.parents[variable], labels[variable]
        above = torch.zeros_like(own) if parent is None else labels[parent]
        rows = sums[number].shape[1]
        pairs = torch.bincount(above * num_states + own, shares, rows * num_states)
        joint = pairs.reshape(rows, num_states)
        apart = joint.sum(1, keepdim=True) * joint.sum(0)
        sums[number][place] = (1 - MIXING) * joint + MIXING * apart
    inputs: list[Statistics] = []
    for layer in circuit.input_layers:
        parts = []
        for (variable,) in layer.scopes:
            x = data[:, variable]
            hot = torch.nn.functional.one_hot(labels[variable], num_states)
            hot = hot * (shares * ~x.isnan())[:, None]
            parts.append(count(layer.families[0], torch.nan_to_num(x)[None], hot[None]))
        inputs.append({name: torch.cat([p[name] for p in parts]) for name in parts[0]})
    return Flows(sums, inputs)
