"""Synthetic data follow their stated densities."""

import numpy as np
import torch
from scipy import integrate, stats

from subtractive.data.synthetic import ring, ring_log_density, rings


def test_the_density_of_the_ring_integrates_to_one():
    def radial(r):
        point = torch.tensor([[r, 0.0]], dtype=torch.float64)
        return float(ring_log_density(point).exp()) * 2 * np.pi * r

    total, _ = integrate.quad(radial, 0, 8)
    np.testing.assert_allclose(total, 1, rtol=1e-8, atol=0)


def test_the_ring_has_the_stated_radius_and_any_angle():
    """Kolmogorov-Smirnov at a false-alarm rate of 1e-3 each, fixed seed."""
    x = ring(20_000, radius=3.0, width=0.3, seed=1)
    assert stats.kstest(x.norm(dim=1).numpy(), stats.norm(3.0, 0.3).cdf).pvalue > 1e-3
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
