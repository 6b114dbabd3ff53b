"""Synthetic data follow their stated densities."""

import numpy as np
import pytest
import torch
from oracles import integral_over_rectangle
from scipy import stats

from subtractive.data.synthetic import (
    banana,
    banana_log_density,
    cosine,
    cosine_log_density,
    funnel,
    funnel_log_density,
    henon,
    ring,
    ring_log_density,
    rings,
    rings_log_density,
)


def test_the_density_of_the_ring_integrates_to_one():
    total = integral_over_rectangle(ring_log_density, (-12.0, -12.0), (12.0, 12.0), points=401)
    np.testing.assert_allclose(total, 1, rtol=1e-10, atol=0)


def test_the_ring_has_a_hole():
    points = torch.tensor([[0.0, 0.0], [0.1, 0.0], [2.0, 0.0]], dtype=torch.float64)
    centre, near, on = ring_log_density(points).exp().tolist()
    assert centre == 0
    assert near < 1e-6 * on


def test_the_ring_has_the_stated_radius_and_any_angle():
    """Kolmogorov-Smirnov at a false-alarm rate of 1e-3 each, fixed seed."""
    x = ring(20_000, radius=3.0, width=0.3, seed=1)
    gamma = stats.gamma(100, scale=0.03)
    assert gamma.stats() == pytest.approx((3.0, 0.3**2), rel=1e-12)
    assert stats.kstest(x.norm(dim=1).numpy(), gamma.cdf).pvalue > 1e-3
    angle = torch.atan2(x[:, 1], x[:, 0]).numpy()
    assert stats.kstest(angle, stats.uniform(-np.pi, 2 * np.pi).cdf).pvalue > 1e-3


def test_rings_are_as_full_as_they_are_long():
    """Chi-square at a false-alarm rate of 1e-3, fixed seed."""
    points, circle = rings(20_000, seed=0)
    counts = torch.bincount(circle, minlength=3).numpy()
    assert stats.chisquare(counts, np.array([1, 3, 5]) / 9 * 20_000).pvalue > 1e-3
    distance = points.norm(dim=1) - torch.tensor([1.0, 3.0, 5.0], dtype=torch.float64)[circle]
    assert abs(float(distance.std()) - 0.2) < 0.01


def test_the_same_seed_gives_the_same_data():
    assert torch.equal(ring(10, seed=3), ring(10, seed=3))
    assert not torch.equal(ring(10, seed=3), ring(10, seed=4))
    assert torch.equal(rings(10, seed=3)[0], rings(10, seed=3)[0])


@pytest.mark.parametrize(
    ("log_density", "low", "high", "error"),
    [
        (
            rings_log_density,
            (-6.5, -6.5),
            (6.501, 6.501),
            1e-3,
        ),  # a pole at the origin, off the grid
        (cosine_log_density, (-4.0, -10.0), (4.0, 10.0), 1e-6),
        (funnel_log_density, (-14.0, -16.0), (9.0, 16.0), 2e-3),  # as thin as exp(-4.5) at its end
        (banana_log_density, (-14.0, -10.0), (14.0, 45.0), 1e-6),
    ],
)
def test_the_density_of_a_shape_integrates_to_one(log_density, low, high, error):
    total = integral_over_rectangle(log_density, low, high, points=1601)
    np.testing.assert_allclose(total, 1, rtol=0, atol=error)


def test_shapes_are_drawn_by_their_definitions():
    """Kolmogorov-Smirnov at a false-alarm rate of 1e-3 each, fixed seeds."""
    first, second = cosine(20_000, seed=0).T.numpy()
    assert stats.kstest(first, stats.uniform(-4, 8).cdf).pvalue > 1e-3
    assert stats.kstest(second - 3 * np.cos(2 * first), stats.norm.cdf).pvalue > 1e-3
    first, second = funnel(20_000, seed=0).T.numpy()
    assert stats.kstest(first, stats.norm(0, 2).cdf).pvalue > 1e-3
    scale = np.sqrt(np.clip(np.exp(-first), 0, 5))
    assert stats.kstest(second / scale, stats.norm.cdf).pvalue > 1e-3
    first, second = banana(20_000, seed=0).T.numpy()
    assert stats.kstest(first, stats.norm(0, 2).cdf).pvalue > 1e-3
    assert stats.kstest(second - 0.2 * (first**2 - 4), stats.norm.cdf).pvalue > 1e-3


def test_windows_of_a_series_depend_on_each_other_by_its_rule():
    x = henon(2000, 4, seed=0)
    assert x.shape == (2000, 4)
    error = x[:, 2] - (1 - 1.4 * x[:, 1] ** 2 + 0.3 * x[:, 0])
    assert float(error.std()) < 0.25  # noise of 0.05, times slopes of up to 2.8 * 1.3
    assert float(x.std()) > 0.6
