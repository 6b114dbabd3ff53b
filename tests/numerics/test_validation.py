"""What the checks let through, and what they say about the rest."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from subtractive.numerics.validation import check_finite, check_states, check_weights, whole_number


@pytest.mark.parametrize("value", [3, np.int64(3), torch.tensor(3), True + 2])
def test_whole_numbers_become_ints(value):
    assert whole_number("count", value, 1) == 3
    assert type(whole_number("count", value, 1)) is int


@pytest.mark.parametrize("value", [0, -1, 2.5, "3", None, math.nan])
def test_what_is_no_whole_number_of_some_size_is_refused(value):
    with pytest.raises(ValueError, match="count must be a whole number of at least 1, got"):
        whole_number("count", value, 1)


@pytest.mark.parametrize("value", [-1.0, 0.5, 3.0, math.inf])
def test_values_that_are_no_states_are_refused(value):
    check_states(torch.tensor([0.0, 2.0]), 4, 3)
    with pytest.raises(ValueError, match=r"variable 4 must hold whole numbers in 0\.\.2, got"):
        check_states(torch.tensor([1.0, value]), 4, 3)


def test_infinite_values_are_refused():
    check_finite(torch.tensor([0.0, -1e300], dtype=torch.float64), 2)
    with pytest.raises(ValueError, match="variable 2 is continuous and needs finite values"):
        check_finite(torch.tensor([0.0, -math.inf]), 2)


@pytest.mark.parametrize(
    "weights",
    [
        [1, 0, 2.5],
        np.array([1, 0, 2.5])[::1],
        torch.tensor([1, 0, 2.5]),
        pd.Series([1, 0, 2.5], index=[7, 5, 3]),
    ],
    ids=["list", "array", "tensor", "series"],
)
def test_weights_come_in_any_container(weights):
    found = check_weights(weights, 3)
    assert found.dtype == torch.float64
    assert found.tolist() == [1.0, 0.0, 2.5]


def test_no_weights_are_ones_and_one_weight_is_that_of_all_rows():
    assert check_weights(None, 2).tolist() == [1.0, 1.0]
    assert check_weights(0.5, 2).tolist() == [0.5, 0.5]


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (["a", "b"], "shares must be numbers, one per row, got list"),
        ([1.0], r"expected shape \(2,\), got \(1,\)"),
        ([[1.0], [1.0]], r"expected shape \(2,\), got \(2, 1\)"),
        ([1.0, -1.0], "shares must be finite and not negative"),
        ([1.0, math.nan], "shares must be finite and not negative"),
    ],
)
def test_other_weights_are_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        check_weights(weights, 2, "shares")
