"""N-gram models with Witten-Bell smoothing: what every distilled model has to be compared with.

An n-gram model knows the last n - 1 tokens only. Its smoothing (Witten and Bell, 1991) mixes the
counts after a context h with the model of one token less, by how many different tokens T(h) have
followed it:

    p_n(w | h) = (c(h w) + T(h) p_{n-1}(w | h')) / (c(h) + T(h)),   p_0(w) = 1 / v
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Tokens = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float64]


def witten_bell_log_probs(train: Tokens, rows: Tokens, order: int, num_tokens: int) -> Scores:
    """log p (n,) of sequences (n, d) by the n-gram model of ``order`` learned from ``train``.

    A sequence begins after ``order - 1`` marks of a beginning.

    >>> train = np.array([[0, 1, 0], [0, 1, 1]])
    >>> witten_bell_log_probs(train, train[:1], order=2, num_tokens=2).round(4)
    array([-1.0578])
    """
    if order < 1:
        raise ValueError(f"the order of an n-gram model must be at least 1, got {order}.")
    total = np.full(rows.size, 1 / num_tokens)
    for length in range(1, order + 1):
        known, counts = np.unique(_codes(train, length, num_tokens), return_counts=True)
        contexts, first = np.unique(known // (num_tokens + 1), return_index=True)
        seen = np.add.reduceat(counts, first)
        followers = np.diff(np.append(first, len(known)))
        asked = _codes(rows, length, num_tokens)
        count = _look_up(known, counts, asked)
        seen = _look_up(contexts, seen, asked // (num_tokens + 1))
        followers = _look_up(contexts, followers, asked // (num_tokens + 1))
        mixed = (count + followers * total) / np.maximum(seen + followers, 1)
        total = np.where(seen > 0, mixed, total)
    logs: Scores = np.log(total).reshape(rows.shape).sum(1)
    return logs


def _codes(rows: Tokens, length: int, num_tokens: int) -> Tokens:
    """One number for every token and the ``length - 1`` before it, (n d,), the token last."""
    base = num_tokens + 1  # the mark of a beginning is a token of its own
    if base**length > 2**62:
        raise ValueError(f"n-grams of {length} among {num_tokens} tokens do not fit in 64 bits.")
    start = np.full((len(rows), length - 1), num_tokens)
    padded = np.concatenate([start, rows], 1)
    codes = np.zeros(rows.shape, dtype=np.int64)
    for back in range(length):
        codes = codes * base + padded[:, back : back + rows.shape[1]]
    return codes.ravel()


def _look_up(keys: Tokens, values: Tokens, asked: Tokens) -> Tokens:
    """The values of keys, which are sorted; zero for those that are not there."""
    place = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
    found: Tokens = np.where(keys[place] == asked, values[place], 0)
    return found
