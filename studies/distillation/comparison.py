"""How guided texts compare with the teacher alone and with rejection, one set of words or many."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from studies.distillation.models import Chained
from studies.distillation.sampling import draw_from_teacher
from studies.distillation.teachers import Teacher
from studies.distillation.tokenizers import Tokenizer
from studies.distillation.vocabulary import Vocabulary
from subtractive.sequences.automaton import TextRules
from subtractive.sequences.guided import Guide, Samples, generate

Answer = dict[str, Any]
Contains = Callable[[list[int]], bool]  # whether a sequence contains what it must


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


@dataclass(frozen=True)
class Writer:
    """A teacher, its distilled model, and the words that both speak."""

    teacher: Teacher
    model: Chained
    vocabulary: Vocabulary
    tokenizer: Tokenizer

    def guide(self, words: Sequence[str]) -> Guide:
        """The model's guidance towards texts that contain words."""
        phrases = [phrases_of(word, self.tokenizer, self.vocabulary) for word in words]
        rules = text_rules(self.tokenizer)
        return Guide(self.model, phrases, states=self.vocabulary.table, rules=rules)

    def write(self, guide: Guide, num_samples: int, generator: torch.Generator) -> Samples:
        """Texts of the teacher under guidance."""
        next_token = self.teacher.next_token(num_samples, guide.length)
        return generate(next_token, guide, num_samples, generator=generator)

    def decode(self, samples: Samples) -> list[str]:
        """The texts of samples."""
        return [self.tokenizer.decode(row) for row in samples.tokens.tolist()]


def compare_once(
    writer: Writer,
    words: Sequence[str],
    num_samples: int,
    num_tries: int,
    generator: torch.Generator,
) -> Answer:
    """Guided texts and their score; beside them the teacher alone, and rejection."""
    guide, contains = writer.guide(words), text_contains(words, writer.tokenizer)
    samples = writer.write(guide, num_samples, generator)
    answer: Answer = {"texts": writer.decode(samples), "guided": score(samples, contains)}
    if num_tries:
        tried = try_teacher(writer.teacher, contains, num_tries, guide.length, generator=generator)
        answer["teacher"] = score(tried.everything, contains)
        answer["rejection"] = score(tried.accepted, contains)
    return answer


def compare_sets(
    writer: Writer,
    sets: Iterable[Sequence[str]],
    num_samples: int,
    num_tries: int,
    generator: torch.Generator,
) -> Answer:
    """The same for many sets of words, against the same texts of the teacher alone.

    Sets with words that the model does not know, or that do not fit, are left out and counted.
    """
    length = writer.model.num_variables
    alone = draw_from_teacher(writer.teacher, num_tries, length, generator)
    rows, left_out = [], 0
    for words in sets:
        try:
            guide = writer.guide(words)
        except ValueError:
            left_out += 1
            continue
        contains = text_contains(words, writer.tokenizer)
        samples = writer.write(guide, num_samples, generator)
        hits = [contains(row) for row in alone.tokens.tolist()]
        rows.append(
            {
                "words": list(words),
                **score(samples, contains),
                "teacher_rate": sum(hits) / num_tries,
                "example": writer.decode(samples)[0],
            }
        )
    if not rows:
        raise ValueError("the model knows none of the sets of words, or none of them fits.")
    return {
        "sets": len(rows),
        "left_out": left_out,
        "success_rate": statistics.mean(row["success_rate"] for row in rows),
        "teacher_rate": statistics.mean(row["teacher_rate"] for row in rows),
        "teacher_log_likelihood": statistics.mean(row["teacher_log_likelihood"] for row in rows),
        "teacher_log_likelihood_alone": float(alone.log_prob.mean()),
        "of_each": rows,
    }


@torch.no_grad()
def try_teacher(
    teacher: Teacher,
    contains: Contains,
    num_samples: int,
    length: int,
    *,
    generator: torch.Generator | None = None,
) -> Tried:
    """Texts of the teacher alone, and which of them contain the words by chance."""
    samples = draw_from_teacher(teacher, num_samples, length, generator)
    accepted = [contains(row) for row in samples.tokens.tolist()]
    return Tried(samples, torch.tensor(accepted, dtype=torch.bool))


def phrases_of(word: str, tokenizer: Tokenizer, vocabulary: Vocabulary) -> set[tuple[int, ...]]:
    """A word as it stands in a text, and at the beginning of a sentence, in known tokens."""
    known = set()
    for spelling in (word, word[:1].upper() + word[1:]):
        phrase = tuple(tokenizer.encode(spelling))
        is_written = tokenizer.decode(phrase).strip() == spelling
        if is_written and set(vocabulary.kept).issuperset(phrase):
            known.add(phrase)
    if not known:
        raise ValueError(
            f"the model does not know the tokens of {word!r}: they do not occur in what it was "
            "trained on. Choose another word."
        )
    return known


def text_rules(tokenizer: Tokenizer) -> TextRules:
    """Words end before what is no letter; texts end with a sentence, if a token can end one."""
    pieces = [tokenizer.decode([token]) for token in range(tokenizer.num_tokens)]
    boundary = {token for token, piece in enumerate(pieces) if re.match(r"\W", piece)}
    endings = {token for token, piece in enumerate(pieces) if re.search(r"[.!?]\"?\s*$", piece)}
    return TextRules(boundary, endings or None)


def text_contains(words: Sequence[str], tokenizer: Tokenizer) -> Contains:
    """Whether the text of tokens contains whole words, however they are cut into tokens."""
    patterns = [re.compile(rf"(?<!\w){re.escape(word)}(?!\w)", re.IGNORECASE) for word in words]

    def contains(sequence: list[int]) -> bool:
        text = tokenizer.decode(sequence)
        return all(pattern.search(text) for pattern in patterns)

    return contains


def score(samples: Samples, contains: Contains) -> Answer:
    """How many texts contain the words, and the teacher's mean log-likelihood of them."""
    count = len(samples.tokens)
    hits = sum(contains(row) for row in samples.tokens.tolist())
    deviation = float(samples.log_prob.std()) if count > 1 else None
    return {
        "number": count,
        "success_rate": hits / count if count else None,
        "teacher_log_likelihood": float(samples.log_prob.mean()) if count else None,
        "per_token": float(samples.log_prob.mean()) / samples.tokens.shape[1] if count else None,
        "standard_error": None if deviation is None else deviation / count**0.5,
    }
