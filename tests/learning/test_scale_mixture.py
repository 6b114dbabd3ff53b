"""Gaussian scale mixtures against scipy, and frames that start from them."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

import subtractive as sub
from subtractive.inputs.statistics import Sample
from subtractive.learning.scale_mixture import along_directions, fit_scale_mixture, improved


def rows_of_all_sizes(count, size=4, seed=0):
    """Two shapes around one place, every row stretched by a factor of its own."""
    generator = torch.Generator().manual_seed(seed)
    shapes = torch.linalg.qr(torch.randn(2, size, size, generator=generator).double()).Q
    shapes = shapes * torch.logspace(0, -2, size).double()
    which = torch.randint(2, (count,), generator=generator)
    stretch = (1.5 * torch.randn(count, 1, generator=generator).double()).exp()
    rows = stretch * torch.randn(count, size, generator=generator).double()
    return 7.0 + (shapes[which] @ rows[..., None])[..., 0]


def sample_of(rows, weights=None):
    return Sample(rows, torch.ones(len(rows)).double() if weights is None else weights)


def test_the_density_is_the_sum_of_all_shapes_in_all_scales():
    rows = rows_of_all_sizes(300)
    found = fit_scale_mixture(sample_of(rows), 3, 4, torch.Generator().manual_seed(0), steps=2)
    expected = sum(
        float(weight)
        * stats.multivariate_normal(mean.numpy(), math.exp(2 * scale) * covariance.numpy()).pdf(
            rows.numpy()
        )
        for mean, covariance, weights in zip(
            found.means, found.covariances, found.weights, strict=True
        )
        for weight, scale in zip(weights, found.log_scales.tolist(), strict=True)
    )
    np.testing.assert_allclose(found.log_prob(rows).numpy(), np.log(expected), rtol=1e-9)
    torch.testing.assert_close(float(found.weights.sum()), 1.0)


def test_every_step_is_more_likely_and_few_shapes_in_all_sizes_beat_many_gaussians():
    rows, others = rows_of_all_sizes(4000), rows_of_all_sizes(6000)[4000:]
    generator = torch.Generator().manual_seed(0)
    shares = torch.full((len(rows),), 1 / len(rows)).double()
    white = (rows - rows.mean(0)) @ torch.linalg.inv(torch.linalg.cholesky(rows.mT.cov())).mT
    found = along_directions(white, shares, 4, 8, generator)
    scores = [found.log_prob(white).mean()]
    for _ in range(5):
        found = improved(found, white, shares)
        scores.append(found.log_prob(white).mean())
    assert all(after > before for before, after in zip(scores, scores[1:], strict=False))
    shapes = fit_scale_mixture(sample_of(rows), 4, 8, generator, steps=5)
    gaussians = sub.learning.fit_gaussian_mixture(rows, 32)
    assert shapes.log_prob(others).mean() > gaussians.log_prob(others).mean()


def test_a_row_of_weight_two_is_two_rows():
    rows = rows_of_all_sizes(200)
    shares = torch.ones(200).double()
    start = along_directions(rows - 7, shares / 200, 3, 4, torch.Generator().manual_seed(0))
    shares[:50] = 2
    weighted = improved(start, rows - 7, shares / 250)
    twice = improved(start, torch.cat([rows, rows[:50]]) - 7, torch.full((250,), 1 / 250).double())
    for one, other in zip(weighted, twice, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("is_squared", [True, False])
def test_frames_start_as_the_scale_mixture_up_to_their_scatter(is_squared):
    rows = rows_of_all_sizes(2000, size=24)
    density = sub.learning.semi_tied_mixture(
        rows, 2, 6, start="directions", is_squared=is_squared, dtype=torch.float64
    )
    generator = torch.Generator().manual_seed(0)
    found = fit_scale_mixture(sample_of(rows), 2, 6, generator, steps=2)
    with torch.no_grad():
        torch.testing.assert_close(
            density.log_prob(rows).mean(), found.log_prob(rows).mean(), rtol=0, atol=0.05
        )


def test_directions_are_the_better_start_for_rows_of_all_sizes():
    train, test = rows_of_all_sizes(3000, 24), rows_of_all_sizes(4000, 24)[3000:]
    starts = [
        sub.learning.semi_tied_mixture(train, 4, 8, start=s) for s in ("clusters", "directions")
    ]
    with torch.no_grad():
        clusters, directions = (density.log_prob(test).mean() for density in starts)
    assert directions > clusters + 1


def test_constant_columns_equal_rows_and_fewer_rows_than_frames():
    rows = rows_of_all_sizes(5)
    rows[:, 2] = 3.0
    rows[3] = rows[4]
    for table in (rows, 1e-9 * rows, rows[3:]):
        density = sub.learning.semi_tied_mixture(
            table, 7, 3, start="directions", dtype=torch.float64
        )
        assert bool(density.log_prob(table).isfinite().all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "table",
    [
        torch.full((30, 4), 3.0),
        torch.ones(1, 4),
        torch.cat([torch.zeros(60, 4), torch.ones(10, 4), -torch.ones(10, 4)]),
        torch.linspace(-1, 1, 20 * 200).sin().view(20, 200),
    ],
    ids=["constant", "one row", "most rows at the mean", "more columns than rows"],
)
def test_degenerate_tables_make_a_finite_start(table, dtype):
    density = sub.learning.semi_tied_mixture(table, 2, 3, start="directions", dtype=dtype)
    sub.fit(density, table, max_epochs=1, progress=False)
    assert bool(density.log_prob(table).isfinite().all())


def test_an_unknown_start_is_refused():
    with pytest.raises(ValueError, match='start must be "clusters" or "directions", got \'em\''):
        sub.learning.semi_tied_mixture(rows_of_all_sizes(20), 2, 2, start="em")
