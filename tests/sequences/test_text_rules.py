"""Whole words and good endings against the enumeration of all sequences."""

import functools
import itertools
import math

import pytest
import torch

import subtractive as sub
from subtractive.sequences.automaton import TextRules, as_words, contains_all
from subtractive.sequences.guided import Guide, generate
from subtractive.sequences.queries import containing, containing_probability, sample_containing

LENGTH, TOKENS = 5, 4
ROWS = list(itertools.product(range(TOKENS), repeat=LENGTH))
RULES = {
    "words end": TextRules({0, 2}),
    "a boundary inside a phrase": TextRules({1, 3}),
    "texts end": TextRules({0, 2}, {2, 3}),
    "texts end on one token": TextRules({0, 1, 2, 3}, {1}),
}
WORDS = {
    "a token": [2],
    "a phrase": [[1, 2]],
    "two words": [[1, 2], 3],
    "alternatives": [{(1, 2), (3,)}, 0],
    "one inside another": [[1, 2], [3, 1, 2]],
}


def model(kind):
    is_squared = kind == "squared"
    circuit = sub.Circuit(
        sub.linear_tree(LENGTH),
        sub.Embedding(TOKENS) if is_squared else sub.Categorical(TOKENS),
        num_units=3,
        weights=sub.real_weights if is_squared else sub.positive_weights,
        initialise=sub.init.normal() if is_squared else sub.init.uniform(),
        seed=1,
        dtype=torch.float64,
    )
    return sub.SquaredCircuit(circuit) if is_squared else sub.MonotonicCircuit(circuit)


def is_good(row, words, rules):
    """Every word occurs, is followed by a boundary, and the text ends well."""

    def occurs(phrase):
        size = len(phrase)
        places = range(len(row) - size)
        return any(
            row[at : at + size] == phrase and row[at + size] in rules.boundary for at in places
        )

    def has(word):
        options = word if isinstance(word, set) else [word]
        return any(occurs((o,) if isinstance(o, int) else tuple(o)) for o in options)

    ends = rules.endings is None or row[-1] in rules.endings
    return ends and all(map(has, words))


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
@pytest.mark.parametrize("words", WORDS.values(), ids=WORDS)
def test_automata_accept_whole_words_and_good_endings(words, rules):
    automaton = contains_all(as_words(words, TOKENS), rules)
    for row in ROWS:
        assert automaton.accepts(row) == is_good(row, words, rules)


@pytest.mark.parametrize("kind", ["squared", "monotonic"])
@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_probabilities_and_draws_are_those_of_enumeration(kind, rules):
    density, words = model(kind), [[1, 2], 3]
    with torch.no_grad():
        weights = density.log_prob(torch.tensor(ROWS, dtype=torch.float64)).exp().tolist()
    good = {r: w for r, w in zip(ROWS, weights, strict=True) if is_good(r, words, rules)}
    total = math.fsum(good.values())
    found = containing_probability(density, words, rules=rules)
    assert found == pytest.approx(total, rel=1e-10, abs=1e-14)
    endings = containing(density, words, rules=rules)
    logs = endings.log_tokens(*endings.start(1), 0)[0].exp()
    for token in range(TOKENS):
        share = math.fsum(w for r, w in good.items() if r[0] == token)
        ratio = float(logs[token] / logs.sum())
        assert ratio == pytest.approx(share / total, rel=1e-9, abs=1e-13)
    rows = sample_containing(
        density, words, 2000, rules=rules, generator=torch.Generator().manual_seed(0)
    )
    drawn = [tuple(row) for row in rows.tolist()]
    assert set(drawn) <= set(good)
    for row, weight in good.items():  # false alarms: one in a million rows, of some 30
        expected = weight / total
        error = math.sqrt(expected * (1 - expected) / len(drawn))
        assert abs(drawn.count(row) / len(drawn) - expected) < 5 * error + 1e-3


@pytest.mark.parametrize("kind", ["squared", "monotonic"])
def test_a_guide_that_is_the_language_model_draws_its_conditional(kind):
    density, words, rules = model(kind), [[1, 2]], TextRules({0, 3}, {0})
    states = torch.tensor([0, 1, 2, 3, 3])  # two tokens share the last state

    @functools.cache
    def log_shares(text):
        given = dict(enumerate(text))
        shares = density.pdf(len(text), torch.arange(4.0), given or None)
        return torch.cat([shares[:3], shares[3:] / 2, shares[3:] / 2]).log()

    def next_token(beginning):
        return torch.stack([log_shares(tuple(text)) for text in states[beginning].tolist()])

    guide = Guide(density, words, states=states, rules=TextRules({0, 3, 4}, {0}))
    samples = generate(next_token, guide, 60, generator=torch.Generator().manual_seed(0))
    assert all(is_good(tuple(row), words, rules) for row in states[samples.tokens].tolist())
    assert all(guide.accepts(row) for row in samples.tokens.tolist())


def test_a_state_shared_by_tokens_ends_words_only_if_all_of_them_do():
    states = torch.tensor([0, 1, 2, 3, 3])
    guide = Guide(model("squared"), [[1, 2]], states=states, rules=TextRules({0, 4}))
    assert guide.wanted.reading.automaton.accepts([1, 2, 0])
    assert not guide.wanted.reading.automaton.accepts([1, 2, 3])
    assert guide.accepts([1, 2, 4])


def test_rules_without_tokens_are_refused():
    with pytest.raises(ValueError, match="at least one token"):
        TextRules(set())
    with pytest.raises(ValueError, match="at least one token"):
        TextRules({1}, set())
