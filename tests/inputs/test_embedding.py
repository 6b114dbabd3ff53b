import dataclasses

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

from subtractive.inputs.base import EVERYWHERE, Window
from subtractive.inputs.embedding import Embedding

CLOSE = {"rtol": 1e-13, "atol": 1e-14}


def random_table(regions, units, states, seed=0):
    """Entries of both signs, some of them exactly zero."""
    generator = torch.Generator().manual_seed(seed)
    table = torch.randn(regions, units, states, generator=generator, dtype=torch.float64)
    return table * (torch.rand(table.shape, generator=generator) > 0.3)


def column(*states):
    return torch.from_numpy(np.array(states, dtype=float))[..., None]  # (f, n, 1)


def brute_force(table, other, keep):
    """Σ over the kept states of T_i S_j, state by state, keep being (f, m, v) of numbers."""
    total = torch.zeros(len(table), keep.shape[1], table.shape[1], other.shape[1]).double()
    for f in range(len(table)):
        for m in range(keep.shape[1]):
            for v in range(table.shape[2]):
                outer = np.outer(table[f, :, v], other[f, :, v])
                total[f, m] += float(keep[f, m, v]) * torch.from_numpy(outer)
    return total


def test_values_are_the_columns_of_the_table():
    table = random_table(2, 3, 4)
    x = column([0, 3, 3], [2, 1, 0])
    mantissa, exponent = Embedding(4).values({"table": table}, x)
    assert exponent is None
    for f in range(2):
        for n in range(3):
            expected = table[f, :, int(x[f, n, 0])]
            torch.testing.assert_close(mantissa[f, n], expected, rtol=0, atol=0)


def test_values_of_a_large_vocabulary_need_no_copy_of_the_table():
    states = 50_257
    table = torch.rand(1, 8, states, requires_grad=True)
    x = torch.randint(states, (1, 16, 1), generator=torch.Generator().manual_seed(0)).float()
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        values = Embedding(states).values({"table": table}, x).value()
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in saved}
    storages.pop(table.untyped_storage().data_ptr(), None)
    assert values.shape == (1, 16, 8)
    assert sum(storages.values()) <= 16 * 8 * 8


@pytest.mark.parametrize("power", [0, 1, 2])
def test_integrals_over_everything_are_sums_over_the_states(power):
    table = random_table(2, 3, 5)
    integral = Embedding(5).integral({"table": table}, Window(power=power)).value()
    expected = (table.numpy() * np.arange(5.0) ** power).sum(-1)[:, None]
    torch.testing.assert_close(integral, torch.from_numpy(expected), **CLOSE)


@pytest.mark.parametrize("power", [0, 1, 2])
def test_cross_grams_over_everything_are_sums_over_the_states(power):
    p, q = {"table": random_table(2, 3, 5)}, {"table": random_table(2, 4, 5, seed=1)}
    gram = Embedding(5).gram(p, q, Window(power=power)).value()
    keep = (torch.arange(5.0).double() ** power).expand(2, 1, 5)
    torch.testing.assert_close(gram, brute_force(p["table"], q["table"], keep), **CLOSE)


@pytest.mark.parametrize("rows", [1, 2, 3, 7])
@pytest.mark.parametrize("power", [0, 2])
def test_windows_per_row_sum_over_their_own_states(rows, power):
    p, q = {"table": random_table(2, 3, 6)}, {"table": random_table(2, 3, 6, seed=1)}
    generator = torch.Generator().manual_seed(2)
    lower = torch.rand(2, rows, generator=generator, dtype=torch.float64) * 4 - 1
    upper = lower + torch.randint(4, (2, rows), generator=generator)
    states = torch.arange(6.0).double()
    inside = (states > lower[..., None]) & (states <= upper[..., None])
    keep = inside * states**power
    window = Window(lower, upper, power)
    gram = Embedding(6).gram(p, q, window).value()
    torch.testing.assert_close(gram, brute_force(p["table"], q["table"], keep), **CLOSE)
    integral = Embedding(6).integral(p, window).value()
    ones = torch.ones(2, 1, 6).double()
    expected = brute_force(p["table"], ones, keep)[..., 0]
    torch.testing.assert_close(integral, expected, **CLOSE)


def test_a_lower_bound_on_a_state_excludes_it_and_an_upper_bound_includes_it():
    p = {"table": torch.tensor([[[1.0, 10.0, 100.0]]]).double()}
    window = Window(lower=column([0])[..., 0], upper=column([2])[..., 0])
    assert Embedding(3).integral(p, window).value().item() == 110.0


def test_states_can_be_picked_one_by_one():
    p = {"table": random_table(1, 3, 4)}
    picked = torch.tensor([[[True, False, True, False], [False, False, False, True]]])
    gram = Embedding(4).gram(p, p, Window(states=picked)).value()
    torch.testing.assert_close(gram, brute_force(p["table"], p["table"], picked), **CLOSE)


def test_results_keep_the_precision_of_the_parameters_but_grams_are_wide():
    p = {"table": random_table(2, 3, 4).float()}
    bound = torch.ones(2, 5, dtype=torch.float64)
    picked = torch.ones(2, 5, 4, dtype=torch.float64)
    for window in (EVERYWHERE, Window(lower=bound), Window(states=picked)):
        assert Embedding(4).gram(p, p, window).some.dtype == torch.float64
        assert Embedding(4).integral(p, window).some.dtype == torch.float32
    assert Embedding(4).values(p, column([0], [1])).some.dtype == torch.float32


@pytest.mark.parametrize("states", [1, 7, 5000])
def test_the_gram_of_a_narrow_table_is_that_of_a_wide_one_and_so_is_its_gradient(states):
    narrow = random_table(2, 3, states).float().requires_grad_()
    wide = narrow.detach().double().requires_grad_()
    cotangent = random_table(2, 3, 3, seed=1)[:, None]
    found = Embedding(states).gram(p := {"table": narrow}, p, EVERYWHERE).some
    expected = torch.einsum("fiv,fjv->fij", wide, wide)[:, None]
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    (found * cotangent).sum().backward()
    (expected * cotangent).sum().backward()
    torch.testing.assert_close(narrow.grad.double(), wide.grad, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_gradients_are_exact_also_at_entries_that_are_zero(rows):
    table, other = random_table(2, 2, 4).requires_grad_(), random_table(2, 3, 4, seed=1)
    assert (table == 0).any()
    other.requires_grad_()
    family = Embedding(4)
    x = column([0, 3, 3], [2, 2, 1])
    upper = torch.arange(2.0 * rows).double().reshape(2, rows) % 4
    window = Window(upper=upper, power=1) if rows else EVERYWHERE
    assert gradcheck(lambda t: family.values({"table": t}, x).value(), [table])
    assert gradcheck(lambda t: family.integral({"table": t}, window).value(), [table])
    pair = lambda t, s: family.gram({"table": t}, {"table": s}, window).value()  # noqa: E731
    assert gradcheck(pair, [table, other])


def test_units_overlap_where_both_are_not_zero():
    table = torch.tensor([[[1.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, 2.0, 3.0], [0.0, 0.0, 0.0]]])
    expected = torch.tensor([[1, 0, 0, 0], [0, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 0]]).bool()
    assert torch.equal(Embedding(3).overlap({"table": table})[0], expected)


def test_the_start_is_uniform_and_repeats_with_the_seed():
    family = Embedding(1000)
    start = family.init(3, torch.Generator().manual_seed(5))["table"]
    again = family.init(3, torch.Generator().manual_seed(5))["table"]
    assert start.shape == (3, 1000)
    assert start.dtype == torch.float64
    assert torch.equal(start, again)
    assert start.min() >= 0
    assert start.max() < 1
    assert abs(start.mean() - 0.5) < 0.03  # five standard errors


def test_facts_of_the_family():
    family = Embedding(4)
    assert family.num_states == 4
    assert not family.is_non_negative
    assert family.constants(3) == {}
    assert family == Embedding(np.int64(4))
    assert family.fold_key == Embedding(4).fold_key != Embedding(5).fold_key
    with pytest.raises(dataclasses.FrozenInstanceError):
        family.num_states = 5


def test_one_state_is_a_constant_column():
    p = {"table": torch.tensor([[[2.0], [-3.0]]]).double()}
    gram = Embedding(1).gram(p, p, EVERYWHERE).value()
    expected = torch.tensor([[[[4.0, -6.0], [-6.0, 9.0]]]]).double()
    torch.testing.assert_close(gram, expected, rtol=0, atol=0)


@pytest.mark.parametrize("value", [0, -1, 2.5, "two", None])
def test_a_number_of_states_that_is_none_is_refused(value):
    with pytest.raises(ValueError, match=r"num_states must be a whole number of at least 1, got"):
        Embedding(value)


@pytest.mark.parametrize(("value", "shown"), [(3.0, "3"), (-1.0, "-1"), (0.5, "0.5")])
def test_values_that_are_no_states_are_refused(value, shown):
    message = (
        rf"variable 7 must hold whole numbers in 0..2, got {shown}\. Number its states from 0"
    )
    with pytest.raises(ValueError, match=message):
        Embedding(3).check(torch.tensor([0.0, 2.0, value]), 7)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_values_that_are_not_finite_are_refused(value):
    with pytest.raises(ValueError, match=r"variable 0 must hold whole numbers in 0..2, got"):
        Embedding(3).check(torch.tensor([value]), 0)


def test_states_are_accepted_as_floats_and_as_integers():
    Embedding(3).check(torch.tensor([0.0, 1.0, 2.0]), 0)
    Embedding(3).check(torch.tensor([0, 1, 2]), 0)


def test_regions_of_several_variables_are_refused():
    with pytest.raises(ValueError, match="Embedding takes input regions of one variable"):
        Embedding(3).check_scope(2)
