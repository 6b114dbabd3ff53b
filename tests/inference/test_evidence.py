"""Evidence: what is known row by row, and the box over which the rest is integrated."""

import math

import numpy as np
import pytest
import torch
from oracles import all_states, gauss_legendre, grid
from registry import NUM_STATES, build, points

import subtractive as sub
from subtractive.inference.evidence import (
    Evidence,
    as_mask,
    as_table,
    check_variables,
    given_row,
    make_evidence,
)
from subtractive.inference.marginal import log_integral, log_square_integral

CPU = torch.device("cpu")
FAMILIES = (sub.Gaussian(), sub.Categorical(3))
NAN, INF = math.nan, math.inf


def test_evidence_is_what_is_marked_and_not_missing():
    x = torch.tensor([[1.5, 2.0], [NAN, 1.0], [0.5, NAN]])
    evidence = make_evidence(x, torch.tensor([True, False]), FAMILIES, CPU)
    assert evidence.observed.tolist() == [[True, False], [False, False], [True, False]]
    assert evidence.x.tolist() == [[1.5, 0.0], [0.0, 0.0], [0.5, 0.0]]
    assert len(evidence) == 3
    evidence = make_evidence(x, None, FAMILIES, CPU)
    assert evidence.observed.tolist() == [[True, True], [False, True], [True, False]]


def test_the_table_of_the_caller_is_left_alone():
    x = torch.tensor([[1.5, NAN], [NAN, 1.0]])
    before = x.clone()
    evidence = make_evidence(x, None, FAMILIES, CPU)
    evidence.x.zero_()
    assert torch.equal(x.nan_to_num(7.0), before.nan_to_num(7.0))
    array = np.array([[1.5, 2.0]])
    make_evidence(array, None, FAMILIES, CPU).x.zero_()
    assert array.tolist() == [[1.5, 2.0]]


def test_values_that_do_not_count_are_not_checked():
    x = torch.tensor([[INF, 1.0], [0.0, 7.0]])
    observed = torch.tensor([[False, True], [True, False]])
    evidence = make_evidence(x, observed, FAMILIES, CPU)
    assert evidence.x.tolist() == [[0.0, 1.0], [0.0, 0.0]]
    with pytest.raises(ValueError, match=r"variable 1 must hold whole numbers in 0\.\.2, got 7"):
        make_evidence(x, ~observed & torch.tensor([False, True]), FAMILIES, CPU)


@pytest.mark.parametrize(
    ("x", "dtype"),
    [
        (torch.zeros(1, 2, dtype=torch.float16), torch.float16),
        (torch.zeros(1, 2), torch.float32),
        (torch.zeros(1, 2, dtype=torch.int32), torch.float64),
        (torch.zeros(1, 2, dtype=torch.bool), torch.float64),
        (np.zeros((1, 2), np.float32), torch.float64),
        (np.zeros((1, 2), np.uint64), torch.float64),
        ([[0, 1]], torch.float64),
        ([[0.1, 1]], torch.float64),
        ([[True, False]], torch.float64),
    ],
)
def test_tables_are_real_and_floating(x, dtype):
    assert as_table(x, 2, CPU).dtype == dtype


def test_a_mask_over_variables_holds_for_every_row():
    like = torch.zeros(3, 2)
    assert as_mask([True, False], "observed", like).tolist() == [[True, False]] * 3
    rows = [[True, False], [False, False], [True, True]]
    assert as_mask(rows, "observed", like).tolist() == rows
    assert as_mask(np.zeros((0, 2), bool), "observed", like[:0]).shape == (0, 2)


def test_variables_become_plain_integers():
    for given in (
        [2, 0],
        (2, 0),
        np.array([2, 0]),
        torch.tensor([2, 0]),
        [np.int8(2), np.uint(0)],
    ):
        numbers = check_variables(given, 3)
        assert numbers == (2, 0)
        assert all(type(number) is int for number in numbers)
    assert check_variables([], 3) == ()


def test_given_values_become_a_row():
    row = given_row({2: 1, np.int64(0): torch.tensor(0.5)}, 4)
    assert row.dtype == torch.float64
    assert row.isnan().tolist() == [[False, True, False, True]]
    assert row[0, [0, 2]].tolist() == [0.5, 1.0]


def test_rows_pick_values_masks_and_bounds():
    x = torch.arange(6.0).reshape(3, 2)
    bounds = torch.arange(6.0).reshape(3, 2) + 10
    evidence = Evidence(x, x > 2, bounds[:1], bounds)
    picked = evidence.rows(torch.tensor([2, 0]))
    assert picked.x.tolist() == [[4.0, 5.0], [0.0, 1.0]]
    assert picked.observed.tolist() == [[True, True], [False, False]]
    assert picked.lower.tolist() == [[10.0, 11.0]]  # one bound for all rows stays one
    assert picked.upper.tolist() == [[14.0, 15.0], [10.0, 11.0]]


def test_windows_are_the_bounds_of_the_regions_variables():
    x = torch.zeros(2, 3)
    lower = torch.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])
    window = Evidence(x, x > 0, lower, None).window(torch.tensor([[2], [0]]))
    assert window.lower.tolist() == [[2.0, 5.0], [0.0, 3.0]]  # (f, m)
    assert window.upper is None


def boxed(x, observed, lower, upper):
    return Evidence(x, observed, lower, upper)


@pytest.mark.parametrize("layer", ["hadamard", "kronecker"])
@pytest.mark.parametrize("family", ["categorical", "embedding", "binomial"])
@torch.no_grad()
def test_a_box_per_row_is_the_sum_of_the_states_in_it(family, layer):
    circuit = build("nested", family, layer=layer, outputs=2)
    generator = torch.Generator().manual_seed(0)
    x = points(family, 12, 4)
    observed = torch.rand(12, 4, generator=generator) < 0.4
    lower = torch.randint(-1, 2, (12, 4), generator=generator).double() - 0.5
    upper = lower + torch.randint(1, 3, (12, 4), generator=generator)
    evidence = boxed(torch.where(observed, x, 0.0), observed, lower, upper)
    result = log_square_integral(circuit, evidence).exp()
    states = all_states([NUM_STATES] * 4)
    squares = circuit(states).abs().square().sum(1)
    for k in range(12):
        inside = (states > lower[k]) & (states <= upper[k])
        counts = torch.where(observed[k], states == x[k], inside).all(1)
        torch.testing.assert_close(result[k], squares[counts].sum(), rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("weights", ["real", "positive", "complex"])
@torch.no_grad()
def test_a_box_of_real_numbers_is_an_integral_over_it(weights):
    circuit = build("binary", "gaussian", weights=weights, d=2)
    lower = torch.tensor([[-1.0, 0.25]], dtype=torch.float64)
    upper = torch.tensor([[0.5, INF]], dtype=torch.float64)
    nothing = torch.zeros(1, 2, dtype=torch.float64)
    points, w = grid([gauss_legendre(-1.0, 0.5, 24), gauss_legendre(0.25, 9.0, 48)])
    evidence = boxed(nothing, nothing > 0, lower, upper)
    squares = (circuit(points).abs().square().sum(1) * w).sum()
    torch.testing.assert_close(
        log_square_integral(circuit, evidence)[0], squares.log(), rtol=0, atol=1e-7
    )
    if weights == "positive":
        plain = (circuit(points).sum(1) * w).sum()
        torch.testing.assert_close(
            log_integral(circuit, evidence)[0], plain.log(), rtol=0, atol=1e-7
        )


@torch.no_grad()
def test_a_box_does_not_touch_what_is_observed():
    circuit = build("linear", "gaussian")
    x = points("gaussian", 3, 4)
    everything = torch.ones(3, 4, dtype=torch.bool)
    bounds = torch.full((1, 4), 100.0, dtype=torch.float64)
    torch.testing.assert_close(
        log_square_integral(circuit, boxed(x, everything, bounds, bounds + 1)),
        log_square_integral(circuit, Evidence(x, everything)),
        rtol=0,
        atol=0,
    )


@torch.no_grad()
def test_boxes_follow_the_variables_of_a_restriction():
    p = sub.SquaredCircuit(build("binary", "embedding"))
    restricted = p.condition({1: 2}).marginal([2, 0])  # variables 3 and 0 of p
    nothing = torch.zeros(1, 2, dtype=torch.float64)
    lower = torch.tensor([[0.5, -INF]], dtype=torch.float64)
    upper = torch.tensor([[INF, 1.5]], dtype=torch.float64)
    inside = restricted.log_weight(boxed(nothing, nothing > 0, lower, upper))
    share = (inside - restricted.log_partition()).exp()[0]
    states = all_states([NUM_STATES] * 2)
    counts = (states > lower).all(1) & (states <= upper).all(1)
    expected = restricted.log_prob(states).exp()[counts].sum()
    torch.testing.assert_close(share, expected, rtol=0, atol=1e-12)


def test_boxes_inside_multivariate_regions_are_refused():
    circuit = sub.Circuit(sub.flat([[0, 1], [2]]), sub.MultivariateGaussian(), num_units=2)
    nothing = torch.zeros(1, 3)
    bounds = torch.tensor([[0.0, -INF, -INF]])
    with pytest.raises(ValueError, match="no closed form"):
        log_square_integral(circuit, boxed(nothing, nothing > 0, bounds, None))
    alone = torch.tensor([[-INF, -INF, 0.0]])
    assert log_square_integral(circuit, boxed(nothing, nothing > 0, alone, None)).isfinite().all()


def test_what_is_masked_is_missing():
    masked = np.ma.MaskedArray([[5, 1], [2, 3]], mask=[[True, False], [False, False]])
    evidence = make_evidence(masked, None, [sub.Gaussian()] * 2, torch.device("cpu"))
    assert evidence.observed.tolist() == [[False, True], [True, True]]
