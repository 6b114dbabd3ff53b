"""Mixtures over random trees: the models of the paper's main table (App. H.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.cluster.hierarchy import ClusterNode, linkage, to_tree
from scipy.spatial.distance import squareform
from torch import Tensor

import subtractive as sub
from studies.models.kinds import COMPLEX, MPC, MPC2, NPC2, SQUARES
from subtractive.inputs.base import InputFamily

LINEAR, BINARY, CHOW_LIU = "LT", "BT", "CL"


@dataclass(frozen=True)
class TreeMixture:
    """What is mixed: a kind of model, a kind of tree, how many of them, and their sizes.

    ``outputs`` are the squares that are summed; a monotonic model has one output whatever it is.
    """

    model: str
    tree: str
    num_units: int
    num_trees: int = 1
    outputs: int = 1

    def __post_init__(self) -> None:
        for what, value, known in (
            ("model", self.model, (MPC, MPC2, NPC2, SQUARES, COMPLEX)),
            ("tree", self.tree, (LINEAR, BINARY, CHOW_LIU)),
        ):
            if value not in known:
                raise ValueError(f"a {what} is one of {', '.join(known)}, got {value!r}.")

    def build(
        self,
        rows: Tensor,
        families: Sequence[InputFamily] | InputFamily,
        seed: int,
        groups: Sequence[Sequence[int]] | None = None,
        *,
        from_rows: bool = True,
    ) -> sub.Density:
        """The density at its start, every tree and its weights anew; inputs follow the rows.

        Without ``from_rows`` all parameters are drawn, as the paper has it.
        """
        count = 1 if self.tree == CHOW_LIU else self.num_trees
        seeds = np.random.SeedSequence(seed).generate_state(count).tolist()
        leaves = [[i] for i in range(rows.shape[1])] if groups is None else groups
        members = [self._member(rows, families, leaves, one) for one in seeds]
        density = members[0] if count == 1 else sub.Mixture(members)
        if from_rows:
            sub.initialise(density, rows, seed=seed)
        return density

    def build_grouped(self, rows: Tensor, size: int, seed: int) -> sub.Density:
        """The same over groups of at most ``size`` correlated variables, a Gaussian for each."""
        family = sub.MultivariateGaussian(norm=1 if self.model == MPC else 2)
        return self.build(rows, family, seed, correlated_groups(rows, size))

    def _member(
        self,
        rows: Tensor,
        families: Sequence[InputFamily] | InputFamily,
        leaves: Sequence[Sequence[int]],
        seed: int,
    ) -> sub.Density:
        weights = {NPC2: sub.real_weights, SQUARES: sub.real_weights, COMPLEX: sub.complex_weights}
        circuit = sub.Circuit(
            self._graph(rows, leaves, seed),
            families,
            num_units=self.num_units,
            num_outputs=1 if self.model == MPC else self.outputs,
            weights=weights.get(self.model, sub.positive_weights),
            seed=seed,
        )
        return sub.MonotonicCircuit(circuit) if self.model == MPC else sub.SquaredCircuit(circuit)

    def _graph(self, rows: Tensor, leaves: Sequence[Sequence[int]], seed: int) -> sub.RegionGraph:
        if self.tree == CHOW_LIU:
            return sub.chow_liu_tree(rows.numpy())
        if self.tree == LINEAR:
            return sub.linear_tree(leaves, seed=seed)
        return sub.random_binary_tree(leaves, seed=seed)


def spline_families(
    rows: Sequence[Tensor], model: str, num_bases: int, *, at_quantiles: bool = False
) -> list[InputFamily]:
    """Quadratic splines over the range of each variable in all rows.

    The paper takes the domain from all parts of the data: elsewhere the density is zero. Knots are
    uniform, or at the quantiles of the first part.
    """
    low = torch.stack([part.amin(0) for part in rows]).amin(0).double()
    high = torch.stack([part.amax(0) for part in rows]).amax(0).double()
    margin = 1e-3 * torch.where(high > low, high - low, 1.0)
    splines = [
        sub.Spline(num_bases, domain=(a, b), non_negative=model in (MPC, MPC2))
        for a, b in zip((low - margin).tolist(), (high + margin).tolist(), strict=True)
    ]
    if not at_quantiles:
        return [*splines]
    return [
        replace(spline, knots=sub.Spline.from_quantiles(column, num_bases).knots)
        for spline, column in zip(splines, rows[0].T, strict=True)
    ]


def correlated_groups(rows: Tensor, size: int) -> list[list[int]]:
    """Variables in groups of at most ``size``, those together that are most correlated.

    A hierarchical clustering by 1 - |r| with average linkage, cut where clusters would grow beyond
    the size.

    >>> x = torch.randn(50, 1, generator=torch.Generator().manual_seed(0))
    >>> correlated_groups(torch.cat([x, x.flip(0), -x, x.flip(0) + 1], 1), size=2)
    [[0, 2], [1, 3]]
    """
    if rows.shape[1] < 2 or size < 2:
        return [[i] for i in range(rows.shape[1])]
    distance = 1 - np.abs(np.nan_to_num(np.corrcoef(rows.double().numpy().T)))
    np.fill_diagonal(distance, 0)
    links = linkage(squareform((distance + distance.T) / 2, checks=False), "average")
    return sorted(_cut(to_tree(links), size))


def _cut(node: ClusterNode, size: int) -> list[list[int]]:
    if node.get_count() <= size:
        return [sorted(node.pre_order())]
    return [*_cut(node.get_left(), size), *_cut(node.get_right(), size)]
