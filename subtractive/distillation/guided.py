"""A teacher that must use certain words, guided by its distilled model.

At each step the teacher's next-token distribution is multiplied by the distilled model's exact
probability that all words can still occur: ``p(x_t | x_<t) · q(words | x_<=t)``, normalised. The
model's probability is zero where the words no longer fit: every text contains them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, final

import torch
from torch import Tensor

from subtractive.densities.base import Density
from subtractive.distillation.automaton import ANYTHING, Word, as_words, contains_all
from subtractive.distillation.chain import Before, Chain, Reading
from subtractive.distillation.endings import Endings
from subtractive.distillation.sampling import Samples, draw_from_teacher
from subtractive.distillation.teachers import Teacher
from subtractive.distillation.vocabulary import Vocabulary
from subtractive.inputs.quadratic_form_sampling import uniforms
from subtractive.numerics.inversion import choose_cell

Accepts = Callable[[list[int]], bool]  # whether a sequence contains what it must


class Tried(NamedTuple):
    """What the teacher alone achieves, and what rejection keeps of it."""

    everything: Samples
    is_accepted: Tensor  # (n,) bool

    @property
    def rate(self) -> float:
        """The share of texts that contain the words."""
        return float(self.is_accepted.double().mean())

    @property
    def accepted(self) -> Samples:
        """The texts that rejection keeps."""
        rows = self.is_accepted.nonzero()[:, 0]
        return Samples(self.everything.tokens[rows], self.everything.log_prob[rows])


@final
class Guide:
    """A distilled model that knows which words must still come.

    Words are phrases of the teacher's tokens, or sets of phrases any of which will do.
    """

    def __init__(self, model: Density, vocabulary: Vocabulary, words: Sequence[object]) -> None:
        chain = Chain(model)
        if vocabulary.num_states != chain.num_tokens:
            raise ValueError(
                f"the vocabulary has {vocabulary.num_states} states, the model "
                f"{chain.num_tokens}: they belong to different runs."
            )
        self.vocabulary, self.length = vocabulary, chain.length
        checked = as_words(words, vocabulary.num_tokens)
        self.accepts = contains_all(checked).accepts
        allowed = torch.ones(chain.length, chain.num_tokens, dtype=torch.bool)
        automaton = contains_all([_states_of(word, vocabulary) for word in checked])
        self.wanted = Endings(chain, Reading(allowed, automaton))
        self.free = Endings(chain, Reading(allowed, ANYTHING))
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
        arrived = torch.tensor(self.wanted.reading.automaton.accepting)[states]
        chances = torch.where(arrived[:, None], 0.0, chances)
        return chances[:, self.vocabulary.table]


@torch.no_grad()
def generate(
    teacher: Teacher,
    guide: Guide,
    num_samples: int,
    *,
    generator: torch.Generator | None = None,
) -> Samples:
    """Texts that contain the words of a guide, and the teacher's log-probabilities of them."""
    if teacher.num_tokens != guide.vocabulary.num_tokens:
        raise ValueError(
            f"the teacher knows {teacher.num_tokens} tokens, the vocabulary of the model "
            f"{guide.vocabulary.num_tokens}: they do not belong together."
        )
    reader = teacher.begin(num_samples, guide.length)
    before, states = guide.wanted.start(num_samples)
    columns, total = [], torch.zeros(num_samples, dtype=torch.float64)
    for position in range(guide.length):
        log_next = reader.log_next
        tokens = _draw(log_next + guide.log_chances(before, states, position), generator)
        total += log_next.gather(1, tokens[:, None])[:, 0]
        columns.append(tokens)
        read = guide.vocabulary.table[tokens]
        before, states = guide.wanted.advance(before, states, position, read)
        if position + 1 < guide.length:
            reader.read(tokens)
    return Samples(torch.stack(columns, 1), total)


@torch.no_grad()
def try_teacher(
    teacher: Teacher,
    accepts: Accepts,
    num_samples: int,
    length: int,
    *,
    generator: torch.Generator | None = None,
) -> Tried:
    """Texts of the teacher alone, and which of them contain the words by chance."""
    samples = draw_from_teacher(teacher, num_samples, length, generator)
    accepted = [accepts(row) for row in samples.tokens.tolist()]
    return Tried(samples, torch.tensor(accepted, dtype=torch.bool))


def _states_of(word: Word, vocabulary: Vocabulary) -> Word:
    """The phrases of a word in the states of a model."""
    known = set(vocabulary.kept)
    phrases = [phrase for phrase in word if known.issuperset(phrase)]
    if not phrases:
        raise ValueError(
            f"the model does not know the tokens {list(word[0])} of a required word: they do not "
            "occur in what it was trained on. Choose another word."
        )
    return tuple(tuple(vocabulary.state(token) for token in phrase) for phrase in phrases)


def _draw(logs: Tensor, generator: torch.Generator | None) -> Tensor:
    """A token (n,) with probabilities proportional to exp(logs), (n, v)."""
    peak = logs.amax(1, keepdim=True)
    if not bool((peak > -math.inf).all()):
        raise ArithmeticError(
            "the teacher gives probability zero to every token with which the words still fit."
        )
    return choose_cell((logs - peak).exp(), uniforms(len(logs), generator))[0]
