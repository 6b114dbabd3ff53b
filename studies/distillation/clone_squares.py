"""Squares of homogeneous chains: p(x) = c(x)²/Z, with transitions of any sign (a Born machine).

    Z = Σ_x c(x)² = Σ_w 1ᵀ G_d[w] 1,
    G_1[w] = π[w]ᵀ π[w],   G_{t+1}[w] = Σ_v A[v, w]ᵀ G_t[v] A[v, w]

A gram has a block for each token and none between tokens, since a state speaks one token only.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from studies.distillation.clones import (
    CloneChain,
    Numbers,
    Scores,
    Tokens,
    log_gradient,
    log_values,
)


def square_root(chain: CloneChain) -> CloneChain:
    """Where a square starts: (Σ_z Π √a)² is Σ_z Π a and cross terms between hidden paths."""
    return CloneChain(chain.offsets, np.sqrt(chain.initial), np.sqrt(chain.transition))


def log_partition(chain: CloneChain, length: int) -> float:
    """log Z of sequences of a length."""
    return _partition(chain, length)[0]


def log_square_probs(chain: CloneChain, rows: Tokens) -> Scores:
    """log p (n,) of sequences (n, d) under the square."""
    return 2 * log_values(chain, rows) - log_partition(chain, rows.shape[1])


def partition_gradient(chain: CloneChain, length: int) -> tuple[float, Numbers]:
    """log Z, and its gradient in the transitions, (k, k)."""
    log_z, grams, scales = _partition(chain, length)
    slope = np.zeros_like(chain.transition)
    tokens = _tokens(chain)
    after = [np.ones_like(gram) for gram in grams[-1]]
    # ∂Z/∂G of the last position is one everywhere; each step back divides by its scale.
    total = sum(float(gram.sum()) for gram in grams[-1])
    after = [block / np.float32(total) for block in after]
    for position in reversed(range(length - 1)):
        mixed = np.empty_like(chain.transition)  # A Ḡ
        for here, block in zip(tokens, after, strict=True):
            mixed[:, here] = chain.transition[:, here] @ block
        mixed /= np.float32(scales[position + 1])
        for here, gram in zip(tokens, grams[position], strict=True):
            slope[here] += 2 * (gram @ mixed[here])
        after = [mixed[here] @ chain.transition[here].T for here in tokens]
    return log_z, slope


def _partition(chain: CloneChain, length: int) -> tuple[float, list[list[Numbers]], list[float]]:
    """log Z, the scaled grams of all positions, token by token, and their scales."""
    tokens = _tokens(chain)
    blocks = [np.outer(chain.initial[here], chain.initial[here]) for here in tokens]
    every, scales = [], []
    for position in range(length):
        if position:
            mixed = np.concatenate(
                [gram @ chain.transition[here] for here, gram in zip(tokens, blocks, strict=True)]
            )
            blocks = [chain.transition[:, here].T @ mixed[:, here] for here in tokens]
        scale = max(float(np.abs(block).max()) for block in blocks)
        blocks = [block / np.float32(scale) for block in blocks]
        every.append(blocks)
        scales.append(scale)
    total = sum(float(block.sum(dtype=np.float64)) for block in blocks)
    return float(np.log(scales).sum() + np.log(total)), every, scales


def _tokens(chain: CloneChain) -> list[slice]:
    return [chain.clones(token) for token in range(len(chain.offsets) - 1)]


@dataclass
class Adam:
    """The usual steps (Kingma and Ba 2015) on one array, upwards."""

    rate: float
    decay: tuple[float, float] = (0.9, 0.99)
    _count: int = 0
    _moments: list[Numbers] = field(default_factory=list)

    def step(self, values: Numbers, gradient: Numbers) -> None:
        """Move the values in place."""
        if not self._moments:
            self._moments = [np.zeros_like(values), np.zeros_like(values)]
        self._count += 1
        first, second = self._moments
        for moment, decay, new in zip(
            (first, second), self.decay, (gradient, gradient**2), strict=True
        ):
            moment *= decay
            moment += (1 - decay) * new
        one, two = (1 - decay**self._count for decay in self.decay)
        values += self.rate * (first / one) / (np.sqrt(second / two) + 1e-8)


def ascend(chain: CloneChain, rows: Tokens, optimizer: Adam) -> float:
    """One step on the mean log-likelihood of sequences (n, d) under the square; its value."""
    data = log_gradient(chain, rows)
    log_z, slope = partition_gradient(chain, rows.shape[1])
    gradient: Numbers = np.float32(2 / len(rows)) * data.transition - slope
    optimizer.step(chain.transition, gradient)
    return 2 * data.log_prob / len(rows) - log_z
