"""Automata that read a sequence of tokens and know which of the required words it contains.

A word is one or several phrases, any of which will do; a phrase is one token or several that
follow each other. The automaton of Aho and Corasick finds all phrases in one reading. With
:class:`TextRules` a phrase counts only if the word ends after it, and a text only if it ends well.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

Phrase = tuple[int, ...]
Word = tuple[Phrase, ...]  # phrases, any of which will do


@dataclass(frozen=True)
class Automaton:
    """Reads tokens from state 0 on; ``step[state][kind]`` is the next state.

    Every token of a phrase is a kind of its own, in the order of ``tokens``. The others share
    kinds: those of each set in ``classes`` one after these, and the rest kind 0.
    """

    tokens: tuple[int, ...]
    step: tuple[tuple[int, ...], ...]  # states x kinds
    accepting: tuple[bool, ...]
    classes: tuple[frozenset[int], ...] = ()

    @property
    def num_states(self) -> int:
        return len(self.step)

    @property
    def num_kinds(self) -> int:
        return len(self.tokens) + len(self.classes) + 1

    @property
    def shared_kinds(self) -> tuple[int, ...]:
        """The kinds of tokens that no phrase mentions."""
        return (0, *range(len(self.tokens) + 1, self.num_kinds))

    def kinds(self, num_tokens: int) -> Tensor:
        """The kind (v,) of every token."""
        kinds = torch.zeros(num_tokens, dtype=torch.long)
        for token, kind in self._kind.items():
            kinds[token] = kind
        return kinds

    def table(self) -> Tensor:
        """The next state, (states, kinds)."""
        return torch.tensor(self.step, dtype=torch.long)

    def accepts(self, sequence: Iterable[int]) -> bool:
        """Whether a sequence contains all words."""
        state, kind = 0, self._kind
        for token in sequence:
            state = self.step[state][kind.get(token, 0)]
        return self.accepting[state]

    @property
    def _kind(self) -> dict[int, int]:
        """The kinds of all tokens but those of kind 0."""
        kind = {token: number for number, token in enumerate(self.tokens, 1)}
        for number, members in enumerate(self.classes, len(self.tokens) + 1):
            kind |= dict.fromkeys(members, number)
        return kind


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


@dataclass(frozen=True)
class TextRules:
    """Where words end, and how a text may end.

    A required word must be followed by one of the tokens ``boundary``, those that begin a new
    word or are no part of any, such as a full stop. With ``endings`` the last token of a text is
    one of these.

    >>> rules = TextRules(boundary={0, 5}, endings={0})
    >>> accepts = contains_all([((5, 7),)], rules).accepts
    >>> accepts([5, 7, 5, 0]), accepts([5, 7, 8, 0]), accepts([5, 7, 0, 5])
    (True, False, False)
    """

    boundary: Set[int]
    endings: Set[int] | None = None

    def __post_init__(self) -> None:
        if not self.boundary or (self.endings is not None and not self.endings):
            raise ValueError("boundary and endings need at least one token each.")


def contains_all(words: Sequence[Word], rules: TextRules | None = None) -> Automaton:
    """The automaton that accepts sequences in which every word occurs, by the rules if any.

    >>> automaton = contains_all([((5, 7),), ((2,), (3,))])
    >>> automaton.accepts([5, 7, 1, 3]), automaton.accepts([5, 1, 7, 3])
    (True, False)
    """
    phrases = [(phrase, 1 << number) for number, word in enumerate(words) for phrase in word]
    tokens = sorted({token for phrase, _ in phrases for token in phrase})
    goto, found = _trie(phrases, tokens)
    classes, flags = _classes(tokens, rules)
    everything = (1 << len(words)) - 1

    def follow(state: _State, kind: int) -> _State:
        ends_word, ends_text = flags[kind]
        seen = state.seen | (state.pending if ends_word else 0)
        if seen == everything:
            return _State(0, seen, 0, ends_text)
        node = goto[state.node][kind if kind <= len(tokens) else 0]
        if rules is not None:
            return _State(node, seen, found[node], ends_text)
        seen |= found[node]
        return _State(0 if seen == everything else node, seen, 0, ends_text)

    start = _State(0, 0, 0, ends_text=False)
    numbers, queue, steps = {start: 0}, deque([start]), []
    while queue:
        state = queue.popleft()
        row = []
        for kind in range(len(flags)):
            target = follow(state, kind)
            if target not in numbers:
                numbers[target] = len(numbers)
                queue.append(target)
            row.append(numbers[target])
        steps.append(tuple(row))
    accepting = tuple(state.seen == everything and state.ends_text for state in numbers)
    return Automaton(tuple(tokens), tuple(steps), accepting, classes)


class _State(NamedTuple):
    """The node of the trie, words that have occurred, words that may have, and a good ending."""

    node: int
    seen: int
    pending: int
    ends_text: bool


def _classes(
    tokens: Sequence[int], rules: TextRules | None
) -> tuple[tuple[frozenset[int], ...], list[tuple[bool, bool]]]:
    """Sets of other tokens that rules tell apart; of all kinds, whether they end word and text."""
    if rules is None:
        return (), [(True, True)] * (len(tokens) + 1)
    endings = rules.endings

    def flags(token: int) -> tuple[bool, bool]:
        return token in rules.boundary, endings is None or token in endings

    others = (set(rules.boundary) | set(endings or ())) - set(tokens)
    rest = (False, endings is None)
    groups: dict[tuple[bool, bool], set[int]] = {}
    for token in others:
        groups.setdefault(flags(token), set()).add(token)
    groups.pop(rest, None)
    classes = tuple(frozenset(group) for group in groups.values())
    return classes, [rest, *map(flags, tokens), *groups]


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
