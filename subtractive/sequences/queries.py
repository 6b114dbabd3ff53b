"""Exact queries about sequences of tokens: phrases at positions, gaps, required words.

Tokens are numbers, positions are variables of the density; ``given`` is ``{position: token}``.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from subtractive.densities.base import Density
from subtractive.inference.box import in_box
from subtractive.inference.evidence import check_possible, given_row, make_evidence
from subtractive.sequences.automaton import ANYTHING, TextRules, as_words, contains_all
from subtractive.sequences.chain import Before, Chain, Reading
from subtractive.sequences.endings import Endings

Known = Mapping[int, int]

# How many tokens are asked about in one pass: their products have the square of a layer's width.
_TOKENS_AT_ONCE = 4096


class Infill(NamedTuple):
    """A row without gaps (d,), its conditional probability, and whether none is likelier."""

    tokens: Tensor
    probability: float
    is_certain: bool


@torch.no_grad()
def phrase_probability(density: Density, phrase: Known, given: Known | None = None) -> float:
    """P(tokens of the phrase at their positions | given), everything else being unknown.

    >>> p = sub.SquaredCircuit(sub.Circuit(sub.linear_tree(3), sub.Embedding(4), num_units=2))
    >>> round(sum(phrase_probability(p, {1: token}, {2: 0}) for token in range(4)), 6)
    1.0
    """
    if not phrase:
        raise ValueError("phrase is empty: name a position and its token, such as {3: 17}.")
    known = dict(given or {})
    shared = sorted(set(phrase) & set(known))
    if shared:
        raise ValueError(f"position {shared[0]} is both in the phrase and given.")
    rows = torch.cat([given_row(r, density.num_variables) for r in (known, {**known, **phrase})])
    logs = density.log_weight(make_evidence(rows, None, density.families, density.device))
    check_possible(logs[:1])
    return min(1.0, math.exp(float(logs[1] - logs[0])))


@torch.no_grad()
def token_probabilities(density: Density, position: int, given: Known | None = None) -> Tensor:
    """P(token at a position | given), (v,), whether what is given stands before or after it.

    >>> p = sub.SquaredCircuit(sub.Circuit(sub.linear_tree(3), sub.Embedding(4), num_units=2))
    >>> token_probabilities(p, 1, {0: 3, 2: 0}).shape
    torch.Size([4])
    """
    count = _num_tokens(density)
    pieces = torch.arange(count).split(_TOKENS_AT_ONCE)
    parts = [density.pdf(position, tokens, given or None) for tokens in pieces]
    return torch.cat(parts)


def sample_infill(
    density: Density,
    given: Known,
    num_samples: int,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Rows (n, d) in which all positions that are not given are drawn, jointly and exactly."""
    return density.sample(num_samples, given=given, generator=generator).long()


def sample_sequences(
    density: Density, num_samples: int, generator: torch.Generator | None = None
) -> Tensor:
    """Rows (n, d) drawn exactly, as ``density.sample`` does, but as fast as a chain allows."""
    return Endings(Chain(density), Reading(_allowed(density, {}), ANYTHING)).draw(
        num_samples, generator
    )


def most_likely_infill(density: Density, given: Known, *, max_steps: int = 10_000) -> Infill:
    """The most likely tokens of all positions that are not given, jointly.

    Best-first search: the probability of a beginning, all that follows it summed, bounds that of
    each of its completions, so that the first complete row to come up is the likeliest. When
    ``max_steps`` beginnings have been extended without an end, the rest is filled greedily from
    the best of them, and the answer says that it is not certain.
    """
    if max_steps < 1:
        raise ValueError(f"max_steps must be at least 1, got {max_steps}.")
    chain = Chain(density)
    endings = Endings(chain, Reading(_allowed(density, given), ANYTHING))
    before, states = endings.start(1)
    total = float(endings.log_total(before, states, 0))
    _check_possible(total)
    number = itertools.count()
    queue: list[tuple[float, int, tuple[int, ...], Before]] = [(-total, 0, (), before)]
    for step in itertools.count():
        bound, _, row, before = heapq.heappop(queue)
        if len(row) == chain.length:
            tokens = torch.tensor(row)
            return Infill(tokens, min(1.0, math.exp(-bound - total)), step <= max_steps)
        if step >= max_steps:
            queue.clear()
        logs = endings.log_tokens(before, states, len(row))[0]
        # Beyond the limit only the best extension is followed.
        best = logs.topk(1) if step >= max_steps else logs.sort(descending=True)
        for log, token in zip(best.values.tolist(), best.indices.tolist(), strict=True):
            if log == -math.inf:
                break
            after = chain.advance(before, len(row), torch.tensor([token]))
            heapq.heappush(queue, (-log, next(number), (*row, token), after))
    raise AssertionError("a queue with a possible beginning never runs empty")


@torch.no_grad()
def occurrence_probability(
    density: Density, words: Sequence[object], given: Known | None = None
) -> float:
    """P(every word occurs somewhere | given), a word being a token or a set of tokens.

    By inclusion and exclusion, ``Σ_S (-1)^|S| P(no word of S occurs)``, for any density. Each term
    is exact to about 1e-15, and so is the sum of their 2^words: below that nothing is left of an
    answer but zero. :func:`containing_probability` subtracts nothing.
    """
    count = _num_tokens(density)
    groups = [_single_tokens(word) for word in as_words(words, count)]
    known = dict(given or {})
    evidence = make_evidence(
        given_row(known, density.num_variables), None, density.families, density.device
    )
    everything = density.log_weight(evidence)
    check_possible(everything)
    free = [v for v in range(density.num_variables) if v not in known]
    missing = [group for group in groups if not group & set(known.values())]
    total = 0.0 if missing else 1.0
    for size in range(len(missing) + 1 if missing else 0):
        for chosen in itertools.combinations(missing, size):
            kept = set(range(count)).difference(*chosen)
            inside = in_box(evidence, dict.fromkeys(free, kept), density.families)
            share = (density.log_weight(inside) - everything).exp()
            total += (-1) ** size * float(share)
    return min(1.0, max(0.0, total))


@torch.no_grad()
def containing_probability(
    density: Density,
    words: Sequence[object],
    given: Known | None = None,
    *,
    rules: TextRules | None = None,
) -> float:
    """P(every word occurs somewhere | given) of a chain, to full relative precision.

    A word is a token, a phrase ``[5, 7]`` of tokens that follow each other, or a set of those,
    any of which will do. An automaton reads along: only accepted sequences are ever added up.
    ``rules`` say where words end and how a text may end.

    >>> p = sub.SquaredCircuit(sub.Circuit(sub.linear_tree(3), sub.Embedding(4), num_units=2))
    >>> containing_probability(p, [0, 1, 2, 3])  # four words do not fit into three tokens
    0.0
    """
    endings = containing(density, words, given, rules=rules)
    whole = Endings(endings.chain, Reading(endings.reading.allowed, ANYTHING))
    log_share, log_whole = (float(e.log_total(*e.start(1), 0)) for e in (endings, whole))
    _check_possible(log_whole)
    return min(1.0, math.exp(log_share - log_whole))


def sample_containing(
    density: Density,
    words: Sequence[object],
    num_samples: int,
    *,
    given: Known | None = None,
    rules: TextRules | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Rows (n, d) drawn exactly from the model given that every word occurs; none is rejected.

    >>> p = sub.SquaredCircuit(sub.Circuit(sub.linear_tree(3), sub.Embedding(4), num_units=2))
    >>> all({1, 2} <= set(row) for row in sample_containing(p, [1, 2], 20).tolist())
    True
    """
    if num_samples < 0:
        raise ValueError(f"num_samples must be at least 0, got {num_samples}.")
    endings = containing(density, words, given, rules=rules)
    _check_possible(float(endings.log_total(*endings.start(1), 0)))
    return endings.draw(num_samples, generator)


def containing(
    density: Density,
    words: Sequence[object],
    given: Known | None = None,
    *,
    rules: TextRules | None = None,
) -> Endings:
    """All endings of all beginnings after which every word has occurred, ready to be asked."""
    automaton = contains_all(as_words(words, _num_tokens(density)), rules)
    return Endings(Chain(density), Reading(_allowed(density, given or {}), automaton))


def _allowed(density: Density, given: Known) -> Tensor:
    """Which tokens may stand where, (d, v)."""
    row = given_row(given, density.num_variables)
    evidence = make_evidence(row, None, density.families, density.device)
    allowed = torch.ones(density.num_variables, _num_tokens(density), dtype=torch.bool)
    for position in evidence.observed[0].nonzero()[:, 0].tolist():
        allowed[position] = False
        allowed[position, int(evidence.x[0, position])] = True
    return allowed


def _num_tokens(density: Density) -> int:
    counts = {family.num_states for family in density.families}
    count = counts.pop()
    if counts or count is None:
        raise ValueError(
            "questions about sequences need the same tokens at every position: one discrete "
            "family for all variables, such as Embedding(num_tokens)."
        )
    return count


def _single_tokens(word: Sequence[Sequence[int]]) -> set[int]:
    long = [phrase for phrase in word if len(phrase) > 1]
    if long:
        raise ValueError(
            f"inclusion and exclusion counts single tokens, got the phrase {long[0]}. Ask "
            "containing_probability, which reads phrases."
        )
    return {phrase[0] for phrase in word}


def _check_possible(log_probability: float) -> None:
    if log_probability == -math.inf:
        raise ValueError("what is given, or required, has probability zero under the model.")
