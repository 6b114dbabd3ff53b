"""Which candidates the defaults try, and for how long."""

from __future__ import annotations

import pytest
import torch

import subtractive as sub
from subtractive.tables.model_selection import Recipe
from subtractive.tables.training_rows import Rows

SETTINGS = {
    "kind": "squared",
    "structure": "auto",
    "num_components": None,
    "num_squares": None,
    "num_structures": 1,
    "covariance": "full",
    "max_epochs": 100,
    "validation_fraction": 0.1,
    "progress": False,
}


def rows_of(count, num_columns):
    return Rows(torch.zeros(count, num_columns, dtype=torch.float64), torch.ones(count))


def names(rows, **settings):
    """Where the candidates of a recipe start from, and of which size."""
    recipe = Recipe(**(SETTINGS | settings))
    candidates = recipe._candidates(rows, [sub.Gaussian()] * rows.x.shape[1])
    return [(start.func.__name__, *start.args[1:]) for start, *_ in candidates]


def sizes(rows, **settings):
    return [(name, *size) for name, *size in names(rows, **settings) if name != "_from_data"]


@pytest.mark.parametrize(
    ("num_columns", "expected"), [(4, [12, 12, 12]), (40, [12, 12, 4]), (1000, [4])]
)
def test_mixtures_of_many_components_times_columns_train_for_fewer_epochs(num_columns, expected):
    recipe = Recipe(**(SETTINGS | {"structure": "flat"}))
    rows = rows_of(9000, num_columns)
    candidates = recipe._candidates(rows, [sub.Gaussian()] * num_columns)
    assert [candidate.num_epochs for candidate in candidates] == expected


def test_what_is_left_open_is_tried_as_a_tree_and_in_frames():
    rows = rows_of(9000, 10)
    assert [name for name, *_ in names(rows)] == ["_from_data", "_from_frames", "_from_frames"]
    assert sizes(rows) == [("_from_frames", 8), ("_from_frames", 32)]


@pytest.mark.parametrize(("count", "expected"), [(1279, [8]), (1280, [8, 32]), (100, [2])])
def test_few_rows_pay_for_few_frames(count, expected):
    assert sizes(rows_of(count, 10)) == [("_from_frames", size) for size in expected]


def test_what_is_said_or_missing_is_left_to_components():
    rows = rows_of(9000, 10)
    assert sizes(rows, num_components=5) == [("_from_em", 5)]
    assert sizes(rows, structure="binary") == []
    rows.x[0, 0] = torch.nan
    assert sizes(rows) == [("_from_em", size) for size in (4, 16, 64)]


@pytest.mark.parametrize("kind", ["squared", "monotonic"])
def test_frames_are_of_the_kind_that_was_asked_for(kind):
    generator = torch.Generator().manual_seed(0)
    rows = Rows(torch.randn(200, 3, generator=generator).double(), torch.ones(200).double())
    density = Recipe(**(SETTINGS | {"kind": kind}))._from_frames(rows, 2, 0)
    wanted = sub.SquaredCircuit if kind == "squared" else sub.MonotonicCircuit
    assert all(isinstance(member, wanted) for member in density.members)
