"""Homogeneous hidden Markov models whose states each speak one token: clones of the tokens.

Every token has several states (Dedieu et al. 2019, "Learning higher-order sequential structure
with cloned HMMs"): a state is a token together with what matters of the text before it. One
transition serves all positions. As the tokens of a text are known, only the block between the
clones of neighbours is ever touched, so that thousands of states are cheap:

    c(x) = π[x_1] A[x_1, x_2] ... A[x_{d-1}, x_d] 1,   A[v, w] from the clones of v to those of w

Where rows of A and π are distributions, c is the probability p(x). Where they have any sign,
c²/Z is: the square of a matrix product state with one tensor for all positions
(:mod:`studies.distillation.clone_squares`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from studies.distillation.clone_paths import (
    Numbers,
    Scores,
    Tokens,
    add_gradients,
    log_values_along,
)


@dataclass(frozen=True)
class CloneChain:
    """The clones of token w are the states ``offsets[w] .. offsets[w + 1] - 1``."""

    offsets: Tokens  # (v + 1,)
    initial: Numbers  # π, (k,)
    transition: Numbers  # A, (k, k)

    @property
    def num_states(self) -> int:
        return len(self.initial)

    def clones(self, token: int) -> slice:
        """The states of a token."""
        return slice(int(self.offsets[token]), int(self.offsets[token + 1]))

    def block(self, before: int, after: int) -> Numbers:
        """The transitions (i, j) from the clones of one token to those of another."""
        return self.transition[self.clones(before), self.clones(after)]


class Counts(NamedTuple):
    """Expected numbers of first states and of transitions, and log p of all rows together."""

    initial: Numbers
    transition: Numbers
    log_prob: float


def log_values(chain: CloneChain, rows: Tokens) -> Scores:
    """log |c(x)|, (n,), of sequences (n, d): log p where the chain is additive."""
    return log_values_along(rows, chain.offsets, chain.initial, chain.transition)


def log_gradient(chain: CloneChain, rows: Tokens) -> Counts:
    """Gradients of Σ log |c(x)| over sequences (n, d) in π and A, and that sum."""
    initial, ratios = np.zeros_like(chain.initial), np.zeros_like(chain.transition)
    total = add_gradients(rows, chain.offsets, chain.initial, chain.transition, (initial, ratios))
    return Counts(initial, ratios, total)


def expected_counts(chain: CloneChain, rows: Tokens) -> Counts:
    """The counts of all sequences (n, d), summed over hidden paths given the tokens (E step)."""
    slope = log_gradient(chain, rows)
    transition = slope.transition * chain.transition
    return Counts(slope.initial * chain.initial, transition, slope.log_prob)
