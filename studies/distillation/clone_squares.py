"""Squares of homogeneous chains: p(x) = c(x)²/Z, with transitions of any sign (a Born machine).

    Z = Σ_x c(x)² = Σ_w 1ᵀ G_d[w] 1,
    G_1[w] = π[w]ᵀ π[w],   G_{t+1}[w] = Σ_v A[v, w]ᵀ G_t[v] A[v, w]

A gram has a block for each token and none between tokens, since a state speaks one token only.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from studies.distillation.clone_paths import Numbers, Scores, Tokens
from studies.distillation.clones import CloneChain, log_values


class Blocks(NamedTuple):
    """The states in an order in which tokens of equally many clones stand together.

    Products of the blocks of such tokens are one product of stacked matrices.
    """

    order: Tokens  # (k,)
    groups: list[tuple[slice, int]]  # places in that order, and how many clones a token has

    @classmethod
    def of(cls, chain: CloneChain) -> Blocks:
        """The blocks of the tokens of a chain."""
        clones = np.diff(chain.offsets)
        of_state = np.repeat(clones, clones)
        sizes, first = np.unique(np.sort(of_state), return_index=True)
        ends = [*first[1:].tolist(), len(of_state)]
        places = [slice(start, end) for start, end in zip(first.tolist(), ends, strict=True)]
        order = np.argsort(of_state, kind="stable")
        return cls(order, list(zip(places, sizes.tolist(), strict=True)))

    def ordered(self, table: Numbers) -> Numbers:
        """A table (k, k) in this order."""
        return table[np.ix_(self.order, self.order)]

    def restored(self, table: Numbers) -> Numbers:
        """A table (k, k) of this order in that of the chain."""
        back = np.argsort(self.order)
        return table[np.ix_(back, back)]

    def rows(self, table: Numbers) -> list[Numbers]:
        """The rows of the clones of each token, (v, i, k) for each group."""
        return [table[place].reshape(-1, size, len(table)) for place, size in self.groups]

    def columns(self, table: Numbers) -> list[Numbers]:
        """The columns of the clones of each token, transposed: (v, i, k) for each group."""
        return [
            table[:, place].reshape(len(table), -1, size).transpose(1, 2, 0)
            for place, size in self.groups
        ]


class Partition(NamedTuple):
    """log Z, its gradient in the transitions, and what surrounds a transition in Z.

    Z changes by Σ tr(before[v] D[v, w] after[w] D[v, w]ᵀ) in the second order of a change D of the
    transition of a single position, summed over positions: the Fisher information, but for
    pairs of positions. Stacked by group, (v, i, j); the diagonal of ``after`` is one on average.
    """

    log_value: float
    gradient: Numbers
    before: list[Numbers]
    after: list[Numbers]


def square_root(chain: CloneChain) -> CloneChain:
    """Where a square starts: (Σ_z Π √a)² is Σ_z Π a and cross terms between hidden paths."""
    return CloneChain(chain.offsets, np.sqrt(chain.initial), np.sqrt(chain.transition))


def log_partition(chain: CloneChain, length: int) -> float:
    """log Z of sequences of a length."""
    return _grams(chain, Blocks.of(chain), length)[0]


def log_square_probs(chain: CloneChain, rows: Tokens) -> Scores:
    """log p (n,) of sequences (n, d) under the square."""
    return 2 * log_values(chain, rows) - log_partition(chain, rows.shape[1])


def partition_gradient(chain: CloneChain, length: int) -> Partition:
    """log Z with its gradient."""
    blocks = Blocks.of(chain)
    log_z, grams, scales = _grams(chain, blocks, length)
    transition = blocks.ordered(chain.transition)
    rows, flipped = blocks.rows(transition), blocks.rows(transition.T.copy())
    slope = np.zeros_like(transition)
    # ∂Z/∂G of the last position is one everywhere; each step back divides by its scale.
    total = np.float32(sum(float(gram.sum()) for gram in grams[-1]))
    after = [np.ones_like(gram) / total for gram in grams[-1]]
    mean_before, mean_after = ([np.zeros_like(gram) for gram in after] for _ in range(2))
    mixed = np.empty_like(transition)
    stacked = blocks.rows(mixed)
    turned = blocks.columns(mixed)  # A Ḡ, by the token before
    for position in reversed(range(length - 1)):
        after = [block / np.float32(scales[position + 1]) for block in after]
        level = np.float32(sum(float(np.trace(b, axis1=1, axis2=2).sum()) for b in after))
        level /= np.float32(chain.num_states)
        for block, a, out in zip(after, flipped, stacked, strict=True):
            np.matmul(block, a, out=out)
        for group, (place, _) in enumerate(blocks.groups):
            gram = grams[position][group]
            slope[place] += 2 * (gram @ turned[group]).reshape(-1, len(slope))
            mean_before[group] += gram * level
            mean_after[group] += after[group] / (level * np.float32(length - 1))
        after = [block @ a.transpose(0, 2, 1) for block, a in zip(turned, rows, strict=True)]
    return Partition(log_z, blocks.restored(slope), mean_before, mean_after)


def _grams(
    chain: CloneChain, blocks: Blocks, length: int
) -> tuple[float, list[list[Numbers]], list[float]]:
    """log Z, the scaled grams of all positions, group by group, and their scales."""
    transition = blocks.ordered(chain.transition)
    rows, flipped = blocks.rows(transition), blocks.rows(transition.T.copy())
    initial = chain.initial[blocks.order]
    parts = [initial[place].reshape(-1, size, 1) for place, size in blocks.groups]
    grams = [part * part.transpose(0, 2, 1) for part in parts]
    mixed = np.empty_like(transition)
    stacked = blocks.rows(mixed)
    turned = blocks.columns(mixed)  # (G A)ᵀ, by the token after
    every, scales = [], []
    for position in range(length):
        if position:
            for gram, a, out in zip(grams, rows, stacked, strict=True):
                np.matmul(gram, a, out=out)
            grams = [
                a @ block.transpose(0, 2, 1) for a, block in zip(flipped, turned, strict=True)
            ]
        scale = max(float(np.abs(gram).max()) for gram in grams)
        grams = [gram / np.float32(scale) for gram in grams]
        every.append(grams)
        scales.append(scale)
    total = sum(float(gram.sum(dtype=np.float64)) for gram in grams)
    return float(np.log(scales).sum() + np.log(total)), every, scales
