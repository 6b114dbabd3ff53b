"""Fitted PSD models are the most likely ones, and the certificate is a true bound."""

import numpy as np
import pytest
import torch

import subtractive as sub


def rows(n=400, seed=0):
    """A noisy ring."""
    generator = torch.Generator().manual_seed(seed)
    angle = 2 * torch.pi * torch.rand(n, generator=generator, dtype=torch.float64)
    noise = torch.randn(n, 2, generator=generator, dtype=torch.float64)
    return 3 * torch.stack([angle.cos(), angle.sin()], 1) + 0.3 * noise


def mean_log_likelihood(model, x):
    return sub.reductions.squared_psd_model(*model, dtype=torch.float64).log_prob(x).mean().item()


@pytest.mark.parametrize("num_points", [1, 4, 12])
def test_no_other_matrix_is_more_likely(num_points):
    x = rows()
    model = sub.learning.fit_psd_model(x, num_points, tolerance=1e-4)
    best, gap = mean_log_likelihood(model, x), sub.learning.likelihood_gap(model, x)
    assert -1e-9 < gap < 1e-4
    rng = np.random.default_rng(1)
    for rank in (1, num_points):
        for share in (1.0, 0.1, 0.001):
            factor = torch.from_numpy(rng.normal(size=(num_points, rank)))
            other = factor @ factor.mT
            mixed = (1 - share) * model.matrix + share * other * model.matrix.trace()
            assert mean_log_likelihood(model._replace(matrix=mixed), x) <= best + gap + 1e-12


def test_gradient_training_ends_at_the_same_likelihood():
    x = rows()
    model = sub.learning.fit_psd_model(x, 6, bandwidth=1.5)
    start = model._replace(matrix=torch.logspace(0, 2, 6, dtype=torch.float64).diag())
    density = sub.reductions.squared_psd_model(*start, dtype=torch.float64)
    begin = density.log_prob(x).mean().item()
    sub.fit(density, x, batch_size=400, max_epochs=150, learning_rate=0.1, progress=False)
    reached, best = density.log_prob(x).mean().item(), mean_log_likelihood(model, x)
    # Both begin far below, and gradients come close to the optimum but not beyond it.
    assert begin < best - 0.05
    assert best - 0.01 < reached <= best + sub.learning.likelihood_gap(model, x) + 1e-12


def test_the_gap_bounds_what_is_missing():
    x = rows()
    model = sub.learning.fit_psd_model(x, 8)
    best = mean_log_likelihood(model, x)
    worse = model._replace(matrix=torch.eye(8, dtype=torch.float64))
    missing = best - mean_log_likelihood(worse, x)
    assert 0 < missing <= sub.learning.likelihood_gap(worse, x)


def test_a_fitted_model_is_normalised_and_far_rows_do_no_harm():
    x = torch.cat([rows(), torch.tensor([[1e3, -1e3]], dtype=torch.float64)])
    model = sub.learning.fit_psd_model(x, 6)
    density = sub.reductions.squared_psd_model(*model, dtype=torch.float64)
    assert density.log_partition().item() == pytest.approx(0.0, abs=1e-6)
    assert bool(density.log_prob(x).isfinite().all())


def test_equal_seeds_give_equal_models():
    first, second = (sub.learning.fit_psd_model(rows(), 5, seed=3) for _ in range(2))
    torch.testing.assert_close(first.matrix, second.matrix, rtol=0, atol=0)


def test_a_run_that_ends_too_soon_says_so():
    with pytest.warns(sub.TrainingWarning, match="may be up to .* below the best one"):
        sub.learning.fit_psd_model(rows(), 12, max_iterations=1)


def test_bad_data_and_sizes_are_refused():
    with pytest.raises(ValueError, match=r"got shape \(1, 1\) and 1 gaps"):
        sub.learning.fit_psd_model(torch.tensor([[float("nan")]]), 2)
    with pytest.raises(ValueError, match=r"got shape \(3,\)"):
        sub.learning.fit_psd_model(np.ones(3), 2)
    with pytest.raises(ValueError, match="num_points must be a whole number"):
        sub.learning.fit_psd_model(rows(), 0)
