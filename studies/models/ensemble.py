"""Independent models of one shape, trained side by side as one circuit.

The product of R densities over R copies of the variables is a density over all of them: its
log-likelihood is the sum of theirs, the gradient of each is its own, and Adam treats every number
by itself. So R seeds cost little more than one as long as a step is mostly overhead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

import subtractive as sub
from subtractive.circuits.building import family_of_region, fold_labels
from subtractive.circuits.circuit import Circuit
from subtractive.circuits.evaluation import LeafSource, leaves_of
from subtractive.circuits.layers import HadamardLayer
from subtractive.circuits.reference_path import ReferencePath
from subtractive.circuits.weights import PositiveWeights, RealWeights, Weights
from subtractive.inference.partition import plain_integrals, square_integrals
from subtractive.inputs.layer import InputLayer
from subtractive.numerics.signed_log import signed_log
from subtractive.regions.folding import divide_leaves, fold, upward

Member = sub.SquaredCircuit | sub.MonotonicCircuit


@final
class Ensemble:
    """Densities of two variables and equal shape, one root output each, as one density.

    ``joint`` is what learns; :meth:`state` is what a member then looks like.
    """

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = list(members)
        self.joint = type(members[0])(_joined([member.circuit for member in members]))
        self.load([member.state_dict() for member in members])

    def columns(self, x: Tensor, seeds: Sequence[int] | None = None) -> Tensor:
        """Rows (n, 2) for all members, (n, 2R); with seeds in an order of its own for each."""
        if seeds is None:
            return x.repeat(1, len(self.members))
        orders = [
            torch.randperm(len(x), generator=torch.Generator().manual_seed(seed)) for seed in seeds
        ]
        return torch.cat([x[order] for order in orders], 1)

    @torch.no_grad()
    def scores(self, x: Tensor) -> Tensor:
        """The mean log-likelihood of rows (n, 2) under each member, (r,)."""
        circuit, rows = self.joint.circuit, self.columns(x)
        logs = self._log_members(circuit.values_at(rows))  # (r, n)
        if isinstance(self.joint, sub.SquaredCircuit):
            return (2 * logs - self._log_members(square_integrals(circuit))).mean(1)
        return (logs - self._log_members(plain_integrals(circuit))).mean(1)

    def _log_members(self, source: LeafSource) -> Tensor:
        """The logarithms of the first layer's units, one for each member, (r, n)."""
        circuit = self.joint.circuit
        rule = ReferencePath(circuit.schedule, circuit.sum_layers)
        leaves = [signed_log(leaf) for leaf in leaves_of(circuit.schedule, source)]
        first = rule(0, [*divide_leaves(circuit.schedule, leaves).values()])
        return first.log_abs.flatten(2)[..., 0]

    @torch.no_grad()
    def load(self, states: Sequence[dict[str, Tensor]]) -> None:
        """Take over the numbers of all members."""
        for name, tensor in self._shared():
            for number, state in enumerate(states):
                tensor[self._places(name, number)] = state[name]

    @torch.no_grad()
    def state(self, number: int) -> dict[str, Tensor]:
        """A copy of the numbers of one member, those that are learned and those that are not."""
        return {name: t[self._places(name, number)].clone() for name, t in self._shared()}

    def _shared(self) -> list[tuple[str, Tensor]]:
        """The tensors of the joint density in which members have their places."""
        own = self.joint.state_dict()
        return [(name, own[name]) for name in self.members[0].state_dict()]

    def _places(self, name: str, number: int) -> list[int]:
        """Where the numbers of a member are along the first axis of a parameter."""
        if ".layers." in name:
            return [number]
        variables = self.joint.circuit.input_layers[0].variables[:, 0].tolist()
        return [variables.index(2 * number), variables.index(2 * number + 1)]


def _joined(circuits: Sequence[Circuit]) -> Circuit:
    """A circuit of the shape of all circuits beside each other, and a product of them on top."""
    first = circuits[0]
    pairs = tuple((2 * r, 2 * r + 1) for r in range(len(circuits)))
    graph = sub.RegionGraph.from_nested(pairs if len(pairs) > 1 else pairs[0])
    families = family_of_region(graph, [*first.families] * len(circuits))
    schedule = fold(upward(graph, fold_labels(graph, families)))
    ((regions, *_),) = schedule.leaves
    inputs = InputLayer(
        [families[region] for region in regions],
        [sorted(graph.regions[region].scope) for region in regions],
        num_units=first.input_layers[0].num_units,
        generator=None,
    )
    weights = torch.ones(len(circuits), 1, first.input_layers[0].num_units)
    top = _weights(first, torch.ones(1, 1, 1))
    top.requires_grad_(requires_grad=False)
    layers = [HadamardLayer(_weights(first, weights)), HadamardLayer(top)][: len(schedule.calls)]
    return Circuit.from_layers(graph, schedule, inputs=[inputs], layers=layers).to(first.dtype)


def _weights(circuit: Circuit, value: Tensor) -> Weights:
    kind = PositiveWeights if circuit.sum_layers[0].weights.is_non_negative else RealWeights
    return kind(value)
