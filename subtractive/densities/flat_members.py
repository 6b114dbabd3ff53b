"""Members of a mixture that have one input region each, evaluated in one go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from subtractive.circuits.sums import mix, mix_gram
from subtractive.circuits.weights import PositiveWeights, RealWeights
from subtractive.densities.base import Density
from subtractive.densities.monotonic import MonotonicCircuit
from subtractive.densities.squared import SquaredCircuit
from subtractive.inference.evidence import Evidence, rows_by_pattern
from subtractive.inputs.base import EVERYWHERE, InputFamily, Tensors
from subtractive.inputs.layer import InputLayer
from subtractive.inputs.multivariate import MultivariateFamily
from subtractive.numerics.messages import (
    LeafMessage,
    Scaled,
    log_sum,
    log_sum_of_squares,
    sum_of_squares,
    to_scaled,
)

# How many numbers the messages of one block of rows may hold, which bounds the memory.
BLOCK = 2**24
# Smaller sums of squares may have lost digits to underflow: their rows are done one by one.
_LEAST = 1e-60


class FlatMembers(NamedTuple):
    """Circuits of one family, each a sum over one region of all variables, side by side.

    Members are the regions of one input layer, and of one layer of sums: a few large matrix
    products instead of many small ones.
    """

    family: InputFamily
    tensors: Tensors  # (m, ...) each
    weights: Tensor  # (m, s, i)
    are_squared: bool

    def log_weights(self, evidence: Evidence) -> Tensor | None:
        """log Σ_s ∫|c_s|², or log ∫c, given evidence, (n, m); ``None`` where digits are lost."""
        groups = rows_by_pattern(evidence.observed)
        parts = [
            self._of_pattern(evidence.x[rows], evidence.observed[rows[0]].tolist())
            for rows in groups
        ]
        if any(bool(part.isnan().any()) for part in parts):
            return None
        return torch.cat(parts, 1).mT[torch.cat(groups).argsort()]

    def _of_pattern(self, x: Tensor, observed: Sequence[bool]) -> Tensor:
        """The logarithms of all roots for rows that have the same variables observed, (m, n)."""
        if not any(observed):
            return self._log_roots(self._integrals()).expand(-1, len(x))
        count, size, units = self.weights.shape
        grams = 0 if all(observed) or not self.are_squared else 4 * units * (units + size)
        step = max(1, BLOCK // (count * (4 * x.shape[1] + 2 * units + size + grams)))
        return torch.cat(
            [self._log_roots(self._leaf(rows, observed)) for rows in x.split(step)], 1
        )

    def _leaf(self, x: Tensor, observed: Sequence[bool]) -> LeafMessage:
        """The message of the members' inputs: f, or the integrals of f or f fᵀ over the gaps."""
        everywhere = x.expand(len(self.weights), *x.shape)
        if all(observed):
            return self.family.values(self.tensors, everywhere.to(self.weights.dtype))
        p = self._doubled()
        assert isinstance(self.family, MultivariateFamily)
        if self.are_squared:
            return self.family.partial_gram(p, p, everywhere.double(), observed)
        return self.family.partial_integral(p, everywhere.double(), observed)

    def log_normalisers(self) -> Tensor | None:
        """log Z of each member, (m,), in double precision; ``None`` where digits are lost."""
        log_normalisers = self._log_roots(self._integrals())[:, 0]
        return log_normalisers if bool(log_normalisers.isfinite().all()) else None

    def _integrals(self) -> LeafMessage:
        """∫ f fᵀ, or ∫ f, of all members' inputs."""
        p = self._doubled()
        if self.are_squared:
            return self.family.gram(p, p, EVERYWHERE)
        return self.family.integral(p, EVERYWHERE)

    def _doubled(self) -> Tensors:
        return {name: tensor.double() for name, tensor in self.tensors.items()}

    def _log_roots(self, leaves: LeafMessage) -> Tensor:
        """The logarithms of all roots, (m, n): NaN where mantissas may have lost digits."""
        inputs = to_scaled(leaves)
        weights = self.weights.to(leaves.some.dtype)
        if leaves.is_gram:
            sums = mix_gram(weights, inputs.mantissa, weights)
        else:
            sums = mix(weights, inputs.mantissa)
        root = Scaled(sums, inputs.log_scale)
        if not self.are_squared:
            return log_sum(root)
        is_positive = sum_of_squares(root.mantissa.detach()) > _LEAST
        return torch.where(is_positive, log_sum_of_squares(root), torch.nan)


def flat_members(members: Sequence[Density]) -> FlatMembers | None:
    """The members side by side, if there are several and all are of that kind."""
    first = members[0]
    if len(members) < 2 or not isinstance(first, SquaredCircuit | MonotonicCircuit):
        return None
    layers, weights = [], []
    for member in members:
        if not isinstance(member, type(first)):
            return None
        assert isinstance(member, SquaredCircuit | MonotonicCircuit)
        circuit = member.circuit
        layer, sums = circuit.input_layers[0], circuit.sum_layers[-1]
        if len(circuit.layers) > 1 or len(layer.scopes) > 1 or len(circuit.inputs) > 1:
            return None
        is_real = isinstance(sums.weights, RealWeights | PositiveWeights)
        if not is_real or layer.family.num_states is not None:
            return None
        layers.append(layer)
        weights.append(sums.weights())
    if len({_shape(layer, weight) for layer, weight in zip(layers, weights, strict=True)}) > 1:
        return None
    tensors = {
        name: torch.cat([layer.get_tensor(name) for layer in layers]) for name in layers[0].names
    }
    return FlatMembers(
        layers[0].family,
        tensors,
        torch.cat(weights),
        are_squared=isinstance(first, SquaredCircuit),
    )


def _shape(layer: InputLayer, weight: Tensor) -> tuple[object, ...]:
    """What members must have in common."""
    return layer.family, layer.num_units, weight.shape, weight.dtype
