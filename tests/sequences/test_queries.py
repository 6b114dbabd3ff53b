"""Questions about sequences against the enumeration of all of them."""

import functools
import itertools
import math

import pytest
import torch

import subtractive as sub
from subtractive.sequences.automaton import as_words, contains_all
from subtractive.sequences.chain import Chain
from subtractive.sequences.queries import (
    containing,
    containing_probability,
    most_likely_infill,
    occurrence_probability,
    phrase_probability,
    sample_containing,
    sample_infill,
    sample_sequences,
    token_probabilities,
)

LENGTH, TOKENS = 5, 4


def squared(num_outputs=1, seed=0, length=LENGTH, tokens=TOKENS, units=3):
    circuit = sub.Circuit(
        sub.linear_tree(length),
        sub.Embedding(tokens),
        num_units=units,
        num_outputs=num_outputs,
        initialise=sub.init.normal(),
        seed=seed,
        dtype=torch.float64,
    )
    with torch.no_grad():  # signs of both kinds in the tables, too
        table = circuit.input_layers[0].table
        table.add_(-0.5)
    return sub.SquaredCircuit(circuit)


def monotonic(seed=0, length=LENGTH, tokens=TOKENS, units=3):
    circuit = sub.Circuit(
        sub.linear_tree(length),
        sub.Categorical(tokens),
        num_units=units,
        num_outputs=2,
        weights=sub.positive_weights,
        seed=seed,
        dtype=torch.float64,
    )
    return sub.MonotonicCircuit(circuit)


MODELS = {
    "square": squared,
    "sum of squares": lambda: squared(num_outputs=2, seed=1),
    "wide sum of squares": lambda: squared(num_outputs=5, seed=2, units=2),
    "monotonic": monotonic,
}
WORDS = {
    "a token": [2],
    "two tokens": [2, 0],
    "three tokens": [0, 1, 3],
    "alternatives": [{1, 2}, 3],
    "a phrase": [[1, 2]],
    "a phrase that overlaps itself": [[1, 1, 2]],
    "a phrase inside another": [[1, 2], [3, 1, 2]],
    "a phrase and a token of it": [[1, 2], 2],
    "alternative phrases": [{(1, 2), (3,)}, 0],
    "the same word twice": [2, 2],
}


@pytest.fixture(scope="module", params=MODELS.values(), ids=MODELS)
def model(request):
    return request.param()


@functools.cache
def enumerate_all(model):
    """Every sequence and its probability, by nothing but log_prob."""
    rows = list(itertools.product(range(TOKENS), repeat=LENGTH))
    with torch.no_grad():
        logs = model.log_prob(torch.tensor(rows, dtype=torch.float64))
    return rows, logs.exp().tolist()


def occurs(phrase, row):
    phrase = tuple(phrase)
    return any(row[at : at + len(phrase)] == phrase for at in range(len(row)))


def has_all(words, row):
    def has(word):
        options = word if isinstance(word, set) else [word]
        return any(occurs((o,) if isinstance(o, int) else o, row) for o in options)

    return all(has(word) for word in words)


def share(model, event, given):
    rows, weights = enumerate_all(model)
    known = [
        (row, weight)
        for row, weight in zip(rows, weights, strict=True)
        if all(row[position] == token for position, token in given.items())
    ]
    total = math.fsum(weight for _, weight in known)
    return math.fsum(weight for row, weight in known if event(row)) / total


@pytest.mark.parametrize("words", WORDS.values(), ids=WORDS)
def test_automata_accept_what_contains_every_word(words):
    automaton = contains_all(as_words(words, TOKENS))
    for row in itertools.product(range(TOKENS), repeat=LENGTH):
        assert automaton.accepts(row) == has_all(words, row)


@pytest.mark.parametrize(
    ("phrase", "given"),
    [({0: 1}, {}), ({1: 2, 2: 3}, {}), ({0: 3, 4: 0}, {2: 1}), ({3: 1}, {0: 0, 4: 2})],
)
def test_the_probability_of_a_phrase_is_that_of_enumeration(model, phrase, given):
    def event(row):
        return all(row[position] == token for position, token in phrase.items())

    expected = share(model, event, given)
    assert phrase_probability(model, phrase, given) == pytest.approx(
        expected, rel=1e-10, abs=1e-14
    )


@pytest.mark.parametrize("given", [{}, {0: 1}, {3: 2, 4: 1}, {0: 2, 1: 2, 3: 0, 4: 3}])
def test_a_gap_knows_the_words_after_it(model, given):
    found = token_probabilities(model, 2, given)
    expected = [share(model, lambda row, t=t: row[2] == t, given) for t in range(TOKENS)]
    torch.testing.assert_close(
        found, torch.tensor(expected, dtype=torch.float64), rtol=1e-10, atol=1e-14
    )


@pytest.mark.parametrize("given", [{}, {1: 2}, {0: 3, 4: 1}], ids=str)
@pytest.mark.parametrize("words", WORDS.values(), ids=WORDS)
def test_the_probability_of_containing_words_is_that_of_enumeration(model, words, given):
    expected = share(model, lambda row: has_all(words, row), given)
    found = containing_probability(model, words, given)
    assert found == pytest.approx(expected, rel=1e-10, abs=1e-14)
    if all(isinstance(word, int | set) and word != {(1, 2), (3,)} for word in words):
        counted = occurrence_probability(model, words, given)
        assert counted == pytest.approx(expected, rel=0, abs=1e-12)


def test_inclusion_and_exclusion_serves_every_density():
    mixture = sub.Mixture([squared(seed=3), monotonic(seed=4)])
    expected = share(mixture, lambda row: has_all([1, 2], row), {0: 3})
    found = occurrence_probability(mixture, [1, 2], {0: 3})
    assert found == pytest.approx(expected, rel=0, abs=1e-12)


@pytest.mark.parametrize("given", [{}, {0: 1, 4: 2}, {1: 0}, {0: 1, 1: 2, 2: 3, 3: 0}], ids=str)
def test_the_most_likely_infill_is_that_of_enumeration(model, given):
    rows, weights = enumerate_all(model)
    known = {
        row: weight
        for row, weight in zip(rows, weights, strict=True)
        if all(row[position] == token for position, token in given.items())
    }
    best = max(known, key=known.get)
    found = most_likely_infill(model, given)
    assert tuple(found.tokens.tolist()) == best
    assert found.is_certain
    expected = known[best] / math.fsum(known.values())
    assert found.probability == pytest.approx(expected, rel=1e-10, abs=1e-14)


def test_an_infill_that_ran_out_of_steps_says_so_and_is_possible(model):
    found = most_likely_infill(model, {4: 1}, max_steps=1)
    assert not found.is_certain
    assert found.tokens[4] == 1
    row = dict(enumerate(found.tokens.tolist()))
    del row[4]
    expected = phrase_probability(model, row, {4: 1})
    assert found.probability == pytest.approx(expected, rel=1e-10, abs=1e-14)


def test_the_probability_of_every_next_token_is_that_of_enumeration(model):
    words = [[1, 2], 3]
    endings = containing(model, words, {4: 2})
    before, states = endings.start(2)
    prefix = torch.tensor([[1, 3], [0, 1]])
    for position in range(2):
        before, states = endings.advance(before, states, position, prefix[:, position])
    logs = endings.log_tokens(before, states, 2)
    rows, weights = enumerate_all(model)
    expected = torch.zeros(2, TOKENS, dtype=torch.float64)
    for row, weight in zip(rows, weights, strict=True):
        if row[4] == 2 and has_all(words, row):
            for k in range(2):
                if list(row[:2]) == prefix[k].tolist():
                    expected[k, row[2]] += weight
    found = (logs - model.log_partition()).exp().detach()
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-14)
    torch.testing.assert_close(
        endings.log_total(before, states, 2), logs.logsumexp(1), rtol=1e-12, atol=1e-12
    )


def chi_square(model, rows, words, given):
    """The statistic of samples against enumeration, and its degrees of freedom."""
    every, weights = enumerate_all(model)
    expected = {
        row: weight
        for row, weight in zip(every, weights, strict=True)
        if has_all(words, row) and all(row[p] == t for p, t in given.items())
    }
    total = math.fsum(expected.values())
    counts = dict.fromkeys(expected, 0)
    for row in rows.tolist():
        counts[tuple(row)] += 1  # a KeyError is a row that does not meet the requirements
    cells = [(counts[row], len(rows) * weight / total) for row, weight in expected.items()]
    large = [(seen, mean) for seen, mean in cells if mean >= 5]
    rest = [cell for cell in cells if cell[1] < 5]
    large.append((sum(seen for seen, _ in rest), sum(mean for _, mean in rest)))
    large = [cell for cell in large if cell[1] > 0]
    return sum((seen - mean) ** 2 / mean for seen, mean in large), len(large) - 1


@pytest.mark.parametrize("words", [[2, 0], [[1, 2], 3], [{(1, 2), (3,)}, 0]], ids=str)
def test_samples_that_contain_words_have_the_conditional_distribution(model, words):
    generator = torch.Generator().manual_seed(5)
    rows = sample_containing(model, words, 4000, given={1: 1}, generator=generator)
    statistic, freedom = chi_square(model, rows, words, {1: 1})
    # Six standard deviations of a chi-square variable: a false alarm in about 1e5 runs.
    assert statistic < freedom + 6 * math.sqrt(2 * freedom)


def test_sampled_sequences_have_the_distribution_of_the_model(model):
    rows = sample_sequences(model, 4000, torch.Generator().manual_seed(7))
    statistic, freedom = chi_square(model, rows, [], {})
    assert statistic < freedom + 6 * math.sqrt(2 * freedom)


def test_sampled_infills_have_the_conditional_distribution(model):
    generator = torch.Generator().manual_seed(6)
    rows = sample_infill(model, {0: 1, 3: 2}, 4000, generator)
    statistic, freedom = chi_square(model, rows, [], {0: 1, 3: 2})
    assert statistic < freedom + 6 * math.sqrt(2 * freedom)


def test_rare_events_keep_their_digits():
    model = monotonic()
    with torch.no_grad():  # token 3 has a probability of about 1e-13 wherever it stands
        model.circuit.input_layers[0].logits[..., 3] = -30.0
    exact = share(model, lambda row: has_all([[3, 3]], row), {})
    assert 0 < exact < 1e-24
    assert containing_probability(model, [[3, 3]]) == pytest.approx(exact, rel=1e-10, abs=0)
    single = share(model, lambda row: 3 in row, {})
    assert occurrence_probability(model, [3]) == pytest.approx(single, rel=0, abs=1e-14)
    assert containing_probability(model, [3]) == pytest.approx(single, rel=1e-10, abs=0)


def test_probabilities_of_single_precision_models_never_exceed_one():
    model = squared(num_outputs=2).float()
    everything = {frozenset(range(TOKENS))}
    words = [set(word) for word in everything]
    assert containing_probability(model, words) == pytest.approx(1.0, rel=0, abs=1e-12)
    assert containing_probability(model, words) <= 1
    assert occurrence_probability(model, words) <= 1
    assert phrase_probability(model, {1: 2}) <= 1


def test_errors_say_what_was_expected():
    model = squared()
    with pytest.raises(ValueError, match=r"phrase is empty: name a position"):
        phrase_probability(model, {})
    with pytest.raises(ValueError, match=r"position 1 is both in the phrase and given"):
        phrase_probability(model, {1: 2}, {1: 3})
    with pytest.raises(ValueError, match=r"words is empty"):
        containing_probability(model, [])
    with pytest.raises(ValueError, match=r"words must be a list"):
        containing_probability(model, "dog")
    with pytest.raises(ValueError, match=r"whole numbers in 0\.\.3, got 4"):
        containing_probability(model, [4])
    with pytest.raises(ValueError, match=r"whole numbers in 0\.\.3, got \[\]"):
        containing_probability(model, [[]])
    with pytest.raises(ValueError, match=r"a word is an empty set"):
        containing_probability(model, [set()])
    with pytest.raises(ValueError, match=r"counts single tokens, got the phrase \(1, 2\)"):
        occurrence_probability(model, [[1, 2]])
    with pytest.raises(ValueError, match=r"unknown variable 9"):
        containing_probability(model, [1], {9: 0})
    with pytest.raises(ValueError, match=r"num_samples must be at least 0"):
        sample_containing(model, [1], -1)
    with pytest.raises(ValueError, match=r"max_steps must be at least 1"):
        most_likely_infill(model, {}, max_steps=0)
    with pytest.raises(ValueError, match=r"has probability zero"):
        sample_containing(model, [[0, 0, 0, 0, 0, 0]], 1)
    continuous = sub.SquaredCircuit(sub.Circuit(sub.flat(2), sub.Gaussian(), num_units=2))
    with pytest.raises(ValueError, match=r"need the same tokens at every position"):
        token_probabilities(continuous, 0)


@pytest.mark.parametrize(
    "circuit",
    [
        sub.Circuit(sub.random_binary_tree(4), sub.Embedding(3), num_units=2),
        sub.Circuit(sub.linear_tree(4, order=[1, 0, 2, 3]), sub.Embedding(3), num_units=2),
        sub.Circuit(sub.linear_tree(1), sub.Embedding(3), num_units=2),
        sub.Circuit(sub.linear_tree(4), sub.Embedding(3), num_units=2, num_input_units=3),
        sub.Circuit(sub.linear_tree(3), sub.Embedding(3), num_units=2, product=sub.KroneckerLayer),
        sub.Circuit(
            sub.linear_tree(3), sub.Embedding(3), num_units=2, weights=sub.complex_weights
        ),
        sub.Circuit(sub.linear_tree(2), [sub.Embedding(3), sub.Embedding(2)], num_units=2),
    ],
)
def test_only_chains_are_read_as_chains(circuit):
    with pytest.raises(ValueError, match=r"need a real circuit over linear_tree\(d\)"):
        Chain(sub.SquaredCircuit(circuit))


def test_a_mixture_is_no_chain():
    with pytest.raises(ValueError, match=r"need a SquaredCircuit or a MonotonicCircuit"):
        Chain(sub.Mixture([squared(), squared(seed=1)]))
