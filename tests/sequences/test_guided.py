"""Constrained generation against the enumeration of all texts."""

import functools
import itertools
import math

import pytest
import torch

import subtractive as sub
from subtractive.sequences.automaton import as_words, contains_all
from subtractive.sequences.guided import Guide, generate

LENGTH, TOKENS = 4, 6
STATES = torch.tensor([0, 4, 1, 2, 4, 3])  # tokens 1 and 4 share a state of the model


def circuit(family, **options):
    tree = sub.linear_tree(LENGTH)
    return sub.Circuit(tree, family, num_units=3, seed=1, dtype=torch.float64, **options)


MODELS = {
    "squared": lambda: sub.SquaredCircuit(
        circuit(sub.Embedding(5), num_outputs=2, initialise=sub.init.normal())
    ),
    "monotonic": lambda: sub.MonotonicCircuit(
        circuit(sub.Categorical(5), weights=sub.positive_weights)
    ),
}


class TableModel:
    """Any joint distribution (v, v, ...) of texts, token by token."""

    def __init__(self, seed):
        generator = torch.Generator().manual_seed(seed)
        joint = torch.rand((TOKENS,) * LENGTH, generator=generator, dtype=torch.float64) ** 3
        self.joint = joint / joint.sum()

    def __call__(self, beginning):
        rows = self.joint[tuple(beginning.T)] if beginning.shape[1] else self.joint[None]
        masses = rows.expand(len(beginning), *rows.shape[1:]).flatten(1)
        masses = masses.unflatten(1, (TOKENS, -1)).sum(2)
        return (masses / masses.sum(1, keepdim=True)).log()


def expected_distribution(language_model, model, words):
    """p(x_t | x_<t) q(words | x_<=t), normalised at each step, for every text, by enumeration."""
    accepts = contains_all(as_words(words, TOKENS)).accepts
    texts = list(itertools.product(range(TOKENS), repeat=LENGTH))
    rows = torch.tensor(texts)
    with torch.no_grad():
        states = STATES[rows]
        log_q = model.log_prob(states.double()) - (states == 4).sum(1) * math.log(2)
    q = {text: math.exp(log) for text, log in zip(texts, log_q.tolist(), strict=True)}
    p = {text: float(language_model.joint[text]) for text in texts}

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
    language_model, model, words = TableModel(0), build(), [[2, 3], 5]
    guide = Guide(model, words, states=STATES)
    samples = generate(language_model, guide, 4000, generator=torch.Generator().manual_seed(0))
    assert all(guide.accepts(row) for row in samples.tokens.tolist())
    log_joint = language_model.joint[tuple(samples.tokens.T)].log()
    torch.testing.assert_close(samples.log_prob, log_joint, rtol=1e-12, atol=1e-12)
    expected = expected_distribution(language_model, model, words)
    assert sum(expected.values()) == pytest.approx(1, rel=1e-6, abs=0)
    counts = dict.fromkeys(expected, 0)
    for row in samples.tokens.tolist():
        counts[tuple(row)] += 1
    cells = [(counts[text], 4000 * share) for text, share in expected.items() if share > 0]
    large = [cell for cell in cells if cell[1] >= 5]
    statistic = sum((seen - mean) ** 2 / mean for seen, mean in large)
    # Six standard deviations of a chi-square variable: a false alarm in about 1e5 runs.
    assert statistic < len(large) + 6 * math.sqrt(2 * len(large))


def test_a_guide_refuses_what_cannot_be():
    model = MODELS["squared"]()
    with pytest.raises(ValueError, match=r"does not know the tokens \[1\] of a required word"):
        Guide(model, [1], states=STATES)
    with pytest.raises(ValueError, match=r"the words do not fit into 4 tokens"):
        Guide(model, [[2, 3, 2], [5, 5]], states=STATES)
    with pytest.raises(ValueError, match=r"numbers \(v,\) up to 4, .* got shape \(6,\) up to 3"):
        Guide(model, [2], states=STATES.clamp(max=3))
    guide = Guide(model, [2], states=STATES)
    with pytest.raises(ValueError, match=r"log-probabilities of shape \(3, 6\), .* got \(3, 7\)"):
        generate(lambda beginning: torch.zeros(len(beginning), 7), guide, 3)
    with pytest.raises(ArithmeticError, match=r"probability zero to every token"):
        generate(lambda beginning: torch.full((len(beginning), 6), -math.inf), guide, 3)


def test_without_states_tokens_are_those_of_the_model():
    model = MODELS["monotonic"]()
    guide = Guide(model, [[2, 3]])
    assert guide.num_tokens == 5
    uniform = torch.zeros(50, 5).log_softmax(1)
    generator = torch.Generator().manual_seed(0)
    samples = generate(lambda _: uniform, guide, 50, generator=generator)
    assert all(guide.accepts(row) for row in samples.tokens.tolist())
