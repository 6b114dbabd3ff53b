import math

import numpy as np
import pytest
import torch
from scipy import special
from torch.autograd import gradcheck

from subtractive.inputs.base import EVERYWHERE, Window
from subtractive.inputs.categorical import Categorical

CLOSE = {"rtol": 1e-13, "atol": 1e-15}


def random_logits(regions, units, states, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(regions, units, states, generator=generator, dtype=torch.float64) * 2


def column(*states):
    return torch.from_numpy(np.array(states, dtype=float))[..., None]  # (f, n, 1)


def tables(p):
    return special.softmax(p["logits"].numpy(), -1)


def brute_force(table, other, keep):
    """Σ over the kept states of T_i S_j, state by state, keep being (f, m, v) of numbers."""
    regions, rows, states = keep.shape
    total = np.zeros((regions, rows, table.shape[1], other.shape[1]))
    for f in range(regions):
        for m in range(rows):
            for v in range(states):
                total[f, m] += keep[f, m, v] * np.outer(table[f, :, v], other[f, :, v])
    return torch.from_numpy(total)


def test_values_are_logarithms_of_probabilities():
    p = {"logits": random_logits(2, 3, 4)}
    x = column([0, 3, 3], [2, 1, 0])
    mantissa, exponent = Categorical(4).values(p, x)
    assert mantissa is None
    for f in range(2):
        for n in range(3):
            expected = torch.from_numpy(np.log(tables(p)[f, :, int(x[f, n, 0])]))
            torch.testing.assert_close(exponent[f, n], expected, rtol=1e-13, atol=1e-13)


def test_values_over_all_states_sum_to_one():
    p = {"logits": random_logits(2, 3, 4)}
    total = Categorical(4).values(p, column(range(4), range(4))).value().sum(1)
    torch.testing.assert_close(total, torch.ones(2, 3).double(), **CLOSE)
    whole = Categorical(4).integral(p, EVERYWHERE).value()
    assert torch.equal(whole, torch.ones(2, 1, 3).double())


def test_values_of_a_large_vocabulary_are_gathered():
    states = 50_257
    p = {"logits": random_logits(1, 4, states)}
    x = torch.randint(states, (1, 16, 1), generator=torch.Generator().manual_seed(0)).double()
    values = Categorical(states).values(p, x).some
    expected = special.log_softmax(p["logits"].numpy(), -1)[0].T[x[0, :, 0].long()]
    torch.testing.assert_close(values[0], torch.from_numpy(expected), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("power", [0, 1, 2])
def test_cross_grams_over_everything_are_sums_over_the_states(power):
    p, q = {"logits": random_logits(2, 3, 5)}, {"logits": random_logits(2, 4, 5, seed=1)}
    keep = np.broadcast_to(np.arange(5.0) ** power, (2, 1, 5))
    gram = Categorical(5).gram(p, q, Window(power=power)).value()
    torch.testing.assert_close(gram, brute_force(tables(p), tables(q), keep), **CLOSE)


@pytest.mark.parametrize("rows", [1, 2, 3, 7])
@pytest.mark.parametrize("power", [0, 2])
def test_windows_per_row_sum_over_their_own_states(rows, power):
    p, q = {"logits": random_logits(2, 3, 6)}, {"logits": random_logits(2, 3, 6, seed=1)}
    generator = torch.Generator().manual_seed(2)
    lower = torch.rand(2, rows, generator=generator, dtype=torch.float64) * 4 - 1
    upper = lower + torch.randint(4, (2, rows), generator=generator)
    states = torch.arange(6.0).double()
    inside = (states > lower[..., None]) & (states <= upper[..., None])
    keep = (inside * states**power).numpy()
    window = Window(lower, upper, power)
    gram = Categorical(6).gram(p, q, window).value()
    torch.testing.assert_close(gram, brute_force(tables(p), tables(q), keep), **CLOSE)
    integral = Categorical(6).integral(p, window).value()
    expected = brute_force(tables(p), np.ones((2, 1, 6)), keep)[..., 0]
    torch.testing.assert_close(integral, expected, **CLOSE)


def test_states_can_be_picked_one_by_one():
    p = {"logits": random_logits(1, 3, 4)}
    picked = torch.tensor([[[True, False, True, False], [False, False, False, True]]])
    gram = Categorical(4).gram(p, p, Window(states=picked)).value()
    expected = brute_force(tables(p), tables(p), picked.numpy())
    torch.testing.assert_close(gram, expected, **CLOSE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_state_of_vanishing_probability_is_exact_in_a_window_of_its_own(dtype):
    p = {"logits": torch.tensor([[[0.0, -2000.0], [0.0, -1990.0]]], dtype=dtype)}
    rare = Window(lower=torch.zeros(1, 1, dtype=dtype))
    mantissa, exponent = Categorical(2).integral(p, rare)
    expected = torch.tensor([[[-2000.0, -1990.0]]], dtype=dtype)
    torch.testing.assert_close(mantissa.log() + exponent, expected, rtol=0, atol=0)
    mantissa, exponent = Categorical(2).gram(p, p, rare)
    expected = torch.tensor([[[[-4000.0, -3990.0], [-3990.0, -3980.0]]]], dtype=dtype)
    torch.testing.assert_close(mantissa.log() + exponent, expected, rtol=0, atol=0)


def test_empty_windows_and_impossible_states_give_zero_and_finite_gradients():
    logits = torch.tensor([[[0.0, 1.0, -math.inf], [0.0, -math.inf, -math.inf]]]).double()
    logits.requires_grad_()
    family, p = Categorical(3), {"logits": logits}
    empty = Window(lower=torch.full((1, 1), 5.0).double())
    impossible = Window(lower=torch.ones(1, 1).double())
    for window in (empty, impossible):
        assert torch.equal(family.integral(p, window).value(), torch.zeros(1, 1, 2).double())
        assert torch.equal(family.gram(p, p, window).value(), torch.zeros(1, 1, 2, 2).double())
    x = column([0, 1, 2])
    total = family.values(p, x).value().sum() + family.gram(p, p, EVERYWHERE).value().sum()
    for window in (empty, impossible):
        total = total + family.integral(p, window).value().sum()
        total = total + family.gram(p, p, window).value().sum()
    total.backward()
    assert logits.grad.isfinite().all()


def test_results_keep_the_precision_of_the_parameters():
    p = {"logits": random_logits(2, 3, 4).float()}
    bound = torch.ones(2, 5, dtype=torch.float64)
    for window in (EVERYWHERE, Window(lower=bound)):
        assert Categorical(4).gram(p, p, window).some.dtype == torch.float32
        assert Categorical(4).integral(p, window).some.dtype == torch.float32
    assert Categorical(4).values(p, column([0], [1])).some.dtype == torch.float32


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_gradients_are_exact(rows):
    logits = random_logits(2, 1, 3).requires_grad_()
    other = random_logits(2, 2, 3, seed=1).requires_grad_()
    family = Categorical(3)
    x = column([0, 2], [1, 1])
    upper = torch.arange(2.0 * rows).double().reshape(2, rows) % 3
    window = Window(upper=upper, power=1) if rows else EVERYWHERE
    assert gradcheck(lambda t: family.values({"logits": t}, x).some, [logits])
    assert gradcheck(lambda t: family.integral({"logits": t}, window).value(), [logits])
    pair = lambda t, s: family.gram({"logits": t}, {"logits": s}, window).value()  # noqa: E731
    assert gradcheck(pair, [logits, other])


def test_units_overlap_where_both_are_possible():
    never = -math.inf
    logits = torch.tensor([[[0.0, never, never], [never, 1.0, never], [never, 0.0, -900.0]]])
    expected = torch.tensor([[1, 0, 0], [0, 1, 1], [0, 1, 1]]).bool()
    assert torch.equal(Categorical(3).overlap({"logits": logits})[0], expected)


def test_the_start_is_a_flat_dirichlet_draw_and_repeats_with_the_seed():
    family = Categorical(3)
    start = family.init(4000, torch.Generator().manual_seed(5))["logits"]
    again = family.init(4000, torch.Generator().manual_seed(5))["logits"]
    assert start.shape == (4000, 3)
    assert start.dtype == torch.float64
    assert torch.equal(start, again)
    table = start.softmax(-1)
    # Each entry then has mean 1/3 and variance 1/18; the bounds are 5 standard errors.
    assert (table.mean(0) - 1 / 3).abs().max() < 5 * math.sqrt(1 / 18 / 4000)
    assert (table.var(0) - 1 / 18).abs().max() < 0.006


def test_facts_of_the_family():
    family = Categorical(4)
    assert family.num_states == 4
    assert family.is_non_negative
    assert family.constants(3) == {}
    assert family.fold_key == Categorical(4).fold_key != Categorical(5).fold_key


def test_one_state_is_a_constant_column():
    p = {"logits": random_logits(1, 2, 1)}
    family = Categorical(1)
    assert torch.equal(family.values(p, column([0, 0])).value(), torch.ones(1, 2, 2).double())
    gram = family.gram(p, p, EVERYWHERE).value()
    assert torch.equal(gram, torch.ones(1, 1, 2, 2).double())


def test_a_number_of_states_that_is_none_is_refused():
    with pytest.raises(ValueError, match="num_states must be a whole number of at least 1, got 0"):
        Categorical(0)


def test_values_that_are_no_states_are_refused():
    with pytest.raises(ValueError, match=r"variable 7 must hold whole numbers in 0..2, got 3\. "):
        Categorical(3).check(torch.tensor([0.0, 3.0]), 7)
