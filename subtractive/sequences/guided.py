"""A language model that must use certain words, guided by an exact model of sequences.

At each step the language model's next-token distribution is multiplied by the exact model's
probability that all words can still occur: ``p(x_t | x_<t) · q(words | x_<=t)``, normalised. The
latter is zero where the words no longer fit: every text contains them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence, Set
from typing import NamedTuple, final

import torch
from torch import Tensor

from subtractive.densities.base import Density
from subtractive.inputs.quadratic_form_sampling import uniforms
from subtractive.numerics.inversion import choose_cell
from subtractive.sequences.automaton import ANYTHING, TextRules, Word, as_words, contains_all
from subtractive.sequences.chain import Before, Chain, Reading
from subtractive.sequences.endings import Endings

# log-probabilities (n, v) of the next token after beginnings (n, t), t = 0, 1, ...
NextToken = Callable[[Tensor], Tensor]


class Samples(NamedTuple):
    """Sequences (n, d) and the language model's log-probability of each, (n,) in float64."""

    tokens: Tensor
    log_prob: Tensor


@final
class Guide:
    """An exact model that knows which words must still come.

    Words are phrases of the language model's tokens, or sets of phrases any of which will do.
    ``states`` (v,) has the state of the exact model that stands for each token, several tokens
    perhaps sharing one; without it tokens are states. ``rules``, in the language model's tokens,
    say where words end and how a text may end.

    >>> model = sub.SquaredCircuit(sub.Circuit(sub.linear_tree(4), sub.Embedding(5), num_units=2))
    >>> guide = Guide(model, [[2, 3]])
    >>> def uniform(beginning): return torch.zeros(len(beginning), 5).log_softmax(1)
    >>> samples = generate(uniform, guide, 10)
    >>> all(guide.accepts(text) for text in samples.tokens.tolist())
    True
    """

    def __init__(
        self,
        model: Density,
        words: Sequence[object],
        *,
        states: Tensor | None = None,
        rules: TextRules | None = None,
    ) -> None:
        chain = Chain(model)
        self.states = torch.arange(chain.num_tokens) if states is None else states
        if self.states.dim() != 1 or int(self.states.max()) + 1 != chain.num_tokens:
            raise ValueError(
                f"states must be numbers (v,) up to {chain.num_tokens - 1}, that of each token in "
                f"the model, got shape {tuple(self.states.shape)} up to {int(self.states.max())}."
            )
        self.length, self.num_tokens = chain.length, len(self.states)
        checked = as_words(words, self.num_tokens)
        self.accepts = contains_all(checked, rules).accepts
        allowed = torch.ones(chain.length, chain.num_tokens, dtype=torch.bool)
        known = [_in_states(word, self.states) for word in checked]
        automaton = contains_all(
            known, None if rules is None else rules_in_states(rules, self.states)
        )
        self.wanted = Endings(chain, Reading(allowed, automaton))
        self.free = Endings(chain, Reading(allowed, ANYTHING))
        accepting, step = torch.tensor(automaton.accepting), automaton.table()
        # Where nothing that follows can spoil it, nothing is required any more.
        self._is_done = accepting & accepting[step].all(1)
        if bool((self.wanted.after[0].log_scale[0, 0] == -math.inf).all()):
            raise ValueError(
                f"the words do not fit into {chain.length} tokens, or the model finds them "
                "impossible. Ask for fewer or shorter words."
            )

    def log_chances(self, before: Before, states: Tensor, position: int) -> Tensor:
        """log q(all words occur | what was read, x_t), (n, v), of every token x_t."""
        wanted = self.wanted.log_tokens(before, states, position)
        free = self.free.log_tokens(before, torch.zeros_like(states), position)
        # A token that the model finds impossible tells nothing: it is left out, too.
        chances = torch.where(free == -math.inf, -math.inf, wanted - free).clamp(max=0.0)
        return torch.where(self._is_done[states][:, None], 0.0, chances)[:, self.states]


@torch.no_grad()
def generate(
    next_token: NextToken,
    guide: Guide,
    num_samples: int,
    *,
    generator: torch.Generator | None = None,
) -> Samples:
    """Texts of a language model that contain the words of a guide, and its log-probabilities.

    ``next_token`` is called once for each position in turn, with all that stands before it.
    """
    before, states = guide.wanted.start(num_samples)
    tokens = torch.empty(num_samples, 0, dtype=torch.long)
    total = torch.zeros(num_samples, dtype=torch.float64)
    for position in range(guide.length):
        log_next = next_token(tokens).double()
        if log_next.shape != (num_samples, guide.num_tokens):
            raise ValueError(
                f"next_token must give log-probabilities of shape "
                f"{(num_samples, guide.num_tokens)}, one for each token that the guide knows, "
                f"got {tuple(log_next.shape)}."
            )
        chosen = _draw(log_next + guide.log_chances(before, states, position), generator)
        total += log_next.gather(1, chosen[:, None])[:, 0]
        tokens = torch.cat([tokens, chosen[:, None]], 1)
        before, states = guide.wanted.advance(before, states, position, guide.states[chosen])
    return Samples(tokens, total)


def _in_states(word: Word, states: Tensor) -> Word:
    """The phrases of a word in the states of a model, those whose tokens it tells from others."""
    own = states.bincount()[states] == 1  # (v,)
    phrases = [phrase for phrase in word if bool(own[list(phrase)].all())]
    if not phrases:
        raise ValueError(
            f"the model does not know the tokens {list(word[0])} of a required word: it does not "
            "tell them from others. Choose another word."
        )
    return tuple(tuple(states[list(phrase)].tolist()) for phrase in phrases)


def rules_in_states(rules: TextRules, states: Tensor) -> TextRules:
    """The same rules in the states of a model, where all tokens of a state follow them."""

    def all_of(tokens: Set[int]) -> set[int]:
        inside = torch.zeros(len(states), dtype=torch.bool)
        inside[sorted(tokens)] = True
        return set(range(int(states.max()) + 1)) - set(states[~inside].tolist())

    endings = None if rules.endings is None else all_of(rules.endings)
    return TextRules(all_of(rules.boundary), endings)


def _draw(logs: Tensor, generator: torch.Generator | None) -> Tensor:
    """A token (n,) with probabilities proportional to exp(logs), (n, v)."""
    peak = logs.amax(1, keepdim=True)
    if not bool((peak > -math.inf).all()):
        raise ArithmeticError(
            "the language model gives probability zero to every token with which the words still "
            "fit."
        )
    return choose_cell((logs - peak).exp(), uniforms(len(logs), generator))[0]
