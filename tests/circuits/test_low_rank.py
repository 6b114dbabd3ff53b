"""Factors of grams of low rank, against the grams themselves."""

import pytest
import torch

import subtractive as sub
from subtractive.circuits import evaluation
from subtractive.circuits.sums import low_rank_factors, low_rank_sum, shared_factors
from subtractive.numerics.messages import Scaled

REAL = torch.float64


def random(*shape, seed=0, dtype=REAL):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def message(mantissa):
    return Scaled(mantissa, torch.zeros(mantissa.shape[:2], dtype=REAL))


def gram_of_rank(rank, width=12):
    vectors = random(2, rank, width)
    vectors = vectors * torch.logspace(-8, 8, width, dtype=REAL)  # units of any size
    return vectors.mT @ vectors


def test_factors_make_up_the_gram_entry_by_entry():
    gram = gram_of_rank(3)
    factors = low_rank_factors(gram)
    assert factors.shape == (2, 3, 12)
    size = gram.diagonal(dim1=-2, dim2=-1).sqrt()
    error = (factors.mT @ factors - gram).abs() / (size[:, :, None] * size[:, None])
    assert error.max() < 12 * torch.finfo(REAL).eps


def test_grams_of_full_rank_stay_as_they_are():
    assert low_rank_factors(gram_of_rank(12)) is None


def test_a_gram_of_zeros_is_not_factored():
    assert low_rank_factors(torch.zeros(1, 4, 4, dtype=REAL)) is None


@pytest.mark.parametrize("dtype", [REAL, torch.complex128])
def test_the_sum_is_that_of_the_gram(dtype):
    gram, weight = gram_of_rank(3), random(2, 5, 12, seed=1, dtype=dtype)
    vector = random(2, 7, 12, seed=2, dtype=dtype)
    factors = Scaled(low_rank_factors(gram), torch.zeros(2, 1, dtype=REAL))
    found = low_rank_sum(weight, [message(vector), message(gram[:, None])], factors)
    outer = vector[..., :, None] * vector[..., None, :].conj()
    expected = weight[:, None] @ (outer * gram[:, None]) @ weight[:, None].mH
    torch.testing.assert_close(found.mantissa, expected, rtol=1e-10, atol=1e-10)


@torch.no_grad()
def test_only_grams_for_all_rows_that_meet_vectors_of_each_row_are_factored():
    plain = gram_of_rank(3)[:, None]
    gram, vector = message(plain), message(random(2, 7, 12))
    assert shared_factors([vector, gram]) is not None
    assert shared_factors([vector, message(plain.expand(-1, 7, -1, -1))]) is None
    assert shared_factors([message(vector.mantissa[:, :1]), gram]) is None
    with torch.enable_grad():
        assert shared_factors([vector, gram]) is None


@pytest.mark.parametrize("tree", ["binary", "linear"])
@pytest.mark.parametrize("weights", [sub.real_weights, sub.complex_weights])
def test_marginals_are_the_same_with_and_without_factors(tree, weights, monkeypatch):
    graph = sub.random_binary_tree(8) if tree == "binary" else sub.linear_tree(8)
    circuit = sub.Circuit(
        graph,
        sub.Gaussian(),
        num_units=32,
        weights=weights,
        initialise=sub.init.normal(),
        seed=0,
        dtype=REAL,
    )
    p, x = sub.SquaredCircuit(circuit), random(9, 8)
    observed = torch.arange(8) % 2 == 1
    expected = p.log_marginal(x, observed)  # with gradients, and therefore without factors
    used = []

    def recorded(*arguments):
        used.append(arguments)
        return low_rank_sum(*arguments)

    monkeypatch.setattr(evaluation, "low_rank_sum", recorded)
    with torch.no_grad():
        found = p.log_marginal(x, observed)
    assert used
    torch.testing.assert_close(found, expected.detach(), rtol=0, atol=1e-9)
