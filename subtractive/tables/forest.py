"""Marginals of mixtures of monotonic trees given evidence, prepared for many questions.

Members over the same tree are stacked, so that a mixture of eight trees takes as many steps as
one. A forest may be kept as long as nothing of its density changes.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import NamedTuple, TypeGuard, final

import numpy as np
import torch
from torch import Tensor

from subtractive.circuits.circuit import Stack, structure
from subtractive.circuits.evaluation import evaluate
from subtractive.circuits.layers import HadamardLayer, SumLayer
from subtractive.densities.base import Density
from subtractive.densities.mixture import Mixture
from subtractive.densities.monotonic import MonotonicCircuit
from subtractive.inference.evidence import Evidence
from subtractive.inference.expectations import unit_shares
from subtractive.inference.marginal import BY_ROW, plain_leaves
from subtractive.inference.unit_marginals import UnitShares
from subtractive.inputs.base import EVERYWHERE, InputFamily, Tensors
from subtractive.inputs.layer import InputLayer
from subtractive.numerics.leaf_operations import choose
from subtractive.numerics.messages import LeafMessage, log_sum
from subtractive.regions.folding import FoldedSchedule
from subtractive.tables.reading import Floats


@final
class Leaf(NamedTuple):
    """One variable in all members of a stack."""

    family: InputFamily
    tensors: Tensors  # (m, i, ...) each
    log_integrals: Tensor  # (m, 1, i)

    @classmethod
    def of(cls, layer: InputLayer, place: int, count: int) -> Leaf:
        """The regions of a stacked layer from a place on."""
        p = layer.tensors(slice(place, place + count), torch.float64)
        return cls(layer.family, p, _logs(layer.family.integral(p, EVERYWHERE)))

    def values_at(self, codes: Floats) -> Tensor:
        """``f_i / ∫ f_i`` of all units at codes, (m · i, q)."""
        x = torch.from_numpy(codes).expand(len(self.log_integrals), -1)[..., None]
        log_values = _logs(self.family.values(self.tensors, x)) - self.log_integrals
        return log_values.exp().mT.flatten(0, 1)

    def coefficients(self, shares: Tensor, variable: int, evidence: Evidence) -> Tensor:
        """r (m, n, i) of the density ``Σ_i r_i f_i / ∫ f_i``, given the shares of the units.

        They are the shares themselves where nothing is known of the variable.
        """
        count = len(self.log_integrals)
        observed = evidence.observed[:, variable].expand(count, -1)  # (m, n)
        window = evidence.window(torch.full((count, 1), variable))
        x = evidence.x[:, variable].double().expand(count, -1)[..., None]
        inside = self.family.integral(self.tensors, window)
        known = _logs(choose(observed, self.family.values(self.tensors, x), inside))
        found = (shares.log() + self.log_integrals - known).exp()
        return torch.where(shares > 0, found, 0.0)


@final
class Trees(NamedTuple):
    """Members of a mixture over the same tree, with equally many units."""

    stack: Stack
    schedule: FoldedSchedule
    leaves: Mapping[int, Leaf]  # by variable
    values: Mapping[int, Tensor]  # (m · i, q) by variable: ``f_i / ∫ f_i`` where its curve is
    log_shares: Tensor  # (m,): of each member's weight over its Z

    @classmethod
    def of(
        cls,
        members: Sequence[MonotonicCircuit],
        log_shares: Tensor,
        points: Mapping[int, Floats],
    ) -> Trees:
        """Members of equal structure, ready for curves at codes (q,) of variables."""
        circuits = [member.circuit for member in members]
        stack, count = Stack.of(circuits), len(circuits)
        schedule = circuits[0].schedule.with_label(BY_ROW).repeated(count)
        leaves = {
            variable: Leaf.of(layer, place * count, count)
            for layer, own in zip(stack.input_layers, circuits[0].input_layers, strict=True)
            for place, (variable,) in enumerate(own.scopes)
        }
        values = {v: leaf.values_at(points[v]) for v, leaf in leaves.items() if v in points}
        log_normalisers = torch.stack([member.log_partition().double() for member in members])
        return cls(stack, schedule, leaves, values, log_shares - log_normalisers)

    def log_weights(self, evidence: Evidence) -> Tensor:
        """log of the weight of evidence in each member, (m, n)."""
        leaves = plain_leaves(self.stack, evidence)
        root = evaluate(self.schedule, self.stack.sum_layers, leaves)
        return self.log_shares[:, None] + log_sum(root)

    def weigh(self, evidence: Evidence) -> tuple[Tensor, dict[int, Tensor]]:
        """log of the weight of evidence in each member, (m, n), and coefficients of all curves.

        The density of a variable in a member is ``Σ_i r_i f_i / ∫ f_i``, r (m, n, i).
        """
        logs, units = unit_shares(self.stack, evidence, self.schedule)
        found: dict[int, Tensor] = {}
        for layer, folds, shares in units:
            variables = layer.variables[folds][:: self.stack.size, 0].tolist()
            by_variable = shares.unflatten(0, (-1, self.stack.size)).unbind()
            found.update(zip(variables, by_variable, strict=True))
        for variable in _known(evidence):
            leaf, shares = self.leaves[variable], found[variable]
            found[variable] = leaf.coefficients(shares, variable, evidence)
        return self.log_shares[:, None] + logs, found


@final
class Forest:
    """A mixture of monotonic trees, ready for curves at codes (q,) of variables."""

    def __init__(self, trees: Sequence[Trees], points: Mapping[int, Floats]) -> None:
        self.trees, self.points = trees, points

    @classmethod
    @torch.no_grad()
    def of(cls, density: Density, points: Mapping[int, Floats] | None = None) -> Forest | None:
        """Prepare a density; ``None`` if it is of another kind."""
        members, shares = _members(density)
        trees = [member for member in members if _is_tree(member)]
        if len(trees) < len(members):
            return None
        groups: dict[Hashable, list[int]] = {}
        for number, member in enumerate(trees):
            groups.setdefault(structure(member.circuit), []).append(number)
        stacks = [
            Trees.of([trees[number] for number in group], shares[group], points or {})
            for group in groups.values()
        ]
        return cls(stacks, points or {})

    @torch.no_grad()
    def unit_shares(self, evidence: Evidence) -> dict[int, UnitShares] | None:
        """The units of all members, and their shares given one row, by variable not observed.

        ``None`` if a variable is of different families in different members.
        """
        log_weights, answers = self._weigh(evidence)
        shares = log_weights.softmax(0).split([len(trees.log_shares) for trees in self.trees])
        joined = {}
        for variable in (~evidence.observed[0]).nonzero()[:, 0].tolist():
            leaves = [trees.leaves[variable] for trees in self.trees]
            if any(leaf.family != leaves[0].family for leaf in leaves):
                return None
            tensors = {
                name: torch.cat([leaf.tensors[name].flatten(0, 1) for leaf in leaves])[None]
                for name in leaves[0].tensors
            }
            parts = [
                _weighted(found[variable], share)[:, 0].flatten()
                for found, share in zip(answers, shares, strict=True)
            ]
            joined[variable] = UnitShares(leaves[0].family, tensors, torch.cat(parts)[None])
        return joined

    def _weigh(self, evidence: Evidence) -> tuple[Tensor, list[dict[int, Tensor]]]:
        """log of the weight of evidence in all members, (m, n), and coefficients by stack."""
        answers = [trees.weigh(evidence) for trees in self.trees]
        return torch.cat([log_weight for log_weight, _ in answers]), [r for _, r in answers]

    @torch.no_grad()
    def log_weight(self, evidence: Evidence) -> float:
        """log of the weight of evidence."""
        logs = [trees.log_weights(evidence) for trees in self.trees]
        return float(torch.cat(logs).logsumexp((0, 1)))

    @torch.no_grad()
    def weigh_heights(
        self, evidence: Evidence, variables: Collection[int]
    ) -> tuple[float, dict[int, Floats]]:
        """log of the weight of evidence, and the densities of some variables at their points."""
        log_weights, answers = self._weigh(evidence)
        whole = log_weights.logsumexp((0, 1))
        if whole.isneginf():
            return -math.inf, {v: np.zeros(len(self.points[v])) for v in variables}
        shares = (log_weights - whole).exp()
        curves = {v: self._curves(v, shares, answers) for v in variables}
        for variable in _known(evidence) & curves.keys():
            curves[variable] *= _inside(self.points[variable], variable, evidence)
        return float(whole), {v: curve.sum(0) for v, curve in curves.items()}

    @torch.no_grad()
    def pair_heights(
        self, evidence: Evidence, pair: Sequence[int], codes: Sequence[Floats]
    ) -> Floats:
        """The joint density (p, q) of two variables at codes (p,) and (q,).

        The first is observed at each of its codes in turn; the marginals of the other follow.
        """
        first, second = pair
        boxes = torch.arange(len(evidence)).repeat_interleave(len(codes[0]))
        rows = evidence.rows(boxes)
        rows.x[:, first] = torch.from_numpy(np.tile(codes[0], len(evidence)))
        rows.observed[:, first] = True
        log_weights, answers = self._weigh(rows)
        whole = self._weigh(evidence)[0].logsumexp((0, 1))
        curves = self._curves(second, (log_weights - whole).exp(), answers, codes[1])
        heights = curves.reshape(len(evidence), len(codes[0]), len(codes[1]))
        inside = [_inside(codes[k], pair[k], evidence) for k in (0, 1)]  # (n, p), (n, q)
        return np.asarray((heights * inside[0][:, :, None] * inside[1][:, None]).sum(0))

    def _curves(
        self,
        variable: int,
        shares: Tensor,
        answers: Sequence[Mapping[int, Tensor]],
        codes: Floats | None = None,
    ) -> Floats:
        """The density (n, q) of a variable in each box times the shares (m, n) of the members."""
        curves, start = [], 0
        for trees, found in zip(self.trees, answers, strict=True):
            share = shares[start : start + len(trees.log_shares)]
            weighted = _weighted(found[variable], share)
            values = (
                trees.values[variable]
                if codes is None
                else trees.leaves[variable].values_at(codes)
            )
            curves.append(weighted.movedim(1, 0).flatten(1) @ values)
            start += len(trees.log_shares)
        return np.asarray(torch.stack(curves).sum(0).numpy())


@final
class Parts(NamedTuple):
    """A mixture in two: its members that are monotonic trees, and the others."""

    trees: Mixture
    rest: Mixture
    log_share: float  # of the trees


@torch.no_grad()
def split_trees(density: Density) -> Parts | None:
    """The two parts of a mixture; ``None`` if all of its members are trees, or none is."""
    members, shares = _members(density)
    is_tree = [_is_tree(member) for member in members]
    if all(is_tree) or not any(is_tree):
        return None
    numbers = [[k for k, tree in enumerate(is_tree) if tree == kind] for kind in (True, False)]
    trees, rest = (
        Mixture([members[k] for k in some], weights=shares[some].softmax(0)) for some in numbers
    )
    return Parts(trees, rest, float(shares[numbers[0]].logsumexp(0)))


def _members(density: Density) -> tuple[list[Density], Tensor]:
    """The members of a mixture, or a density alone, and the logs of their shares."""
    if not isinstance(density, Mixture):
        return [density], torch.zeros(1, dtype=torch.float64)
    members = [member for member in density.members if isinstance(member, Density)]
    return members, density.logits.double().log_softmax(0)


def _weighted(coefficients: Tensor, shares: Tensor) -> Tensor:
    """Coefficients (m, n, i) times shares (m, n); a member that excludes evidence has none."""
    return torch.where(shares[..., None] > 0, coefficients * shares[..., None], 0.0)


def _known(evidence: Evidence) -> set[int]:
    """The variables of which something is known."""
    known = evidence.observed.any(0)
    for bound in (evidence.lower, evidence.upper):
        if bound is not None:
            known = known | bound.isfinite().any(0)
    return {*known.nonzero()[:, 0].tolist(), *evidence.states}


def _inside(codes: Floats, variable: int, evidence: Evidence) -> Floats:
    """Whether each box has codes (q,), (n, q)."""
    inside = np.ones((len(evidence), len(codes)), dtype=bool)
    if evidence.lower is not None:
        inside &= codes > evidence.lower[:, [variable]].numpy()
    if evidence.upper is not None:
        inside &= codes <= evidence.upper[:, [variable]].numpy()
    if variable in evidence.states:
        inside &= evidence.states[variable].numpy()[codes.astype(int)]
    return inside.astype(np.float64)


def _is_tree(member: object) -> TypeGuard[MonotonicCircuit]:
    if not isinstance(member, MonotonicCircuit) or not member.circuit.graph.is_tree:
        return False
    circuit = member.circuit
    return all(isinstance(one, HadamardLayer | SumLayer) for one in circuit.sum_layers) and all(
        layer.variables.shape[1] == 1 for layer in circuit.input_layers
    )


def _logs(message: LeafMessage) -> Tensor:
    """The logarithms of a message that is not negative."""
    if message.mantissa is None:
        return message.some
    logs = message.mantissa.log()
    return logs if message.exponent is None else logs + message.exponent
