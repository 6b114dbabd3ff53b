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

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Tokens = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float32]
Scores = npt.NDArray[np.float64]
_ROWS_AT_ONCE = 20_000


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
    return np.concatenate([_forward(chain, part)[1] for part in _blocks(rows)])


def log_gradient(chain: CloneChain, rows: Tokens) -> Counts:
    """Gradients of Σ log |c(x)| over sequences (n, d) in π and A, and that sum."""
    initial = np.zeros_like(chain.initial)
    ratios = np.zeros_like(chain.transition)
    total = 0.0
    for part in _blocks(rows):
        messages, scores = _forward(chain, part)
        first = _backward(chain, part, messages, ratios)
        for token, members in _groups(part[:, 0]):
            here = chain.clones(token)
            after = first[members, : here.stop - here.start]
            initial[here] += (after / (after @ chain.initial[here])[:, None]).sum(0)
        total += float(scores.sum())
    return Counts(initial, ratios, total)


def expected_counts(chain: CloneChain, rows: Tokens) -> Counts:
    """The counts of all sequences (n, d), summed over hidden paths given the tokens (E step)."""
    slope = log_gradient(chain, rows)
    transition = slope.transition * chain.transition
    return Counts(slope.initial * chain.initial, transition, slope.log_prob)


def _forward(chain: CloneChain, rows: Tokens) -> tuple[list[Numbers], Scores]:
    """What precedes each position, (n, i) of absolute sum one, and log |c(x)|, (n,)."""
    message = np.zeros((len(rows), _width(chain)), np.float32)
    for token, members in _groups(rows[:, 0]):
        here = chain.clones(token)
        message[members, : here.stop - here.start] = chain.initial[here]
    messages, total = [], np.zeros(len(rows))
    for position in range(rows.shape[1]):
        if position:
            before, message = message, np.zeros_like(message)
            for (v, w), members in _neighbours(rows, position):
                block = chain.block(v, w)
                step = before[members, : block.shape[0]] @ block
                message[members, : block.shape[1]] = step
        scale = np.abs(message).sum(1)
        total += np.log(scale.astype(np.float64))
        message /= scale[:, None]
        messages.append(message)
    return messages, total + np.log(np.abs(message.sum(1, dtype=np.float64)))


def _backward(
    chain: CloneChain, rows: Tokens, messages: list[Numbers], ratios: Numbers
) -> Numbers:
    """Add Σ α β / c of every transition to ``ratios``; β at the first position, (n, i).

    β is scaled so that α β sums to one at every position.
    """
    after = np.ones_like(messages[0])
    for position in reversed(range(1, rows.shape[1])):
        here = np.zeros_like(after)
        for (v, w), members in _neighbours(rows, position):
            block = chain.block(v, w)
            message = messages[position - 1][members, : block.shape[0]]
            rest = after[members, : block.shape[1]]
            back = rest @ block.T
            scale = (message * back).sum(1, keepdims=True)
            here[members, : block.shape[0]] = back / scale
            ratios[chain.clones(v), chain.clones(w)] += message.T @ (rest / scale)
        after = here
    return after


def _width(chain: CloneChain) -> int:
    return int(np.diff(chain.offsets).max())


def _blocks(rows: Tokens) -> list[Tokens]:
    return [rows[at : at + _ROWS_AT_ONCE] for at in range(0, len(rows), _ROWS_AT_ONCE)]


def _groups(codes: Tokens) -> Iterator[tuple[int, Tokens]]:
    """Every value of codes (n,), and where it stands."""
    order = np.argsort(codes, kind="stable")
    values, first = np.unique(codes[order], return_index=True)
    yield from zip(values.tolist(), np.split(order, first[1:]), strict=True)


def _neighbours(rows: Tokens, position: int) -> Iterator[tuple[tuple[int, int], Tokens]]:
    """Every pair of tokens before and at a position, and the rows in which it stands there."""
    base = 1 << 20
    for code, members in _groups(rows[:, position - 1] * base + rows[:, position]):
        yield divmod(code, base), members
