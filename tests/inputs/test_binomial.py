import math

import mpmath
import numpy as np
import pytest
import torch
from scipy import special, stats
from torch.autograd import gradcheck

from subtractive.inputs.base import EVERYWHERE, Window
from subtractive.inputs.binomial import Binomial, chunk_width, log_table_gram

CLOSE = {"rtol": 1e-12, "atol": 1e-12}


def random_logits(regions, units, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(regions, units, generator=generator, dtype=torch.float64) * 2


def column(*states):
    return torch.from_numpy(np.array(states, dtype=float))[..., None]  # (f, n, 1)


def tables(p, total):
    """All probabilities, (f, i, v), from scipy."""
    probability = special.expit(p["logit"].numpy())[..., None]
    return stats.binom.pmf(np.arange(total + 1), total, probability)


def brute_force(table, other, keep):
    """Σ over the kept states of T_i S_j, state by state, keep being (f, m, v) of numbers."""
    regions, rows, states = keep.shape
    total = np.zeros((regions, rows, table.shape[1], other.shape[1]))
    for f in range(regions):
        for m in range(rows):
            for v in range(states):
                total[f, m] += keep[f, m, v] * np.outer(table[f, :, v], other[f, :, v])
    return torch.from_numpy(total)


def exact_log_gram(logits, others, total, states, power=0):
    """log Σ_v v^power f_i(v) g_j(v) over the given states, with 60 digits."""
    with mpmath.workdps(60):
        odds = [mpmath.exp(mpmath.mpf(t)) for t in logits]
        other_odds = [mpmath.exp(mpmath.mpf(t)) for t in others]
        ways = {v: mpmath.mpf(math.comb(total, v)) ** 2 * v**power for v in states}

        def entry(a, b):
            series = mpmath.fsum(way * (a * b) ** v for v, way in ways.items())
            return float(mpmath.log(series) - total * mpmath.log((1 + a) * (1 + b)))

        rows = [[entry(a, b) for b in other_odds] for a in odds]
        return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize("total", [0, 1, 7, 3000])
def test_values_agree_with_scipy(total):
    p = {"logit": random_logits(2, 3)}
    states = np.unique(np.linspace(0, total, 20).astype(int))
    mantissa, exponent = Binomial(total).values(p, column(states, states))
    assert mantissa is None
    probability = special.expit(p["logit"].numpy())[:, None, :]
    expected = stats.binom.logpmf(states[None, :, None], total, probability)
    torch.testing.assert_close(exponent, torch.from_numpy(expected), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("total", [1, 255, 4000])
def test_values_over_all_states_sum_to_one(total):
    p = {"logit": random_logits(1, 5)}
    log_sum = Binomial(total).values(p, column(range(total + 1))).some.logsumexp(1)
    torch.testing.assert_close(log_sum, torch.zeros(1, 5).double(), rtol=0, atol=1e-11)
    whole = Binomial(total).integral(p, EVERYWHERE).some
    torch.testing.assert_close(whole, torch.zeros(1, 1, 5).double(), rtol=0, atol=1e-11)


@pytest.mark.parametrize("power", [0, 1, 2])
def test_cross_grams_over_everything_are_sums_over_the_states(power):
    p, q = {"logit": random_logits(2, 3)}, {"logit": random_logits(2, 4, seed=1)}
    keep = np.broadcast_to(np.arange(8.0) ** power, (2, 1, 8))
    gram = Binomial(7).gram(p, q, Window(power=power)).value()
    torch.testing.assert_close(gram, brute_force(tables(p, 7), tables(q, 7), keep), **CLOSE)
    mean = Binomial(7).integral(p, Window(power=1)).value()[:, 0]
    torch.testing.assert_close(mean, 7 * p["logit"].sigmoid(), **CLOSE)


@pytest.mark.parametrize("rows", [1, 3, 7])
@pytest.mark.parametrize("power", [0, 2])
def test_windows_per_row_sum_over_their_own_states(rows, power):
    p, q = {"logit": random_logits(2, 3)}, {"logit": random_logits(2, 4, seed=1)}
    generator = torch.Generator().manual_seed(2)
    lower = torch.rand(2, rows, generator=generator, dtype=torch.float64) * 4 - 1
    upper = lower + torch.randint(4, (2, rows), generator=generator)
    states = torch.arange(6.0).double()
    inside = (states > lower[..., None]) & (states <= upper[..., None])
    keep = (inside * states**power).numpy()
    window = Window(lower, upper, power)
    gram = Binomial(5).gram(p, q, window).value()
    torch.testing.assert_close(gram, brute_force(tables(p, 5), tables(q, 5), keep), **CLOSE)
    integral = Binomial(5).integral(p, window).value()
    expected = brute_force(tables(p, 5), np.ones((2, 1, 6)), keep)[..., 0]
    torch.testing.assert_close(integral, expected, **CLOSE)


def test_states_can_be_picked_one_by_one():
    p = {"logit": random_logits(1, 3)}
    picked = torch.tensor([[[True, False, True, False], [False, False, False, True]]])
    gram = Binomial(3).gram(p, p, Window(states=picked)).value()
    expected = brute_force(tables(p, 3), tables(p, 3), picked.numpy())
    torch.testing.assert_close(gram, expected, **CLOSE)


def test_grams_of_units_far_apart_do_not_underflow():
    logits, others = [-8.0, -0.5, 0.0, 6.0], [-30.0, 3.0, 40.0]
    p, q = {"logit": torch.tensor([logits]).double()}, {"logit": torch.tensor([others]).double()}
    gram = Binomial(600).gram(p, q, EVERYWHERE).some
    expected = exact_log_gram(logits, others, 600, range(601))
    assert expected.min() < -4_000
    torch.testing.assert_close(gram[0, 0], expected, rtol=1e-13, atol=1e-10)


@pytest.mark.parametrize("power", [0, 1])
def test_windows_in_the_tails_do_not_underflow(power):
    logits, total = [-3.0, 0.0, 2.0], 2000
    p = {"logit": torch.tensor([logits]).double()}
    lower = torch.tensor([[1949.0, 1899.0]]).double()
    window = Window(lower=lower, upper=lower + 50, power=power)
    gram = Binomial(total).gram(p, p, window).some[0]
    for row, first in enumerate([1950, 1900]):
        expected = exact_log_gram(logits, logits, total, range(first, first + 50), power)
        torch.testing.assert_close(gram[row], expected, rtol=1e-13, atol=1e-9)
    tail = Binomial(total).integral({"logit": p["logit"][:, 1:2]}, Window(lower=lower)).some
    ways = [sum(math.comb(total, v) for v in range(first, total + 1)) for first in (1950, 1900)]
    expected = [math.log(way) - total * math.log(2) for way in ways]
    expected = torch.tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(tail[0, :, 0], expected, rtol=1e-13, atol=1e-9)


def test_the_width_of_chunks_does_not_matter():
    logit = random_logits(2, 3)
    family = Binomial(40)
    table = family.values({"logit": logit}, column(range(41), range(41))).some.mT
    weights = (torch.arange(41.0).double() > 20).double().expand(2, 1, 41)
    whole = log_table_gram(table, table, weights, 41)
    for width in (1, 7, 40):
        torch.testing.assert_close(log_table_gram(table, table, weights, width), whole, **CLOSE)
    assert chunk_width(torch.tensor([[-100.0]]), torch.tensor([[1e6]])) == 1


@pytest.mark.parametrize("total", [255, 3000])
def test_single_precision_parameters_lose_no_digits_on_the_way(total):
    logit = random_logits(1, 4).float()
    states = column(np.linspace(0, total, 9).round())
    double, single = {"logit": logit.double()}, {"logit": logit}
    family = Binomial(total)
    pairs = [
        (family.values(single, states.float()).some, family.values(double, states).some),
        (
            family.gram(single, single, EVERYWHERE).some,
            family.gram(double, double, EVERYWHERE).some,
        ),
    ]
    for low, high in pairs:
        assert low.dtype == torch.float32
        torch.testing.assert_close(low, high.float(), rtol=2e-7, atol=0)


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_gradients_are_exact(rows):
    logit, other = random_logits(2, 2).requires_grad_(), random_logits(2, 3, 1).requires_grad_()
    family = Binomial(6)
    x = column([0, 6, 3], [2, 2, 5])
    upper = torch.arange(2.0 * rows).double().reshape(2, rows) % 7
    window = Window(upper=upper, power=1) if rows else EVERYWHERE
    assert gradcheck(lambda t: family.values({"logit": t}, x).some, [logit])
    assert gradcheck(lambda t: family.integral({"logit": t}, window).value(), [logit])
    pair = lambda t, s: family.gram({"logit": t}, {"logit": s}, window).value()  # noqa: E731
    assert gradcheck(pair, [logit, other])


def test_gradients_are_exact_across_chunks():
    logit = torch.tensor([[-9.0, 0.0, 9.0]]).double().requires_grad_()
    assert chunk_width(logit, logit) < 100
    gram = lambda t: Binomial(100).gram({"logit": t}, {"logit": t}, EVERYWHERE).some  # noqa: E731
    assert gradcheck(gram, [logit])


def test_extreme_logits_and_empty_windows_give_no_nan():
    logit = torch.tensor([[-1e6, -800.0, 0.0, 800.0, 1e6]]).double().requires_grad_()
    family, p = Binomial(9), {"logit": logit}
    empty = Window(lower=torch.full((1, 1), 20.0).double())
    values = family.values(p, column([0, 4, 9])).some
    gram = family.gram(p, p, EVERYWHERE).some
    assert values.isfinite().all()
    assert gram.isfinite().all()
    assert torch.equal(family.integral(p, empty).value(), torch.zeros(1, 1, 5).double())
    assert torch.equal(family.gram(p, p, empty).value(), torch.zeros(1, 1, 5, 5).double())
    vanished = family.integral(p, empty).value().sum() + family.gram(p, p, empty).value().sum()
    (values.sum() + gram.sum() + vanished).backward()
    assert logit.grad.isfinite().all()


def test_all_units_overlap():
    assert torch.equal(
        Binomial(3).overlap({"logit": random_logits(2, 3)}), torch.ones(2, 3, 3).bool()
    )


def test_the_start_has_uniform_probabilities_and_repeats_with_the_seed():
    start = Binomial(3).init(4000, torch.Generator().manual_seed(5))["logit"]
    again = Binomial(3).init(4000, torch.Generator().manual_seed(5))["logit"]
    assert start.shape == (4000,)
    assert start.dtype == torch.float64
    assert torch.equal(start, again)
    assert stats.kstest(start.sigmoid().numpy(), "uniform").pvalue > 1e-3  # the false-alarm rate


def test_facts_of_the_family():
    family = Binomial(4)
    assert family.num_states == 5
    assert family.is_non_negative
    assert family.constants(3) == {}
    assert family.fold_key == Binomial(4).fold_key != Binomial(5).fold_key


def test_a_total_that_is_no_count_is_refused():
    with pytest.raises(ValueError, match="total must be a whole number of at least 0, got -1"):
        Binomial(-1)


def test_values_beyond_the_total_are_refused():
    with pytest.raises(ValueError, match=r"variable 2 must hold whole numbers in 0..4, got 5\. "):
        Binomial(4).check(torch.tensor([0.0, 5.0]), 2)
