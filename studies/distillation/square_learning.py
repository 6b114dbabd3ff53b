"""How squares of homogeneous chains learn: natural gradients, from the root of an additive chain.

A step solves for what changes the distribution most for its length, not the numbers: the
gradient between the clones of v and w is divided by the Fisher information on both sides,

    D[v, w] = (4 G[v] + ε)⁻¹ ∂L/∂A[v, w] (E[w] + ε)⁻¹,

G and E being what comes before and after in Z (K-FAC for chains). What texts visit often moves as
fast as in EM, what they hardly visit stays where it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from studies.distillation.clone_paths import Numbers, Tokens
from studies.distillation.clone_squares import (
    Blocks,
    log_square_probs,
    partition_gradient,
    square_root,
)
from studies.distillation.clones import CloneChain, log_gradient

_LEAST = 1e-3  # of the information that comes after, whose diagonal is one on average


@dataclass(frozen=True)
class Ascent:
    """Settings of the steps.

    ``damping`` is relative to the mean information of a token, ``floor`` is in visits per text;
    no entry moves by more than ``clip`` before ``rate`` and ``momentum``.
    """

    steps: int
    rows: int
    rate: float
    momentum: float = 0.9
    damping: float = 0.3
    floor: float = 0.03
    clip: float = 0.03


@dataclass
class NaturalGradient:
    """Natural gradients with momentum, upwards, clipped entry by entry.

    Clipping matters: texts at which c(x) is near zero have gradients without a bound.
    """

    settings: Ascent
    _average: Numbers | None = field(default=None)

    def step(self, chain: CloneChain, rows: Tokens, rate: float) -> float:
        """Move the transitions in place; the mean log-likelihood of rows (n, d) before it."""
        data = log_gradient(chain, rows)
        partition = partition_gradient(chain, rows.shape[1])
        gradient: Numbers = np.float32(2 / len(rows)) * data.transition - partition.gradient
        damping, floor = self.settings.damping, self.settings.floor
        before = [_inverse(4 * gram, damping, floor) for gram in partition.before]
        after = [_inverse(gram, damping, _LEAST) for gram in partition.after]
        change = divided(gradient, Blocks.of(chain), before, after)
        np.clip(change, -self.settings.clip, self.settings.clip, out=change)
        keep = np.float32(self.settings.momentum)
        old = np.zeros_like(change) if self._average is None else self._average
        self._average = keep * old + (1 - keep) * change
        chain.transition[...] += np.float32(rate) * self._average
        return 2 * data.log_prob / len(rows) - partition.log_value


def divided(
    table: Numbers, blocks: Blocks, before: list[Numbers], after: list[Numbers]
) -> Numbers:
    """A table (k, k) with every block [v, w] multiplied by before[v] and by after[w]."""
    rows = blocks.rows(blocks.ordered(table))
    half = np.concatenate(
        [(b @ r).reshape(-1, len(table)) for b, r in zip(before, rows, strict=True)]
    )
    columns = blocks.columns(half)
    whole = [(a @ c).reshape(-1, len(table)) for a, c in zip(after, columns, strict=True)]
    return blocks.restored(np.concatenate(whole).T)


def _inverse(grams: Numbers, damping: float, floor: float) -> Numbers:
    """Inverses of symmetric matrices (v, i, i) with something added to their diagonals."""
    size = grams.shape[1]
    level = damping * np.trace(grams, axis1=1, axis2=2) / size + floor
    damped = grams.astype(np.float64) + level[:, None, None] * np.eye(size)
    found: Numbers = np.linalg.inv(damped).astype(np.float32)
    return found


@dataclass(frozen=True)
class SquareFit:
    """The best square by validation, and the scores on the way."""

    chain: CloneChain
    valid: list[float]


def learn_square(
    chain: CloneChain, train: Tokens, valid: Tokens, settings: Ascent, seed: int
) -> SquareFit:
    """The square that starts from the square root of an additive chain."""
    root, optimizer = square_root(chain), NaturalGradient(settings)
    history = [float(log_square_probs(root, valid).mean())]
    best = root.transition.copy()
    batches = _batches(len(train), min(settings.rows, len(train)), seed)
    for step in range(settings.steps):
        # The rate is constant at first, then falls to zero.
        rate = settings.rate * min(1.0, 1.4 * (1 - step / settings.steps))
        optimizer.step(root, train[next(batches)], rate)
        if step % 5 == 4 or step + 1 == settings.steps:
            history.append(float(log_square_probs(root, valid).mean()))
            if history[-1] >= max(history):
                best = root.transition.copy()
    return SquareFit(CloneChain(root.offsets, root.initial, best), history)


def _batches(count: int, size: int, seed: int) -> Iterator[Tokens]:
    """Places of ``size`` rows out of ``count``, in random order, again and again."""
    draw = np.random.default_rng(seed)
    while True:
        order = draw.permutation(count)
        yield from order[: count - count % size].reshape(-1, size)
