"""Inverting distribution functions: exact where Newton is at ease, and where it is not."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from subtractive.numerics.inversion import choose_cell, invert


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


def power(exponent):
    return lambda t, rows: (t**exponent, exponent * t ** (exponent - 1))


def normal(t, rows):
    return torch.special.ndtr(t), (-0.5 * t.square()).exp() / math.sqrt(2 * math.pi)


def two_steps(t, rows):
    """A distribution function that rises at 0 and at 1, within 1e-4 each, and is flat between."""
    rise = 1e-4
    z = torch.stack([t, t - 1]) / rise
    height = torch.special.ndtr(z).mean(0)
    return height, ((-0.5 * z.square()).exp() / (rise * math.sqrt(2 * math.pi))).mean(0)


FUNCTIONS = {
    "straight line": (lambda t, rows: (2 * t, 2 * torch.ones_like(t)), 0.0, 3.0),
    "square root": (lambda t, rows: (t.sqrt(), 0.5 / t.sqrt()), 0.0, 3.0),
    "fifth power, flat at its end": (power(5), 0.0, 2.0),
    "exponential": (lambda t, rows: (t.exp(), t.exp()), -30.0, 30.0),
    "normal": (normal, -9.0, 9.0),
    "two steps": (two_steps, -1.0, 2.0),
    "a slope of the wrong sign": (lambda t, rows: (t**3, -1e-9 * torch.ones_like(t)), 0.0, 2.0),
    "no slope at all": (lambda t, rows: (t**3, torch.zeros_like(t)), 0.0, 2.0),
    "a slope that is not a number": (lambda t, rows: (t**3, t * math.nan), 0.0, 2.0),
}


@pytest.mark.parametrize("start", [-math.inf, 0.0, 0.1, 0.999, math.nan])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_function_reaches_its_targets_at_the_points_found(name, start):
    function, low, high = FUNCTIONS[name]
    expected = low + (high - low) * torch.linspace(0.01, 0.99, 99, dtype=torch.float64)
    rows = torch.arange(99)
    target, _ = function(expected, rows)
    lower, upper = torch.full_like(target, low), torch.full_like(target, high)
    found = invert(function, target, lower, upper, lower + start * (upper - lower))
    torch.testing.assert_close(function(found, rows)[0], target, rtol=1e-9, atol=1e-13)


@given(st.floats(1e-9, 1 - 1e-9))
def test_normal_quantiles_are_those_of_torch(level):
    target = numbers(level)
    found = invert(normal, target, numbers(-10), numbers(10), numbers(0))
    torch.testing.assert_close(found, torch.special.ndtri(target), rtol=1e-7, atol=1e-7)


def test_points_stay_inside_the_bracket_when_the_target_is_out_of_reach():
    lower, upper = numbers(0, 0), numbers(1, 1)
    found = invert(power(3), numbers(-0.5, 1.5), lower, upper, numbers(0.5, 0.5))
    torch.testing.assert_close(found, numbers(0, 1), rtol=0, atol=1e-14)


def test_a_bracket_of_no_width_is_its_own_answer():
    found = invert(power(3), numbers(0.2), numbers(0.5), numbers(0.5), numbers(0.5))
    assert found.tolist() == [0.5]


def test_rows_that_have_arrived_are_not_evaluated_again():
    asked = []

    def easy_and_hard(t, rows):
        asked.append(rows.tolist())
        hard = rows == 1
        return torch.where(hard, t**9, t), torch.where(hard, 9 * t**8, 1.0)

    target, lower, upper = numbers(0.3, 1e-6), numbers(0, 0), numbers(1, 1)
    found = invert(easy_and_hard, target, lower, upper, numbers(0.5, 0.5))
    torch.testing.assert_close(found, numbers(0.3, 1e-6 ** (1 / 9)), rtol=1e-9, atol=0)
    assert asked[0] == [0, 1]
    assert asked[-1] == [1]
    assert len(asked) < 15


def test_nothing_to_invert_is_nothing():
    empty = numbers()
    assert invert(normal, empty, empty, empty, empty).shape == (0,)


def test_rounding_errors_of_the_function_end_the_search_and_not_its_precision():
    noise = torch.Generator().manual_seed(0)
    calls = 0

    def noisy(t, rows):
        nonlocal calls
        calls += 1
        error = 1e-12 * (2 * torch.rand(len(t), generator=noise, dtype=torch.float64) - 1)
        return t + error, torch.ones_like(t)

    target = torch.rand(1000, generator=noise, dtype=torch.float64)
    zero, one = torch.zeros_like(target), torch.ones_like(target)
    found = invert(noisy, target, zero, one, 0.5 * one)
    torch.testing.assert_close(found, target, rtol=0, atol=2e-12)
    assert calls <= 4


def test_cells_are_chosen_by_their_share_of_the_mass():
    masses = numbers(1, 0, 2, 1).expand(9, -1)
    uniform = numbers(0, 0.1, 0.2499, 0.25, 0.5, 0.7499, 0.75, 0.9, 1 - 1e-16)
    cell, inside = choose_cell(masses, uniform)
    assert cell.tolist() == [0, 0, 0, 2, 2, 2, 3, 3, 3]
    expected = numbers(0, 0.4, 0.9996, 0, 1, 1.9996, 0, 0.6, 1)
    torch.testing.assert_close(inside, expected, rtol=0, atol=1e-12)


@given(st.lists(st.floats(-1e-18, 1), min_size=1, max_size=6), st.floats(0, 1, exclude_max=True))
def test_cells_without_mass_are_never_chosen(masses, level):
    table = torch.tensor([masses], dtype=torch.float64)
    cell, inside = choose_cell(table, numbers(level))
    if max(masses) > 0:
        assert masses[cell] > 0
        assert -1e-12 <= inside.item() <= masses[cell] * (1 + 1e-12) + 1e-15


def test_masses_of_any_scale_give_the_same_cells():
    generator = torch.Generator().manual_seed(0)
    masses = torch.rand(100, 7, generator=generator, dtype=torch.float64)
    uniform = torch.rand(100, generator=generator, dtype=torch.float64)
    cell = choose_cell(masses, uniform)[0]
    for scale in (2.0**-900, 2.0**900):
        assert torch.equal(choose_cell(scale * masses, uniform)[0], cell)
