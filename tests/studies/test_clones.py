"""Homogeneous chains, their squares and n-grams against the enumeration of all texts."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
import torch

from studies.distillation.clone_circuit import as_density
from studies.distillation.clone_learning import (
    expectation_maximisation,
    smoothed,
    start_from_states,
)
from studies.distillation.clone_squares import (
    Blocks,
    log_partition,
    log_square_probs,
    partition_gradient,
    square_root,
)
from studies.distillation.clones import (
    CloneChain,
    expected_counts,
    log_gradient,
    log_values,
)
from studies.distillation.contexts import cluster, shares
from studies.distillation.ngrams import witten_bell_log_probs
from studies.distillation.square_learning import Ascent, NaturalGradient, divided, learn_square
from subtractive.sequences.queries import containing_probability

OFFSETS = np.array([0, 2, 3, 6])
TOKEN = np.repeat(np.arange(3), np.diff(OFFSETS))
LENGTH = 4
TABLE = np.arange(36, dtype=np.float32).reshape(6, 6)
ROWS = np.array(list(itertools.product(range(3), repeat=LENGTH)))


def additive(seed=0):
    draw = np.random.default_rng(seed)
    transition = draw.dirichlet(np.ones(6), size=6).astype(np.float32)
    return CloneChain(OFFSETS, draw.dirichlet(np.ones(6)).astype(np.float32), transition)


def signed(seed=0):
    draw = np.random.default_rng(seed)
    initial, transition = draw.normal(size=6), draw.normal(size=(6, 6))
    return CloneChain(OFFSETS, initial.astype(np.float32), transition.astype(np.float32))


def value(chain, row):
    """c(x) as a sum over all hidden paths."""
    paths = itertools.product(*(np.flatnonzero(TOKEN == token) for token in row))
    return math.fsum(
        float(chain.initial[path[0]])
        * math.prod(float(chain.transition[i, j]) for i, j in itertools.pairwise(path))
        for path in paths
    )


@pytest.mark.parametrize("chain", [additive(), signed()], ids=["additive", "signed"])
def test_values_are_sums_over_hidden_paths(chain):
    expected = np.log(np.abs([value(chain, row) for row in ROWS]))
    np.testing.assert_allclose(log_values(chain, ROWS), expected, rtol=2e-4, atol=2e-5)


def test_additive_chains_are_distributions():
    np.testing.assert_allclose(np.exp(log_values(additive(), ROWS)).sum(), 1, rtol=1e-5, atol=0)


def test_squares_are_distributions():
    chain = signed()
    total = math.fsum(value(chain, row) ** 2 for row in ROWS)
    assert log_partition(chain, LENGTH) == pytest.approx(math.log(total), rel=1e-5, abs=1e-5)
    np.testing.assert_allclose(np.exp(log_square_probs(chain, ROWS)).sum(), 1, rtol=1e-4, atol=0)


def test_expected_counts_are_those_of_enumerated_paths():
    chain, rows = additive(), ROWS[[5, 40, 77]]
    first, steps = np.zeros(6), np.zeros((6, 6))
    for row in rows:
        whole = value(chain, row)
        for path in itertools.product(*(np.flatnonzero(TOKEN == token) for token in row)):
            share = float(chain.initial[path[0]]) / whole
            for i, j in itertools.pairwise(path):
                share *= float(chain.transition[i, j])
            first[path[0]] += share
            for i, j in itertools.pairwise(path):
                steps[i, j] += share
    counts = expected_counts(chain, rows)
    np.testing.assert_allclose(counts.initial, first, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(counts.transition, steps, rtol=1e-4, atol=1e-5)


def test_gradients_are_those_of_enumeration():
    chain, rows, size = signed(3), ROWS[[5, 40, 77]], 1e-6

    def moved(i, j, by):
        transition = chain.transition.astype(np.float64)
        transition[i, j] += by
        return CloneChain(OFFSETS, chain.initial, transition)

    def slope(function, i, j):
        return (function(moved(i, j, size)) - function(moved(i, j, -size))) / (2 * size)

    def data(c):
        return math.fsum(math.log(abs(value(c, row))) for row in rows)

    def total(c):
        return math.log(math.fsum(value(c, row) ** 2 for row in ROWS))

    found, partition = log_gradient(chain, rows), partition_gradient(chain, LENGTH).gradient
    for i, j in [(0, 0), (2, 4), (5, 1), (1, 2), (4, 5)]:
        assert found.transition[i, j] == pytest.approx(slope(data, i, j), rel=1e-3, abs=1e-3)
        assert partition[i, j] == pytest.approx(slope(total, i, j), rel=1e-3, abs=1e-4)


def test_em_never_loses_without_pseudocounts_and_chains_stay_distributions():
    draw = np.random.default_rng(0)
    rows = ROWS[draw.integers(0, len(ROWS), 300)]
    chain, scores = additive(2), []
    for _ in range(5):
        counts = expected_counts(chain, rows)
        scores.append(counts.log_prob)
        chain = smoothed(counts, OFFSETS, 0.0)
    assert scores == sorted(scores)
    for strength in (0.0, 1.0):
        chain = smoothed(expected_counts(additive(2), rows), OFFSETS, strength)
        np.testing.assert_allclose(chain.transition.sum(1), 1, rtol=1e-5, atol=0)
        np.testing.assert_allclose(chain.initial.sum(), 1, rtol=1e-5, atol=0)
    fitted = expectation_maximisation(additive(2), rows, rows[:100], 3, (0.1, 1.0))
    assert len(fitted.valid) == 4
    assert log_values(fitted.chain, rows[:100]).mean() == pytest.approx(
        max(fitted.valid), rel=1e-5, abs=0
    )


def test_blocks_of_tokens_with_equally_many_clones_stand_together():
    chain = signed(4)
    blocks = Blocks.of(chain)
    assert [size for _, size in blocks.groups] == [1, 2, 3]
    np.testing.assert_array_equal(blocks.restored(blocks.ordered(TABLE)), TABLE)
    rows, columns = (part(blocks.ordered(TABLE)) for part in (blocks.rows, blocks.columns))
    np.testing.assert_array_equal(rows[1][0], TABLE[:2, blocks.order])  # the clones of token 0
    np.testing.assert_array_equal(columns[2][0], TABLE[blocks.order, 3:].T)  # those of token 2


def test_what_surrounds_a_transition_is_its_part_in_the_second_order_of_z():
    chain, change, length = signed(5), signed(6).transition, 2
    pairs = list(itertools.product(range(3), repeat=length))
    whole = math.fsum(value(chain, row) ** 2 for row in pairs)
    moved = CloneChain(OFFSETS, chain.initial, change)
    expected = math.fsum(value(moved, row) ** 2 for row in pairs) / whole
    found, blocks = partition_gradient(chain, length), Blocks.of(chain)
    divided_change = divided(change, blocks, found.before, found.after)
    assert (change * divided_change).sum() == pytest.approx(expected, rel=1e-4, abs=0)


def test_a_square_starts_near_the_additive_chain_and_learns():
    rows = ROWS[[1, 1, 1, 40, 40, 60]]
    root = square_root(additive(1))
    np.testing.assert_allclose(root.transition**2, additive(1).transition, rtol=1e-5, atol=0)
    fitted = learn_square(additive(1), rows, rows, Ascent(40, len(rows), rate=1.0), seed=0)
    assert fitted.valid[0] == pytest.approx(log_square_probs(root, rows).mean(), rel=1e-4, abs=0)
    assert max(fitted.valid) > fitted.valid[0] + 0.5
    assert log_square_probs(fitted.chain, rows).mean() == pytest.approx(
        max(fitted.valid), rel=1e-5, abs=1e-5
    )


def test_steps_say_the_likelihood_before_them_and_are_clipped():
    chain, rows = signed(7), ROWS[[1, 1, 1, 40, 40, 60]]
    before, start = log_square_probs(chain, rows).mean(), chain.transition.copy()
    optimizer = NaturalGradient(Ascent(1, len(rows), rate=1.0, clip=0.01))
    assert optimizer.step(chain, rows, 1.0) == pytest.approx(before, rel=1e-4, abs=1e-4)
    assert np.abs(chain.transition - start).max() <= 0.1 * 0.01 * 1.001  # momentum 0.9


def test_known_states_give_counts():
    states = np.array([[0, 3, 2], [1, 3, 2]])
    chain = start_from_states(states, OFFSETS, 0.0)
    np.testing.assert_allclose(chain.transition[3], [0, 0, 1, 0, 0, 0], rtol=0, atol=1e-3)
    np.testing.assert_allclose(chain.initial[:2], [0.4, 0.4], rtol=0, atol=0.15)


def test_clones_are_shared_out_by_the_root_of_counts():
    found = shares(np.array([10_000, 100, 0]), 12, 20)
    assert found.sum() <= 12
    assert found[2] == 1
    assert found[0] > 5 * found[1]
    assert shares(np.array([10_000, 100, 0]), 12, 4).max() == 4


def test_contexts_that_differ_get_clones_that_differ():
    features = np.array([[0.0], [0.1], [5.0], [5.1], [9.0]], np.float32)
    tokens = np.array([0, 0, 0, 0, 1])
    labels = cluster(features, tokens, [2, 1], seed=0)
    assert labels[0] == labels[1] != labels[2] == labels[3]
    assert labels[4] == 0


def reference_witten_bell(train, row, order, num_tokens):
    """The same from a dictionary of counts."""

    def probability(context, token, length):
        if length == 0:
            return 1 / num_tokens
        lower = probability(context[1:], token, length - 1)
        after = Counter()
        for text in train:
            padded = (num_tokens,) * (length - 1) + tuple(text)
            for at in range(length - 1, len(padded)):
                if padded[at - length + 1 : at] == context:
                    after[padded[at]] += 1
        if not after:
            return lower
        return (after[token] + len(after) * lower) / (after.total() + len(after))

    padded = (num_tokens,) * (order - 1) + tuple(row)
    return math.fsum(
        math.log(probability(padded[at - order + 1 : at], padded[at], order))
        for at in range(order - 1, len(padded))
    )


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_n_grams_are_those_of_a_dictionary(order):
    draw = np.random.default_rng(order)
    train, rows = draw.integers(0, 4, (12, 5)), draw.integers(0, 4, (6, 5))
    expected = [reference_witten_bell(train, row, order, 4) for row in rows]
    found = witten_bell_log_probs(train, rows, order, 4)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_n_grams_are_distributions():
    every = np.array(list(itertools.product(range(3), repeat=3)))
    logs = witten_bell_log_probs(every[[0, 5, 5, 13]], every, 3, 3)
    np.testing.assert_allclose(np.exp(logs).sum(), 1, rtol=1e-12, atol=0)


def test_orders_that_cannot_be_counted_are_refused():
    rows = np.zeros((2, 3), dtype=np.int64)
    with pytest.raises(ValueError, match="at least 1"):
        witten_bell_log_probs(rows, rows, 0, 4)
    with pytest.raises(ValueError, match="do not fit in 64 bits"):
        witten_bell_log_probs(rows, rows, 5, 50_257)


def test_a_chain_is_a_density_of_the_library():
    chain = additive(4)
    density = as_density(chain, LENGTH)
    logs = density.log_prob(torch.tensor(ROWS, dtype=torch.float32)).detach().numpy()
    np.testing.assert_allclose(logs, log_values(chain, ROWS), rtol=1e-4, atol=1e-4)
    found = containing_probability(density, [[1, 2]])
    rows = [row for row in ROWS if any((1, 2) == pair for pair in itertools.pairwise(row))]
    expected = np.exp(log_values(chain, np.array(rows))).sum()
    assert found == pytest.approx(expected, rel=1e-4, abs=0)
    with pytest.raises(ValueError, match="at least three"):
        as_density(chain, 2)
