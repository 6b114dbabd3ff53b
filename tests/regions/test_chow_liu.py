"""Chow-Liu trees: mutual information against oracles, and structures that are known."""

import itertools
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import mutual_info_score

from subtractive.regions import chow_liu
from subtractive.regions.chow_liu import (
    MISSING,
    chow_liu_tree,
    corrected_information,
    discretise,
    maximum_spanning_tree,
    mutual_information,
    pairwise,
)
from subtractive.regions.graph import RegionGraph

seeds = st.integers(0, 2**32 - 1)


def naive_information(first, second):
    """The plug-in estimate and its bias, one pair of states at a time."""
    rows = [(a, b) for a, b in zip(first, second, strict=True) if MISSING not in (a, b)]
    if not rows:
        return 0.0, 0.0
    left, right = zip(*rows, strict=True)
    information = 0.0
    for a, b in set(rows):
        joint = rows.count((a, b)) / len(rows)
        independent = left.count(a) / len(rows) * right.count(b) / len(rows)
        information += joint * np.log(joint / independent)
    surplus = len(set(rows)) - len(set(left)) - len(set(right)) + 1
    return information, surplus / (2 * len(rows))


def random_codes(seed, *, missing):
    """Columns with different numbers of states, some dependent, some constant."""
    generator = np.random.default_rng(seed)
    shape = generator.integers(1, 40), generator.integers(1, 7)
    codes = generator.integers(0, generator.integers(1, 6, size=shape[1]), size=shape)
    codes[:, -1] = codes[:, 0]
    codes[generator.random(shape) < missing] = MISSING
    return codes


def edges_of(graph):
    """The undirected edges of the spanning tree that a region tree came from."""

    def walk(nested):
        if not isinstance(nested, tuple):
            return nested, set()
        head, *below = nested
        found = [walk(child) for child in below]
        edges = {frozenset((head, child)) for child, _ in found}
        return head, edges.union(*(inner for _, inner in found))

    return walk(graph.to_nested())[1]


def chain_edges(order):
    return {frozenset(pair) for pair in itertools.pairwise(order)}


def gaussian_chain(order, num_rows, seed):
    """A stationary autoregressive process that visits the columns in the given order."""
    generator = np.random.default_rng(seed)
    data = np.empty((num_rows, len(order)))
    state = generator.normal(size=num_rows)
    for column in order:
        state = 0.8 * state + 0.6 * generator.normal(size=num_rows)
        data[:, column] = state
    return data


def discrete_chain(order, num_rows, seed):
    """A Markov chain of four states that stays where it is with probability 0.7."""
    generator = np.random.default_rng(seed)
    data = np.empty((num_rows, len(order)), dtype=np.int64)
    state = generator.integers(0, 4, size=num_rows)
    for column in order:
        moves = generator.random(num_rows) > 0.7
        state = np.where(moves, (state + generator.integers(1, 4, size=num_rows)) % 4, state)
        data[:, column] = state
    return data


CHAINS = {"gaussian": gaussian_chain, "discrete": discrete_chain}


@settings(deadline=None)
@given(seeds, st.sampled_from([0.0, 0.3, 1.0]))
def test_information_agrees_with_a_naive_loop(seed, missing):
    codes = random_codes(seed, missing=missing)
    naive = np.array([[naive_information(a, b) for b in codes.T] for a in codes.T])
    plain, bias = naive[..., 0], naive[..., 1]
    np.testing.assert_allclose(pairwise(mutual_information, codes), plain, rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        pairwise(corrected_information, codes), np.maximum(plain - bias, 0), rtol=0, atol=1e-12
    )


@settings(deadline=None, max_examples=25)
@given(seeds)
def test_information_agrees_with_scikit_learn(seed):
    codes = random_codes(seed, missing=0.0)
    expected = [[mutual_info_score(a, b) for b in codes.T] for a in codes.T]
    np.testing.assert_allclose(pairwise(mutual_information, codes), expected, rtol=0, atol=1e-12)


def test_the_blocks_do_not_show(monkeypatch):
    codes = np.random.default_rng(0).integers(-1, 5, size=(100, 30))
    whole = pairwise(corrected_information, codes)
    monkeypatch.setattr(chow_liu, "_STATES_AT_ONCE", 21)
    monkeypatch.setattr(chow_liu, "_ROWS_AT_ONCE", 7)
    np.testing.assert_allclose(pairwise(corrected_information, codes), whole, rtol=0, atol=1e-13)


def test_the_correction_removes_the_bias_of_independent_columns():
    """On average over 780 pairs the plain estimate is 49 / 2n too large."""
    codes = np.random.default_rng(0).integers(0, 8, size=(1000, 40))
    pairs = np.triu_indices(40, 1)
    plain = pairwise(mutual_information, codes)[pairs]
    corrected = pairwise(corrected_information, codes)[pairs]
    np.testing.assert_allclose(plain.mean(), 49 / 2000, rtol=0.05, atol=0)
    assert corrected.mean() < 0.1 * plain.mean()


def test_many_states_do_not_attract_edges():
    """A noise column of 30 states tells less than a weak but real dependence of two."""
    generator = np.random.default_rng(0)
    coin = generator.integers(0, 2, size=(400, 1))
    others = np.where(generator.random((400, 5)) < 0.3, 1 - coin, coin)
    data = np.concatenate([coin, others, generator.integers(0, 30, size=(400, 1))], axis=1)
    assert {frozenset((0, i)) for i in range(1, 6)} <= edges_of(chow_liu_tree(data))


@given(st.integers(1, 7), seeds)
def test_the_spanning_tree_is_the_heaviest(size, seed):
    """Kruskal's algorithm as the oracle."""
    weights = np.random.default_rng(seed).normal(size=(size, size))
    weights = weights + weights.T
    component, total = list(range(size)), 0.0
    for a, b in sorted(itertools.combinations(range(size), 2), key=lambda e: -weights[e]):
        if component[a] != component[b]:
            total += weights[a, b]
            component = [component[a] if c == component[b] else c for c in component]
    edges = maximum_spanning_tree(weights)
    assert len(edges) == size - 1
    np.testing.assert_allclose(sum(weights[e] for e in edges), total, rtol=0, atol=1e-12)


def test_the_spanning_tree_without_information_is_a_star():
    assert maximum_spanning_tree(np.zeros((4, 4))) == [(0, 1), (0, 2), (0, 3)]


@pytest.mark.parametrize("sample", CHAINS.values(), ids=CHAINS)
@pytest.mark.parametrize("seed", range(3))
def test_a_markov_chain_is_recovered(sample, seed):
    order = np.random.default_rng(seed).permutation(9).tolist()
    graph = chow_liu_tree(sample(order, 4000, seed))
    assert edges_of(graph) == chain_edges(order)
    assert graph.to_nested()[0] == order[4]
    assert graph.depth == 4


@pytest.mark.parametrize("sample", CHAINS.values(), ids=CHAINS)
def test_a_markov_chain_is_recovered_although_a_third_is_missing(sample):
    order = [3, 0, 4, 1, 2]
    data = sample(order, 6000, 0).astype(float)
    data[np.random.default_rng(1).random(data.shape) < 1 / 3] = np.nan
    assert edges_of(chow_liu_tree(data)) == chain_edges(order)


def test_dependence_that_is_not_linear_is_seen():
    generator = np.random.default_rng(0)
    x, noise = generator.normal(size=(2, 2000))
    data = np.stack([x, noise, x**2 + 0.1 * noise, generator.normal(size=2000)], axis=1)
    assert abs(np.corrcoef(data[:, 0], data[:, 2])[0, 1]) < 0.1
    assert frozenset((0, 2)) in edges_of(chow_liu_tree(data))


def test_monotone_transformations_change_nothing():
    data = gaussian_chain(range(6), 500, 0)
    assert chow_liu_tree(np.exp(3 * data)) == chow_liu_tree(data)


def test_the_same_data_gives_the_same_tree():
    data = gaussian_chain(range(8), 200, 0)
    assert chow_liu_tree(data) == chow_liu_tree(data.copy())
    assert chow_liu_tree(data.tolist()) == chow_liu_tree(data)


def test_equal_shapes_stand_side_by_side_from_small_to_large():
    """Around node 0: a leaf, and two each of twigs, forks and paths, in mixed order."""
    edges = [(0, 1), (0, 2), (2, 3), (0, 4), (4, 5), (4, 6), (0, 7), (7, 8), (8, 9), (0, 10)]
    edges += [(10, 11), (0, 12), (12, 13), (12, 14), (0, 15), (15, 16), (16, 17)]
    graph = RegionGraph.from_nested(chow_liu._nested_at_centre(edges, 18))
    nested = graph.to_nested()
    assert nested[:4] == (0, 1, (2, 3), (10, 11))
    forks, paths = [(4, 5, 6), (12, 13, 14)], [(7, (8, 9)), (15, (16, 17))]
    assert list(nested[4:]) in (forks + paths, paths + forks)


@given(st.integers(1, 40), seeds)
def test_a_spanning_tree_is_rooted_where_it_is_shallowest(size, seed):
    """Every node becomes one input region; no other root would give less depth."""
    generator = np.random.default_rng(seed)
    edges = [(int(generator.integers(0, i)), i) for i in range(1, size)]
    distances = np.full((size, size), np.inf)
    np.fill_diagonal(distances, 0)
    for a, b in edges:
        distances[a, b] = distances[b, a] = 1
    for k in range(size):
        distances = np.minimum(distances, distances[:, k, None] + distances[None, k, :])
    graph = RegionGraph.from_nested(chow_liu._nested_at_centre(edges, size))
    assert graph.is_tree
    assert graph.num_variables == size
    assert edges_of(graph) == {frozenset(edge) for edge in edges}
    assert graph.depth == distances.max(axis=1).min()


@pytest.mark.parametrize(
    ("data", "nested"),
    [
        (np.zeros((10, 3)), (0, 1, 2)),
        (np.full((10, 3), np.nan), (0, 1, 2)),
        (np.array([[0.5, 1.5, 2.5]]), (0, 1, 2)),
        (np.array([[0.5], [1.5]]), 0),
        (np.arange(6).reshape(3, 2), (1, 0)),
    ],
    ids=["constant", "all missing", "one row", "one column", "two columns"],
)
def test_data_that_says_little_still_gives_a_tree(data, nested):
    assert chow_liu_tree(data).to_nested() == nested


def test_constant_and_empty_columns_do_not_disturb_the_others():
    data = np.full((1000, 5), np.nan)
    data[:, [0, 2, 4]] = gaussian_chain([0, 1, 2], 1000, 0)
    data[:, 1] = 7.0
    edges = edges_of(chow_liu_tree(data))
    assert len(edges) == 4
    assert {frozenset((0, 2)), frozenset((2, 4))} <= edges


def test_whole_numbers_are_states_and_others_fall_into_bins():
    assert discretise(np.array([3.0, -1.0, 3.0, 7.0, np.nan]), 2).tolist() == [1, 0, 1, 2, MISSING]
    uniform = np.random.default_rng(0).permutation(1600) / 1600
    assert np.bincount(discretise(uniform, 16)).tolist() == [100] * 16
    assert np.bincount(discretise(np.arange(1600.0), 16)).tolist() == [100] * 16


def test_few_rows_get_few_bins():
    uniform = np.random.default_rng(0).random(100)
    assert np.bincount(discretise(uniform, 16)).tolist() == [25] * 4
    assert np.bincount(discretise(uniform[:8], 16)).tolist() == [4] * 2


@pytest.mark.parametrize("share", [0.01, 0.5, 0.99])
def test_ties_share_a_bin_and_rare_values_keep_their_own(share):
    column = np.where(np.arange(1000) < 1000 * share, 0.5, 1.5)
    assert discretise(column, 16).tolist() == (column > 1).astype(int).tolist()


def test_two_hundred_columns_take_seconds():
    order = np.random.default_rng(0).permutation(200).tolist()
    data = gaussian_chain(order, 2500, 0)
    start = time.perf_counter()
    assert edges_of(chow_liu_tree(data)) == chain_edges(order)
    assert time.perf_counter() - start < 30


REFUSED = {
    "vector": (np.zeros(3), r"shape \(rows, variables\), at least one of each, got \(3,\)"),
    "no rows": (np.zeros((0, 3)), r"got \(0, 3\)"),
    "no columns": (np.zeros((3, 0)), r"got \(3, 0\)"),
    "infinity": (np.array([[0.0, np.inf]]), "column 1 is not"),
    "text": ([["a", "b"]], "data must be numbers, with NaN where one is missing"),
    "nothing": ([[object()]], "data must be numbers"),
}


@pytest.mark.parametrize(("data", "message"), REFUSED.values(), ids=REFUSED)
def test_data_of_the_wrong_kind_is_refused(data, message):
    with pytest.raises(ValueError, match=message):
        chow_liu_tree(data)


@pytest.mark.parametrize("bins", [1, 0, -4])
def test_one_bin_says_nothing(bins):
    with pytest.raises(ValueError, match="at least two bins to say anything, got bins="):
        chow_liu_tree(np.zeros((3, 2)), bins=bins)
