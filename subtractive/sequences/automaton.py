"""Automata that read a sequence of tokens and know which of the required words it contains.

A word is one or several phrases, any of which will do; a phrase is one token or several that
follow each other. The automaton of Aho and Corasick finds all phrases in one reading.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Phrase = tuple[int, ...]
Word = tuple[Phrase, ...]  # phrases, any of which will do


@dataclass(frozen=True)
class Automaton:
    """Reads tokens from state 0 on; ``step[state][kind]`` is the next state.

    Tokens that occur in no phrase are all of kind 0; every other token is a kind of its own, in
    the order of ``tokens``.
    """

    tokens: tuple[int, ...]
    step: tuple[tuple[int, ...], ...]  # states x kinds
    accepting: tuple[bool, ...]

    @property
    def num_states(self) -> int:
        return len(self.step)

    @property
    def num_kinds(self) -> int:
        return len(self.tokens) + 1

    def kinds(self, num_tokens: int) -> Tensor:
        """The kind (v,) of every token."""
        kinds = torch.zeros(num_tokens, dtype=torch.long)
        kinds[list(self.tokens)] = torch.arange(1, self.num_kinds)
        return kinds

    def table(self) -> Tensor:
        """The next state, (states, kinds)."""
        return torch.tensor(self.step, dtype=torch.long)

    def accepts(self, sequence: Iterable[int]) -> bool:
        """Whether a sequence contains all words."""
        kind = {token: number for number, token in enumerate(self.tokens, 1)}
        state = 0
        for token in sequence:
            state = self.step[state][kind.get(token, 0)]
        return self.accepting[state]


ANYTHING = Automaton((), ((0,),), (True,))  # accepts every sequence


def as_words(words: object, num_tokens: int) -> tuple[Word, ...]:
    """What must be contained, as given by the user.

    Each word is a token, a set of tokens any of which will do, a phrase such as ``[5, 7]``, or a
    set of phrases ``{(5, 7), (8,)}``.
    """
    if isinstance(words, str | bytes) or not isinstance(words, Iterable):
        raise ValueError(
            f"words must be a list, one entry for each word that must occur, got {words!r}."
        )
    checked = tuple(_as_word(word, num_tokens) for word in words)
    if not checked:
        raise ValueError("words is empty: name at least one word that must occur.")
    return checked


def contains_all(words: Sequence[Word]) -> Automaton:
    """The automaton that accepts sequences in which every word occurs.

    >>> automaton = contains_all([((5, 7),), ((2,), (3,))])
    >>> automaton.accepts([5, 7, 1, 3]), automaton.accepts([5, 1, 7, 3])
    (True, False)
    """
    phrases = [(phrase, 1 << number) for number, word in enumerate(words) for phrase in word]
    tokens = sorted({token for phrase, _ in phrases for token in phrase})
    goto, found = _trie(phrases, tokens)
    everything = (1 << len(words)) - 1

    def follow(state: tuple[int, int], kind: int) -> tuple[int, int]:
        node, seen = state
        node = goto[node][kind]
        seen |= found[node]
        return (0, seen) if seen == everything else (node, seen)

    start = (0, 0)
    numbers, queue, steps = {start: 0}, deque([start]), []
    while queue:
        state = queue.popleft()
        row = []
        for kind in range(len(tokens) + 1):
            target = state if state[1] == everything else follow(state, kind)
            if target not in numbers:
                numbers[target] = len(numbers)
                queue.append(target)
            row.append(numbers[target])
        steps.append(tuple(row))
    accepting = tuple(seen == everything for _, seen in numbers)
    return Automaton(tuple(tokens), tuple(steps), accepting)


def _trie(
    phrases: Sequence[tuple[Phrase, int]], tokens: Sequence[int]
) -> tuple[list[list[int]], list[int]]:
    """The complete transitions (nodes x kinds), and the words found on arrival at each node."""
    kind = {token: number for number, token in enumerate(tokens, 1)}
    children: list[dict[int, int]] = [{}]
    found = [0]
    for phrase, word in phrases:
        node = 0
        for token in phrase:
            node = children[node].setdefault(kind[token], len(children))
            if node == len(children):
                children.append({})
                found.append(0)
        found[node] |= word
    goto = [[0] * (len(tokens) + 1) for _ in children]
    fail, queue = [0] * len(children), deque([0])
    while queue:
        node = queue.popleft()
        for k in range(1, len(tokens) + 1):
            elsewhere = goto[fail[node]][k] if node else 0
            if k in children[node]:
                child = goto[node][k] = children[node][k]
                fail[child] = elsewhere
                found[child] |= found[elsewhere]
                queue.append(child)
            else:
                goto[node][k] = elsewhere
    return goto, found


def _as_word(word: object, num_tokens: int) -> Word:
    if isinstance(word, set | frozenset):
        phrases = tuple(sorted(_as_phrase(phrase, num_tokens) for phrase in word))
        if not phrases:
            raise ValueError("a word is an empty set: nothing could satisfy it.")
        return phrases
    return (_as_phrase(word, num_tokens),)


def _as_phrase(phrase: object, num_tokens: int) -> Phrase:
    listed: list[Any] = list(phrase) if isinstance(phrase, list | tuple | Tensor) else [phrase]
    try:
        tokens = tuple(operator.index(token) for token in listed)
    except TypeError:
        tokens = ()
    if not tokens or not all(0 <= token < num_tokens for token in tokens):
        raise ValueError(
            f"a phrase holds one or more tokens, whole numbers in 0..{num_tokens - 1}, got "
            f"{phrase!r}."
        )
    return tokens
