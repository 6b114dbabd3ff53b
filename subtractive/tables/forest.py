"""Marginals of mixtures of monotonic trees given evidence, by messages up and down the trees.

Members over the same tree are stacked, so that a mixture of eight trees takes as many steps as
one. Messages are logarithms, because there is nothing to subtract. A forest may be kept for many
questions as long as nothing of its density changes.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, TypeGuard, final

import numpy as np
import torch
from torch import Tensor

from subtractive.circuits.layers import HadamardLayer, SumLayer
from subtractive.densities.base import Density
from subtractive.densities.mixture import Mixture
from subtractive.densities.monotonic import MonotonicCircuit
from subtractive.inference.evidence import Evidence
from subtractive.inference.expectations import UnitShares
from subtractive.inputs.base import EVERYWHERE, InputFamily, Tensors
from subtractive.inputs.layer import InputLayer
from subtractive.numerics.leaf_message import LeafMessage, choose
from subtractive.regions.folding import FoldedSchedule, Index
from subtractive.tables.reading import Floats


@final
class Leaves(NamedTuple):
    """Input regions of one variable each, of all members of a stack."""

    variables: Sequence[int]  # (f,)
    family: InputFamily
    tensors: Tensors  # (m, f, ...) each
    log_integrals: Tensor  # (m, f, 1, i)
    values: Mapping[int, Tensor]  # (m · i, q) by variable: f_i where its curve is, over ∫ f_i

    @classmethod
    def of(cls, layers: Sequence[InputLayer], points: Mapping[int, Floats]) -> Leaves:
        """The layers of all members side by side."""
        family, variables = layers[0].family, layers[0].variables[:, 0].tolist()
        each = [layer.tensors(slice(None), torch.float64) for layer in layers]
        tensors = {name: torch.stack([p[name] for p in each]).detach() for name in each[0]}
        integrals = torch.stack([_logs(family.integral(p, EVERYWHERE)) for p in each]).detach()
        leaves = cls(variables, family, tensors, integrals, {})
        known = {v: leaves.values_at(v, points[v]) for v in variables if v in points}
        return leaves._replace(values=known)

    def at(self, variable: int) -> tuple[int, Tensors]:
        """The place of a variable, and the tensors (m, i, ...) of its units."""
        place = self.variables.index(variable)
        return place, {name: tensor[:, place] for name, tensor in self.tensors.items()}

    def values_at(self, variable: int, codes: Floats) -> Tensor:
        """``f_i / ∫ f_i`` of all units at codes, (m · i, q)."""
        place, p = self.at(variable)
        x = torch.from_numpy(codes).expand(len(self.log_integrals), -1)[..., None]
        log_values = _logs(self.family.values(p, x)) - self.log_integrals[:, place]
        return log_values.exp().mT.flatten(0, 1)

    def log_messages(self, evidence: Evidence) -> Tensor:
        """f(x) where a variable is observed, else its integral over the window, (m, f, n, i)."""
        logs = self.log_integrals.expand(-1, -1, len(evidence), -1).clone()
        for variable in _known(evidence) & set(self.variables):
            observed = evidence.observed[:, variable].expand(len(logs), -1)  # (m, n)
            place, p = self.at(variable)
            window = evidence.window(torch.full((len(logs), 1), variable))
            x = evidence.x[:, variable].double().expand(len(logs), -1)[..., None]
            message = choose(observed, self.family.values(p, x), self.family.integral(p, window))
            logs[:, place] = _logs(message)
        return logs


@final
class Stack(NamedTuple):
    """Members of a mixture over the same tree, with equally many units."""

    schedule: FoldedSchedule
    leaves: Sequence[Leaves]
    weights: Sequence[Tensor]  # (m, f, o, i) of each call
    log_shares: Tensor  # (m,): of each member's weight over its Z

    def weigh(self, evidence: Evidence) -> tuple[Tensor, dict[int, Tensor]]:
        """log of the weight of evidence in each member, (m, n), and coefficients of all curves.

        The density of a variable in a member is ``Σ_i r_i f_i / ∫ f_i``, r (m, n, i).
        """
        messages = [leaf.log_messages(evidence) for leaf in self.leaves]
        for call, weight in zip(self.schedule.calls, self.weights, strict=True):
            product = torch.stack(self._children(messages, call.sources, call.places)).sum(0)
            messages.append(_log_sum(weight, product))
        environments = [torch.empty_like(message) for message in messages]
        environments[-1].zero_()
        for number in reversed(range(len(self.schedule.calls))):
            call, weight = self.schedule.calls[number], self.weights[number]
            above = _log_sum(weight.mT, environments[len(self.leaves) + number])
            children = self._children(messages, call.sources, call.places)
            for slot, rest in enumerate(_without_each(children)):
                environments[call.sources[slot]][:, call.places[slot]] = above + rest
        log_weights = self.log_shares[:, None] + messages[-1].logsumexp(-1)[:, 0]
        found = {}
        for leaf, message, outside in zip(self.leaves, messages, environments, strict=False):
            whole = (outside + message).logsumexp(-1, keepdim=True)
            shares = (outside - whole + leaf.log_integrals).exp()
            found.update({v: shares[:, place] for place, v in enumerate(leaf.variables)})
        return log_weights, found

    def leaf(self, variable: int) -> Leaves:
        """The leaves with a variable."""
        return next(leaf for leaf in self.leaves if variable in leaf.variables)

    @staticmethod
    def _children(
        messages: Sequence[Tensor], sources: Sequence[int], places: Sequence[Index]
    ) -> list[Tensor]:
        return [messages[source][:, at] for source, at in zip(sources, places, strict=True)]


@final
class Forest:
    """A mixture of monotonic trees, ready for curves at codes (q,) of variables."""

    def __init__(self, stacks: Sequence[Stack], points: Mapping[int, Floats]) -> None:
        self.stacks, self.points = stacks, points

    @classmethod
    @torch.no_grad()
    def of(cls, density: Density, points: Mapping[int, Floats] | None = None) -> Forest | None:
        """Prepare a density; ``None`` if it is of another kind."""
        members: list[object] = [density]
        shares = torch.zeros(1, dtype=torch.float64)
        if isinstance(density, Mixture):
            members, shares = list(density.members), density.logits.double().log_softmax(0)
        trees = [member for member in members if _is_tree(member)]
        if len(trees) < len(members):
            return None
        groups: dict[str, list[int]] = {}
        for number, member in enumerate(trees):
            circuit = member.circuit
            shapes = [layer.weights().shape for layer in circuit.sum_layers]
            families = [(layer.family, layer.scopes) for layer in circuit.input_layers]
            groups.setdefault(str((circuit.schedule, shapes, families)), []).append(number)
        stacks = [
            _stack([trees[number] for number in group], shares[group], points or {})
            for group in groups.values()
        ]
        return cls(stacks, points or {})

    @torch.no_grad()
    def unit_shares(self, evidence: Evidence) -> dict[int, UnitShares] | None:
        """The units of all members, and their shares given one row, by variable not observed.

        ``None`` if a variable is of different families in different members.
        """
        log_weights, answers = self._weigh(evidence)
        shares = log_weights.softmax(0).split([len(stack.log_shares) for stack in self.stacks])
        joined = {}
        for variable in (~evidence.observed[0]).nonzero()[:, 0].tolist():
            leaves = [stack.leaf(variable) for stack in self.stacks]
            if any(leaf.family != leaves[0].family for leaf in leaves):
                return None
            units = [leaf.at(variable)[1] for leaf in leaves]
            tensors = {
                name: torch.cat([p[name].flatten(0, 1) for p in units])[None] for name in units[0]
            }
            parts = [
                _weighted(found[variable], share)[:, 0].flatten()
                for found, share in zip(answers, shares, strict=True)
            ]
            joined[variable] = UnitShares(leaves[0].family, tensors, torch.cat(parts)[None])
        return joined

    def _weigh(self, evidence: Evidence) -> tuple[Tensor, list[dict[int, Tensor]]]:
        """log of the weight of evidence in all members, (m, n), and coefficients by stack."""
        answers = [stack.weigh(evidence) for stack in self.stacks]
        return torch.cat([log_weight for log_weight, _ in answers]), [r for _, r in answers]

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
        for stack, found in zip(self.stacks, answers, strict=True):
            share = shares[start : start + len(stack.log_shares)]
            weighted = _weighted(found[variable], share)
            leaf = stack.leaf(variable)
            values = leaf.values[variable] if codes is None else leaf.values_at(variable, codes)
            curves.append(weighted.movedim(1, 0).flatten(1) @ values)
            start += len(stack.log_shares)
        return np.asarray(torch.stack(curves).sum(0).numpy())


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


def _stack(
    members: Sequence[MonotonicCircuit], log_shares: Tensor, points: Mapping[int, Floats]
) -> Stack:
    circuits = [member.circuit for member in members]
    schedule = circuits[0].schedule
    leaves = [
        Leaves.of([circuit.input_layers[call.layer] for circuit in circuits], points)
        for call in schedule.leaves
    ]
    weights = [
        torch.stack([circuit.sum_layers[call.layer].weights().double() for circuit in circuits])
        for call in schedule.calls
    ]
    log_normalisers = torch.stack([member.log_partition().double() for member in members])
    return Stack(schedule, leaves, weights, log_shares - log_normalisers)


def _logs(message: LeafMessage) -> Tensor:
    """The logarithms of a message that is not negative."""
    if message.mantissa is None:
        return message.some
    logs = message.mantissa.log()
    return logs if message.exponent is None else logs + message.exponent


def _log_sum(weight: Tensor, logs: Tensor) -> Tensor:
    """log W exp(l), (m, f, n, o), of weights (m, f, o, i) and logarithms (m, f, n, i)."""
    peak = logs.amax(-1, keepdim=True).clamp(min=torch.finfo(logs.dtype).min)
    return ((logs - peak).exp() @ weight.mT).log() + peak


def _without_each(children: Sequence[Tensor]) -> list[Tensor]:
    """For each child the sum of all others; not by a difference, where infinities are NaN."""
    zero = torch.zeros_like(children[0])
    before, after = [zero], [zero]
    for child, last in zip(children[:-1], children[:0:-1], strict=True):
        before.append(before[-1] + child)
        after.append(after[-1] + last)
    return [left + right for left, right in zip(before, reversed(after), strict=True)]
