"""Values drawn from quadratic forms: uniform numbers in, and out again by the closed-form CDF."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from registry import every_kind
from scipy import interpolate, stats

from subtractive.inputs import mixture_cells, quadratic_form_sampling
from subtractive.inputs.normal_products import draw_normal_products, normal_products
from subtractive.inputs.quadratic_form_sampling import (
    by_chunks,
    draw_piecewise,
    draw_state,
    draw_state_of_products,
    draw_state_of_unit,
    quadratic,
    uniforms,
)
from subtractive.inputs.signed_mixture import (
    draw_gaussian_square,
    draw_gaussian_units,
    draw_signed_mixture,
    pair_weights,
)

DOUBLE = torch.float64
# From one end of the unit interval to the other, the ends that torch.rand can return included.
LEVELS = torch.cat(
    [
        torch.tensor([0.0, 2.0**-53, 1e-12, 1e-6], dtype=DOUBLE),
        torch.linspace(0.001, 0.999, 500, dtype=DOUBLE),
        torch.tensor([1 - 1e-6, 1 - 1e-12, 1 - 2.0**-53], dtype=DOUBLE),
    ]
)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def random(*shape, seed=0):
    return torch.randn(shape, generator=seeded(seed), dtype=DOUBLE)


def forms(num_rows, units, rank, seed=0):
    """Random positive semi-definite matrices (n, i, j) of a rank, the largest entries one."""
    root = random(num_rows, units, rank, seed=seed)
    form = root @ root.mT
    return form / form.abs().amax((1, 2), keepdim=True)


def test_uniform_numbers_repeat_with_the_generator():
    first, again = uniforms(5, seeded(3)), uniforms(5, seeded(3))
    assert torch.equal(first, again)
    assert first.dtype == DOUBLE
    assert not torch.equal(first, uniforms(5, seeded(4)))


def test_a_quadratic_form_is_a_double_sum():
    values, form = random(4, 6, 3), forms(4, 3, 2)
    expected = torch.einsum("nqi,nij,nqj->nq", values, form, values)
    torch.testing.assert_close(quadratic(values, form), expected, rtol=1e-12, atol=1e-14)
    shared = quadratic(values[:1], form)
    expected = torch.einsum("qi,nij,qj->nq", values[0], form, values[0])
    torch.testing.assert_close(shared, expected, rtol=1e-12, atol=1e-14)


@given(st.integers(0, 50), st.integers(0, 30), st.integers(1, 100))
def test_chunks_of_rows_put_together_are_all_rows(num_rows, per_row, limit):
    x = torch.arange(num_rows, dtype=DOUBLE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quadratic_form_sampling, "_CHUNK", limit)
        sizes = []

        def double(rows):
            sizes.append(rows.stop - rows.start)
            return 2 * x[rows]

        assert torch.equal(by_chunks(double, num_rows, per_row), 2 * x)
    assert all(size == 1 or size * per_row <= limit for size in sizes)


@pytest.mark.parametrize("rank", [1, 3])
@pytest.mark.parametrize("num_states", [7, 36, 50, 999])
def test_states_are_drawn_where_the_cumulative_sum_reaches_the_uniform_number(num_states, rank):
    table, form = random(3, num_states, seed=1), forms(200, 3, rank)
    drawn = draw_state(table, form, seeded())
    masses = torch.einsum("iv,nij,jv->nv", table, form, table)
    cumulative = masses.cumsum(1) / masses.sum(1, keepdim=True)
    expected = (cumulative <= uniforms(200, seeded())[:, None]).sum(1)
    assert torch.equal(drawn, expected.double())
    assert len(drawn.unique()) > 3


@pytest.mark.parametrize("num_vectors", [1, 2])
@pytest.mark.parametrize("num_states", [1, 2, 7, 36, 50, 999])
def test_states_of_products_are_those_of_their_forms(num_states, num_vectors):
    table, vectors = random(3, num_states, seed=1), random(200, num_vectors, 3, seed=2)
    gram = forms(1, 3, 2)[0]
    drawn = draw_state_of_products(table, vectors, gram, seeded())
    form = torch.einsum("nsi,nsj,ij->nij", vectors, vectors, gram)
    masses = torch.einsum("iv,nij,jv->nv", table, form, table)
    cumulative = masses.cumsum(1) / masses.sum(1, keepdim=True)
    expected = (cumulative <= uniforms(200, seeded())[:, None]).sum(1)
    assert torch.equal(drawn, expected.double())


def test_states_that_a_form_gives_no_mass_are_never_drawn():
    table = torch.tensor([[1.0, 1.0, 0.0], [1.0, -1.0, 1.0]], dtype=DOUBLE)
    # (f_1 - f_2)²: nothing at state 0, and rounding must not make it something.
    form = torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=DOUBLE).expand(1000, -1, -1)
    counts = torch.bincount(draw_state(table, form, seeded()).long(), minlength=3)
    assert counts[0] == 0
    assert stats.chisquare(counts[1:].numpy(), [800, 200]).pvalue > 1e-3


def test_states_of_units_come_from_the_unit_of_their_region():
    table = random(2, 3, 4).square()
    units = torch.randint(3, (2, 500), generator=seeded(1))
    drawn = draw_state_of_unit(table, units, seeded())
    uniform = uniforms(1000, seeded()).reshape(2, 500)
    for region in range(2):
        masses = table[region, units[region]]
        cumulative = masses.cumsum(1) / masses.sum(1, keepdim=True)
        expected = (cumulative <= uniform[region, :, None]).sum(1)
        assert torch.equal(drawn[region], expected.double())


def polynomial_density(order, num_cells, seed=0):
    """Squares of random splines: a density per row, polynomial between the edges."""
    rng = np.random.default_rng(seed)
    edges = np.sort(rng.uniform(-1, 2, num_cells + 1))
    knots = np.pad(edges, order, mode="edge")
    coefficients = rng.normal(size=(num_cells + order, 5))
    spline = interpolate.BSpline(knots, coefficients, order)
    row = np.arange(len(LEVELS)) % 5

    def density(points, rows):
        values = spline(points.clamp(edges[0], edges[-1]).numpy()) ** 2  # (n or 1, q, 5)
        values = np.broadcast_to(values, (len(rows), *values.shape[1:]))
        return torch.from_numpy(values[np.arange(len(rows)), :, row[rows.numpy()]])

    return torch.from_numpy(edges), density, spline, row


def mass_between(spline, row, low, high, edges):
    """∫ f² by Gauss's rule on every span, for one row."""
    cuts = np.concatenate([[low], edges[(edges > low) & (edges < high)], [high]])
    nodes, weights = np.polynomial.legendre.leggauss(8)
    half = np.diff(cuts) / 2
    points = cuts[:-1, None] + half[:, None] * (nodes + 1)
    return (spline(points)[..., row] ** 2 @ weights * half).sum()


@every_kind(("order", "num_cells"), list(itertools.product([0, 1, 2, 3], [1, 4, 9])), together=1)
def test_piecewise_polynomials_give_the_uniform_numbers_back(order, num_cells):
    edges, density, spline, row = polynomial_density(order, num_cells)
    drawn = draw_piecewise(edges, density, num_nodes=order + 1, uniform=LEVELS)
    assert (drawn >= edges[0]).all()
    assert (drawn <= edges[-1]).all()
    cuts = edges.numpy()
    back = [
        mass_between(spline, k, cuts[0], x, cuts)
        / mass_between(spline, k, cuts[0], cuts[-1], cuts)
        for k, x in zip(row, drawn.tolist(), strict=True)
    ]
    torch.testing.assert_close(torch.tensor(back), LEVELS, rtol=0, atol=1e-10)


def test_pieces_without_mass_are_never_drawn():
    edges = torch.arange(5, dtype=DOUBLE)

    def density(points, rows):
        inside = ((points >= 1) & (points <= 2)) | ((points > 3) & (points <= 4))
        return inside.double().expand(len(rows), -1)

    drawn = draw_piecewise(edges, density, num_nodes=1, uniform=LEVELS)
    assert (((drawn >= 1) & (drawn <= 2)) | ((drawn >= 3) & (drawn <= 4))).all()


def cumulative(weights, mean, scale, x):
    """Σ_k w_k Φ((x - m_k) / s_k) / Σ_k w_k, by scipy."""
    below = stats.norm.cdf((x[:, None] - mean) / scale)
    return torch.from_numpy((weights.numpy() * below).sum(1) / weights.sum(1).numpy())


MIXTURES = {
    "one component": (1, 1, 0.0),
    "a few": (3, 1, 0.3),
    "rank two": (4, 2, 0.3),
    "full rank": (5, 5, 0.3),
    "scales that differ by powers of ten": (4, 1, 4.0),
    "all narrow": (4, 1, 0.0),
}


@pytest.mark.parametrize("kind", MIXTURES)
def test_gaussian_forms_give_the_uniform_numbers_back(kind):
    units, rank, spread = MIXTURES[kind]
    form = forms(len(LEVELS), units, rank)
    mean, log_scale = random(units, seed=1), spread * random(units, seed=2)
    log_scale = log_scale - 6 if kind == "all narrow" else log_scale
    mean = mean * log_scale.exp().max() if kind == "all narrow" else mean
    precision = (-2 * log_scale).exp()
    total = precision[:, None] + precision
    means = (precision[:, None] * mean[:, None] + precision * mean) / total
    variance = (2 * log_scale[:, None]).exp() + (2 * log_scale).exp()
    log_weight = -0.5 * ((mean[:, None] - mean).square() / variance + variance.log())
    products = (means, -0.5 * total.log(), log_weight)
    drawn = draw_gaussian_square(form, products, LEVELS)
    weights, i, j = pair_weights(form * log_weight.exp())
    back = cumulative(weights, means[i, j], total[i, j] ** -0.5, drawn)
    inner = slice(2, -2)  # beyond ten deviations a float64 sees nothing
    torch.testing.assert_close(back[inner], LEVELS[inner], rtol=0, atol=1e-9)
    assert drawn.isfinite().all()


@pytest.mark.parametrize("distance", [1e-1, 1e-2, 1e-3])
def test_components_that_nearly_cancel_still_give_the_uniform_numbers_back(distance):
    """(N(-ε) - N(ε))²: what is left of the mass is ε², and the digits go with it."""
    weights = torch.tensor([[1.0, -2.0, 1.0]], dtype=DOUBLE).expand(len(LEVELS), -1).clone()
    weights[:, 1] *= math.exp(-(distance**2))
    mean = torch.tensor([[-distance, 0.0, distance]], dtype=DOUBLE)
    scale = torch.full((3,), math.sqrt(0.5), dtype=DOUBLE)
    drawn = draw_signed_mixture(weights, mean, scale, LEVELS)
    back = cumulative(weights, mean, scale, drawn)
    middle = (LEVELS > 0.01) & (LEVELS < 0.99)
    tolerance = 1e-13 / distance**2
    torch.testing.assert_close(back[middle], LEVELS[middle], rtol=0, atol=max(tolerance, 1e-9))


def test_one_component_gives_normal_quantiles():
    one = torch.ones(len(LEVELS), 1, dtype=DOUBLE)
    scale = torch.tensor([0.3], dtype=DOUBLE)
    expected = torch.special.ndtri(LEVELS) * 0.3 + 5
    inner = slice(3, -3)
    for mean in (torch.full((1, 1), 5.0, dtype=DOUBLE), 5 * one):
        drawn = draw_signed_mixture(one, mean, scale, LEVELS)
        torch.testing.assert_close(drawn[inner], expected[inner], rtol=0, atol=1e-8)
        assert (drawn - 5).abs().max() <= 0.3 * 10


def test_means_of_each_row_and_means_of_all_rows_draw_alike():
    weights, scale = random(300, 4).square(), random(4, seed=1).exp()
    mean, uniform = random(1, 4, seed=2), uniforms(300, seeded())
    shared = draw_signed_mixture(weights, mean, scale, uniform)
    alone = draw_signed_mixture(weights, mean.expand(300, -1).clone(), scale, uniform)
    torch.testing.assert_close(shared, alone, rtol=0, atol=1e-9)


@pytest.mark.parametrize("chunk", [1, 100, 2**20])
def test_values_do_not_depend_on_the_size_of_chunks(chunk, monkeypatch):
    weights, scale = random(300, 4).square(), random(4, seed=1).exp()
    mean, uniform = random(1, 4, seed=2), uniforms(300, seeded())
    expected = draw_signed_mixture(weights, mean, scale, uniform)
    monkeypatch.setattr(mixture_cells, "_CHUNK", chunk)
    found = draw_signed_mixture(weights, mean, scale, uniform)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_pairs_count_twice_off_the_diagonal():
    form = forms(3, 4, 2)
    weights, i, j = pair_weights(form)
    values = random(6, 4)
    pairs = values[:, i] * values[:, j]
    expected = torch.einsum("qi,nij,qj->nq", values, form, values)
    torch.testing.assert_close(weights @ pairs.T, expected, rtol=1e-12, atol=1e-14)


def test_gaussian_units_are_shifted_and_scaled_noise():
    p = {"mean": random(2, 3), "log_scale": random(2, 3, seed=1)}
    units = torch.randint(3, (2, 50), generator=seeded(2))
    drawn = draw_gaussian_units(p, units, seeded())
    noise = torch.randn(2, 50, generator=seeded(), dtype=DOUBLE)
    for region in range(2):
        mean, scale = p["mean"][region, units[region]], p["log_scale"][region, units[region]].exp()
        torch.testing.assert_close(drawn[region], mean + scale * noise[region], rtol=0, atol=0)


ROW_MEANS = pytest.mark.parametrize("num_means", [1, 60], ids=["shared means", "means of rows"])


def gaussians(num_means, size=3, units=3, num_rows=60):
    """Environments, means (n or 1, i, u), factors (i, u, u) and log-overlaps (n or 1, i, j)."""
    form = forms(num_rows, units, 2)
    mean = random(num_means, units, size, seed=1)
    factor = (0.4 * random(units, size, size, seed=2)).tril(-1)
    factor = factor + (0.3 * random(units, size, seed=3)).exp().diag_embed()
    covariance = factor @ factor.mT
    total = covariance[:, None] + covariance
    deviation = mean[:, :, None] - mean[:, None]  # (n, i, j, u)
    solved = torch.linalg.solve(total, deviation[..., None])[..., 0]
    log_weight = -0.5 * ((deviation * solved).sum(-1) + torch.logdet(2 * math.pi * total))
    return form, log_weight, mean, factor


@ROW_MEANS
def test_products_of_gaussians_are_weighted_gaussians(num_means):
    form, log_weight, mean, factor = gaussians(num_means)
    products = normal_products(form, log_weight, mean, factor)
    x = random(5, 3, seed=4)
    peak = log_weight.amax((1, 2)).expand(60).exp()
    for row in (0, 17, 59):
        at = row if num_means > 1 else 0
        values = [
            stats.multivariate_normal.pdf(x, m, f @ f.T)
            for m, f in zip(mean[at].numpy(), factor.numpy(), strict=True)
        ]
        expected = np.einsum("iq,ij,jq->q", values, form[row].numpy(), values)
        mixture = sum(
            w * stats.multivariate_normal.pdf(x, m, s)
            for w, m, s in zip(
                products.weights[row].numpy(),
                products.mean[at].numpy(),
                products.covariance.numpy(),
                strict=True,
            )
        )
        np.testing.assert_allclose(mixture * peak[row].item(), expected, rtol=1e-9, atol=1e-14)


@ROW_MEANS
def test_multivariate_forms_give_the_uniform_numbers_back(num_means):
    products = normal_products(*gaussians(num_means))
    uniform = torch.rand(60, 3, generator=seeded(), dtype=DOUBLE)
    drawn = draw_normal_products(products, uniform)
    back = conditional_cumulatives(products, drawn)
    torch.testing.assert_close(back, uniform, rtol=0, atol=1e-9)


def conditional_cumulatives(products, x):
    """P(x_k <= t | x_1, ..., x_{k-1}) of Gaussian mixtures, from blocks of their covariances."""
    weights, mean, covariance = (tensor.numpy() for tensor in products)
    x, columns = x.numpy(), []
    for k in range(x.shape[1]):
        below, densities = np.zeros(weights.shape), np.ones(weights.shape)
        for pair in range(weights.shape[1]):
            m, s = mean[:, pair], covariance[pair]
            solved = np.linalg.solve(s[:k, :k], s[:k, k]) if k else np.zeros(0)
            centre = m[:, k] + (x[:, :k] - m[:, :k]) @ solved
            scale = math.sqrt(s[k, k] - s[k, :k] @ solved)
            below[:, pair] = stats.norm.cdf(x[:, k], centre, scale)
            if k:
                deviation = x[:, :k] - m[:, :k]
                densities[:, pair] = stats.multivariate_normal.pdf(
                    deviation, np.zeros(k), s[:k, :k]
                )
        shares = weights * densities
        columns.append((shares * below).sum(1) / shares.sum(1))
    return torch.from_numpy(np.stack(columns, 1))
