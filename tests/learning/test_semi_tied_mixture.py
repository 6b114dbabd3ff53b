"""Mixtures with semi-tied covariances: where they start, and what they learn."""

import math

import pytest
import torch

import subtractive as sub


def heavy_tailed_rows(count, seed=0):
    """Two long ellipses in five variables, their sizes drawn anew for every row."""
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(2, 5, 5, generator=generator) @ torch.diag(
        torch.tensor([3, 1, 1, 1, 0.01])
    )
    which = torch.randint(2, (count,), generator=generator)
    size = torch.randn(count, 1, generator=generator).exp()
    rows = size * torch.randn(count, 5, generator=generator)
    return (mixing[which] @ rows[..., None])[..., 0] + 5.0 * which[:, None]


@pytest.mark.parametrize("is_squared", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_tied_units_learn_more_than_a_gaussian_mixture_of_as_many_directions(is_squared):
    train, test = heavy_tailed_rows(2000), heavy_tailed_rows(3000)[2000:]
    density = sub.learning.semi_tied_mixture(train, 2, 8, is_squared=is_squared, seed=0)
    start = density.log_prob(test).mean().item()
    sub.fit(density, train, max_epochs=10, progress=False)
    reached = density.log_prob(test).mean().item()
    mixture = sub.learning.fit_gaussian_mixture(train, 16, seed=0)
    assert reached > start
    assert reached > mixture.log_prob(test).mean().item()


def test_squares_subtract_and_sums_do_not():
    rows = heavy_tailed_rows(500)
    squares = sub.learning.semi_tied_mixture(rows, 2, 4)
    sub.fit(squares, rows, max_epochs=3, progress=False)
    assert any(
        bool((member.circuit.sum_layers[-1].weights() < 0).any()) for member in squares.members
    )
    sums = sub.learning.semi_tied_mixture(rows, 2, 4, is_squared=False)
    assert all(isinstance(member, sub.MonotonicCircuit) for member in sums.members)
    assert all(member.circuit.num_outputs == 1 for member in sums.members)


def test_the_mixture_is_normalised():
    rows = heavy_tailed_rows(500)[:, :2].double()
    density = sub.learning.semi_tied_mixture(rows, 2, 3, dtype=torch.float64)
    sub.fit(density, rows, max_epochs=3, progress=False)
    axis = torch.linspace(-400, 400, 801, dtype=torch.float64)
    points = torch.cartesian_prod(axis, axis)
    with torch.no_grad():
        total = density.log_prob(points).exp().sum() * (axis[1] - axis[0]) ** 2
    torch.testing.assert_close(float(total), 1.0, rtol=0, atol=1e-3)


def test_the_same_seed_is_the_same_start_and_weights_count_rows():
    rows = heavy_tailed_rows(200)
    rows[3, 1] = math.nan
    starts = [
        sub.learning.semi_tied_mixture(rows, 3, 4, seed=seed).state_dict() for seed in (0, 0, 1)
    ]
    same, other = (
        all(torch.equal(value, starts[k][name]) for name, value in starts[0].items())
        for k in (1, 2)
    )
    assert same
    assert not other
    twice = sub.learning.semi_tied_mixture(torch.cat([rows, rows[:50]]), 1, 4)
    weights = torch.ones(200)
    weights[:50] = 2
    weighted = sub.learning.semi_tied_mixture(rows, 1, 4, weights=weights)
    for name, value in twice.state_dict().items():
        torch.testing.assert_close(weighted.state_dict()[name], value)


def test_one_frame_and_one_variable():
    rows = heavy_tailed_rows(100)[:, :1]
    density = sub.learning.semi_tied_mixture(rows, 1, 3)
    sub.fit(density, rows, max_epochs=2, progress=False)
    inside = density.probability({0: (-1.0, 1.0)})
    below = density.cdf(0, torch.tensor([-1.0, 1.0]))
    torch.testing.assert_close(inside, below[1] - below[0], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_transforms": 0}, "num_transforms must be a whole number of at least 1, got 0"),
        ({"num_units": 0}, "num_units must be a whole number of at least 1, got 0"),
        ({"data": torch.full((3, 2), math.inf)}, "finite numbers"),
    ],
)
def test_bad_settings_are_refused(arguments, message):
    settings = {"data": heavy_tailed_rows(20), "num_transforms": 2, "num_units": 2} | arguments
    with pytest.raises(ValueError, match=message):
        sub.learning.semi_tied_mixture(**settings)
