"""EM for Gaussian mixtures agrees with scikit-learn's, and survives what goes wrong."""

import math

import numpy as np
import pytest
import torch
from sklearn.mixture import GaussianMixture

import subtractive as sub
from subtractive.learning import expectation_maximisation as em
from subtractive.learning.expectation_maximisation import (
    DIAGONAL,
    FULL,
    GaussianComponents,
    Limits,
    clustered,
    improve,
)

KINDS = {"full": FULL, "diag": DIAGONAL}


def table(n=400, d=3, seed=0):
    """Three overlapping groups of different shapes."""
    rng = np.random.default_rng(seed)
    groups = [
        rng.normal(size=(n // 4, d)) @ rng.normal(size=(d, d)) + 2,
        0.3 * rng.normal(size=(n // 4, d)) - 1,
        rng.normal(size=(n - 2 * (n // 4), d)) * np.arange(1, d + 1),
    ]
    return torch.from_numpy(np.concatenate(groups))


def start(x, count=3, seed=0):
    ones = torch.ones(len(x), dtype=torch.float64)
    return clustered(x, ones / len(x), count, torch.Generator().manual_seed(seed))


def reference(x, begin, kind, iterations):
    """scikit-learn's EM from the same start, its tolerance out of reach."""
    begin = begin._replace(covariances=KINDS[kind].restrict(begin.covariances))
    precisions = np.linalg.inv(begin.covariances.numpy())
    if kind == "diag":
        precisions = np.einsum("kii->ki", precisions)
    return GaussianMixture(
        len(begin.weights),
        covariance_type=kind,
        weights_init=begin.weights.numpy(),
        means_init=begin.means.numpy(),
        precisions_init=precisions,
        max_iter=iterations,
        tol=0,
        reg_covar=1e-6,
    )


@pytest.mark.filterwarnings("ignore:.*did not converge")
@pytest.mark.parametrize("iterations", [1, 7, 60])
@pytest.mark.parametrize("kind", KINDS)
def test_parameters_are_those_of_scikit_learn_from_the_same_start(kind, iterations):
    x = table()
    shares = torch.full((len(x),), 1 / len(x), dtype=torch.float64)
    expected = reference(x, start(x), kind, iterations).fit(x.numpy())
    limits = Limits(max_iterations=iterations, tolerance=0.0, floor=1e-6)
    found, _ = improve(start(x), x, shares, KINDS[kind], limits)
    covariances = found.covariances
    if kind == "diag":
        covariances = covariances.diagonal(dim1=-2, dim2=-1)
    for actual, wanted in (
        (found.weights, expected.weights_),
        (found.means, expected.means_),
        (covariances, expected.covariances_),
    ):
        torch.testing.assert_close(actual, torch.from_numpy(wanted), rtol=1e-6, atol=1e-6)
    wanted = torch.from_numpy(expected.score_samples(x.numpy()))
    torch.testing.assert_close(found.log_prob(x), wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_weight_two_is_the_same_row_twice(kind):
    x = table()
    weights = torch.randint(0, 4, (len(x),), generator=torch.Generator().manual_seed(0)).double()
    repeated = x.repeat_interleave(weights.long(), 0)
    even = torch.full((len(repeated),), 1 / len(repeated), dtype=torch.float64)
    limits = Limits(max_iterations=20, tolerance=0.0)
    once, score = improve(start(x), x, weights / weights.sum(), kind, limits)
    twice, same_score = improve(start(x), repeated, even, kind, limits)
    for actual, wanted in zip(once, twice, strict=True):
        torch.testing.assert_close(actual, wanted, rtol=1e-9, atol=1e-9)
    assert score == pytest.approx(same_score, rel=1e-9)


def test_rows_of_weight_zero_are_not_there():
    x = table()
    weights = torch.cat([torch.ones(300), torch.zeros(100)])
    first = sub.learning.fit_gaussian_mixture(x, 3, weights=weights)
    second = sub.learning.fit_gaussian_mixture(x[:300], 3)
    for actual, wanted in zip(first, second, strict=True):
        torch.testing.assert_close(actual, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_step_raises_the_likelihood(kind):
    x = table()
    shares = torch.full((len(x),), 1 / len(x), dtype=torch.float64)
    components = start(x)._replace(covariances=kind.restrict(start(x).covariances))
    scores = []
    for _ in range(20):
        components, score = improve(components, x, shares, kind, Limits(1, 0.0, 0.0))
        scores.append(score)
    assert all(after > before - 1e-12 for before, after in zip(scores, scores[1:], strict=False))


@pytest.mark.parametrize("kind", KINDS)
def test_a_fit_is_as_likely_as_that_of_scikit_learn(kind):
    x = table(2000, seed=3)
    ours = sub.learning.fit_gaussian_mixture(x, 4, covariance=KINDS[kind], num_restarts=5)
    theirs = GaussianMixture(4, covariance_type=kind, n_init=5, random_state=0).fit(x.numpy())
    # Both stop when a step gains less than 0.001, perhaps at different maxima.
    assert ours.log_prob(x).mean().item() > theirs.score(x.numpy()) - 0.02


def test_the_best_of_several_restarts_is_kept():
    x = table(seed=5)
    limits = Limits(max_iterations=30)
    alone = [sub.learning.fit_gaussian_mixture(x, 6, seed=seed) for seed in range(3)]
    assert len({round(mixture.log_prob(x).mean().item(), 6) for mixture in alone}) > 1
    one = sub.learning.fit_gaussian_mixture(x, 6, limits=limits).log_prob(x).mean()
    best = (
        sub.learning.fit_gaussian_mixture(x, 6, num_restarts=6, limits=limits).log_prob(x).mean()
    )
    assert best >= one


def test_chunks_of_rows_change_nothing(monkeypatch):
    x = table()
    whole = sub.learning.fit_gaussian_mixture(x, 3)
    monkeypatch.setattr(em, "ENTRIES", 100)
    pieces = sub.learning.fit_gaussian_mixture(x, 3)
    for actual, wanted in zip(pieces, whole, strict=True):
        torch.testing.assert_close(actual, wanted, rtol=1e-9, atol=1e-9)


def test_units_and_offsets_of_columns_do_not_matter():
    x = table()
    unit = torch.tensor([1e-6, 1.0, 1e6], dtype=torch.float64)
    offset = torch.tensor([0.0, -3.0, 1e7], dtype=torch.float64)
    plain = sub.learning.fit_gaussian_mixture(x, 3)
    moved = sub.learning.fit_gaussian_mixture(offset + unit * x, 3)
    expected = offset + unit * plain.means
    torch.testing.assert_close(moved.means, expected, rtol=1e-5, atol=1e-8)
    scaled = unit[:, None] * plain.covariances * unit
    torch.testing.assert_close(moved.covariances, scaled, rtol=1e-4, atol=1e-16)


def test_rows_with_gaps_are_left_out():
    x = table()
    gaps = x.clone()
    gaps[300:, 1] = math.nan
    first, second = (
        sub.learning.fit_gaussian_mixture(gaps, 3),
        sub.learning.fit_gaussian_mixture(x[:300], 3),
    )
    for actual, wanted in zip(first, second, strict=True):
        assert torch.equal(actual, wanted)


NASTY = {
    "constant column": lambda x: torch.cat([torch.ones_like(x[:, :1]), x[:, 1:]], 1),
    "all constant": lambda x: torch.ones_like(x),
    "one row": lambda x: x[:1],
    "outliers": lambda x: torch.cat([x, torch.full((3, 3), 1e6, dtype=x.dtype)]),
    "equal columns": lambda x: x[:, :1].expand(-1, 3),
    "far away": lambda x: 1e8 + 1e-3 * x,
    "few distinct rows": lambda x: x[torch.arange(300) % 3],
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("nasty", NASTY)
def test_nasty_data_gives_a_proper_mixture(nasty, kind):
    x = NASTY[nasty](table())
    found = sub.learning.fit_gaussian_mixture(x, 5, covariance=kind)
    assert all(part.isfinite().all() for part in found)
    assert found.weights.sum().item() == pytest.approx(1, rel=1e-9)
    assert (torch.linalg.cholesky_ex(found.covariances).info == 0).all()
    assert found.log_prob(x).isfinite().all()


def test_a_mixture_becomes_a_squared_circuit_of_the_same_density():
    x = table()
    found = sub.learning.fit_gaussian_mixture(x, 3)
    density = sub.reductions.squared_gaussian_mixture(*found, dtype=torch.float64)
    torch.testing.assert_close(density.log_prob(x), found.log_prob(x), rtol=1e-10, atol=1e-10)


def test_the_same_seed_gives_the_same_mixture():
    first, second = (sub.learning.fit_gaussian_mixture(table(), 3, seed=4) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert isinstance(first, GaussianComponents)


BAD = {
    "only gaps": (torch.full((5, 2), math.nan), 2, "0 rows without gaps"),
    "empty": (torch.zeros(0, 2), 2, "0 rows without gaps"),
    "infinite": (torch.full((5, 2), math.inf), 2, "got 10 infinite values"),
    "components": (torch.zeros(5, 2), 0, "num_components must be a whole number of at least 1"),
    "shape": (torch.zeros(5), 2, "must have shape"),
}


@pytest.mark.parametrize(("x", "count", "message"), BAD.values(), ids=BAD)
def test_bad_data_is_refused(x, count, message):
    with pytest.raises(ValueError, match=message):
        sub.learning.fit_gaussian_mixture(x, count)
