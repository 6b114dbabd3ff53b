"""Which candidates the defaults try, and for how long."""

from __future__ import annotations

import pytest
import torch

import subtractive as sub
from subtractive.tables.recipe import Recipe
from subtractive.tables.rows import Rows


@pytest.mark.parametrize(
    ("num_columns", "expected"), [(4, [12, 12, 12]), (40, [12, 12, 4]), (1000, [4])]
)
def test_mixtures_of_many_components_times_columns_train_for_fewer_epochs(num_columns, expected):
    recipe = Recipe(
        kind="squared",
        structure="flat",
        num_components=None,
        num_squares=None,
        num_structures=1,
        covariance="full",
        max_epochs=100,
        validation_fraction=0.1,
        progress=False,
    )
    rows = Rows(torch.zeros(9000, num_columns, dtype=torch.float64), torch.ones(9000))
    candidates = recipe._candidates(rows, [sub.Gaussian()] * num_columns)
    assert [candidate.num_epochs for candidate in candidates] == expected
