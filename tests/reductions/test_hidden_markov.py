"""Hidden Markov models as circuits score sequences as hmmlearn does."""

import numpy as np
import pytest
import torch
from oracles import all_states
from scipy import stats

import subtractive as sub


def random_chain(k=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(k)), rng.dirichlet(np.ones(k), size=k), rng


def categorical_model(k=3, v=4):
    hmm = pytest.importorskip("hmmlearn.hmm", reason="hmmlearn is an optional extra")
    model = hmm.CategoricalHMM(k)
    model.startprob_, model.transmat_, rng = random_chain(k)
    model.emissionprob_ = rng.dirichlet(np.ones(v), size=k)
    model.n_features = v
    return model


def gaussian_model(kind="diag", k=3, s=2):
    hmm = pytest.importorskip("hmmlearn.hmm", reason="hmmlearn is an optional extra")
    model = hmm.GaussianHMM(k, covariance_type=kind)
    model.startprob_, model.transmat_, rng = random_chain(k)
    model.n_features = s
    model.means_ = rng.normal(size=(k, s))
    factor = rng.normal(size=(k, s, s)) + 2 * np.eye(s)
    full = factor @ factor.swapaxes(1, 2)
    model.covars_ = {
        "full": full,
        "tied": full[0],
        "diag": np.exp(rng.normal(size=(k, s))),
        "spherical": np.exp(rng.normal(size=k)),
    }[kind]
    return model


def forward(start, moves, likelihoods):
    """log p of one sequence from likelihoods (steps, k); a row of ones is a missing step."""
    message = start * likelihoods[0]
    for move, likelihood in zip(moves, likelihoods[1:], strict=True):
        message = (message @ move) * likelihood
    return np.log(message.sum())


@pytest.mark.parametrize("num_steps", [1, 2, 3, 7])
def test_a_categorical_model_scores_as_hmmlearn(num_steps):
    model = categorical_model()
    density = sub.reductions.from_hmmlearn(model, num_steps, dtype=torch.float64)
    x = np.random.default_rng(1).integers(4, size=(20, num_steps))
    expected = torch.tensor([model.score(row[:, None]) for row in x], dtype=torch.float64)
    actual = density.log_prob(torch.from_numpy(x)).detach()
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(density.log_partition().item(), 0.0, rtol=0, atol=1e-12)


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])
@pytest.mark.parametrize("num_steps", [1, 2, 5])
def test_a_gaussian_model_scores_as_hmmlearn(kind, size, num_steps):
    model = gaussian_model(kind, s=size)
    density = sub.reductions.from_hmmlearn(model, num_steps, dtype=torch.float64)
    x = 2 * np.random.default_rng(1).normal(size=(20, num_steps, size))
    expected = torch.tensor([model.score(row) for row in x], dtype=torch.float64)
    actual = density.log_prob(torch.from_numpy(x.reshape(20, -1))).detach()
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fitted_gaussian_model_can_be_handed_over(kind):
    hmm = pytest.importorskip("hmmlearn.hmm", reason="hmmlearn is an optional extra")
    x = np.random.default_rng(0).normal(size=(60, 2)).cumsum(0)
    model = hmm.GaussianHMM(2, covariance_type=kind, n_iter=5, random_state=0).fit(x)
    density = sub.reductions.from_hmmlearn(model, 6, dtype=torch.float64)
    scores = [model.score(part) for part in x.reshape(10, 6, 2)]
    expected = torch.tensor(scores, dtype=torch.float64)
    actual = density.log_prob(torch.from_numpy(x.reshape(10, 12))).detach()
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


def test_marginals_of_a_categorical_model_are_sums_over_all_states():
    model = categorical_model(v=3)
    density = sub.reductions.from_hmmlearn(model, 4, dtype=torch.float64)
    x = all_states([3] * 4)
    joint = np.exp([model.score(row[:, None].long().numpy()) for row in x]).reshape((3,) * 4)
    for kept in [
        (True, False, False, True),
        (False, True, True, False),
        (False, True, False, True),
    ]:
        gone = tuple(d for d, keep in enumerate(kept) if not keep)
        expected = np.broadcast_to(joint.sum(gone, keepdims=True), joint.shape)
        actual = density.log_marginal(x, torch.tensor(kept)).exp().detach()
        truth = torch.from_numpy(expected.ravel().copy())
        torch.testing.assert_close(actual, truth, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("missing", [[0], [1, 2], [3], [0, 1, 2]], ids=str)
def test_missing_steps_of_a_gaussian_model_are_integrated_out(missing):
    model = gaussian_model("full")
    density = sub.reductions.from_hmmlearn(model, 4, dtype=torch.float64)
    x = np.random.default_rng(1).normal(size=(4, 2))
    likelihoods = np.array(
        [
            [
                stats.multivariate_normal(mean, covariance).pdf(row)
                for mean, covariance in zip(model.means_, model.covars_, strict=True)
            ]
            for row in x
        ]
    )
    likelihoods[missing] = 1.0
    expected = forward(model.startprob_, [model.transmat_] * 3, likelihoods)
    x[missing] = np.nan
    actual = density.log_prob(torch.from_numpy(x.reshape(1, -1))).item()
    assert actual == pytest.approx(expected, abs=1e-10)


def test_a_categorical_model_is_a_matrix_product_state():
    model = categorical_model(v=3)
    density = sub.reductions.from_hmmlearn(model, 3, dtype=torch.float64)
    cores = [core.numpy() for core in sub.reductions.matrix_product_state(density).cores]
    psi = np.einsum("ai,ibj,jc->abc", cores[0][0], cores[1], cores[2][..., 0])
    joint = [model.score(row[:, None].long().numpy()) for row in all_states([3] * 3)]
    np.testing.assert_allclose(psi.ravel(), np.exp(joint), rtol=1e-10, atol=1e-14)


def test_a_gaussian_model_answers_what_circuits_answer():
    model = gaussian_model("full")
    density = sub.reductions.from_hmmlearn(model, 4, dtype=torch.float64)
    shares = [model.startprob_ @ np.linalg.matrix_power(model.transmat_, t) for t in range(4)]
    expected = torch.from_numpy(np.concatenate([share @ model.means_ for share in shares]))
    torch.testing.assert_close(density.mean().detach(), expected, rtol=1e-10, atol=1e-10)
    x = density.sample(4000, generator=torch.Generator().manual_seed(0))
    error = density.variance().sqrt().detach() / 4000**0.5
    # Eight means within four standard errors: a false alarm in 2000 seeds.
    assert bool(((x.mean(0) - expected).abs() < 4 * error).all())


def test_steps_may_differ_in_transitions_states_and_kind():
    start, _, rng = random_chain(k=3)
    moves = rng.dirichlet(np.ones(3), size=(3, 3))
    tables = [rng.dirichlet(np.ones(v), size=3) for v in (2, 5)]
    mean, scale = rng.normal(size=3), np.exp(rng.normal(size=3))
    gaussian = (mean[:, None], scale[:, None, None] ** 2)
    for emissions in (
        [tables[0], gaussian, tables[1], tables[0]],
        [tables[0], tables[1], tables[0], gaussian],
        [tables[0], tables[1], gaussian, gaussian],
    ):
        density = sub.reductions.monotonic_hidden_markov_model(
            start, moves, emissions, dtype=torch.float64
        )
        x = [0.25 if isinstance(emission, tuple) else 1.0 for emission in emissions]
        likelihoods = [
            stats.norm.pdf(v, mean, scale) if isinstance(e, tuple) else e[:, int(v)]
            for v, e in zip(x, emissions, strict=True)
        ]
        expected = forward(start, moves, likelihoods)
        assert density.log_prob(torch.tensor([x]).double()).item() == pytest.approx(
            expected, abs=1e-10
        )


def test_impossible_transitions_stay_impossible(tmp_path):
    # From left to right: state 0 may move on, state 1 stays.
    start, move = np.array([1.0, 0.0]), np.array([[0.5, 0.5], [0.0, 1.0]])
    density = sub.reductions.monotonic_hidden_markov_model(
        start, move, [np.eye(2)] * 4, dtype=torch.float64
    )
    x = torch.tensor([[0, 0, 1, 1], [0, 1, 0, 1], [1, 1, 1, 1]])
    expected = torch.tensor([0.25, 0.0, 0.0], dtype=torch.float64)
    torch.testing.assert_close(density.log_prob(x).exp().detach(), expected, rtol=0, atol=1e-15)
    density.save(tmp_path / "hmm.safetensors")
    again = sub.load(tmp_path / "hmm.safetensors")
    torch.testing.assert_close(again.log_prob(x).exp().detach(), expected, rtol=0, atol=1e-15)
    drawn = density.sample(100, generator=torch.Generator().manual_seed(0))
    assert bool((drawn.diff(dim=1) >= 0).all())


def test_a_model_with_gaussian_steps_can_be_saved(tmp_path):
    density = sub.reductions.from_hmmlearn(gaussian_model("full"), 4, dtype=torch.float64)
    density.save(tmp_path / "hmm.safetensors")
    x = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))
    again = sub.load(tmp_path / "hmm.safetensors")
    torch.testing.assert_close(again.log_prob(x), density.log_prob(x), rtol=0, atol=0)


HALF, TABLE = np.full((2, 2), 0.5), np.full((2, 3), 1 / 3)
BAD = {
    "no steps": ((HALF[0], HALF, []), "at least one step"),
    "start": ((np.array([0.5, 0.6]), HALF, [TABLE] * 2), "the start must be probabilities"),
    "transitions": ((HALF[0], 2 * HALF, [TABLE] * 2), "the transitions must be probabilities"),
    "emissions": ((HALF[0], HALF, [TABLE, -TABLE]), "the emissions of step 1 must be prob"),
    "hidden states": ((HALF[0], HALF, [np.full((3, 3), 1 / 3)]), r"emissions of \[3\] hidden"),
    "too few moves": ((HALF[0], HALF[None], [TABLE] * 3), r"3 steps.*transitions \(1, 2, 2\)"),
    "a vector": ((HALF[0], HALF, [HALF[0]]), "must be a table .* got shape"),
    "covariances": ((HALF[0], HALF, [(HALF, HALF)]), r"means \(k, s\) and covariances"),
    "singular": ((HALF[0], HALF, [(HALF, np.zeros((2, 2, 2)))]), "must be positive definite"),
}


@pytest.mark.parametrize(("given", "message"), BAD.values(), ids=BAD)
def test_parts_that_do_not_fit_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        sub.reductions.monotonic_hidden_markov_model(*given)


def test_other_models_of_hmmlearn_are_refused():
    hmm = pytest.importorskip("hmmlearn.hmm", reason="hmmlearn is an optional extra")
    with pytest.raises(ValueError, match="got GMMHMM"):
        sub.reductions.from_hmmlearn(hmm.GMMHMM(2), 3)
    with pytest.raises(ValueError, match="call its fit first"):
        sub.reductions.from_hmmlearn(hmm.GaussianHMM(2), 3)
    with pytest.raises(ValueError, match="num_steps must be a whole number"):
        sub.reductions.from_hmmlearn(categorical_model(), 0)


def test_without_hmmlearn_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "hmmlearn.hmm", None)
    with pytest.raises(ImportError, match=r"subtractive\[reductions\]"):
        sub.reductions.from_hmmlearn(object(), 3)
