"""Gaussian mixtures as circuits have the density that scipy says they have."""

import math

import numpy as np
import pytest
import torch
from scipy import special, stats
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture

import subtractive as sub

REDUCTIONS = {
    "squared": sub.reductions.squared_gaussian_mixture,
    "monotonic": sub.reductions.monotonic_gaussian_mixture,
}
every_reduction = pytest.mark.parametrize("reduce", REDUCTIONS.values(), ids=REDUCTIONS)


def mixture(k=4, d=3, seed=0, size=1.0):
    """Weights, means and covariances whose determinants differ by orders of magnitude."""
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(k))
    factors = rng.normal(size=(k, d, d)) + 2 * np.eye(d)
    scales = size * np.exp(2 * rng.normal(size=(k, 1, 1)))
    covariances = scales * factors @ factors.swapaxes(1, 2)
    return weights, rng.normal(size=(k, d)), covariances


def log_density(x, weights, means, covariances):
    parts = [
        stats.multivariate_normal(mean, covariance, allow_singular=False).logpdf(x)
        for mean, covariance in zip(means, covariances, strict=True)
    ]
    return special.logsumexp(np.array(parts).T + np.log(weights), axis=1)


def rows(d, n=200, seed=1):
    return 3 * np.random.default_rng(seed).normal(size=(n, d))


def tensors(arrays):
    return [torch.from_numpy(array) for array in arrays]


@every_reduction
@pytest.mark.parametrize(("k", "d"), [(1, 1), (4, 1), (1, 3), (4, 3), (20, 12)])
def test_the_density_is_that_of_the_mixture(reduce, k, d):
    given, x = mixture(k, d), rows(d)
    density = reduce(*tensors(given), dtype=torch.float64)
    expected = torch.from_numpy(log_density(x, *given))
    actual = density.log_prob(torch.from_numpy(x)).detach()
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


@every_reduction
def test_a_mixture_fitted_by_scikit_learn_can_be_handed_over(reduce):
    x = rows(2, n=500)
    fitted = GaussianMixture(3, random_state=0).fit(x)
    given = (fitted.weights_, fitted.means_, fitted.covariances_)
    density = reduce(*tensors(given), dtype=torch.float64)
    expected = torch.from_numpy(fitted.score_samples(x))
    actual = density.log_prob(torch.from_numpy(x)).detach()
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


COVARIANCES = ["full", "tied", "diag", "spherical"]


@pytest.mark.parametrize("kind", COVARIANCES)
@pytest.mark.parametrize(("k", "d"), [(1, 1), (3, 1), (4, 3)])
def test_a_fitted_estimator_of_any_covariance_type_is_a_circuit(kind, k, d):
    x = rows(d, n=400)
    fitted = GaussianMixture(k, covariance_type=kind, random_state=0).fit(x)
    density = sub.reductions.from_sklearn(fitted, dtype=torch.float64)
    expected = torch.from_numpy(fitted.score_samples(x))
    actual = density.log_prob(torch.from_numpy(x)).detach()
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", COVARIANCES)
def test_marginals_of_a_fitted_estimator_are_those_of_its_components(kind):
    x = rows(3, n=400)
    fitted = GaussianMixture(4, covariance_type=kind, random_state=0).fit(x)
    density = sub.reductions.from_sklearn(fitted, dtype=torch.float64)
    covariances = [np.linalg.inv(precision) for precision in precisions(fitted)]
    keep = [2, 0]
    means = fitted.means_[:, keep]
    covariances = [covariance[np.ix_(keep, keep)] for covariance in covariances]
    expected = log_density(x[:, keep], fitted.weights_, means, covariances)
    x[:, 1] = np.nan
    actual = density.log_prob(torch.from_numpy(x)).detach()
    torch.testing.assert_close(actual, torch.from_numpy(expected), rtol=1e-10, atol=1e-10)


def precisions(fitted):
    """One matrix per component, from what scikit-learn stores beside the covariances."""
    count, size = fitted.means_.shape
    stored = fitted.precisions_
    if fitted.covariance_type == "tied":
        return [stored] * count
    if fitted.covariance_type == "full":
        return stored
    return [np.eye(size) * entry for entry in stored]


def test_a_diagonal_estimator_has_probabilities_of_boxes():
    x = rows(2, n=400)
    fitted = GaussianMixture(3, covariance_type="diag", random_state=0).fit(x)
    density = sub.reductions.from_sklearn(fitted, dtype=torch.float64)
    scales = np.sqrt(fitted.covariances_)
    sides = stats.norm.cdf(1.0, fitted.means_, scales) - stats.norm.cdf(
        -0.5, fitted.means_, scales
    )
    expected = (fitted.weights_ * sides.prod(1)).sum()
    actual = density.probability({0: (-0.5, 1.0), 1: (-0.5, 1.0)})
    assert actual.item() == pytest.approx(expected, rel=1e-10)


def test_what_is_no_fitted_mixture_of_scikit_learn_is_refused():
    with pytest.raises(ValueError, match="got BayesianGaussianMixture"):
        sub.reductions.from_sklearn(BayesianGaussianMixture(n_components=2))
    with pytest.raises(ValueError, match="call its fit first"):
        sub.reductions.from_sklearn(GaussianMixture(2))


@every_reduction
def test_marginals_are_those_of_the_mixture(reduce):
    weights, means, covariances = mixture()
    density = reduce(*tensors((weights, means, covariances)), dtype=torch.float64)
    keep = [2, 0]
    x = rows(2)
    expected = log_density(x, weights, means[:, keep], covariances[:, keep][:, :, keep])
    actual = density.marginal(keep).log_prob(torch.from_numpy(x)).detach()
    torch.testing.assert_close(actual, torch.from_numpy(expected), rtol=1e-9, atol=1e-9)


@every_reduction
def test_many_variables_and_narrow_components_stay_finite_in_single_precision(reduce):
    given, x = mixture(5, 60, size=1e-4), 0.1 * rows(60)
    density = reduce(*tensors(given), dtype=torch.float32)
    assert all(parameter.isfinite().all() for parameter in density.parameters())
    expected = torch.from_numpy(log_density(x, *given))
    actual = density.log_prob(torch.from_numpy(x)).detach()
    # Quadratic forms of 60 terms, in single precision.
    torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-2)


def test_the_squared_mixture_can_learn_to_subtract():
    generator = torch.Generator().manual_seed(0)
    angle = 2 * math.pi * torch.rand(2000, generator=generator, dtype=torch.float64)
    noise = torch.randn(2000, 2, generator=generator, dtype=torch.float64)
    x = torch.stack([angle.cos(), angle.sin()], 1) + 0.1 * noise
    components = sub.learning.fit_gaussian_mixture(x, 3)
    density = sub.reductions.squared_gaussian_mixture(*components)
    start = density.log_prob(x).mean().item()
    assert start == pytest.approx(components.log_prob(x).mean().item(), rel=1e-4)
    sub.fit(density, x, learning_rate=0.03, max_epochs=15, progress=False)
    assert density.log_prob(x).mean() > start + 0.02


BAD = {
    "shapes": ((torch.ones(2), torch.zeros(3, 2), torch.eye(2)), r"got shapes \(2,\), \(3, 2\)"),
    "diagonal": ((torch.ones(2), torch.zeros(2, 3), torch.ones(2, 3)), "variances.diag_embed"),
    "no components": ((torch.ones(0), torch.zeros(0, 2), torch.ones(0, 2, 2)), "needs weights"),
    "weights": (
        (torch.tensor([1.0, 0.0]), torch.zeros(2, 1), torch.ones(2, 1, 1)),
        "must be positive and finite",
    ),
    "singular": (
        (torch.ones(2), torch.zeros(2, 2), torch.stack([torch.eye(2), torch.ones(2, 2)])),
        "that of component 1 is not",
    ),
}


@every_reduction
@pytest.mark.parametrize(("given", "message"), BAD.values(), ids=BAD)
def test_what_is_no_mixture_is_refused(reduce, given, message):
    with pytest.raises(ValueError, match=message):
        reduce(*given)
