"""Expected flows of monotonic circuits: the E-step, by one backward pass of log c.

Let every sum choose one of its terms, and follow the choices from the root down. Given a row, the
expected number of times that an edge of weight w is taken, and the probability that an
input unit f_k is reached, are derivatives:

    flow of w = w · ∂ log c / ∂ w,    share of f_k = ∂ log c / ∂ log f_k.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from subtractive.circuits.circuit import Circuit
from subtractive.circuits.evaluation import evaluate
from subtractive.inference.evidence import Evidence
from subtractive.inference.marginal import OBSERVED, labels, plain_leaf
from subtractive.inputs.base import EVERYWHERE
from subtractive.inputs.layer import InputLayer
from subtractive.learning.sufficient_statistics import Statistics, count, expect, maximise
from subtractive.numerics.messages import LeafMessage, log_sum, safe_log
from subtractive.regions.folding import LayerCall, LeafCall

# The smallest weight of a sum: its logarithm must exist.
LEAST_WEIGHT = 1e-30
# Where all functions of a region are zero they are taken to be as small as this logarithm: a
# member of a mixture that excludes a row then has no share of it, and derivatives are finite.
IMPOSSIBLE = -1e5


@final
@dataclass
class Flows:
    """Expected flows of all sums, (f, o, i) each, and the statistics of all input layers."""

    sums: list[Tensor]
    inputs: list[Statistics]

    def tensors(self) -> list[Tensor]:
        """All numbers."""
        return [*self.sums, *(t for statistics in self.inputs for t in statistics.values())]

    def move(self, other: Flows, share: float) -> None:
        """Go to other flows by a share of the way."""
        for mine, theirs in zip(self.tensors(), other.tensors(), strict=True):
            mine.lerp_(theirs, share)

    def multiply_by(self, factor: float) -> None:
        """Let them be of so many times as many rows."""
        for tensor in self.tensors():
            tensor.mul_(factor)


@final
class ForwardPass:
    """log c of some rows, missing entries integrated out, from leaves that are kept.

    :attr:`watched` is what derivatives are wanted of: logarithms of weights and of input units.
    """

    def __init__(self, circuit: Circuit, evidence: Evidence) -> None:
        self.circuit, self.evidence = circuit, evidence
        self.schedule = (
            circuit.schedule.with_label(OBSERVED)
            if evidence.is_complete
            else circuit.refold(labels(circuit, evidence))
        )
        self.weights = [next(layer.weights.parameters()) for layer in circuit.sum_layers]
        self.leaves = [self._leaf(call) for call in self.schedule.leaves]
        leaf_of = dict(zip(map(id, self.schedule.leaves), self.leaves, strict=True))

        def source(call: LeafCall, rows: Tensor | None, dtype: torch.dtype | None) -> LeafMessage:
            leaf = leaf_of[id(call)]
            some = leaf if rows is None or leaf.shape[1] == 1 else leaf[:, rows]
            return LeafMessage(None, some if dtype is None else some.to(dtype))

        self.log_values = log_sum(evaluate(self.schedule, circuit.sum_layers, source))[0]  # (n,)
        self.watched = [*self.weights, *self.leaves]

    @torch.no_grad()
    def _leaf(self, call: LeafCall) -> Tensor:
        """The logarithms (f, n, i) of some input functions."""
        message = plain_leaf(self.circuit.input_layers[call.layer], call, self.evidence)
        logs = message.some
        if message.mantissa is not None:
            logs = safe_log(message.mantissa)
            logs = logs if message.exponent is None else logs + message.exponent
        # None is so far below the largest that its exponential is denormal, which takes long.
        reach = math.log(torch.finfo(logs.dtype).tiny) + 7
        largest = logs.amax(-1, keepdim=True).clamp(min=IMPOSSIBLE)
        return torch.maximum(logs, largest + reach).requires_grad_()

    def flows(self, gradients: Sequence[Tensor]) -> Flows:
        """The flows, given the derivatives of Σ_n w_n log p(x_n) by all that is watched."""
        count_of = len(self.weights)

        def counted(layer: InputLayer, call: LeafCall, share: Tensor) -> Statistics:
            variables = layer.variables[call.folds]  # (f, s)
            seen = self.evidence.observed[:, variables].all(-1).mT  # (f, n)
            x = self.evidence.x[:, variables].movedim(0, 1)  # (f, n, s)
            x = x[..., 0] if layer.family.is_univariate else x
            return count(layer.family, x, share * seen[..., None].to(share.dtype))

        sums = [gradient.double() for gradient in gradients[:count_of]]
        return Flows(sums, self._by_layer(gradients[count_of:], counted))

    def own_flows(self, gradients: Sequence[Tensor]) -> Flows:
        """The flows of rows drawn from the circuit itself, given the derivatives of log Z."""

        def expected(layer: InputLayer, call: LeafCall, mass: Tensor) -> Statistics:
            return expect(layer.family, layer.tensors(call.folds), mass.sum(1))

        sums = [gradient.double() for gradient in gradients[: len(self.weights)]]
        return Flows(sums, self._by_layer(gradients[len(self.weights) :], expected))

    def _by_layer(
        self,
        shares: Sequence[Tensor],
        statistics_of: Callable[[InputLayer, LeafCall, Tensor], Statistics],
    ) -> list[Statistics]:
        """The statistics of each input layer, its regions perhaps from several leaves."""
        layers = self.circuit.input_layers
        found: list[Statistics] = [{} for _ in layers]
        for call, share in zip(self.schedule.leaves, shares, strict=True):
            layer = layers[call.layer]
            for name, tensor in statistics_of(layer, call, share).items():
                shape = (len(layer.scopes), *tensor.shape[1:])
                found[call.layer].setdefault(name, tensor.new_zeros(shape))[call.folds] = tensor
        for layer, statistics in zip(layers, found, strict=True):
            if layer.is_shared:
                statistics.update({k: t.sum(0, keepdim=True) for k, t in statistics.items()})
        return found


def own_flows(circuit: Circuit) -> Flows:
    """The flows that a circuit expects of rows drawn from itself, per row."""
    nothing = torch.zeros(1, circuit.num_variables, dtype=torch.float64, device=circuit.device)
    forward = ForwardPass(circuit, Evidence(nothing, torch.zeros_like(nothing, dtype=torch.bool)))
    return forward.own_flows(torch.autograd.grad(forward.log_values.sum(), forward.watched))


@torch.no_grad()
def update(circuit: Circuit, flows: Flows, pseudocount: float) -> None:
    """The M-step: the most likely parameters for expected flows, so that Z is one.

    ``pseudocount`` is in the units of the flows: 1 / n is one of n rows of mass 1 together.
    """
    for layer, statistics in zip(circuit.input_layers, flows.inputs, strict=True):
        before = {name: layer.get_tensor(name).double() for name in layer.names}
        for name, value in maximise(layer.family, statistics, before, pseudocount).items():
            layer.get_tensor(name).copy_(value)
    every = slice(None)
    messages = [
        layer.integral(every, EVERYWHERE).value().double() for layer in circuit.input_layers
    ]
    for call in circuit.schedule.calls:
        flow = flows.sums[call.layer] + pseudocount / flows.sums[call.layer].shape[2]
        is_root = call is circuit.schedule.calls[-1]
        total = flow.sum((1, 2) if is_root else 2, keepdim=True)
        share = torch.where(total > 0, flow / total, 1 / flow.shape[2])
        # Sums are of units whose integral is one: inputs may have another.
        share = share / _product_integrals(circuit, call, messages)
        weights = next(circuit.sum_layers[call.layer].weights.parameters())
        weights.copy_(share.clamp(min=LEAST_WEIGHT).log())
        messages.append(flow.new_ones(flow.shape[0], 1, flow.shape[1]))


def _product_integrals(circuit: Circuit, call: LayerCall, messages: Sequence[Tensor]) -> Tensor:
    """The integrals (f, 1, i) of the products that are summed."""
    children = [
        messages[source][places] for source, places in zip(call.sources, call.places, strict=True)
    ]
    return circuit.sum_layers[call.layer].product(children, call.folds)
