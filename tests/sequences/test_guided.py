"""Constrained generation against the enumeration of all texts."""

import functools
import itertools
import math

import pytest
import torch

from studies.distillation.models import monotonic_chain, squared_chain
from studies.distillation.teachers import Reader, Teacher
from studies.distillation.vocabulary import Vocabulary
from subtractive.sequences.automaton import as_words, contains_all
from subtractive.sequences.guided import Guide, generate, try_teacher

LENGTH, TOKENS = 4, 6
VOCABULARY = Vocabulary((0, 2, 3, 5), TOKENS)  # tokens 1 and 4 are unknown
MODELS = {
    "squared": lambda: squared_chain(LENGTH, 5, 3, num_squares=2, start="normal", seed=1),
    "monotonic": lambda: monotonic_chain(LENGTH, 5, 3, seed=1),
}


class TableTeacher(Teacher):
    """Any joint distribution (v, v, ...) of texts, token by token."""

    def __init__(self, seed):
        generator = torch.Generator().manual_seed(seed)
        joint = torch.rand((TOKENS,) * LENGTH, generator=generator, dtype=torch.float64) ** 3
        self.joint = joint / joint.sum()

    num_tokens, identity = TOKENS, {"kind": "table"}

    def begin(self, num_rows, length):
        return TableReader(self.joint, num_rows)


class TableReader(Reader):
    def __init__(self, joint, num_rows):
        self.rows = joint.expand(num_rows, *joint.shape)

    @property
    def log_next(self):
        masses = self.rows.flatten(2).sum(2) if self.rows.dim() > 2 else self.rows
        return (masses / masses.sum(1, keepdim=True)).log()

    def read(self, tokens):
        self.rows = self.rows[torch.arange(len(tokens)), tokens]


def expected_distribution(teacher, model, words):
    """p(x_t | x_<t) q(words | x_<=t), normalised at each step, for every text, by enumeration."""
    accepts = contains_all(as_words(words, TOKENS)).accepts
    texts = list(itertools.product(range(TOKENS), repeat=LENGTH))
    rows = torch.tensor(texts)
    with torch.no_grad():
        states = VOCABULARY.states(rows)
        log_q = model.log_prob(states.float()) + VOCABULARY.log_share(states)
    q = {text: math.exp(log) for text, log in zip(texts, log_q.tolist(), strict=True)}
    p = {text: float(teacher.joint[text]) for text in texts}

    @functools.cache
    def chance(prefix):
        inside = [text for text in texts if text[: len(prefix)] == prefix]
        return sum(q[t] for t in inside if accepts(t)) / sum(q[t] for t in inside)

    @functools.cache
    def mass(prefix):
        return sum(p[text] for text in texts if text[: len(prefix)] == prefix)

    found = {}
    for text in texts:
        probability = 1.0
        for t in range(LENGTH):
            options = {v: mass((*text[:t], v)) * chance((*text[:t], v)) for v in range(TOKENS)}
            total = sum(options.values())
            probability *= options[text[t]] / total if total else 0.0
            if probability == 0:
                break
        found[text] = probability
    return found


@pytest.mark.parametrize("build", MODELS.values(), ids=MODELS)
def test_guided_texts_have_the_reweighted_distribution_and_all_contain_the_words(build):
    teacher, model, words = TableTeacher(0), build(), [[2, 3], 5]
    guide = Guide(model, VOCABULARY, words)
    samples = generate(teacher, guide, 4000, generator=torch.Generator().manual_seed(0))
    assert all(guide.accepts(row) for row in samples.tokens.tolist())
    torch.testing.assert_close(
        samples.log_prob, teacher.log_prob(samples.tokens), rtol=1e-12, atol=1e-12
    )
    expected = expected_distribution(teacher, model, words)
    assert sum(expected.values()) == pytest.approx(1, rel=1e-6, abs=0)
    counts = dict.fromkeys(expected, 0)
    for row in samples.tokens.tolist():
        counts[tuple(row)] += 1
    cells = [(counts[text], 4000 * share) for text, share in expected.items() if share > 0]
    large = [cell for cell in cells if cell[1] >= 5]
    statistic = sum((seen - mean) ** 2 / mean for seen, mean in large)
    # Six standard deviations of a chi-square variable: a false alarm in about 1e5 runs.
    assert statistic < len(large) + 6 * math.sqrt(2 * len(large))


def test_the_teacher_alone_contains_the_words_by_chance():
    teacher = TableTeacher(1)
    accepts = contains_all(as_words([2, 5], TOKENS)).accepts
    tried = try_teacher(teacher, accepts, 3000, LENGTH, generator=torch.Generator().manual_seed(0))
    exact = sum(
        float(teacher.joint[text])
        for text in itertools.product(range(TOKENS), repeat=LENGTH)
        if 2 in text and 5 in text
    )
    # Five standard errors.
    assert abs(tried.rate - exact) < 5 * math.sqrt(exact * (1 - exact) / 3000)
    assert len(tried.accepted.tokens) == round(3000 * tried.rate)
    assert all(accepts(row) for row in tried.accepted.tokens.tolist())


def test_a_guide_refuses_what_cannot_be():
    model = MODELS["squared"]()
    with pytest.raises(ValueError, match=r"does not know the tokens \[1\] of a required word"):
        Guide(model, VOCABULARY, [1])
    with pytest.raises(ValueError, match=r"the words do not fit into 4 tokens"):
        Guide(model, VOCABULARY, [[2, 3, 2], [5, 5]])
    with pytest.raises(ValueError, match=r"has 3 states, the model 5"):
        Guide(model, Vocabulary((0, 2), TOKENS), [2])
    guide = Guide(model, VOCABULARY, [2])
    teacher = TableTeacher(0)
    teacher.num_tokens = 7
    with pytest.raises(ValueError, match=r"the teacher knows 7 tokens, the vocabulary"):
        generate(teacher, guide, 1)
