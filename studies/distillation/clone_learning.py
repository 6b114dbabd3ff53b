"""How homogeneous chains learn: a start from clustered contexts, then EM with pseudocounts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from studies.distillation.clone_paths import Numbers, Tokens
from studies.distillation.clones import CloneChain, Counts, expected_counts, log_values


def smoothed(counts: Counts, offsets: Tokens, strength: float) -> CloneChain:
    """The chain of expected counts, with pseudocounts from coarser models (M step).

    A state that has led to T different tokens takes ``strength (T + 1/2)`` pseudocounts from all
    clones of its token together, which take theirs from all states, as Witten and Bell do for
    n-grams: what a clone has never led to stays possible.
    """
    clones = np.diff(offsets)
    token = np.repeat(np.arange(len(clones)), clones)
    everything = counts.transition.sum(0) + 1e-3
    everything = everything / everything.sum()
    of_token = np.add.reduceat(counts.transition, offsets[:-1], axis=0)  # (v, k)
    coarse = _mixed(of_token, everything[None], _followers(of_token, offsets, 0.5) + 1)
    own = strength * (_followers(counts.transition, offsets, 0.3) + 0.5)
    transition = _mixed(counts.transition, coarse[token], own)
    first = counts.initial + 0.5 * everything
    return CloneChain(offsets, (first / first.sum()).astype(np.float32), transition)


def _followers(counts: Numbers, offsets: Tokens, least: float) -> Numbers:
    """To how many tokens each row (k,) has led."""
    found: Numbers = (np.add.reduceat(counts, offsets[:-1], axis=1) > least).sum(1)
    return found.astype(np.float32)


def _mixed(counts: Numbers, prior: Numbers, weight: Numbers) -> Numbers:
    """Rows of counts with ``weight`` pseudocounts each, distributed as the prior says."""
    seen = counts.sum(1)
    weight = np.where(seen + weight > 0, weight, np.float32(1))  # a row of nothing is its prior
    total = seen + weight
    mixed: Numbers = ((counts + weight[:, None] * prior) / total[:, None]).astype(np.float32)
    return mixed


def start_from_states(states: Tokens, offsets: Tokens, strength: float) -> CloneChain:
    """The chain of sequences (n, d) whose hidden states are known."""
    size = int(offsets[-1])
    first = np.bincount(states[:, 0], minlength=size).astype(np.float32)
    pairs = states[:, :-1].ravel() * size + states[:, 1:].ravel()
    codes, numbers = np.unique(pairs, return_counts=True)
    transition = np.zeros(size * size, np.float32)
    transition[codes] = numbers
    return smoothed(Counts(first, transition.reshape(size, size), 0.0), offsets, strength)


@dataclass(frozen=True)
class Fit:
    """The best chain by validation, and the scores of all steps."""

    chain: CloneChain
    valid: list[float]
    strength: float


def expectation_maximisation(
    chain: CloneChain, rows: Tokens, valid: Tokens, steps: int, strengths: Sequence[float]
) -> Fit:
    """Steps of EM on sequences (n, d), the strength of smoothing chosen by validation in each."""
    best = Fit(chain, [_score(chain, valid)], 0.0)
    scores = list(best.valid)
    for _ in range(steps):
        counts = expected_counts(chain, rows)
        tried = [(smoothed(counts, chain.offsets, strength), strength) for strength in strengths]
        found = [_score(candidate, valid) for candidate, _ in tried]
        place = int(np.argmax(found))
        chain, strength = tried[place]
        scores.append(found[place])
        if found[place] >= max(scores):
            best = Fit(chain, [], strength)
    return Fit(best.chain, scores, best.strength)


def _score(chain: CloneChain, rows: Tokens) -> float:
    return float(np.mean(log_values(chain, rows)))
