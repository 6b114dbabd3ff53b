"""A circuit over the linear tree as what it is: a chain that can be read from left to right.

``c(x) = W_0 (f_0 ⊙ W_1 (f_1 ⊙ ... ))``. What follows a position is a message of the circuit;
what precedes it is a few row vectors h with ``c = h (f_d ⊙ u_{d+1})``, brought forward one
token at a time. Additive chains have vectors where squared ones have grams.
"""

from __future__ import annotations

import math
from typing import NamedTuple, final

import torch
from torch import Tensor

from subtractive.circuits.circuit import Circuit
from subtractive.circuits.layers import HadamardLayer
from subtractive.circuits.sums import mix, mix_gram
from subtractive.densities.base import Density
from subtractive.densities.monotonic import MonotonicCircuit
from subtractive.densities.squared import SquaredCircuit
from subtractive.inputs.base import Tensors, Window
from subtractive.numerics.leaf_operations import add_rows, side_by_side
from subtractive.numerics.messages import (
    LeafMessage,
    Scaled,
    divide,
    multiply,
    normalise_rows,
    safe_log,
)
from subtractive.sequences.automaton import Automaton


class Before(NamedTuple):
    """What precedes a position, row by row: h (n, s, i) times exp(log_scale), (n,)."""

    vectors: Tensor
    log_scale: Tensor


class Reading(NamedTuple):
    """Requirements on a sequence: which tokens (d, v) are allowed where, and an automaton."""

    allowed: Tensor
    automaton: Automaton

    @property
    def kinds(self) -> Tensor:
        """The kind (v,) of every token."""
        return self.automaton.kinds(self.allowed.shape[1])


@final
class Chain:
    """A squared or monotonic circuit over ``linear_tree(d)``; all numbers are in float64."""

    def __init__(self, density: Density) -> None:
        if not isinstance(density, SquaredCircuit | MonotonicCircuit):
            raise ValueError(
                "questions about sequences need a SquaredCircuit or a MonotonicCircuit, got "
                f"{type(density).__name__}."
            )
        self.circuit: Circuit = density.circuit
        self.is_squared = isinstance(density, SquaredCircuit)
        self.length = density.num_variables
        self.num_tokens = _check(self.circuit)
        self.regions = {
            tuple(sorted(r.scope)): k for k, r in enumerate(self.circuit.graph.regions)
        }

    @torch.no_grad()
    def weight(self, position: int) -> Tensor:
        """The weights (o, i) of the sum over a position and all after it."""
        region = self.regions[tuple(range(position, self.length))]
        return self.circuit.weight_of(region).double()

    @torch.no_grad()
    def values(self, position: int, tokens: Tensor) -> Tensor:
        """f(x), (n, i), of tokens (n,) at a position."""
        layer, place = self.circuit.input_of(self.regions[(position,)])
        p = layer.tensors(place, torch.float64)
        return layer.family.values(p, tokens[None, :, None].double()).value()[0]

    def start(self, num_rows: int) -> Before:
        """Before the first token: the root's weights."""
        root = self.weight(0)
        if not self.is_squared:
            root = root.sum(0, keepdim=True)
        vectors = root.expand(num_rows, -1, -1)
        return _rescaled(vectors, torch.zeros(num_rows, dtype=torch.float64))

    def advance(self, before: Before, position: int, tokens: Tensor) -> Before:
        """After a token (n,) at a position."""
        vectors = before.vectors * self.values(position, tokens)[:, None, :]
        if position + 1 < self.length - 1:
            vectors = vectors @ self.weight(position + 1)
        return _rescaled(vectors, before.log_scale)

    @torch.no_grad()
    def after(self, reading: Reading) -> list[Scaled]:
        """What may follow: for d = 0 .. D, (1, states, i[, j]) summed over accepted endings.

        A state without any accepted ending has a scale of -inf.
        """
        step = reading.automaton.table()  # (states, kinds)
        end = self._end(reading.automaton)
        rest = _read(self.leaf(self.length - 1, reading), end, step)
        found = [end, rest]
        for position in reversed(range(self.length - 1)):
            product = _read(self.leaf(position, reading), rest, step)
            weight = self.weight(position)[None]
            if self.is_squared:
                sums = mix_gram(weight, product.mantissa, weight)
            else:
                sums = mix(weight, product.mantissa)
            rest = divide(sums, sums.abs().flatten(2).amax(-1))
            rest = rest._replace(log_scale=product.log_scale + rest.log_scale)
            if bool(((rest.log_scale == -math.inf) & (product.log_scale > -math.inf)).any()):
                raise ArithmeticError(
                    "the probabilities of some endings underflow: the units of the model differ "
                    "by more than a float can hold."
                )
            found.append(rest)
        return found[::-1]

    def leaf(self, position: int, reading: Reading) -> LeafMessage:
        """∫ f or ∫ f fᵀ over the allowed tokens of each kind, (1, kinds, i[, j])."""
        layer, place = self.circuit.input_of(self.regions[(position,)])
        p = layer.tensors(place, torch.float64)
        kinds, allowed = reading.kinds, reading.allowed[position]
        messages = []
        for kind in range(reading.automaton.num_kinds):
            states = (allowed & (kinds == kind)).nonzero()[:, 0]
            messages.append(self._sum_over(p, states, position))
        return side_by_side(messages, axis=1)

    def _sum_over(self, p: Tensors, states: Tensor, position: int) -> LeafMessage:
        """The sum over few states by their values, over many by a window."""
        layer, _ = self.circuit.input_of(self.regions[(position,)])
        family = layer.family
        if len(states) <= layer.num_units:
            values = self.values(position, states)  # (v, i)
            total = values.mT @ values if self.is_squared else values.sum(0)
            return LeafMessage(total[None, None], None)
        mask = torch.zeros(1, 1, self.num_tokens, dtype=torch.float64)
        mask[..., states] = 1.0
        window = Window(states=mask) if len(states) < self.num_tokens else Window()
        message = family.gram(p, p, window) if self.is_squared else family.integral(p, window)
        return LeafMessage(message.value(), None)

    def _end(self, automaton: Automaton) -> Scaled:
        """After the last token: one where the automaton accepts, zero where not."""
        width = self.circuit.input_layers[0].num_units
        shape = (width, width) if self.is_squared else (width,)
        accepting = torch.tensor(automaton.accepting, dtype=torch.float64)[None]  # (1, states)
        ones = accepting.reshape(*accepting.shape, *[1] * len(shape))
        return Scaled(ones.expand(*accepting.shape, *shape), safe_log(accepting))


def _read(leaf: LeafMessage, rest: Scaled, step: Tensor) -> Scaled:
    """Σ_k L_k ⊙ R_step(s, k) for every state s: one token read, whatever its kind."""
    states, kinds = step.shape
    every_kind = leaf.rows(torch.arange(kinds).repeat(states))
    return add_rows(multiply([every_kind, rest.rows(step.flatten())]), kinds)


def _rescaled(vectors: Tensor, log_scale: Tensor) -> Before:
    peak = vectors.abs().amax((1, 2))
    return Before(normalise_rows(vectors), log_scale + safe_log(peak))


def _check(circuit: Circuit) -> int:
    """The number of tokens, after making sure that the circuit is a chain."""
    length = circuit.num_variables
    nested = circuit.graph.to_nested() if length > 1 else None
    for position in range(length - 1):
        if not isinstance(nested, tuple) or len(nested) != 2 or nested[0] != position:
            nested = None
            break
        nested = nested[1]
    counts = {family.num_states for family in circuit.families}
    layers = circuit.sum_layers
    if (
        nested != length - 1
        or len(layers) != length - 1
        or not all(isinstance(layer, HadamardLayer) for layer in layers)
        or len(counts) != 1
        or None in counts
        or circuit.sum_layers[0].weights().is_complex()
    ):
        raise ValueError(
            "questions about sequences need a real circuit over linear_tree(d), d >= 2, of "
            "Hadamard layers, with one discrete family of the same tokens at every position."
        )
    count = counts.pop()
    assert count is not None
    return count
